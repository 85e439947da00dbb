"""The ledger: money reserved at launch, metered during the run, settled at the end.

Amounts go in and out in USD and are added up in whole nano-dollars, so that sums are exact. At every moment
``spent + reserved <= limit`` holds, up to the smallest billing unit of runs that were settled above what had been
reserved for them.
"""

from __future__ import annotations

from tradewind.errors import BudgetError
from tradewind.problem.offer import NANO
from tradewind.utils.units import format_money


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

    def settle(self, run_id: str, usd: float) -> None:
        """Replace a run's reservation by what it cost; a run without a reservation is charged all the same."""
        self._reserved.pop(run_id, None)
        self._metered.pop(run_id, None)
        self._spent += max(0, _nano(usd))

    def holds(self, run_id: str) -> bool:
        """True while the run has a reservation."""
        return run_id in self._reserved
