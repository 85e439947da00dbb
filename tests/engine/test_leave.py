"""Searches whose runs wait for leave."""

from __future__ import annotations

from tradewind.engine.leave import Leave


def test_leave_is_for_who_asked() -> None:
    leave = Leave()
    leave.give(3)
    assert not leave.may(3)
    assert leave.ask(3)
    assert not leave.ask(3)
    leave.give(3)
    assert leave.may(3)
    assert leave.drop(3)
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
