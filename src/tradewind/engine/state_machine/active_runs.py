"""The runs that are on their way, and what is known of each besides its row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from tradewind.problem import LOCALHOST, Run, RunPreemption, RunState

_ENDING = "being ended: "
"""So begins the reason in the row of a run that is being cancelled: who goes on after a crash does not repeat it."""

_SLACK, _SLACK_SHARE = 2.0, 0.02
"""Seconds, and share of its wall time, by which the measured time of a run that was cut there may fall short of it."""


class ActiveRuns:
    """The current run of each open trial that has one.

    Attributes:
        runs: By their ids.
    """

    def __init__(self) -> None:
        self.runs: dict[str, Run] = {}
        self._deadlines: dict[str, tuple[float | None, str]] = {}  # run -> its wall time, and why it is that
        self._aborting: dict[str, str] = {}  # run -> why it is being cancelled
        self._troubles: dict[str, str] = {}  # run -> what keeps one that is being cancelled from being gone
        self._dirty: dict[str, Run] = {}

    def __len__(self) -> int:
        return len(self.runs)

    def going_on(self) -> Iterator[Run]:
        """Runs that have not ended and that nobody is cancelling."""
        return (run for run in self.runs.values() if run.run_id not in self._aborting and not run.state.ended)

    def put(self, run: Run, *, stored: bool = True) -> bool:
        """Take a run in, or the news of it; with ``stored`` False it is written with the next rows.

        Returns:
            True when whoever goes on after a crash must know it, or machines would be made, and paid for, once more: a
            job has been handed over to machines that were made for it, or it has ended there.
        """
        known = self.runs.get(run.run_id)
        self.runs[run.run_id] = run
        if not stored:
            self._dirty[run.run_id] = run
        if stored or known is None or run.machines in ((), (LOCALHOST,)):
            return False
        collects = run.state == RunState.COLLECTING != known.state
        return collects or (run.handle is not None and known.handle is None)

    def known(self, news: Run) -> Run | None:
        """News of a run, with what only this side knows of it; None where it is not on its way.

        That is what was set aside for it at its launch, that it is being cancelled, and why, and for whom.
        """
        known = self.runs.get(news.run_id)
        if known is None:
            return None
        run = news if news.reserved == known.reserved else replace(news, reserved=known.reserved)
        if known.preemption is not None:
            run = replace(run, preemption=known.preemption)
        if run.run_id in self._aborting and not run.state.ended:
            self._troubles[run.run_id] = run.reason
            run = replace(run, reason=known.reason)
        return run

    def may_take(self, run_id: str, seconds: float | None, why: str) -> None:
        """Note a run's wall time, and why it is that."""
        self._deadlines[run_id] = (seconds, why)

    def abort(self, run_id: str, why: str) -> bool:
        """Note that a run is being cancelled, and why: in its row, too; False where it is being cancelled already."""
        if run_id in self._aborting:
            return False
        self._aborting[run_id] = why
        run = self.runs[run_id]
        self.put(replace(run, reason=_ENDING + why), stored=False)
        return True

    def preempt(self, run_id: str, preemption: RunPreemption) -> bool:
        """Note, in its row too, for whom a run is being taken; False where it is being cancelled already."""
        if run_id in self._aborting:
            return False
        self.runs[run_id] = replace(self.runs[run_id], preemption=preemption)
        return self.abort(run_id, preemption.words)

    def spare(self, run: Run) -> Run:
        """The row of a run that ended by itself before it was taken."""
        self._aborting.pop(run.run_id, None)
        return replace(run, preemption=None)

    def aborted(self, run_id: str) -> bool:
        """True when a run is being cancelled, or was, for a reason of its own."""
        return run_id in self._aborting

    def why_ending(self, run_id: str) -> str:
        """The reason why a run is being cancelled; empty where it is not."""
        return self._aborting.get(run_id, "")

    def trouble(self, run_id: str) -> str:
        """The reason in words that keeps a run from going on, or from being gone; empty where nothing does."""
        return self._troubles.get(run_id, "") if run_id in self._aborting else self.runs[run_id].reason

    def take_up(self) -> None:
        """Take up what an earlier process began: the runs that it was ending are not wanted now either."""
        marked = (run for run in self.runs.values() if run.reason.startswith(_ENDING))
        self._aborting = {run.run_id: run.reason.removeprefix(_ENDING) for run in marked}

    def why_cut(self, run: Run) -> str:
        """The reason why a run ended before its end."""
        if why := self.why_ending(run.run_id):
            return why
        seconds, why = self._deadlines.get(run.run_id, (None, ""))
        # An engine has limits of its own: who was cut by one of them did not reach the time noted here.
        reached = seconds is None or run.runtime >= seconds - max(_SLACK, _SLACK_SHARE * seconds)
        return (why if reached else run.reason) or run.reason or why

    def remove(self, run_id: str) -> None:
        """A run is over."""
        del self.runs[run_id]
        for notes in (self._dirty, self._aborting, self._troubles, self._deadlines):
            notes.pop(run_id, None)

    def rows(self, runs: Sequence[Run]) -> Iterable[Run]:
        """Rows to store: some runs, and whatever else has changed since the last time."""
        rows = {**self._dirty, **{run.run_id: run for run in runs}}
        self._dirty.clear()
        return rows.values()
