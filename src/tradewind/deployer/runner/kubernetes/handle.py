"""What the handles of the kubernetes runner tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tradewind.deployer.runner.handle import HandleData


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesData(HandleData):
    """What a kubernetes handle tells of its run; its Job keeps most of it in an annotation.

    Attributes:
        folder: The run's folder.
        job: The name of its Job.
        uid: The id of its Job: another of the same name may have been there before.
        program: The first word of its command.
        memory_bytes: The memory that it may take on each node, or None.
        wall_seconds: Its time limit, or None.
        lasts: Seconds from its beginning after which anyone may end it; an earlier version did not write them down.
        patience: How long it may stay where nothing happens, as `Patience` has it; None for that of the settings, where
            an earlier version did not write it down.
        look: True for a run that is only looked at: somebody else gives it up in time.
    """

    folder: str = ""
    job: str = ""
    uid: str = ""
    program: str = ""
    memory_bytes: int | None = None
    wall_seconds: float | None = None
    lasts: float | None = None
    patience: Mapping[str, float] | None = None
    look: bool = False
