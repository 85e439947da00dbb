"""Checkpoints of interrupted runs: copies on this machine, at which the next run of the same trial begins."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn

from tradewind.errors import DeployError, PrerequisiteError
from tradewind.problem import CheckpointPlan
from tradewind.utils.atomic_files import write_atomically

FOLDER = "checkpoint"
"""The name of the job's folder for checkpoints within its run's folder, wherever that is."""
ATTEMPTS = 5
"""Copies that are begun until one is of files that did not change meanwhile."""
CHANGES = "the files of its checkpoint change while they are copied"
_LATEST = "latest.json"


@dataclass(frozen=True, slots=True)
class CheckpointLook:
    """The checkpoint files of a run at one moment.

    Attributes:
        fingerprint: A text that changes whenever the files do; empty where there are none.
        written: Time at which the newest of them was written, in seconds since the epoch by this machine's clock.
    """

    fingerprint: str = ""
    written: float = 0.0

    @classmethod
    def by_seconds(cls, state: bytes, age: float, looked: float) -> CheckpointLook:
        """A look at files whose times are cut to whole seconds, on a machine whose clock may differ from this one's.

        A time may be up to a second too early: what was written since the run began is new.

        Args:
            state: What tells the files from those at another moment.
            age: Seconds there between the time of the newest file and the look.
            looked: Time of the look by this machine's clock.
        """
        return cls(hashlib.sha256(state).hexdigest(), looked - max(0.0, age - 1.0))


@dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """A copy of a job's checkpoint.

    Attributes:
        files: The folder with its files.
        seconds: Seconds of work that it saves, those before earlier interruptions included.
    """

    files: Path
    seconds: float

    def check(self) -> None:
        """Make sure that this user may read its files.

        Raises:
            PrerequisiteError: They belong to somebody else.
        """
        for place, folders, names in os.walk(self.files, onerror=_unreadable):
            for path in (Path(place, name) for name in (*folders, *names)):
                if not path.is_symlink() and not os.access(path, os.R_OK):
                    _unreadable(PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path)))

    def pack(self, file: IO[bytes]) -> None:
        """Write its files into a tar archive.

        Args:
            file: The archive, open for writing.
        """
        with tarfile.open(fileobj=file, mode="w") as tar:
            tar.add(self.files, arcname=".")


def _unreadable(error: OSError) -> NoReturn:
    raise PrerequisiteError(
        f"a checkpoint cannot be read: {(error.strerror or str(error)).lower()}: {error.filename}",
        hint="give it to this user, or remove it: the trial then begins anew",
    ) from error


class CheckpointStore:
    """The checkpoints of one trial on this machine, of which only the latest is kept.

    A copy is there as a whole or not at all, whenever the process is killed.

    Args:
        folder: The folder that they are kept in.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def latest(self) -> SavedCheckpoint | None:
        """The latest checkpoint, or None.

        Raises:
            PrerequisiteError: It belongs to somebody else, and this user may not read it.
        """
        try:
            noted = json.loads((self._folder / _LATEST).read_bytes())
            found = SavedCheckpoint(self._folder / str(noted["files"]), float(noted["seconds"]))
            return found if found.files.is_dir() else None
        except PermissionError as error:
            _unreadable(error)
        except (OSError, ValueError, LookupError, TypeError):
            return None

    def add(self, copy: Callable[[Path], float | None]) -> None:
        """Take a copy in the place of the one before.

        Args:
            copy: Brings the files into a folder that it makes, and gives the seconds of work that they save; None where
                the copy is not wanted any more.

        Raises:
            OSError: The disk is full, or cannot be written.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        before = self.latest()
        self._remove_unfinished(before)
        place = Path(tempfile.mkdtemp(prefix="copy-", dir=self._folder))
        kept = False
        try:
            seconds = copy(place / FOLDER)
            if kept := seconds is not None:
                note = {"files": f"{place.name}/{FOLDER}", "seconds": seconds}
                write_atomically(self._folder / _LATEST, json.dumps(note), durable=True)
        finally:
            gone = before.files.parent if kept and before is not None else None if kept else place
            if gone is not None:
                shutil.rmtree(gone, ignore_errors=True)

    def _remove_unfinished(self, latest: SavedCheckpoint | None) -> None:
        """Remove what a process that was killed had begun to copy, and copies that it had not removed yet."""
        for path in self._folder.glob("copy-*"):
            if latest is None or path != latest.files.parent:
                shutil.rmtree(path, ignore_errors=True)

    def remove(self) -> None:
        """Remove all of them: the trial has ended."""
        shutil.rmtree(self._folder, ignore_errors=True)


def put_checkpoint(plan: CheckpointPlan, folder: Path) -> None:
    """Make a job's folder for checkpoints on this machine, with the latest one in it; the job has not started yet.

    Args:
        plan: Where the checkpoints are kept.
        folder: The run's folder.

    Raises:
        OSError: It cannot be written.
    """
    place, latest = folder / FOLDER, CheckpointStore(plan.folder).latest()
    shutil.rmtree(place, ignore_errors=True)  # of a process that was killed before it started the job
    if latest is None:
        place.mkdir(parents=True)
    else:
        copy_folder(latest.files, place)


def copy_files(source: Path, folder: Path) -> CheckpointLook:
    """Copy the files of a checkpoint on this machine as they are at one moment.

    Args:
        source: The folder that they are in.
        folder: The folder that is made for them.

    Returns:
        What was copied.

    Raises:
        DeployError: They change all the time.
        OSError: They cannot be written.
    """
    for _ in range(ATTEMPTS):
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(FileNotFoundError, shutil.Error):  # files went away while they were copied
            before = look_at_files(source)
            copy_folder(source, folder)
            if look_at_files(source) == before:
                return before
    raise DeployError(CHANGES)


def copy_folder(source: Path, folder: Path) -> None:
    """Copy all files of a folder.

    Args:
        source: The folder that they are in.
        folder: The folder that is made for them.

    Raises:
        OSError: They cannot be read or written.
    """
    failed: list[OSError] = []

    def copy(name: str, place: str) -> None:
        try:
            shutil.copy2(name, place, follow_symlinks=False)
        except FileNotFoundError:
            raise
        except OSError as error:  # of which `copytree` keeps the words only
            failed.append(error)
            raise

    try:
        shutil.copytree(source, folder, symlinks=True, ignore=_special_files, copy_function=copy)
    except shutil.Error:
        if failed:
            raise failed[0] from None
        raise


def _special_files(folder: str, names: list[str]) -> list[str]:
    """List the names in a folder that are sockets, pipes and the like, which have no content to keep."""
    return [name for name in names if not _is_kept((Path(folder) / name).lstat().st_mode)]


def _unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):  # there may be no folder yet
        raise error


def _is_kept(mode: int) -> bool:
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)


def look_at_files(folder: Path) -> CheckpointLook:
    """Look at the files of a checkpoint on this machine.

    Args:
        folder: The folder that they are in.

    Raises:
        OSError: They cannot be read, or change meanwhile.
    """
    found: list[str] = []
    newest = 0
    for place, _, names in os.walk(folder, onerror=_unless_gone):
        for path in (Path(place, name) for name in names):
            facts = path.lstat()
            if not _is_kept(facts.st_mode):
                continue
            newest = max(newest, facts.st_mtime_ns)
            found.append(f"{path} {facts.st_ino} {facts.st_size} {facts.st_mtime_ns}")
    if not found:
        return CheckpointLook()
    digest = hashlib.sha256("\n".join(sorted(found)).encode(errors="surrogateescape")).hexdigest()
    return CheckpointLook(digest, newest / 1e9)
