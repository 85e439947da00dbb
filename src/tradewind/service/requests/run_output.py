"""Reads the output of runs, here or on the machine that carried them out, which is asked by way of the database.

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
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, BinaryIO

from tradewind.deployer.runner.base import StreamsLogs
from tradewind.engine.deployment import make_plugin, run_folder
from tradewind.engine.remote_logs import has_remote_logs
from tradewind.errors import DeployError, NotFoundError, UnreachableError
from tradewind.problem import Run
from tradewind.problem.job_spec.spec import JobSpec
from tradewind.service.applications.validation import stored_application
from tradewind.service.requests import run_files
from tradewind.service.requests.run_files import RunFileEntry, RunLogPart, log_part
from tradewind.store.base import Store, this_process
from tradewind.store.service.applications import ApplicationStore
from tradewind.store.service.request_values import RequestRow
from tradewind.store.service.requests import RequestStore
from tradewind.store.service.shared_values import WorkerQuestionStore
from tradewind.store.sql.database import Database


def remote_log(
    studies: Store, row: RequestRow, run: Run, stream: str, offset: int, limit: int, data_folder: Path
) -> RunLogPart | None:
    """Read a part of the log of a run on its machine; None where its runner has none, or cannot be reached now.

    Args:
        studies: The studies.
        row: The request.
        run: A run of the request that has not ended.
        stream: ``stdout`` or ``stderr``.
        offset: Offset to begin at, in bytes.
        limit: Bytes at most.
        data_folder: Folder in which the runner keeps what it needs between processes.
    """
    if run.handle is None or row.study_id is None or stream not in ("stdout", "stderr"):
        return None
    study = studies.study(row.study_id)
    if not has_remote_logs(study):
        return None
    spec = JobSpec.from_json(study.spec)
    runner = make_plugin("runner", spec.runner.name, spec.runner.settings, spec.base, data_folder)
    assert isinstance(runner, StreamsLogs)
    try:
        return log_part(runner.read_log(run.handle, stream, offset)[:limit], offset, last=False)
    except DeployError:
        return None  # it goes on, and is read by the next look or when it has ended
    finally:
        runner.close()  # type: ignore[attr-defined]


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
    """Reader of the logs and files of runs, on whichever server they were carried out.

    Args:
        database: The open database.
        studies: The studies, which have the runs.
        data_folder: The folders of this machine's runs are below it.
    """

    def __init__(self, database: Database, studies: Store, data_folder: Path) -> None:
        self._asks = WorkerQuestionStore(database)
        self._requests = RequestStore(database)
        self._applications = ApplicationStore(database)
        self._shared = database.path is None
        self._studies, self._data_folder = studies, data_folder
        self._silent: dict[str, float] = {}
        self._seen: dict[str, None] = {}
        self._lock = threading.Lock()

    # ------------------------------------------------------------------ for those who look

    def log(self, row: RequestRow, run: Run, stream: str, offset: int, most: int) -> RunLogPart | None:
        """Read a part of a log; None where there is none (yet).

        Args:
            row: The request.
            run: A run of the request, with the folder that it would have here.
            stream: One of `run_files.LOGS`.
            offset: Offset to begin at, in bytes.
            most: Bytes at most.
        """
        if not self._is_elsewhere(run):
            return self._log_here(row, run, stream, offset, most)
        answer = self._asked(row, run, "log", stream=stream, offset=offset, most=min(most, _PART))
        if answer is None:
            return self._log_here(row, run, stream, offset, most)
        return RunLogPart(**answer["part"]) if answer["part"] is not None else None

    def files(self, row: RequestRow, run: Run) -> list[RunFileEntry]:
        """List the files of a run that its user may have; see `run_files.list_files`."""
        if not self._is_elsewhere(run):
            found = run_files.list_files(Path(run.folder))
        else:
            answer = self._asked(row, run, "files")
            found = [RunFileEntry(**entry) for entry in answer["files"]] if answer is not None else []
        patterns = self._results_of(row)
        return [entry for entry in found if run_files.is_declared(entry.path, patterns)]

    def open(self, row: RequestRow, run: Run, path: str) -> BinaryIO:
        """Open a file of a run.

        Raises:
            NotFoundError: There is no such file.
            UnreachableError: It is too large to come from another server, or that one does not answer.
        """
        if not run_files.is_declared(path, self._results_of(row)):
            raise NotFoundError("the run has no such file", hint="the list of its files shows what there is")
        if not self._is_elsewhere(run):
            return run_files.open_file(Path(run.folder), path)
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(tempfile.TemporaryFile())
            self._fetch(row, run, path, file)
            stack.pop_all()  # who asked for it closes it
        file.seek(0)
        return file

    def _results_of(self, row: RequestRow) -> list[str]:
        """Return the patterns of what is a result of a request's application; empty where all outputs are."""
        if row.application_id is None:
            return []
        return stored_application(self._applications.application(row.application_id)).model.results

    def _fetch(self, row: RequestRow, run: Run, path: str, file: BinaryIO) -> None:
        """Copy a file of another server into one that is here, part by part."""
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
        """Ask the worker that has a run; None where none answers."""
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
        """Answer the questions of other servers about runs that were carried out here."""
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
        """Answer a question about a run; None where the run is not here."""
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


