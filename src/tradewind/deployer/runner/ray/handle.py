"""What the handles of the ray runner tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

from tradewind.deployer.runner.handle import HandleData


@dataclass(frozen=True, slots=True, kw_only=True)
class RayData(HandleData):
    """What a ray handle tells of its run; the cluster's store has the same.

    Attributes:
        folder: The run's folder.
        lasts: Seconds from its beginning after which anyone may end it; an earlier version did not write them down.
        secrets: The references of its secrets, by name; None for a run that is only looked at, which is given none.
        memory_bytes: The memory that it may take on each node, or None.
        wall_seconds: Its time limit, or None.
        wanted: What it asks for on each of its nodes, by Ray's names.
        nodes: How many nodes it needs.
    """

    folder: str = ""
    lasts: float | None = None
    secrets: Mapping[str, str] | None = None
    memory_bytes: int | None = None
    wall_seconds: float | None = None
    wanted: Mapping[str, float] | None = None
    nodes: int = 1

    def key(self, run_id: str) -> str:
        """Where the cluster's store has a run: by its owner first, so that an owner's runs are found in one call."""
        return f"{quote(self.owner, safe='')}/{quote(run_id, safe='')}"
