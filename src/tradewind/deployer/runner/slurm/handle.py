"""What the handles of the slurm runner tell."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import quote

from tradewind.deployer.runner.handle import HandleData
from tradewind.problem import Handle


def quoted_name(text: str) -> str:
    """A text as a name of files and jobs; `urllib.parse.unquote` reads it."""
    return quote(text, safe="")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmData(HandleData):
    """What a slurm handle tells of its run; its note has most of it.

    Attributes:
        folder: The run's folder, as the nodes see it.
        submitted: When it was submitted, in seconds since the epoch.
        program: The first word of its command.
        workdir: Its working folder.
        wall_seconds: Its time limit, or None.
        asked: False when nobody asked for the time limit.
        memory_bytes: The memory that it may take on each node, or None.
        spread: True when srun starts its tasks, whose processor time nobody sees.
        batch: The name of its batch; empty where nothing but its id is known.
        index: Which run of the batch it is.
        job: Slurm's id of the batch, or empty while it is not known.
        handed: True when Slurm has taken it: its job's id may not be known when the disk was full.
        look: True for a run that is only looked at: nobody hands it over.
    """

    folder: str = ""
    submitted: float | None = None
    program: str = ""
    workdir: str = ""
    wall_seconds: float | None = None
    asked: bool = True
    memory_bytes: int | None = None
    spread: bool = False
    batch: str = ""
    index: int = 0
    job: str = ""
    handed: bool = False
    look: bool = False


@dataclass(frozen=True, slots=True)
class SlurmRun:
    """A run, and what its handle tells."""

    run_id: str
    data: SlurmData

    @classmethod
    def of(cls, handle: Handle) -> Self:
        """The run of a handle."""
        return cls(handle.run_id, SlurmData.of(handle))

    @property
    def name(self) -> str:
        """The name of its batch, which is its job's."""
        return self.data.batch or quoted_name(self.run_id)

    @property
    def key(self) -> tuple[str, int]:
        """The batch, and which run of it."""
        return self.name, self.data.index

    @property
    def folder(self) -> Path | None:
        """Its folder, or None where that is not known."""
        return Path(self.data.folder) if self.data.folder else None
