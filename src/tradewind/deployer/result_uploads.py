"""Uploads what runs kept to the user's folder, until it is complete there.

A run's files go to ``ADDRESS/STUDY/RUN-ID/``: its output, its metrics, what it kept, and ``run.json`` (configuration,
offer, state, cost). Last of all comes ``SHA256SUMS``, so that its presence means that all is there; ``sha256sum -c``
reads it. A note of what is still to be uploaded lies in a folder of this machine before the run's row ends, so that
a killed process loses nothing: the next one goes on. The run itself waits for nothing, and neither do its machines.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import tempfile
import threading
import time
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tradewind.deployer.environment import METRICS, OUTPUTS
from tradewind.deployer.result_folders import results_in
from tradewind.deployer.runner.run_files import read_document, replace_document
from tradewind.deployer.storage import open_storage
from tradewind.deployer.storage.base import StorageLocation
from tradewind.errors import DeployError, TradewindError
from tradewind.problem import Run, RunRequest
from tradewind.utils.retries import Backoff

SUMS = "SHA256SUMS"
_FILES = ("stdout", "stderr", METRICS, "application.stdout", "application.stderr")
_BACKOFF = Backoff((5.0, 15.0, 60.0, 300.0))
_GIVEN_UP = ".given-up"
_PIECE = 1 << 20
_log = logging.getLogger("tradewind.deployer")


class _FolderGoneError(DeployError):
    """The folder of the run is gone, so that nothing can be uploaded."""


@dataclass(slots=True)
class _Upload:
    """Files of a run that are still to be uploaded."""

    note: Path
    content: Mapping[str, Any]
    due: float = 0.0
    refusals: int = 0
    problem: str = field(default="")


class ResultUploader:
    """Uploads what runs kept, one after the other, in a thread.

    Args:
        folder: Where the notes lie; each owner has its own.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._waiting: dict[str, _Upload] = {}
        self._lock = threading.Lock()
        self._worker: threading.Thread | None = None

    @property
    def waiting(self) -> Mapping[str, str]:
        """The runs whose files are not all there yet, with what went wrong so far, in words."""
        with self._lock:
            return {run_id: upload.problem for run_id, upload in self._waiting.items()}

    def offer(self, run: Run, request: RunRequest) -> str:
        """Note that a run's files are to be uploaded, and begin with it.

        Returns:
            The address of the folder that they go to; empty when there is nothing to upload.
        """
        if not request.results or not request.folder.is_dir():
            return ""
        study = request.env.get("TRADEWIND_STUDY", request.owner)
        to = f"{request.results.rstrip('/')}/{study}/{run.run_id}"
        if "://" in request.results:
            to = f"{request.results.rstrip('/')}/{quote(study)}/{quote(run.run_id)}"
        content = {
            "folder": str(request.folder),
            "to": to,
            "places": {place: dict(access) for place, access in request.places.items()},
            "run": _facts(run, request),
        }
        note = self._folder / f"{run.run_id}.json"
        try:
            note.parent.mkdir(parents=True, exist_ok=True)
            replace_document(note, content)
        except OSError as error:  # then only this process knows of it
            _log.warning("run %s: the note of its upload cannot be written: %s", run.run_id, error)
        with self._lock:
            self._waiting[run.run_id] = _Upload(note, content)
        self.poll()
        return to

    def resume(self) -> None:
        """Go on with what earlier processes did not finish."""
        with self._lock:
            for note in sorted(self._folder.glob("*.json")):
                content = read_document(note)
                if content and note.stem not in self._waiting:
                    self._waiting[note.stem] = _Upload(note, content)
        self.poll()

    def poll(self) -> None:
        """Try again what is due; this takes no time."""
        with self._lock:
            busy = self._worker is not None and self._worker.is_alive()
            if busy or not any(upload.due <= time.monotonic() for upload in self._waiting.values()):
                return
            self._worker = threading.Thread(target=self._work, name="tradewind-results", daemon=True)
            self._worker.start()

    def close(self) -> None:
        """Try a last time what is not there yet, wait for it, and say what is left for the next time."""
        self._join()
        with self._lock:
            for upload in self._waiting.values():
                upload.due = 0.0
        self.poll()
        self._join()
        for run_id, problem in self.waiting.items():
            _log.warning("the files of run %s are not uploaded, the next start tries again: %s", run_id, problem)

    def _join(self) -> None:
        worker = self._worker
        if worker is not None:
            worker.join()

    def _work(self) -> None:
        """Upload what is due, each once."""
        tried: set[str] = set()
        while True:
            with self._lock:
                now = time.monotonic()
                due = [one for one, upload in self._waiting.items() if upload.due <= now and one not in tried]
                if not due:
                    return
                upload = self._waiting[due[0]]
            tried.add(due[0])
            try:
                upload_run(upload.content)
            except _FolderGoneError as error:
                _log.warning("run %s: its files are not uploaded, and it is given up: %s", due[0], error)
                with contextlib.suppress(OSError):  # kept, as the folder may be on a disk that is away
                    upload.note.rename(upload.note.with_suffix(_GIVEN_UP))
            except Exception as error:  # whatever it was, the files stay here, and it is tried again
                known = isinstance(error, TradewindError | OSError)
                upload.problem = str(error) if known else f"{type(error).__name__}: {error}"
                upload.due = time.monotonic() + _BACKOFF.pause(upload.refusals)
                upload.refusals += 1
                _log.warning("run %s: its files are not uploaded yet: %s", due[0], upload.problem)
                continue
            upload.note.unlink(missing_ok=True)
            with self._lock:
                del self._waiting[due[0]]


