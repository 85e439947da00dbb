"""What the handles of the docker runner tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tradewind.deployer.runner.docker.engine import EngineAddress
from tradewind.deployer.runner.handle import HandleData


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerData(HandleData):
    """What a docker handle tells of its run.

    Attributes:
        folder: The run's folder.
        engine: Where its engine is, as `EngineAddress` writes it; None for that of the settings.
        asked: When the engine was asked to start it, by the engine's clock; 0 while it was not.
        look: True when it may be anybody's run: polling starts nothing, and ends nothing that was not cancelled here.
        ports: The ports of this machine that lead to those of the job.
    """

    folder: str = ""
    engine: Mapping[str, Any] | None = None
    asked: float = 0.0
    look: bool = False
    ports: Mapping[str, int] = field(default_factory=dict)

    @property
    def address(self) -> EngineAddress | None:
        """Where its engine is, or None for that of the settings."""
        return EngineAddress.from_json(self.engine) if self.engine else None
