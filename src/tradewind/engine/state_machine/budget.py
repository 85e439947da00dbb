"""The money, time and trials of a search: limits of a run, the ledger, and what is left of the budget.

Amounts go in and out in USD and are added up in whole nano-dollars, so that sums are exact. At every moment
``spent + reserved <= limit`` holds, up to the smallest billing unit of runs that were settled above what had been
reserved for them.
"""

from __future__ import annotations

import math

from tradewind.engine.state_machine import trial_outcome
from tradewind.engine.state_machine.search_policy import SearchPolicy
from tradewind.errors import BudgetError
from tradewind.problem import Offer, Problem, Run, Trial
from tradewind.problem.offer import NANO
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
            limits.append((longest, f"it ran into the deadline of {format_duration(longest)}"))
        return limits

    def cap(self, trial: Trial, run: Run, best: float | None, seconds_left: float | None) -> tuple[float | None, str]:
        """The time at which a run must end, in seconds of execution, and the reason.

        Args:
            trial: The trial of the run.
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
        """USD of a run that is asked to end after so many seconds."""
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
        """Seconds after which a run must be asked to end, so that it has ended before it costs more than ``money``."""
        return self._problem.terms.billing.longest_run(money, hourly) - self._kill_seconds


def _nano(usd: float) -> int:
    return round(usd * NANO)


class Ledger:
    """Keeps a search within its dollars.

    Args:
        limit: USD that may be spent in total, or None for no limit.
        spent: USD already spent by runs that are settled.
    """

    def __init__(self, limit: float | None, spent: float = 0.0) -> None:
        self._limit = None if limit is None else _nano(limit)
        self._spent = _nano(spent)
        self._reserved: dict[str, int] = {}
        self._metered: dict[str, int] = {}

    @property
    def spent(self) -> float:
        """USD of settled runs, total."""
        return self._spent / NANO

    @property
    def reserved(self) -> float:
        """USD set aside for runs that are not settled, total; never negative."""
        return sum(self._reserved.values()) / NANO

    @property
    def metered(self) -> float:
        """USD that the runs that are not settled have cost so far, total."""
        return sum(self._metered.values()) / NANO

    @property
    def free(self) -> float | None:
        """USD neither spent nor reserved, not below zero; None without a limit."""
        if self._limit is None:
            return None
        return max(0, self._limit - self._spent - sum(self._reserved.values())) / NANO

    def reserve(self, run_id: str, usd: float) -> None:
        """Set money aside for a run.

        Raises:
            BudgetError: There is less left than that, or the run has a reservation already.
        """
        amount = _nano(usd)
        if amount < 0:
            raise BudgetError(f"cannot reserve {usd} USD for {run_id}")
        if run_id in self._reserved:
            raise BudgetError(f"{run_id} has a reservation already")
        if self._limit is not None and self._spent + sum(self._reserved.values()) + amount > self._limit:
            raise BudgetError(f"{format_money(usd)} for {run_id} is more than the {format_money(self.free)} left")
        self._reserved[run_id] = amount
        self._metered[run_id] = 0

    def take_over(self, run_id: str, usd: float) -> None:
        """Take over the reservation of a run that an earlier process launched, whatever is left."""
        self._reserved[run_id] = max(0, _nano(usd))
        self._metered.setdefault(run_id, 0)

    def meter(self, run_id: str, usd: float) -> bool:
        """Note what a run has cost so far.

        A run that costs more than was reserved has its reservation raised, so that nobody else gets that money.

        Returns:
            True while the run is within what was reserved for it at its launch.
        """
        amount = _nano(usd)
        self._metered[run_id] = amount
        within = amount <= self._reserved[run_id]
        self._reserved[run_id] = max(self._reserved[run_id], amount)
        return within

    def shrink(self, run_id: str, usd: float) -> None:
        """Free what is reserved for a run beyond ``usd``: it is all but over; never below what it has cost so far."""
        self._reserved[run_id] = min(self._reserved[run_id], max(_nano(usd), self._metered[run_id]))

    def free_without(self, run_id: str) -> float | None:
        """USD that are free once a run is settled at what it has cost so far; None without a limit."""
        if self._limit is None:
            return None
        others = sum(self._reserved.values()) - self._reserved[run_id]
        return max(0, self._limit - self._spent - others - self._metered[run_id]) / NANO

    def settle(self, run_id: str, usd: float) -> None:
        """Replace a run's reservation by what it cost; a run without a reservation is charged all the same."""
        self._reserved.pop(run_id, None)
        self._metered.pop(run_id, None)
        self._spent += max(0, _nano(usd))

    def holds(self, run_id: str) -> bool:
        """True while the run has a reservation."""
        return run_id in self._reserved
