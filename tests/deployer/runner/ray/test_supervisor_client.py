"""Who waits for runs of a Ray cluster is told when one has ended; no cluster is needed for it."""

from __future__ import annotations

import queue
import threading
from typing import Any

import pytest

from tradewind.deployer.runner.ray import supervisor_client
from tradewind.deployer.runner.ray.supervisor_client import RunEndNotifier


class _Keeper:
    """Answers as `SupervisorActor.ended` does; an exception among the answers is raised."""

    def __init__(self) -> None:
        self.answers: queue.Queue[list[str] | Exception] = queue.Queue()
        self.asked: list[Any] = []

    def ended(self, moment: Any, seconds: float) -> tuple[Any, list[str]]:
        self.asked.append(moment)
        try:
            names = self.answers.get(timeout=min(seconds, 5.0))
        except queue.Empty:
            return moment, []
        if isinstance(names, Exception):
            raise names
        return (moment or 0) + len(names), names


@pytest.fixture
def keeper() -> _Keeper:
    return _Keeper()


def _told(event: threading.Event) -> bool:
    return event.wait(5.0)


def test_each_is_told_of_his_own_runs(keeper: _Keeper) -> None:
    endings, first, second = RunEndNotifier(keeper.ended), threading.Event(), threading.Event()
    endings.await_one("first", ["a", "b"], first.set)
    endings.await_one("second", ["c"], second.set)
    keeper.answers.put(["x"])
    keeper.answers.put(["b"])
    assert _told(first)
    assert not second.is_set()
    keeper.answers.put(["c"])
    assert _told(second)
    assert keeper.asked[:3] == [None, 1, 2]


def test_what_ended_before_is_told_at_once(keeper: _Keeper) -> None:
    endings, other, late = RunEndNotifier(keeper.ended), threading.Event(), threading.Event()
    endings.await_one("other", ["x"], other.set)
    keeper.answers.put(["a", "x"])
    assert _told(other)
    endings.await_one("late", ["a"], late.set)
    assert late.is_set()


def test_who_waits_for_others_instead_is_told_and_forgotten(keeper: _Keeper) -> None:
    endings, before, after = RunEndNotifier(keeper.ended), threading.Event(), threading.Event()
    endings.await_one("one", ["a"], before.set)
    endings.await_one("one", ["b"], after.set)
    assert before.is_set()
    before.clear()
    keeper.answers.put(["a"])
    keeper.answers.put(["b"])
    assert _told(after)
    assert not before.is_set()


def test_a_keeper_that_is_gone_is_asked_again(keeper: _Keeper) -> None:
    endings, told = RunEndNotifier(keeper.ended), threading.Event()
    keeper.answers.put(LookupError("no keeper"))
    endings.await_one("one", ["a"], told.set)
    keeper.answers.put(["a"])
    assert _told(told)


def test_it_does_not_remember_for_ever(keeper: _Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_client, "_REMEMBERED", 2)
    endings, told = RunEndNotifier(keeper.ended), threading.Event()
    endings.await_one("one", ["e"], told.set)
    keeper.answers.put(["a", "b", "c", "d", "e"])
    assert _told(told)
    assert list(endings._ended) == ["d", "e"]
