"""The files that controllers and Slurm's jobs exchange, in a folder that both see.

``owners/OWNER/RUN``
    The note of a run: the data of its handle. Linked into place, so that a run belongs to one batch only.
``batches/BATCH/``
    A batch, which is handed to Slurm as one job or one job array: ``batch.json``, the order of each run (``INDEX``,
    readable by the user only), ``INDEX.claim`` by the job that starts the run or the controller that takes it back,
    ``job`` with Slurm's id, and ``lock``.
``ended/BATCH.INDEX``
    Marks of runs that have ended: one listing shows all of them.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tradewind.deployer.file_locks import wait_for_lock
from tradewind.deployer.runner.run_files import folder_error, read_document, replace_document
from tradewind.deployer.runner.slurm.commands import script_source
from tradewind.deployer.runner.slurm.handle import SlurmRun, quoted_name
from tradewind.errors import UnreachableError
from tradewind.problem import RunRequest
from tradewind.utils.atomic_files import write_atomically

CANCEL = "cancel"
RESULT = "result.json"

BY_US = "controller"
"""The claim of a run that a controller has taken back."""

_OLD_SECONDS = 600.0

SpoolNote = dict[str, Any]
"""A note of a run, or the document of a batch."""


class Spool:
    """Reads and writes the folder that controllers and jobs share.

    Args:
        root: The folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._script: Path | None = None

    def batch(self, name: str) -> Path:
        """The folder of a batch."""
        return self.root / "batches" / name

    def mark(self, name: str, index: int) -> Path:
        """The file whose presence means that a run has ended."""
        return self.root / "ended" / f"{name}.{index}"

    def note(self, owner: str, run_id: str) -> Path:
        """The file with the note of a run."""
        return self.root / "owners" / quoted_name(owner) / quoted_name(run_id)

    def known(self, owner: str, run_id: str) -> SpoolNote | None:
        """The note of a run, or None when there surely is none.

        Raises:
            UnreachableError: It cannot be read, as may happen on a shared file system.
        """
        return _sure(self.note(owner, run_id))

    def notes(self, owner: str | None) -> Iterator[SpoolNote]:
        """The notes of all runs of an owner that are not settled, or of all owners."""
        owners = "*" if owner is None else glob.escape(quoted_name(owner))
        for path in sorted((self.root / "owners").glob(f"{owners}/*")):
            found = read_document(path)
            if found is not None:
                yield {**found, "owner": unquote(path.parent.name), "run_id": unquote(path.name)}

    def script(self) -> Path:
        """The path of the job script, which is written here so that Slurm's programs can read it.

        Raises:
            DeployError: The script cannot be written.
        """
        if self._script is None:
            source = script_source()
            path = self.root / f"job-{hashlib.sha256(source).hexdigest()[:12]}.sh"
            try:
                if not path.exists():
                    self.root.mkdir(parents=True, exist_ok=True)
                    write_atomically(path, source)
            except OSError as error:
                raise folder_error(error, self.root) from error
            self._script = path
        return self._script

    def create(
        self,
        name: str,
        requests: Sequence[RunRequest],
        orders: Sequence[bytes],
        facts: Sequence[SpoolNote],
        options: Sequence[str],
    ) -> SpoolNote:
        """Write down a batch; runs that another controller has noted meanwhile are left out of it.

        Args:
            name: The name of the batch.
            requests: The runs.
            orders: The order of each run, which its job reads.
            facts: The content of each run's note.
            options: The options of sbatch, for a process that hands the batch over later.

        Returns:
            The batch's document.

        Raises:
            DeployError: The batch cannot be written, or is there already.
        """
        folder = self.batch(name)
        expires = max(request.expires for request in requests)
        about: SpoolNote = {
            "name": name,
            "owner": requests[0].owner,
            "expires": expires,
            "lasts": max(0.0, expires - time.time()),
            "options": list(options),
            "runs": [request.run_id for request in requests],
        }
        try:
            for shared in ("batches", "ended"):
                (self.root / shared).mkdir(parents=True, exist_ok=True)
            self._empty(folder)
        except OSError as error:
            raise folder_error(error, self.root) from error
        try:
            for index, order in enumerate(orders):
                fd = os.open(folder / str(index), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with os.fdopen(fd, "wb") as file:
                    file.write(order)
            replace_document(folder / "batch.json", about)
            for index, (request, fact) in enumerate(zip(requests, facts, strict=True)):
                if not self._note(request, {**fact, "batch": name, "index": index}):
                    self.take(name, index)
        except OSError as error:
            self._undo(name, requests)
            raise folder_error(error, self.root) from error
        return about

    def _empty(self, folder: Path) -> None:
        """Make the folder of a batch, in the place of one that a killed process left without a note."""
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            about = _sure(folder / "batch.json")
            notes = [self.known(about["owner"], run_id) or {} for run_id in about["runs"]] if about else []
            if any(note.get("batch") == folder.name for note in notes):
                raise
            shutil.rmtree(folder)
            folder.mkdir(mode=0o700)

    def _note(self, request: RunRequest, content: SpoolNote) -> bool:
        path = self.note(request.owner, request.run_id)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.parent.parent / f".{path.name[:200]}.{os.getpid()}.{time.monotonic_ns()}"
        replace_document(draft, content)
        try:
            os.link(draft, path)
        except FileExistsError:
            return False
        finally:
            draft.unlink(missing_ok=True)
        return True

    def _undo(self, name: str, requests: Sequence[RunRequest]) -> None:
        for request in requests:
            path = self.note(request.owner, request.run_id)
            if (read_document(path) or {}).get("batch") == name:
                path.unlink(missing_ok=True)
        shutil.rmtree(self.batch(name), ignore_errors=True)

    def refuse(self, about: SpoolNote) -> None:
        """Remove a batch that Slurm has refused: its runs were never there."""
        for run_id in about["runs"]:
            path = self.note(about["owner"], run_id)
            if (read_document(path) or {}).get("batch") == about["name"]:
                path.unlink(missing_ok=True)
        shutil.rmtree(self.batch(about["name"]), ignore_errors=True)

    @contextmanager
    def locked(self, name: str, seconds: float) -> Iterator[int]:
        """Hold the lock of a batch; programs that inherit the descriptor hold it, too.

        Raises:
            UnreachableError: Another process, or a program that a killed one left, holds it for too long.
        """
        try:
            fd = os.open(self.batch(name) / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise folder_error(error, self.batch(name)) from error
        try:
            if not wait_for_lock(fd, seconds):
                raise UnreachableError(f"another process is handing {name} to Slurm, and does not end")
            yield fd
        finally:
            os.close(fd)

    def about(self, name: str) -> SpoolNote | None:
        """The document of a batch, or None when it is gone."""
        return read_document(self.batch(name) / "batch.json")

    def waiting(self, about: SpoolNote) -> list[int]:
        """The indexes of a batch whose runs are not claimed and in no other batch; other runs will never start in it.

        Raises:
            UnreachableError: A note cannot be read.
        """
        found = []
        for index, run_id in enumerate(about["runs"]):
            note = self.known(about["owner"], run_id) or {}
            if note.get("batch") != about["name"]:
                self.take(about["name"], index)
            elif not self.claim(about["name"], index):
                found.append(index)
        return found

    def job(self, name: str) -> str:
        """Slurm's id of a batch, or empty while it is not known."""
        try:
            return (self.batch(name) / "job").read_text(encoding="utf-8").strip()
        except OSError:
            return ""

    def keep_job(self, name: str, job: str) -> None:
        """Write down Slurm's id of a batch; a full disk does not matter, as it can be found again by name."""
        with suppress(OSError):
            write_atomically(self.batch(name) / "job", job)

    def claim(self, name: str, index: int) -> str:
        """The claim of a run: Slurm's id of the job that started it, `BY_US`, or empty where it is not claimed."""
        try:
            return (self.batch(name) / f"{index}.claim").read_text(encoding="utf-8").strip() or BY_US
        except OSError:
            return ""

    def take(self, name: str, index: int) -> bool:
        """Take a run back: True when no job has started it, and none will."""
        path = self.batch(name) / f"{index}.claim"
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileNotFoundError:
            return False
        except OSError:
            return self.claim(name, index) == BY_US
        with suppress(OSError):
            os.write(fd, BY_US.encode())
        os.close(fd)
        with suppress(OSError):
            os.truncate(self.batch(name) / str(index), 0)  # secrets may stand there
        return True

    def ended(self) -> set[str]:
        """The runs that have ended, as ``BATCH.INDEX``."""
        try:
            return set(os.listdir(self.root / "ended"))  # noqa: PTH208  (names are all that is needed, many of them)
        except OSError:
            return set()

    def stamp(self) -> int:
        """A number that changes when a run has ended."""
        try:
            return (self.root / "ended").stat().st_mtime_ns
        except OSError:
            return 0

    def forget(self, run: SlurmRun) -> None:
        """Remove all files of a settled run, and its batch after the last one."""
        self.note(run.data.owner, run.run_id).unlink(missing_ok=True)
        name, index = run.data.batch, run.data.index
        if not name:
            return
        self.mark(name, index).unlink(missing_ok=True)
        self.take(name, index)
        with suppress(OSError):
            (self.batch(name) / str(index)).unlink(missing_ok=True)
            with os.scandir(self.batch(name)) as entries:
                last = not any(entry.name.isdigit() for entry in entries)
            if last:
                shutil.rmtree(self.batch(name), ignore_errors=True)

    def clean(self) -> None:
        """Remove batches that no note names: those of a process that was killed before it handed them to Slurm.

        None is removed while a note cannot be read: it may name a batch that waits in the queue.
        """
        with suppress(OSError, UnreachableError):
            old = [
                path for path in (self.root / "batches").iterdir() if path.stat().st_mtime < time.time() - _OLD_SECONDS
            ]
            if old:
                noted = self._noted()
                for path in old:
                    if path.name not in noted:
                        shutil.rmtree(path, ignore_errors=True)

    def _noted(self) -> set[str]:
        """The names of all batches that notes name."""
        owners = self.root / "owners"
        folders = [path for path in owners.iterdir() if path.is_dir()] if owners.exists() else []
        notes = [_sure(path) for folder in folders for path in folder.iterdir()]
        return {str(note["batch"]) for note in notes if note is not None}


def _sure(path: Path) -> dict[str, Any] | None:
    """The JSON document of a file, or None when there is no such file.

    Raises:
        UnreachableError: The file cannot be read.
    """
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UnreachableError(f"{path} cannot be read: {error}") from error
    return found
