"""What a run may cost and how long it may take: pure functions of the problem and the money left."""

from __future__ import annotations

import math

from tradewind.engine import outcome
from tradewind.problem import Offer, Problem, Run, Trial
from tradewind.units import format_money


class Purse:
    """Decides reservations and wall times.

    Args:
        problem: The problem.
        abort: False when the user wants every run to go to its end.
        priced: True when the searcher chooses caps itself, so that the incumbent adds none.
        kill_seconds: Seconds that a run may still take, and cost, after it was told to end.
    """

    def __init__(self, problem: Problem, *, abort: bool, priced: bool, kill_seconds: float = 0.0) -> None:
        self._kill_seconds = kill_seconds
        self._problem = problem
        self._abort = abort
        self._priced = priced

    def limits(self, trial: Trial, best: float | None) -> list[tuple[float, str]]:
        """Seconds at which the trial's run is cut short, each with its reason; money and time left are not in it."""
        return outcome.caps(self._problem, trial, best, abort=self._abort, priced=self._priced)

    def cap(
        self, trial: Trial, reserved: float, best: float | None, seconds_left: float | None
    ) -> tuple[float | None, str]:
        """When a run must end, in seconds of execution, and why.

        Args:
            trial: Its trial.
            reserved: USD set aside for it.
            best: The objective of the best trial, or None.
            seconds_left: Wall-clock seconds left of the budget, or None.
        """
        limits = self.limits(trial, best)
        if self._problem.budget.dollars is not None:
            most = self._longest(reserved, trial.offer.hourly)
            if math.isfinite(most):
                limits.append((most, f"the {format_money(reserved)} that the budget had left for it were used up"))
        if seconds_left is not None:
            limits.append((seconds_left, "the time budget was used up"))
        return min(limits, default=(None, ""))

    def reservation(self, trial: Trial, best: float | None, free: float | None, running: int) -> float | None:
        """USD to set aside for a run of the trial; None if there is not enough now.

        Args:
            trial: The trial.
            best: The objective of the best trial, or None.
            free: USD neither spent nor reserved, or None without a budget.
            running: Runs on their way.
        """
        billing, hourly = self._problem.terms.billing, trial.offer.hourly
        longest = min((seconds for seconds, _ in self.limits(trial, best)), default=math.inf)
        wanted = billing.cost(longest + self._kill_seconds, hourly) if math.isfinite(longest) else math.inf
        if hourly == 0:
            wanted = 0.0
        if free is None:
            return wanted if math.isfinite(wanted) else 0.0
        if wanted <= free:
            return wanted
        # Without a cap, the free money is shared among the places that are open. With one, the last money goes to
        # a shortened run only when no other run can bring any back.
        if math.isinf(wanted):
            share = free / max(1, self._problem.terms.parallel - running)
        elif running:
            return None
        elif best is not None and free < wanted / 2:
            return None  # what beats the best is hardly found for less than half of what the best costs
        else:
            share = free
        return share if self._longest(share, hourly) > 0 else None

    def overdrawn(self, run: Run, offer: Offer) -> bool:
        """True when a run has cost more than was set aside for it, by more than half of the least that is billed."""
        unit = self._problem.terms.billing.unit_cost(offer.hourly)
        return self._problem.budget.dollars is not None and run.cost > run.reserved + unit / 2

    def _longest(self, money: float, hourly: float) -> float:
        """Seconds after which a run must be told to end, so that it has ended before it costs more than ``money``."""
        return self._problem.terms.billing.longest_run(money, hourly) - self._kill_seconds
