"""The worlds that a policy learns in, as settings."""

from __future__ import annotations

from pydantic import Field

from tradewind.plugins import Settings
from tradewind.workflow.simulator.world import World


class WorldSettings(Settings):
    """How run times and machines may deviate while a policy learns; without any, they do not."""

    noise: float = Field(0.0, ge=0, le=3, description="Standard deviation of ln(run time / expected) of each attempt")
    unknown: float = Field(0.0, ge=0, le=3, description="Standard deviation of ln(speed / stated) of each machine")
    drift: float = Field(0.0, ge=0, le=3, description="Standard deviation of the change of ln(speed) in each period")
    period: float = Field(60.0, gt=0, description="Seconds between changes of speed and possible migrations")
    migration: float = Field(0.0, ge=0, le=0.9, description="Chance of each machine to be moved in each period")
    pause: float = Field(10.0, ge=0, description="Seconds that a machine stands still when it is moved")
    failure: float = Field(0.0, ge=0, lt=1, description="Chance of an attempt to fail")

    def world(self, seed: int) -> World:
        """The world of one seed."""
        return World(
            self.noise, self.unknown, self.drift, self.period, self.migration, self.pause, self.failure, seed=seed
        )

    @property
    def varying(self) -> bool:
        """True when speeds are not as stated or change."""
        return bool(self.unknown or self.drift or (self.migration and self.pause))

    @property
    def certain(self) -> bool:
        """True when nothing deviates."""
        return not (self.noise or self.failure or self.varying)