def upload_run(content: Mapping[str, Any]) -> None:
    """Upload the files of a run; what is complete there already is left alone.

    Files whose names are no text are left out: ``run.json`` names them in ``left_out``.

    Args:
        content: A note: ``folder``, ``to``, ``places`` and ``run``.

    Raises:
        TradewindError: It cannot be done now; ``retryable`` is false where the run's folder is gone.
        OSError: A file or a folder cannot be read.
    """
    folder = Path(content["folder"])
    found, run = _files(folder), dict(content["run"])
    files = {name: path for name, path in found.items() if _is_text(name)}
    left_out = [os.fsencode(name).decode("utf-8", "backslashreplace") for name in sorted(found) if name not in files]
    if left_out:
        run["left_out"] = left_out
        _log.warning("%s: not uploaded, as their names are no text: %s", folder, ", ".join(map(repr, left_out)))
    place = open_storage(content["to"], content["places"])
    try:
        with tempfile.TemporaryDirectory(prefix="tradewind-results-") as scratch:
            facts, sums = Path(scratch) / "run.json", Path(scratch) / SUMS
            facts.write_text(json.dumps(run, indent=2, sort_keys=True, default=str) + "\n", encoding="utf-8")
            files["run.json"] = facts
            lines = [f"{_digest(path)}  {name}\n" for name, path in sorted(files.items())]
            sums.write_text("".join(lines), encoding="utf-8")
            _put_all(place, files, sums)
    finally:
        place.close()


def _put_all(place: StorageLocation, files: Mapping[str, Path], sums: Path) -> None:
    there = place.read(SUMS)
    if there == sums.read_bytes():
        return
    if there is not None:
        place.remove(SUMS)  # it speaks of other files than those that now come
    for name, path in sorted(files.items()):
        place.put(path, name)
    place.put(sums, SUMS)


def _files(folder: Path) -> dict[str, Path]:
    """List the files that a run kept, by name; no link that the job made is followed."""
    if not folder.is_dir():
        raise _FolderGoneError(f"the run's folder {folder} is gone", retryable=False)
    found = {name: folder / name for name in _FILES if (folder / name).is_file() and not (folder / name).is_symlink()}
    if (folder / OUTPUTS).is_symlink() or not (folder / OUTPUTS).is_dir():
        return found
    for top, folders, names in os.walk(folder / OUTPUTS, onerror=_refuse):
        results = results_in({*folders, *names})
        folders[:] = [name for name in folders if name in results]
        for name in results.intersection(names):
            path = Path(top) / name
            if path.is_file() and not path.is_symlink():
                found[path.relative_to(folder).as_posix()] = path
    return found


def _refuse(error: OSError) -> None:
    raise error


def _is_text(name: str) -> bool:
    """True when a name can stand in a line of ``SHA256SUMS`` and in an address: file systems take any bytes."""
    return not any(unicodedata.category(sign) in ("Cc", "Cs") for sign in name)  # control signs; what is not UTF-8


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def _facts(run: Run, request: RunRequest) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "trial": run.trial,
        "attempt": run.attempt,
        "state": run.state.value,
        "reason": run.reason,
        "exit_code": run.exit_code,
        "runtime": run.runtime,
        "cost": run.cost,
        "offer": request.offer.key,
        "configuration": dict(request.configuration),
        "fraction": request.fidelity,
    }
