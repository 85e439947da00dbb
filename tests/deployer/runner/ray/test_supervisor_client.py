"""Notifications that runs of a Ray cluster have ended; no cluster is needed for it."""

from __future__ import annotations

import queue
import threading
from typing import Any

import pytest

from tradewind.deployer.runner.ray import supervisor_client
from tradewind.deployer.runner.ray.supervisor_client import RunEndNotifier


class _Supervisor:
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
def supervisor() -> _Supervisor:
    return _Supervisor()


def _called(event: threading.Event) -> bool:
    return event.wait(5.0)


def test_each_is_told_of_his_own_runs(supervisor: _Supervisor) -> None:
    notifier, first, second = RunEndNotifier(supervisor.ended), threading.Event(), threading.Event()
    notifier.await_one("first", ["a", "b"], first.set)
    notifier.await_one("second", ["c"], second.set)
    supervisor.answers.put(["x"])
    supervisor.answers.put(["b"])
    assert _called(first)
    assert not second.is_set()
    supervisor.answers.put(["c"])
    assert _called(second)
    assert supervisor.asked[:3] == [None, 1, 2]


def test_what_ended_before_is_told_at_once(supervisor: _Supervisor) -> None:
    notifier, other, late = RunEndNotifier(supervisor.ended), threading.Event(), threading.Event()
    notifier.await_one("other", ["x"], other.set)
    supervisor.answers.put(["a", "x"])
    assert _called(other)
    notifier.await_one("late", ["a"], late.set)
    assert late.is_set()


def test_who_waits_for_others_instead_is_told_and_forgotten(supervisor: _Supervisor) -> None:
    notifier, before, after = RunEndNotifier(supervisor.ended), threading.Event(), threading.Event()
    notifier.await_one("one", ["a"], before.set)
    notifier.await_one("one", ["b"], after.set)
    assert before.is_set()
    before.clear()
    supervisor.answers.put(["a"])
    supervisor.answers.put(["b"])
    assert _called(after)
    assert not before.is_set()


def test_a_supervisor_that_is_gone_is_asked_again(supervisor: _Supervisor) -> None:
    notifier, called = RunEndNotifier(supervisor.ended), threading.Event()
    supervisor.answers.put(LookupError("no supervisor"))
    notifier.await_one("one", ["a"], called.set)
    supervisor.answers.put(["a"])
    assert _called(called)


def test_it_does_not_remember_for_ever(supervisor: _Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_client, "_REMEMBERED", 2)
    notifier, called = RunEndNotifier(supervisor.ended), threading.Event()
    notifier.await_one("one", ["e"], called.set)
    supervisor.answers.put(["a", "b", "c", "d", "e"])
    assert _called(called)
    assert list(notifier._ended) == ["d", "e"]