_MOST_LOG_BYTES = 4 * 2**20


class RequestRuns:
    """Runs of requests, and what their programs print, one run after the other.

    Args:
        store: The requests.
        studies: The studies, which have the runs.
        left: Reader of their logs and files.
        data_folder: The folders of this machine's runs are below it.
    """

    def __init__(self, store: RequestStore, studies: Store, left: RunOutputReader, data_folder: Path) -> None:
        self._store, self._studies, self._left, self._data_folder = store, studies, left, data_folder

    def last(self, row: RequestRow, trial: int | None = None) -> Run | None:
        """Return the run of a request that people look at, or the last one of a trial; None before there is one.

        That is the run which was started last, and of a search that is over the best trial's.

        Raises:
            NotFoundError: The trial has no run.
        """
        if row.study_id is None:
            return None
        wanted = self._looked_at(row, row.study_id) if trial is None else trial  # of 10,000 runs, read those of one
        runs = [] if wanted is None else self._studies.runs(row.study_id, trial=wanted)
        if not runs and trial is not None:
            raise NotFoundError(f"request {row.id} has no run of a trial {trial}")
        last = max(runs, key=lambda run: (run.started or 0.0, run.trial, run.attempt), default=None)
        return self._placed(row.study_id, last)

    def _looked_at(self, row: RequestRow, study: int) -> int | None:
        best = row.progress.get("best") if row.over else None
        found = best.get("trial") if isinstance(best, Mapping) else None
        return found if isinstance(found, int) else self._store.last_trial(study)

    def log(
        self, row: RequestRow, stream: str, offset: int, limit: int, *, trial: int | None = None, run: str = ""
    ) -> RunLogPart:
        """Read a part of a log; see `RequestService.log`.

        Raises:
            NotFoundError: There is no such trial or log.
        """
        if stream not in run_files.LOGS:
            raise NotFoundError(f"there is no log {stream[:40]!r}", hint=f"known: {', '.join(run_files.LOGS)}")
        if trial is not None:
            only = self.last(row, trial)
            if only is None:
                return RunLogPart("", 0, row.over)
            # Another attempt at the trial has a log of its own.
            return self._part(row, only, stream, offset if run in ("", only.run_id) else 0, limit)
        known = self._run(row, run) if run else None
        current = known or self.last(row)
        if current is None:
            return RunLogPart("", 0, row.over)
        # A run that is not (or no longer) there is not the one that the offset is of.
        part = self._part(row, current, stream, offset if known is not None or not run else 0, limit)
        if part.ended and not part.text and run:
            following = self._after(row, current.run_id)
            if following is not None:
                part = self._part(row, following, stream, 0, limit)
        # Another trial may begin, or another attempt, until the request is over.
        return replace(part, ended=part.ended and row.over and (not run or self._after(row, part.run) is None))

    def _part(self, row: RequestRow, run: Run, stream: str, offset: int, limit: int) -> RunLogPart:
        most = max(4, min(limit, _MOST_LOG_BYTES))  # the longest character has four bytes
        part = self._left.log(row, run, stream, offset, most)
        if part is None:
            part = RunLogPart("", max(0, offset), run.state.ended)
        return replace(part, run=run.run_id, trial=run.trial)

    def _run(self, row: RequestRow, run: str) -> Run | None:
        if row.study_id is None or (trial := self._store.trial_of(row.study_id, run)) is None:
            return None
        found = next((one for one in self._studies.runs(row.study_id, trial=trial) if one.run_id == run), None)
        return self._placed(row.study_id, found)

    def _after(self, row: RequestRow, run: str) -> Run | None:
        """Return the run of a request that was started next after another one."""
        if row.study_id is None:
            return None
        following = self._store.run_after(row.study_id, run)
        return self._run(row, following) if following is not None else None

    def _placed(self, study: int, run: Run | None) -> Run | None:
        if run is None or run.folder:
            return run
        owner = self._studies.study(study).owner  # the engine notes the folder when the run has ended
        return replace(run, folder=str(run_folder(self._data_folder, owner, run.run_id)))
