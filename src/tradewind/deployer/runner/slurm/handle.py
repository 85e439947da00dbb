"""The data of slurm handles."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import quote

from tradewind.deployer.runner.handle import HandleData
from tradewind.problem import Handle


def quoted_name(text: str) -> str:
    """Encode a text as a name of files and jobs; `urllib.parse.unquote` decodes it."""
    return quote(text, safe="")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmData(HandleData):
    """The data of a slurm handle; the note of the run has most of it.

    Attributes:
        folder: The run's folder, as the nodes see it.
        submitted: The time when it was submitted, in seconds since the epoch, or None.
        program: The first word of its command.
        workdir: Its working folder.
        wall_seconds: Its time limit in seconds, or None.
        asked: True when the user has asked for the time limit.
        memory_bytes: The bytes of memory that it may take on each node, or None.
        spread: True when srun starts its tasks: their processor time is not measured.
        batch: The name of its batch; empty where only its id is known.
        index: The index of the run in its batch.
        job: Slurm's id of the batch, or empty while it is not known.
        handed: True when Slurm has taken it: its job's id may not be known when the disk was full.
        load_cpus: CPUs that its load generator is held to; 0 without one.
        look: True for a run that is only looked at: this process does not hand it over.
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
    load_cpus: int = 0
    look: bool = False


@dataclass(frozen=True, slots=True)
class SlurmRun:
    """A run, with the data of its handle."""

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
        """The name of its batch, and its index there."""
        return self.name, self.data.index

    @property
    def folder(self) -> Path | None:
        """The run's folder, or None where that is not known."""
        return Path(self.data.folder) if self.data.folder else None
