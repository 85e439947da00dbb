"""The settings of PARIS."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from tradewind import plugins


class ParisSettings(plugins.Settings):
    """Where PARIS's table comes from, and how much it checks."""

    table: Path | None = Field(
        default=None,
        description="CSV of runs besides earlier studies: workload, instance, nodes, runtime (s), provider if wanted, "
        "any counters.",
    )
    references: tuple[str, str] | None = Field(
        default=None,
        description="The two machine choices to run first, as 4xm5.large, or 4xaws/m5.large where several providers "
        "sell such a type; without it those that predicted best.",
    )
    meet: Literal["p90", "mean"] = Field(
        default="p90", description="What must meet the deadline: the time that one in ten runs exceeds, or the mean."
    )
    trees: int = Field(default=100, ge=10, description="Trees of each forest.")
    least_workloads: int = Field(default=3, ge=2, description="Workloads that must have run on both references.")
    reference_pool: int = Field(default=48, ge=2, description="Machine choices that references are chosen from.")
    pairs_tried: int = Field(default=6, ge=1, description="Pairs of references that the forest compares.")
    training_share: float = Field(
        default=0.5,
        gt=0,
        le=1,
        description="Share of the budget (dollars or trials) after which no further references are run.",
    )
    most_settings: int = Field(
        default=16, ge=1, description="Combinations of the application's settings, each with reference runs of its own."
    )
    verify: int = Field(default=2, ge=0, description="Runs after that of the predicted best.")
