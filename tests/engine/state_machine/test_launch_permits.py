"""Searches whose runs wait for leave."""

from __future__ import annotations

from dataclasses import replace

from tests.engine.searchers import in_order
from tests.engine.state_machine.test_search_machine import tuning

from tradewind.engine.proposals import ask_searcher
from tradewind.engine.state_machine.events import (
    AskSearcher,
    Launch,
    LaunchPermitted,
    RequestPermit,
    SearchOpened,
    Tick,
)
from tradewind.engine.state_machine.search_machine import LaunchPermits, SearchMachine
from tradewind.engine.state_machine.search_policy import SearchPolicy
from tradewind.problem import Budget


def test_leave_is_for_who_asked() -> None:
    leave = LaunchPermits()
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
    leave = LaunchPermits()
    for number in (5, 2, 9):
        leave.ask(number)
    leave.give(2)
    assert leave.drop_all() == [2, 5, 9]
    assert not leave.may(2)
    assert leave.drop_all() == []


def test_who_only_waits_for_leave_uses_up_no_hours() -> None:
    problem = replace(tuning(), budget=Budget(hours=1.0))
    machine = SearchMachine(problem, SearchPolicy(owner="t", gated=True))
    (asked,) = machine.handle(SearchOpened((), (), 0.0), 0.0)
    assert isinstance(asked, AskSearcher)
    (wanted,) = machine.handle(ask_searcher(machine, in_order(problem), asked.count), 60.0)
    assert isinstance(wanted, RequestPermit)
    assert machine.elapsed == 60.0, "its searcher has computed"
    assert machine.handle(Tick(), 9000.0) == []
    begun = machine.handle(LaunchPermitted(wanted.trial.number), 10_000.0)
    assert any(isinstance(each, Launch) for each in begun)
    assert machine.elapsed == 60.0
    machine.handle(Tick(), 10_040.0)
    assert machine.elapsed == 100.0, "a run runs"
