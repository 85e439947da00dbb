"""The assignment of runs to tasks, without Ray."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.effort import share

from tradewind.deployer.runner.ray.scheduling import TASK_REUSE_SECONDS, TaskAssignment


@pytest.fixture
def assignment() -> TaskAssignment:
    return TaskAssignment()


def test_each_run_has_a_task_started_for_it(assignment: TaskAssignment) -> None:
    assert assignment.add("a", "cpu") == (1, [])
    assert assignment.add("b", "cpu") == (2, [])
    # Whichever begins first takes what has waited longest.
    assert assignment.begin(2, 0.0) == "a"
    assert assignment.begin(1, 0.0) == "b"


def test_what_waits_follows_at_once_and_its_own_task_finds_something_else(assignment: TaskAssignment) -> None:
    for name in "abc":
        assignment.add(name, "cpu")
    assert assignment.begin(1, 0.0) == "a"
    assignment.end("a")
    assert assignment.follow(1, 1.0) == "b"
    # Two tasks are on their way for one run that waits: the next run needs none of its own.
    assert assignment.add("d", "cpu") == (None, [])
    assert assignment.begin(2, 1.0) == "c"
    assert assignment.begin(3, 1.0) == "d"
    assert [assignment.runs[name] for name in "bcd"] == [1, 2, 3]


def test_a_task_without_a_run_keeps_its_place_for_the_next_one(assignment: TaskAssignment) -> None:
    assignment.add("a", "cpu")
    assignment.begin(1, 0.0)
    assignment.end("a")
    assert assignment.follow(1, 1.0) is None
    assert assignment.tasks[1].spare
    assert assignment.add("b", "cpu") == (None, [1])
    assert (assignment.tasks[1].run, assignment.tasks[1].spare) == ("b", False)


def test_it_gives_its_place_to_what_wants_other_resources(assignment: TaskAssignment) -> None:
    for number, name in enumerate("ab", 1):
        assignment.add(name, "cpu")
        assignment.begin(number, 0.0)
        assignment.end(name)
    assert [assignment.follow(number, 1.0) for number in (1, 2)] == [None, None]
    assert assignment.add("c", "gpu") == (3, [1, 2])
    assert not any(task.spare for task in assignment.tasks.values())


def test_what_has_waited_longest_is_not_passed_for_ever(assignment: TaskAssignment) -> None:
    assignment.add("a", "cpu")
    assignment.begin(1, 0.0)
    assignment.add("large", "gpu")
    assignment.add("b", "cpu")
    assignment.end("a")
    assert assignment.follow(1, 1.0) is None  # Ray may have its place for the large one
    assert not assignment.tasks[1].spare


def test_others_who_use_the_cluster_have_their_turn(assignment: TaskAssignment) -> None:
    for name in "ab":
        assignment.add(name, "cpu")
    assignment.begin(1, 0.0)
    assignment.end("a")
    assert assignment.follow(1, TASK_REUSE_SECONDS + 0.1) is None
    assert not assignment.tasks[1].spare
    assert assignment.leave(1) is None
    assert assignment.begin(2, 11.0) == "b"


def test_a_run_is_lost_with_its_task(assignment: TaskAssignment) -> None:
    for name in "abc":
        assignment.add(name, "cpu")
    assignment.begin(1, 0.0)
    assert assignment.leave(1) == "a"
    assert assignment.leave(2) == "c"  # it had not begun: one of those that wait has no task any more
    assert assignment.end("c")
    assert not assignment.end("c")
    assert assignment.begin(3, 0.0) == "b"


def test_a_cancelled_run_takes_a_task_with_it(assignment: TaskAssignment) -> None:
    assignment.add("a", "cpu")
    assert assignment.spare_task("cpu") is None
    assignment.end("a")
    assert assignment.spare_task("cpu") == 1
    # It had begun after all: it gets nothing, for it may be interrupted.
    number, _ = assignment.add("b", "cpu")
    assert number is not None
    assert assignment.begin(1, 0.0) is None
    assert assignment.leave(1) is None
    assert assignment.begin(number, 0.0) == "b"


class Cluster(RuleBasedStateMachine):
    """Runs come, end, are cancelled and are lost at any moment."""

    def __init__(self) -> None:
        super().__init__()
        self.assignment, self.now = TaskAssignment(), 0.0
        self.started: set[int] = set()
        self.begun: set[int] = set()
        self.asked, self.ended = 0, Counter[str]()

    def _end(self, name: str) -> None:
        if self.assignment.end(name):
            self.ended[name] += 1

    def _stop(self, number: int) -> None:
        self.started.discard(number)
        self.begun.discard(number)
        if (lost := self.assignment.leave(number)) is not None:
            self._end(lost)

    @rule(kind=st.sampled_from(["cpu", "gpu"]))
    def add(self, kind: str) -> None:
        self.asked += 1
        number, released = self.assignment.add(f"run{self.asked}", kind)
        if number is not None:
            self.started.add(number)
        for each in released:
            if self.assignment.tasks[each].run is None:
                self._stop(each)

    @precondition(lambda self: self.started)
    @rule(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.started)))
        self.started.remove(number)
        if self.assignment.begin(number, self.now) is None:
            self._stop(number)
        else:
            self.begun.add(number)

    @precondition(lambda self: self.begun)
    @rule(data=st.data(), seconds=st.sampled_from([0.1, 4.0, 20.0]))
    def follow(self, data: st.DataObject, seconds: float) -> None:
        number = data.draw(st.sampled_from(sorted(self.begun)))
        self.now += seconds
        if (name := self.assignment.tasks[number].run) is None:
            return
        self._end(name)
        if self.assignment.follow(number, self.now) is None and not self.assignment.tasks[number].spare:
            self._stop(number)

    @precondition(lambda self: self.started or self.begun)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        self._stop(data.draw(st.sampled_from(sorted(self.started | self.begun))))

    @precondition(lambda self: None in self.assignment.runs.values())
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        waiting = [name for name, number in self.assignment.runs.items() if number is None]
        self._end(data.draw(st.sampled_from(waiting)))
        for kind in ("cpu", "gpu"):
            self.assignment.spare_task(kind)

    @invariant()
    def every_run_waits_or_is_carried_out_or_has_ended_once(self) -> None:
        assert max(self.ended.values(), default=0) <= 1
        assert len(self.assignment.runs) + len(self.ended) == self.asked
        carried = [number for number in self.assignment.runs.values() if number is not None]
        assert len(carried) == len(set(carried))
        assert all(self.assignment.tasks[number].run in self.assignment.runs for number in carried)

    def teardown(self) -> None:
        """In the end all have been carried out: each that waits has a task on its way."""
        for _ in range(10 * self.asked + 10):
            for number in sorted(self.started):
                self.started.remove(number)
                if self.assignment.begin(number, self.now) is None:
                    self._stop(number)
                else:
                    self.begun.add(number)
            for number in sorted(self.begun):
                if (name := self.assignment.tasks[number].run) is not None:
                    self._end(name)
                    self.assignment.follow(number, self.now)
                else:
                    self._stop(number)
        assert not self.assignment.runs


TestCluster = Cluster.TestCase
TestCluster.settings = settings(max_examples=share(60), stateful_step_count=40)
