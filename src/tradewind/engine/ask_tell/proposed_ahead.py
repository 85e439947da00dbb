"""Proposals before anybody asks: workers that share a study then need not take in what all others have found."""

from __future__ import annotations

from tradewind.problem import Problem
from tradewind.problem.job_spec.spec import JobSpec
from tradewind.searcher.base import IgnoresResults, Searcher
from tradewind.utils.processes import Moment

_SECONDS, _MOST, _OF_EACH, _MANY = 0.5, 64, 4, 4
"""Trials are proposed ahead for so many seconds, at most so many, or so many for each worker, where others have changed
a few since the last look. Workers that take seconds for a trial have none proposed ahead."""

_CLOCK = 0.001
"""Seconds below which no rate is reckoned."""


def may_propose_ahead(spec: JobSpec, problem: Problem, searcher: Searcher) -> bool:
    """True where no result decides what is tried next, or how long it may take."""
    budget = spec.budget
    limited = bool(spec.stop) or searcher.weighs or budget.dollars is not None or budget.hours is not None
    cut_short = problem.objective.metric in ("cost", "runtime")  # where a run cannot beat the best one any more
    return isinstance(searcher, IgnoresResults) and not limited and not cut_short


class AheadCount:
    """The number of trials that are worth proposing ahead, by the rate at which other workers change theirs.

    Attributes:
        worth: That number.
        many: So much was changed that it is better read before others are kept waiting.
        workers: Workers of the study. Who makes the proposals comes to it once in a round of all of them.
    """

    def __init__(self) -> None:
        self.worth, self.many = 0, False
        self.workers = 1
        self._last = Moment.now()

    def led(self) -> None:
        """Note that another worker makes proposals ahead."""
        self.worth, self.many = max(self.worth, _MANY), True

    def caught_up(self, changed: int) -> None:
        """Note how many trials others have changed since the last time."""
        self.many = changed >= _MANY
        rate = changed / max(self._last.ago(), _CLOCK)
        most = max(_MOST, _OF_EACH * self.workers)
        self.worth = min(most, int(_SECONDS * rate)) if self.many else 0
        self._last = Moment.now()
