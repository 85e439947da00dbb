"""When a search has to look at its runs again, where its clock jumps and nothing else would wake it."""

from __future__ import annotations

import math

from tradewind.engine.state import SearchMachine
from tradewind.problem import RunState

_LEAST = 1e-3
"""Seconds: a limit is passed, not met, and a clock that counts from 1970 moves by no less than a microsecond."""

_LEAST_FOR_MONEY = 1.0
"""Seconds: what runs cost goes up in steps, and several of them share what is free."""


def due_in(machine: SearchMachine) -> float:
    """Seconds until a run may have to be ended for a limit, for money or for time; infinite when none has to be."""
    seconds = [_until_limits(machine), _until_no_money(machine)]
    if machine.seconds_left is not None and machine.runs:
        seconds.append(machine.seconds_left)
    return max(_LEAST, min(seconds))


def _until_limits(machine: SearchMachine) -> float:
    """Until the first program has taken longer than it may; the incumbent may have changed since it was started."""
    best = machine.book.best_value
    found = [math.inf]
    for run in machine.going_on():
        if run.state is RunState.EXECUTING:
            limits = machine.purse.limits(machine.book.trials[run.trial], best)
            found.append(min((seconds for seconds, _ in limits), default=math.inf) - run.runtime)
    # Who is past a limit has been told to go.
    return min((seconds + _LEAST for seconds in found if seconds >= 0), default=math.inf)


def _until_no_money(machine: SearchMachine) -> float:
    """Until the first run may have used up what was set aside for it and its part of what is free."""
    free = machine.ledger.free
    runs = [run for run in machine.going_on() if run.state is not RunState.COLLECTING]
    if free is None:
        return math.inf
    found = [math.inf]
    for run in runs:
        hourly = machine.book.trials[run.trial].offer.hourly
        if hourly > 0:
            left = max(0.0, run.reserved - run.cost) + free / len(runs)
            found.append(left / hourly * 3600.0)
    return max(_LEAST_FOR_MONEY, min(found))
