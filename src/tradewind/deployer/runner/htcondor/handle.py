"""What the handles of the htcondor runner tell."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tradewind.deployer.runner.handle import HandleData


@dataclass(frozen=True, slots=True, kw_only=True)
class HtCondorData(HandleData):
    """What an htcondor handle tells of its run; two files in the run's folder have the same.

    Attributes:
        folder: The run's folder; empty where nothing but its tags is known.
        program: The first word of its command.
        wall: Its time limit in seconds, or None.
        cluster: HTCondor's number of the submission, or None while it is not known.
        process: Which job of the submission it is, likewise.
        submitted: When it was submitted, in seconds since the epoch, likewise.
        look: True for a run that is only looked at: it is for somebody else to submit it where it waits.
    """

    folder: str = ""
    program: str = ""
    wall: float | None = None
    cluster: int | None = None
    process: int | None = None
    submitted: float | None = None
    look: bool = False

    @property
    def place(self) -> Path | None:
        """The run's folder, or None where nothing but its tags is known."""
        return Path(self.folder) if self.folder else None
