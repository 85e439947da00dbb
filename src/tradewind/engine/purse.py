"""What a run may cost and how long it may take: pure functions of the problem and the money left."""

from __future__ import annotations

import math

from tradewind.engine.policy import SearchPolicy
from tradewind.engine.state_machine import trial_outcome
from tradewind.problem import Offer, Problem, Run, Trial
from tradewind.utils.units import format_duration, format_money

_ROOM = 2.0
"""How many times the price of the best trial a shortened run gets before another one may start beside it."""


class RunLimits:
    """Decides reservations and wall times.

    Args:
        problem: The problem.
        policy: How the search is carried out.
    """

    def __init__(self, problem: Problem, policy: SearchPolicy) -> None:
        self._kill_seconds = policy.kill_seconds
        self._longest_of_all = policy.longest
        self._problem = problem
        self._abort = policy.abort
        self._priced = policy.priced_aborts

    def limits(self, trial: Trial, best: float | None) -> list[tuple[float, str]]:
        """Seconds at which the trial's run is cut short, each with its reason; money and time left are not in it."""
        limits = trial_outcome.run_time_caps(self._problem, trial, best, abort=self._abort, priced=self._priced)
        if (longest := self._longest_of_all) is not None:
            limits.append((longest, f"it ran into deploy.longest of {format_duration(longest)}"))
        return limits

    def cap(self, trial: Trial, run: Run, best: float | None, seconds_left: float | None) -> tuple[float | None, str]:
        """When a run must end, in seconds of execution, and why.

        Args:
            trial: Its trial.
            run: The run, with what was set aside for it and how long it has executed.
            best: The objective of the best trial, or None.
            seconds_left: Wall-clock seconds left of the budget, or None.
        """
        limits = self.limits(trial, best)
        if self._problem.budget.dollars is not None:
            most = self._longest(run.reserved, trial.offer.hourly)
            if math.isfinite(most):
                limits.append((most, f"the {format_money(run.reserved)} that the budget had left for it were used up"))
        if seconds_left is not None:
            limits.append((run.runtime + seconds_left, "the time budget was used up"))
        return min(limits, default=(None, ""))

    def reservation(
        self, trial: Trial, best: Trial | None, free: float | None, running: int, seconds_left: float | None
    ) -> float | None:
        """USD to set aside for a run of the trial; None if there is not enough now.

        Args:
            trial: The trial.
            best: The best trial, or None.
            free: USD neither spent nor reserved, or None without a budget.
            running: Runs on their way.
            seconds_left: Wall-clock seconds left of the budget, or None.
        """
        hourly = trial.offer.hourly
        seen = None if best is None else best.observation
        limits = [seconds for seconds, _ in self.limits(trial, None if seen is None else seen.objective)]
        if seconds_left is not None:
            limits.append(seconds_left)
        wanted = self._price(min(limits, default=math.inf), hourly)
        if free is None:
            return wanted if math.isfinite(wanted) else 0.0
        if wanted <= free:
            return wanted
        share = self.share(free, running)
        if seen is None:
            # How long a run takes is not known: with a cap, one of them is let go to its end.
            if running and math.isfinite(wanted):
                return None
            share = share if math.isinf(wanted) else free
        else:
            # A cap, a generous deadline above all, says less of what runs take than the best one does.
            usual = min(wanted, self._price(seen.runtime * trial.proposal.fidelity, hourly))
            if math.isfinite(wanted) and free < usual / 2:
                return None  # what beats the best is hardly found for less than half of what the best costs
            share = max(share, _ROOM * usual)
            if share > free:
                if running:
                    return None  # the last money goes to a shortened run when no other run can bring any back
                share = free
        return share if self._longest(share, hourly) > 0 else None

    def share(self, free: float, running: int) -> float:
        """The free money of each place that is open."""
        return free / max(1, self._problem.terms.parallel - running)

    def _price(self, seconds: float, hourly: float) -> float:
        """USD of a run that is told to end after so many seconds."""
        if hourly == 0:
            return 0.0
        if math.isinf(seconds):
            return math.inf
        return self._problem.terms.billing.cost(seconds + self._kill_seconds, hourly)

    def overdrawn(self, run: Run, offer: Offer) -> bool:
        """True when a run has cost more than was set aside for it, by more than half of the least that is billed."""
        unit = self._problem.terms.billing.unit_cost(offer.hourly)
        return self._problem.budget.dollars is not None and run.cost > run.reserved + unit / 2

    def _longest(self, money: float, hourly: float) -> float:
        """Seconds after which a run must be told to end, so that it has ended before it costs more than ``money``."""
        return self._problem.terms.billing.longest_run(money, hourly) - self._kill_seconds
