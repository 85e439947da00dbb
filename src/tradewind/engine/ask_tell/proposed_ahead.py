"""Proposals before anybody asks: workers that share a study then need not take in what all others have found."""

from __future__ import annotations

from tradewind.problem import Problem
from tradewind.problem.job_spec.spec import JobSpec
from tradewind.searcher.base import IgnoresResults, Searcher
from tradewind.utils.processes import Moment

_SECONDS, _MOST, _MANY = 0.5, 64, 4
"""Trials are proposed ahead for so many seconds, at most so many, where others have changed a few since the last look.
Workers that take seconds for a trial have none proposed ahead."""

_ROUNDS = 4
"""Quick workers have so many proposed ahead for each of them, however slow the store is: who makes the proposals comes
to it once in a round of all workers, and they must last until then."""

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
        workers: Workers of the study that are alive.
    """

    def __init__(self) -> None:
        self.worth, self.many = 0, False
        self.workers = 1
        self._last = Moment.now()

    def led(self) -> None:
        """Note that another worker makes proposals ahead."""
        self.worth, self.many = max(self.worth, _MANY), True

    def caught_up(self, changed: int, *, quick: bool = False) -> None:
        """Note how many trials others have changed since the last time.

        Args:
            changed: That number.
            quick: This worker has little to do for a trial, and the others are taken to be like it.
        """
        self.many = changed >= _MANY
        rate = changed / max(self._last.ago(), _CLOCK)
        least = _ROUNDS * self.workers if quick else 0
        self.worth = max(least, min(_MOST, int(_SECONDS * rate))) if self.many else 0
        self._last = Moment.now()
