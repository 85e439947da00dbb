"""When a search has to look at its runs again, where its clock jumps and nothing else would wake it."""

from __future__ import annotations

import math

from tradewind.engine.state_machine.search_machine import SearchMachine
from tradewind.problem import RunState

_LEAST_WAIT = 1e-3
"""Seconds: a limit is passed, not met, and a clock that counts from 1970 moves by no less than a microsecond."""

_LEAST_WAIT_FOR_MONEY = 1.0
"""Seconds: what runs cost goes up in steps, and several of them share what is free."""


def seconds_to_deadline(machine: SearchMachine) -> float:
    """Seconds until a run may have to be ended for a limit, for money or for time; infinite when none has to be."""
    seconds = [_until_limits(machine), _until_no_money(machine)]
    if machine.seconds_left is not None and machine.runs:
        seconds.append(machine.seconds_left)
    return max(_LEAST_WAIT, min(seconds))


def _until_limits(machine: SearchMachine) -> float:
    """Until the first program has taken longer than it may; the incumbent may have changed since it was started."""
    best = machine.history.best_value
    found = [math.inf]
    for run in machine.going_on():
        if run.state is RunState.EXECUTING:
            limits = machine.run_limits.limits(machine.history.trials[run.trial], best)
            found.append(min((seconds for seconds, _ in limits), default=math.inf) - run.runtime)
    # Who is past a limit has been told to go.
    return min((seconds + _LEAST_WAIT for seconds in found if seconds >= 0), default=math.inf)


def _until_no_money(machine: SearchMachine) -> float:
    """Until the first run may have used up what was set aside for it and its part of what is free."""
    free = machine.ledger.free
    runs = [run for run in machine.going_on() if run.state is not RunState.COLLECTING]
    if free is None:
        return math.inf
    found = [math.inf]
    for run in runs:
        hourly = machine.history.trials[run.trial].offer.hourly
        if hourly > 0:
            left = max(0.0, run.reserved - run.cost) + free / len(runs)
            found.append(left / hourly * 3600.0)
    return max(_LEAST_WAIT_FOR_MONEY, min(found))
