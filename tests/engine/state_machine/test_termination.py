"""Time, trials and money that are left."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.engine.state_machine.test_search_machine import tuning

from tradewind.engine.state_machine.budget import Ledger
from tradewind.engine.state_machine.termination import TerminationCheck
from tradewind.engine.state_machine.trial_history import TrialHistory
from tradewind.problem import Budget
from tradewind.testing.stores import trial


def parts(budget: Budget, rule: str | None = None) -> tuple[TerminationCheck, TrialHistory, Ledger]:
    problem = replace(tuning(), budget=budget)
    rules = [] if rule is None else [lambda progress: rule]
    return TerminationCheck(problem, rules), TrialHistory(problem.objective), Ledger(budget.dollars)


def test_earlier_sessions_count() -> None:
    allowance, history, ledger = parts(Budget(hours=1.0))
    allowance.open(100.0, 3000.0)
    allowance.now = 400.0
    assert allowance.elapsed == 3300.0
    assert allowance.seconds_left == 300.0
    assert allowance.why_over(history, ledger, waiting=False, running=False) is None
    allowance.now = 701.0
    assert allowance.why_over(history, ledger, waiting=True, running=True) == (
        "the time budget of 1h 00m is used up",
        True,
    )


def test_time_that_does_not_count_is_not_used_up() -> None:
    allowance, _, _ = parts(Budget(hours=1.0))
    allowance.open(100.0, 3000.0)
    allowance.advance(150.0, counts=True)
    allowance.advance(9000.0, counts=False)
    assert (allowance.now, allowance.elapsed) == (9000.0, 3050.0)
    allowance.advance(8000.0, counts=True)
    allowance.advance(9010.0, counts=True)
    assert (allowance.now, allowance.elapsed) == (9010.0, 3060.0)


def test_the_last_trial_may_still_wait() -> None:
    allowance, history, ledger = parts(Budget(trials=1))
    assert allowance.trials_left(history) == 1
    history.put(trial(0, 1.0))
    assert allowance.why_over(history, ledger, waiting=True, running=False) is None
    over = allowance.why_over(history, ledger, waiting=False, running=True)
    assert over == ("the budget of 1 trial is used up", False)


def test_money_comes_back_while_something_runs() -> None:
    allowance, history, ledger = parts(Budget(dollars=1.0))
    ledger.reserve("r", 1.0)
    assert allowance.why_over(history, ledger, waiting=True, running=True) is None
    over = allowance.why_over(history, ledger, waiting=True, running=False)
    assert over is not None
    assert over[1]
    assert "does not pay a single run" in allowance.why_unpaid(history, ledger, 0)
    assert "do not pay another run" in allowance.why_unpaid(history, ledger, 1)


@pytest.mark.parametrize("rule", [None, "enough"])
def test_rules_of_the_user(rule: str | None) -> None:
    allowance, history, ledger = parts(Budget(), rule)
    found = allowance.why_over(history, ledger, waiting=True, running=True)
    assert found == (None if rule is None else (rule, True))
