"""Searches whose runs wait for leave."""

from __future__ import annotations

from dataclasses import replace

from tests.engine.searchers import in_order
from tests.engine.test_state import tuning

from tradewind.engine.asking import ask
from tradewind.engine.events import Ask, Granted, Launch, Opened, Tick, Want
from tradewind.engine.leave import Leave
from tradewind.engine.policy import Policy
from tradewind.engine.state import SearchMachine
from tradewind.problem import Budget


def test_leave_is_for_who_asked() -> None:
    leave = Leave()
    leave.give(3)
    assert not leave.may(3)
    assert not leave.waits()
    assert leave.ask(3)
    assert not leave.ask(3)
    assert leave.waits()
    leave.give(3)
    assert leave.may(3)
    assert leave.drop(3)
    assert not leave.waits()
    assert not leave.may(3)
    assert not leave.drop(3)


def test_all_are_dropped_at_the_end() -> None:
    leave = Leave()
    for number in (5, 2, 9):
        leave.ask(number)
    leave.give(2)
    assert leave.drop_all() == [2, 5, 9]
    assert not leave.may(2)
    assert leave.drop_all() == []


def test_who_only_waits_for_leave_uses_up_no_hours() -> None:
    problem = replace(tuning(), budget=Budget(hours=1.0))
    machine = SearchMachine(problem, Policy(owner="t", gated=True))
    (asked,) = machine.handle(Opened((), (), 0.0), 0.0)
    assert isinstance(asked, Ask)
    (wanted,) = machine.handle(ask(machine, in_order(problem), asked.count), 60.0)
    assert isinstance(wanted, Want)
    assert machine.elapsed == 60.0, "its searcher has computed"
    assert machine.handle(Tick(), 9000.0) == []
    begun = machine.handle(Granted(wanted.trial.number), 10_000.0)
    assert any(isinstance(each, Launch) for each in begun)
    assert machine.elapsed == 60.0
    machine.handle(Tick(), 10_040.0)
    assert machine.elapsed == 100.0, "a run runs"
