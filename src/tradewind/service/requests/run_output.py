"""Reads what runs have left, here or on the machine that carried them out, which is asked by way of the database.

No server calls another: a worker that has the folder of the run answers with the part that is wanted.
"""

from __future__ import annotations

import base64
import contextlib
import os
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

from tradewind.engine.deployment import run_folder
from tradewind.errors import NotFoundError, UnreachableError
from tradewind.problem import Run
from tradewind.service.requests import run_files
from tradewind.service.requests.far import remote_log
from tradewind.service.requests.run_files import RunFileEntry, RunLogPart
from tradewind.store.asks import WorkerQuestionStore
from tradewind.store.base import Store, this_process
from tradewind.store.service.request_values import RequestRow
from tradewind.store.service.requests import RequestStore
from tradewind.store.sql.database import Database

_PATIENCE = 3.0
"""Seconds to wait for an answer."""

_SILENT = 10.0
"""Seconds for which a run is not asked about again when nobody has answered."""

_STALE = 60.0
"""Seconds after which nobody waits for an answer any more."""

_PART = 2**20
_LARGEST = 32 * 2**20
"""Bytes of a file that come by way of the database."""

_MOST = 1000


class RunOutputReader:
    """What runs have left, wherever they were carried out.

    Args:
        database: The open database.
        studies: The studies, which have the runs.
        data_folder: The folders of this machine's runs are below it.
    """

    def __init__(self, database: Database, studies: Store, data_folder: Path) -> None:
        self._asks = WorkerQuestionStore(database)
        self._requests = RequestStore(database)
        self._shared = database.path is None
        self._studies, self._data_folder = studies, data_folder
        self._silent: dict[str, float] = {}
        self._seen: dict[str, None] = {}
        self._lock = threading.Lock()

    # ------------------------------------------------------------------ for those who look

    def log(self, row: RequestRow, run: Run, stream: str, offset: int, most: int) -> RunLogPart | None:
        """A part of a log; None where there is none (yet).

        Args:
            row: The request.
            run: Its run, with the folder that it would have here.
            stream: One of `run_files.LOGS`.
            offset: Where to begin, in bytes.
            most: Bytes at most.
        """
        if not self._is_elsewhere(run):
            return self._log_here(row, run, stream, offset, most)
        answer = self._asked(row, run, "log", stream=stream, offset=offset, most=min(most, _PART))
        if answer is None:
            return self._log_here(row, run, stream, offset, most)
        return RunLogPart(**answer["part"]) if answer["part"] is not None else None

    def files(self, row: RequestRow, run: Run) -> list[RunFileEntry]:
        """The files of a run that its user may have; see `run_files.list_files`."""
        if not self._is_elsewhere(run):
            return run_files.list_files(Path(run.folder))
        answer = self._asked(row, run, "files")
        return [RunFileEntry(**entry) for entry in answer["files"]] if answer is not None else []

    def open(self, row: RequestRow, run: Run, path: str) -> BinaryIO:
        """Open a file of a run.

        Raises:
            NotFoundError: There is no such file.
            UnreachableError: It is too large to come from another server, or that one does not answer.
        """
        if not self._is_elsewhere(run):
            return run_files.open_file(Path(run.folder), path)
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(tempfile.TemporaryFile())
            self._fetch(row, run, path, file)
            stack.pop_all()  # who asked for it closes it
        file.seek(0)
        return file

    def _fetch(self, row: RequestRow, run: Run, path: str, file: BinaryIO) -> None:
        """Write a file that is elsewhere into one that is here, part by part."""
        there = 0
        while True:
            answer = self._asked(row, run, "file", path=path, offset=there)
            if answer is None:
                raise UnreachableError(
                    "the file is on another server, which does not answer", hint="try again when that server runs"
                )
            if answer["size"] is None:
                raise NotFoundError("the run has no such file", hint="the list of its files shows what there is")
            if answer["size"] > _LARGEST:
                raise UnreachableError(
                    f"the file is on another server, and with {answer['size'] / 2**20:.0f} MiB too large to be sent",
                    hint="have the results of the request put into your folder, or let servers share a data folder",
                )
            part = base64.b64decode(answer["data"])
            file.write(part)
            there += len(part)
            if not part or there >= answer["size"]:
                file.flush()
                os.utime(file.fileno(), ns=(answer["changed"], answer["changed"]))
                return

    def _is_elsewhere(self, run: Run) -> bool:
        return self._shared and not Path(run.folder).is_dir()

    def _asked(self, row: RequestRow, run: Run, what: str, **given: Any) -> dict[str, Any] | None:
        """What the worker that has a run says of it; None where none answers."""
        now = time.monotonic()
        with self._lock:
            if self._silent.get(run.run_id, 0.0) > now:
                return None
        question = {"what": what, "request": row.id, "trial": run.trial, "run": run.run_id, "at": time.time(), **given}
        token = self._asks.ask(question)
        pause = 0.02
        try:
            while time.monotonic() < now + _PATIENCE:
                time.sleep(pause)
                if (found := self._asks.answered(token)) is not None:
                    return found
                pause = min(1.5 * pause, 0.2)
        finally:
            self._asks.forget(token)
        with self._lock:
            while len(self._silent) >= _MOST:
                self._silent.pop(next(iter(self._silent)))
            self._silent[run.run_id] = time.monotonic() + _SILENT
        return None

    # ------------------------------------------------------------------ for the worker

    def answer(self) -> None:
        """Answer what others ask of runs that were carried out here."""
        if not self._shared:
            return
        for token, question in self._asks.questions().items():
            if token in self._seen:
                continue
            self._seen[token] = None
            while len(self._seen) > _MOST:
                self._seen.pop(next(iter(self._seen)))
            if time.time() - question["at"] > _STALE:
                self._asks.forget(token)
                continue
            try:
                found = self._answer(question)
            except NotFoundError:  # it was deleted meanwhile
                continue
            if found is not None:
                self._asks.answer(token, found)

    def _answer(self, question: Mapping[str, Any]) -> dict[str, Any] | None:
        """None where the run is not here."""
        row = self._requests.get(int(question["request"]))
        if row.study_id is None:
            return None
        runs = self._studies.runs(row.study_id, trial=int(question["trial"]))
        run = next((run for run in runs if run.run_id == question["run"]), None)
        if run is None:
            return None
        folder = Path(run.folder) if run.folder else self._folder(row, run)
        if not folder.is_dir() and row.hold_holder != this_process():
            return None
        if question["what"] == "files":
            return {"files": [asdict(entry) for entry in run_files.list_files(folder)]}
        if question["what"] == "file":
            return _part_of_file(folder, str(question["path"]), int(question["offset"]))
        stream, offset, most = str(question["stream"]), int(question["offset"]), int(question["most"])
        part = self._log_here(row, run, stream, offset, most, folder)
        return {"part": None if part is None else asdict(part)}

    def _folder(self, row: RequestRow, run: Run) -> Path:
        assert row.study_id is not None
        return run_folder(self._data_folder, self._studies.study(row.study_id).owner, run.run_id)

    def _log_here(
        self, row: RequestRow, run: Run, stream: str, offset: int, most: int, folder: Path | None = None
    ) -> RunLogPart | None:
        place = folder or (Path(run.folder) if run.folder else None)
        part = run_files.read_log(place, stream, offset, most, over=run.state.ended) if place is not None else None
        if part is None and not run.state.ended:
            part = remote_log(self._studies, row, run, stream, max(0, offset), most, self._data_folder)
        return part


def _part_of_file(folder: Path, path: str, offset: int) -> dict[str, Any]:
    try:
        opened = run_files.open_file(folder, path)
    except NotFoundError:
        return {"size": None}
    with opened as file:
        about = os.fstat(file.fileno())
        file.seek(max(0, offset))
        data = file.read(_PART) if about.st_size <= _LARGEST else b""
    return {"size": about.st_size, "changed": about.st_mtime_ns, "data": base64.b64encode(data).decode()}
