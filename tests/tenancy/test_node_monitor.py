"""Asking for nodes in a thread."""

from __future__ import annotations

import threading
import time

import pytest
from tests.waiting import eventually

from tradewind.errors import UnreachableError
from tradewind.tenancy.node_monitor import LimitedNodes, NodeCapacities, NodeMonitor


class Engine:
    """Answers when it is let."""

    def __init__(self, error: Exception | None = None) -> None:
        self.let, self.asked, self._error = threading.Event(), 0, error

    def nodes(self) -> NodeCapacities:
        self.asked += 1
        assert self.let.wait(20)
        if self._error is not None:
            raise self._error
        return {"one": {"cpu": 4.0, "memory": 8.0}}


def answer_of(monitor: NodeMonitor) -> NodeCapacities:
    found = eventually(monitor.answer)
    assert found is not None
    return found


def test_it_is_asked_once_at_a_time_and_answers_once() -> None:
    engine = Engine()
    monitor = NodeMonitor(engine)
    monitor.ask()
    monitor.ask()
    assert monitor.answer() is None
    engine.let.set()
    assert answer_of(monitor) == {"one": {"cpu": 4.0, "memory": 8.0}}
    assert engine.asked == 1
    assert monitor.answer() is None
    monitor.ask()
    assert answer_of(monitor)
    assert engine.asked == 2


@pytest.mark.parametrize("error", [UnreachableError("the controller is away"), RuntimeError("a bug")])
def test_what_went_wrong_is_raised_where_the_answer_is_taken(error: Exception) -> None:
    engine = Engine(error)
    engine.let.set()
    monitor = NodeMonitor(engine)
    monitor.ask()
    with pytest.raises(type(error), match=str(error)):
        answer_of(monitor)
    monitor.ask()
    with pytest.raises(type(error), match=str(error)):
        answer_of(monitor)


def test_the_end_waits_no_longer_than_it_should() -> None:
    engine = Engine()
    monitor = NodeMonitor(engine)
    monitor.end(0.0)
    monitor.ask()
    begun = time.monotonic()
    monitor.end(0.05)
    assert time.monotonic() - begun < 10
    engine.let.set()
    assert answer_of(monitor)


def test_limits_and_what_the_engine_does_not_know_of() -> None:
    engine = Engine()
    engine.let.set()
    assert LimitedNodes(engine, {"cpu": 2.0, "gpu": 1.0, "licence": 1.0}, {"licence": 3.0}).nodes() == {
        "one": {"cpu": 2.0, "memory": 8.0, "licence": 1.0}
    }
