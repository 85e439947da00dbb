"""Holds a run to its budget and its deadline."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping

import numpy as np

from tradewind.errors import BudgetError, LimitReachedError, TradewindError
from tradewind.utils.units import format_duration, format_money
from tradewind.workflow.execution.journal import RunHistory
from tradewind.workflow.execution.options import ExecutionOptions, vm_stays
from tradewind.workflow.platform import Platform
from tradewind.workflow.schedule import Schedule, held_cost, vm_request_times

_SPARE_SECONDS = 5.0
"""Seconds of all machines that are kept back of a budget: so long it may take until they are given back."""


def planned_costs(platform: Platform, schedule: Schedule, options: ExecutionOptions) -> Mapping[int, float]:
    """Compute the USD that each machine will have cost at its planned end, from the moment it is asked for.

    Args:
        platform: The machines.
        schedule: The plan.
        options: Settings of the run.
    """
    asked = vm_request_times(platform, schedule, None if options.online else options.ahead)
    ends = np.full(len(platform.vms), schedule.makespan)
    if options.give_back and not options.online:
        ends[:] = 0.0
        np.maximum.at(ends, schedule.vm, schedule.finish)
    spans = np.maximum(ends - asked - np.array([vm.boot_seconds for vm in platform.vms]), 0.0)
    return {vm: platform.bill([(vm, float(span))]) for vm, span in enumerate(spans)}


def check_budget(platform: Platform, schedule: Schedule, options: ExecutionOptions) -> None:
    """Check that a plan does not cost more than it may.

    Raises:
        BudgetError: It does.
    """
    if options.budget is None:
        return
    give_back = options.give_back and not options.online
    ahead = None if options.online else options.ahead
    cost = held_cost(platform, schedule, give_back=give_back, ahead=ahead)
    if cost > options.budget:
        machines = _machine_words(platform, schedule)
        raise BudgetError(
            f"the machines of the plan ({machines}) cost {format_money(cost)} as they are held, "
            f"the budget is {format_money(options.budget)}",
            hint="raise --budget, or plan with fewer or cheaper machines: tradewind workflow advise --budget",
        )


def _machine_words(platform: Platform, schedule: Schedule) -> str:
    """The machines that have tasks, by kind and number."""
    kinds = Counter(platform.vms[vm].kind or platform.vms[vm].name for vm in set(map(int, schedule.vm)))
    return ", ".join(f"{number} x {kind}" for kind, number in sorted(kinds.items()))


class SpendingLimits:
    """The budget and the deadline of a run.

    Args:
        budget: USD, or None.
        deadline: Seconds from the beginning of the run, or None.

    Attributes:
        reached: The limit that was reached, or None.
    """

    def __init__(self, budget: float | None, deadline: float | None) -> None:
        self._budget, self._deadline = budget, deadline
        self.reached: TradewindError | None = None

    @property
    def given(self) -> bool:
        """True where there is a limit."""
        return self._budget is not None or self._deadline is not None

    def over(self, history: RunHistory, platform: Platform, scale: float, paid: float) -> bool:
        """True when the run is to end now.

        Args:
            history: Its journal.
            platform: Its machines.
            scale: Share of the time that it takes.
            paid: USD for its machines so far, as their rows have it.
        """
        if self.reached is not None:
            return True
        now = time.time()
        if self._deadline is not None and history.header is not None:
            waited = 0.0 if history.began is None else history.began - history.header["at"]
            gone = (waited + history.clock(now)) / scale if history.began is not None else now - history.header["at"]
            if gone > self._deadline:
                limit = format_duration(self._deadline)
                self.reached = LimitReachedError(
                    f"the run was ended at its deadline of {limit}", hint="a later --deadline goes on where it was"
                )
        if self._budget is not None:
            soon = platform.bill(vm_stays(history, platform, now + _SPARE_SECONDS * scale))
            if max(soon, paid) > self._budget:
                self.reached = LimitReachedError(
                    f"the run was ended before its machines cost more than the budget of {format_money(self._budget)}",
                    hint="a larger --budget goes on where it was",
                )
        return self.reached is not None
