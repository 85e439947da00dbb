"""The runs of a request, and what their programs print, one run after the other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tradewind.engine.deployment import run_folder
from tradewind.errors import NotFoundError
from tradewind.problem import Run
from tradewind.service.requests import run_files
from tradewind.service.requests.run_files import RunLogPart
from tradewind.service.requests.run_output import RunOutputReader
from tradewind.store.base import Store
from tradewind.store.service.request_values import RequestRow
from tradewind.store.service.requests import RequestStore

_MOST_LOG_BYTES = 4 * 2**20


class RequestRuns:
    """The runs of requests.

    Args:
        store: The requests.
        studies: The studies, which have the runs.
        left: What runs have left, wherever they were carried out.
        data_folder: The folders of this machine's runs are below it.
    """

    def __init__(self, store: RequestStore, studies: Store, left: RunOutputReader, data_folder: Path) -> None:
        self._store, self._studies, self._left, self._data_folder = store, studies, left, data_folder

    def last(self, row: RequestRow, trial: int | None = None) -> Run | None:
        """The last run of a request, or of one of its trials; None before there is one.

        Raises:
            NotFoundError: The trial has no run.
        """
        if row.study_id is None:
            return None
        wanted = self._store.last_trial(row.study_id) if trial is None else trial  # of 10,000 runs, read those of one
        runs = [] if wanted is None else self._studies.runs(row.study_id, trial=wanted)
        if not runs and trial is not None:
            raise NotFoundError(f"request {row.id} has no run of a trial {trial}")
        last = max(runs, key=lambda run: (run.started or 0.0, run.trial, run.attempt), default=None)
        return self._placed(row.study_id, last)

    def log(
        self, row: RequestRow, stream: str, offset: int, limit: int, *, trial: int | None = None, run: str = ""
    ) -> RunLogPart:
        """A part of a log; see `RequestService.log`.

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
        """The run of a request that was started next after another one."""
        if row.study_id is None:
            return None
        following = self._store.run_after(row.study_id, run)
        return self._run(row, following) if following is not None else None

    def _placed(self, study: int, run: Run | None) -> Run | None:
        if run is None or run.folder:
            return run
        owner = self._studies.study(study).owner  # the engine notes the folder when the run has ended
        return replace(run, folder=str(run_folder(self._data_folder, owner, run.run_id)))
