"""The trials that one of several workers has, where those of others make no difference to how they end."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

from tradewind.engine.ask_tell.asked_trial import Asked, RunOutcome, asked_trial
from tradewind.engine.search_builder import ask_tell_machine
from tradewind.engine.state_machine import events as ev
from tradewind.problem import Problem, Run, Trial
from tradewind.problem.job_spec.spec import JobSpec
from tradewind.searcher.base import Searcher
from tradewind.store.studies.quick_turns import Told
from tradewind.utils.clock import SystemClock
from tradewind.utils.processes import Moment

_AT_ONCE, _HABIT, _KEPT = 0.2, 3, 1.0
"""A worker that has asked at once so many times has its next trial taken for it when it tells one, until it has not
asked at once twice in a row: on a machine with much to do, anybody is kept waiting now and then."""

_LITTLE = 0.5
"""Seconds that a quick worker takes for a trial at most."""


class OwnTrials:
    """Takes trials for a worker, and says how each has ended.

    Args:
        spec: The specification of the study.
        problem: Its problem.
        searcher: Its searcher.
        owner: The study's owner tag.
        lease: Seconds of the worker's lease.

    Attributes:
        taken: Those that were taken for the worker, but not asked for yet, by number.
        at_once: Seconds after telling a trial within which the next question is one at once.
        kept: Seconds after which a trial that was taken is given back, if it was not asked for.
        doubtful: Those that were taken may be others' by now: nobody knows whether they were given back.
    """

    def __init__(self, spec: JobSpec, problem: Problem, searcher: Searcher, owner: str, lease: float) -> None:
        self._made_of = (spec, problem, searcher, owner)
        self._problem = problem
        self.at_once, self.kept = _AT_ONCE, min(_KEPT, lease / 2)
        self._machine = ask_tell_machine(*self._made_of)
        self._held: dict[int, tuple[Trial, Run]] = {}
        self.taken: dict[int, Asked] = {}
        self.doubtful = False
        self._taken_at = Moment.now()
        self._told_at = Moment.now()
        self._handed_at = Moment.now()
        self._took = (math.inf, math.inf)  # seconds, for the last two trials
        self._quick = 0  # times that it has asked at once
        self._count = 0  # of the last question

    def __contains__(self, number: int) -> bool:
        return number in self._held

    def hold(self, trial: Trial, runs: Sequence[Run]) -> Asked:
        """Take note of a trial that the worker has from now on, with its runs."""
        (run,) = (run for run in runs if not run.state.ended)
        self._held[trial.number] = (trial, run)
        if self._machine.ending is not None:  # as if there were no trials but its own
            self._machine = ask_tell_machine(*self._made_of)
            for other, its_run in self._held.values():
                self._machine.handle(ev.ChangedElsewhere([other], [its_run]), SystemClock().now())
        else:
            self._machine.handle(ev.ChangedElsewhere([trial], runs), SystemClock().now())
        return asked_trial(trial, self._machine.cap(trial, run)[0])

    def forget(self, number: int) -> None:
        """A trial is not the worker's any more."""
        self._held.pop(number, None)
        self.taken.pop(number, None)

    def trials(self, numbers: Sequence[int]) -> list[Trial]:
        """Trials that the worker has, as they were when it got them."""
        return [self._held[number][0] for number in numbers]

    def end(self, number: int, outcome: RunOutcome) -> Told:
        """Find what becomes of a trial by its result, which the worker then has no more.

        Args:
            number: One that the worker has.
            outcome: What is told of it: an end, and not that its run was lost.

        Raises:
            ConfigurationError: It makes no sense, and nothing is changed.
        """
        trial, run = self._held[number]
        sent, metrics = outcome.checked(self._problem, trial, run)
        found: list[ev.WriteRows] = []
        events: deque[ev.SearchEvent] = deque([ev.RunChanged(sent)])
        while events:
            for instruction in self._machine.handle(events.popleft(), SystemClock().now()):
                if isinstance(instruction, ev.WriteRows):
                    found.append(instruction)
                elif isinstance(instruction, ev.InterpretOutput):
                    events.append(ev.OutputInterpreted(sent.run_id, metrics))
        rows = ev.WriteRows.joined(found)
        (ended,), (stored,) = rows.trials, rows.runs
        self.forget(number)
        return Told(ended, stored)

    # ------------------------------------------------------------------ trials that are taken before they are asked for

    def keep(self, asked: Sequence[Asked]) -> None:
        """Keep trials for the worker's next question."""
        self.taken |= {one.number: one for one in asked}
        self._taken_at = Moment.now()

    @property
    def outdated(self) -> bool:
        """True where trials that were taken have been kept for so long that others may have them, or do already."""
        return bool(self.taken) and (self.doubtful or self._taken_at.ago() > self.kept)

    def asks(self, count: int) -> None:
        """Note that the worker asks for so many trials."""
        at_once = self._told_at.ago() < self.at_once
        self._quick = min(self._quick + 1, 2 * _HABIT) if at_once else self._quick // 2
        self._count = count

    def handed(self) -> None:
        """Note that trials were handed to the worker."""
        self._handed_at = Moment.now()

    def tells(self) -> None:
        """Note that the worker is about to tell a trial."""
        self._took = (self._took[1], self._handed_at.ago())

    @property
    def is_quick(self) -> bool:
        """True where the worker has had little to do for a trial of late, and asks for the next one at once."""
        return self._quick > 0 and min(self._took) < _LITTLE

    def told(self) -> None:
        """Note that the worker has told a trial."""
        self._told_at = Moment.now()

    @property
    def worth_taking(self) -> int:
        """The number of trials that the worker is going to ask for at once, by what it did up to now."""
        return self._count if self._quick >= _HABIT else 0
