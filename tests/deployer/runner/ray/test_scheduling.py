"""Which task carries out which run, without Ray."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tradewind.deployer.runner.ray.scheduling import TASK_REUSE_SECONDS, TaskAssignment


@pytest.fixture
def places() -> TaskAssignment:
    return TaskAssignment()


def test_each_run_has_a_task_started_for_it(places: TaskAssignment) -> None:
    assert places.add("a", "cpu") == (1, [])
    assert places.add("b", "cpu") == (2, [])
    # Whichever begins first takes what has waited longest.
    assert places.begin(2, 0.0) == "a"
    assert places.begin(1, 0.0) == "b"


def test_what_waits_follows_at_once_and_its_own_task_finds_something_else(places: TaskAssignment) -> None:
    for name in "abc":
        places.add(name, "cpu")
    assert places.begin(1, 0.0) == "a"
    places.end("a")
    assert places.follow(1, 1.0) == "b"
    # Two tasks are on their way for one run that waits: the next run needs none of its own.
    assert places.add("d", "cpu") == (None, [])
    assert places.begin(2, 1.0) == "c"
    assert places.begin(3, 1.0) == "d"
    assert [places.runs[name] for name in "bcd"] == [1, 2, 3]


def test_a_task_without_a_run_keeps_its_place_for_the_next_one(places: TaskAssignment) -> None:
    places.add("a", "cpu")
    places.begin(1, 0.0)
    places.end("a")
    assert places.follow(1, 1.0) is None
    assert places.tasks[1].spare
    assert places.add("b", "cpu") == (None, [1])
    assert (places.tasks[1].run, places.tasks[1].spare) == ("b", False)


def test_it_gives_its_place_to_what_wants_other_resources(places: TaskAssignment) -> None:
    for number, name in enumerate("ab", 1):
        places.add(name, "cpu")
        places.begin(number, 0.0)
        places.end(name)
    assert [places.follow(number, 1.0) for number in (1, 2)] == [None, None]
    assert places.add("c", "gpu") == (3, [1, 2])
    assert not any(task.spare for task in places.tasks.values())


def test_what_has_waited_longest_is_not_passed_for_ever(places: TaskAssignment) -> None:
    places.add("a", "cpu")
    places.begin(1, 0.0)
    places.add("large", "gpu")
    places.add("b", "cpu")
    places.end("a")
    assert places.follow(1, 1.0) is None  # Ray may have its place for the large one
    assert not places.tasks[1].spare


def test_others_who_use_the_cluster_have_their_turn(places: TaskAssignment) -> None:
    for name in "ab":
        places.add(name, "cpu")
    places.begin(1, 0.0)
    places.end("a")
    assert places.follow(1, TASK_REUSE_SECONDS + 0.1) is None
    assert not places.tasks[1].spare
    assert places.leave(1) is None
    assert places.begin(2, 11.0) == "b"


def test_a_run_is_lost_with_its_task(places: TaskAssignment) -> None:
    for name in "abc":
        places.add(name, "cpu")
    places.begin(1, 0.0)
    assert places.leave(1) == "a"
    assert places.leave(2) == "c"  # it had not begun: one of those that wait has no task any more
    assert places.end("c")
    assert not places.end("c")
    assert places.begin(3, 0.0) == "b"


def test_a_cancelled_run_takes_a_task_with_it(places: TaskAssignment) -> None:
    places.add("a", "cpu")
    assert places.spare_task("cpu") is None
    places.end("a")
    assert places.spare_task("cpu") == 1
    # It had begun after all: it gets nothing, for it may be interrupted.
    number, _ = places.add("b", "cpu")
    assert number is not None
    assert places.begin(1, 0.0) is None
    assert places.leave(1) is None
    assert places.begin(number, 0.0) == "b"


class Cluster(RuleBasedStateMachine):
    """Runs come, end, are cancelled and are lost at any moment."""

    def __init__(self) -> None:
        super().__init__()
        self.places, self.now = TaskAssignment(), 0.0
        self.started: set[int] = set()
        self.begun: set[int] = set()
        self.asked, self.ended = 0, Counter[str]()

    def _end(self, name: str) -> None:
        if self.places.end(name):
            self.ended[name] += 1

    def _stop(self, number: int) -> None:
        self.started.discard(number)
        self.begun.discard(number)
        if (lost := self.places.leave(number)) is not None:
            self._end(lost)

    @rule(kind=st.sampled_from(["cpu", "gpu"]))
    def add(self, kind: str) -> None:
        self.asked += 1
        number, released = self.places.add(f"run{self.asked}", kind)
        if number is not None:
            self.started.add(number)
        for each in released:
            if self.places.tasks[each].run is None:
                self._stop(each)

    @precondition(lambda self: self.started)
    @rule(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.started)))
        self.started.remove(number)
        if self.places.begin(number, self.now) is None:
            self._stop(number)
        else:
            self.begun.add(number)

    @precondition(lambda self: self.begun)
    @rule(data=st.data(), seconds=st.sampled_from([0.1, 4.0, 20.0]))
    def follow(self, data: st.DataObject, seconds: float) -> None:
        number = data.draw(st.sampled_from(sorted(self.begun)))
        self.now += seconds
        if (name := self.places.tasks[number].run) is None:
            return
        self._end(name)
        if self.places.follow(number, self.now) is None and not self.places.tasks[number].spare:
            self._stop(number)

    @precondition(lambda self: self.started or self.begun)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        self._stop(data.draw(st.sampled_from(sorted(self.started | self.begun))))

    @precondition(lambda self: None in self.places.runs.values())
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        waiting = [name for name, number in self.places.runs.items() if number is None]
        self._end(data.draw(st.sampled_from(waiting)))
        for kind in ("cpu", "gpu"):
            self.places.spare_task(kind)

    @invariant()
    def every_run_waits_or_is_carried_out_or_has_ended_once(self) -> None:
        assert max(self.ended.values(), default=0) <= 1
        assert len(self.places.runs) + len(self.ended) == self.asked
        carried = [number for number in self.places.runs.values() if number is not None]
        assert len(carried) == len(set(carried))
        assert all(self.places.tasks[number].run in self.places.runs for number in carried)

    def teardown(self) -> None:
        """In the end all have been carried out: each that waits has a task on its way."""
        for _ in range(10 * self.asked + 10):
            for number in sorted(self.started):
                self.started.remove(number)
                if self.places.begin(number, self.now) is None:
                    self._stop(number)
                else:
                    self.begun.add(number)
            for number in sorted(self.begun):
                if (name := self.places.tasks[number].run) is not None:
                    self._end(name)
                    self.places.follow(number, self.now)
                else:
                    self._stop(number)
        assert not self.places.runs


TestCluster = Cluster.TestCase
TestCluster.settings = settings(max_examples=60, stateful_step_count=40)
