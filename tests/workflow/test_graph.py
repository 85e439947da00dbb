"""The graph of a workflow."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.errors import WorkflowError
from tradewind.workflow.graph import Task, Workflow


def diamond() -> Workflow:
    tasks = tuple(
        Task(name, name.upper(), seconds) for name, seconds in (("a", 1.0), ("b", 5.0), ("c", 2.0), ("d", 1.0))
    )
    return Workflow("diamond", tasks, ((), (0,), (0,), (1, 2)))


def test_a_diamond() -> None:
    flow = diamond()
    assert len(flow) == 4
    assert flow.edges == 4
    assert flow.children == ((1, 2), (3,), (3,), ())
    assert flow.depth.tolist() == [0, 1, 1, 2]
    assert flow.widths == (1, 2, 1)
    assert flow.critical_path() == (7.0, (0, 1, 3))
    assert flow.critical_path([1, 1, 9, 1]) == (11.0, (0, 2, 3))
    starts, flat = flow.csr(flow.parents)
    assert starts.tolist() == [0, 0, 1, 2, 4]
    assert flat.tolist() == [0, 0, 1, 2]


def test_a_circle_is_named() -> None:
    tasks = tuple(Task(name, "t", 1.0) for name in "abcd")
    with pytest.raises(WorkflowError, match=r"in a circle: \w -> \w -> \w"):
        Workflow("w", tasks, ((), (0, 3), (1,), (2,)))


def test_what_a_task_writes_itself_is_no_input() -> None:
    tasks = (Task("a", "t", 1.0, ("x", "y"), ("y", "z")),)
    flow = Workflow("w", tasks, ((),), {"x": 5, "y": 7, "z": 9})
    assert flow.real_inputs == (("x",),)
    assert flow.input_bytes.tolist() == [5.0]
    assert flow.producers == {"y": (0,), "z": (0,)}


def test_what_no_task_before_writes_comes_from_outside() -> None:
    tasks = (
        Task("update", "t", 1.0, ("db", "x"), ("db",)),  # in place
        Task("early", "t", 1.0, ("late", "db")),  # before the one that writes late
        Task("last", "t", 1.0, ("late", "db", "y"), ("late",)),
        Task("beside", "t", 1.0, ("db",)),  # waits for nobody
        Task("after", "t", 1.0, ("db", "late")),
    )
    flow = Workflow("w", tasks, ((), (0,), (1,), (), (2,)))
    assert flow.from_outside == (("db", "x"), ("late",), ("late", "y"), ("db",), ())


@pytest.mark.parametrize(
    ("task", "said"),
    [
        (Task("a", "t", 1.0, cores=10**20), "task 'a' uses 1e+20 cores"),
        (Task("a", "t", 1.0, memory_bytes=10**19), r"task 'a' uses 9.31e\+09 GiB of memory"),
        (Task("a", "t", 1e300), r"task 'a' takes 1e\+300 s"),
    ],
)
def test_amounts_beyond_all_machines_are_refused(task: Task, said: str) -> None:
    with pytest.raises(WorkflowError, match=said.replace("+2", r"\+2")):
        Workflow("w", (task,), ((),))


@pytest.mark.slow
@given(st.lists(st.sets(st.integers(0, 30), max_size=4), min_size=1, max_size=25))
def test_parents_come_first_and_the_critical_path_is_a_path(wanted: list[set[int]]) -> None:
    parents = tuple(tuple(sorted(p for p in each if p < task)) for task, each in enumerate(wanted))
    flow = Workflow("w", tuple(Task(str(i), "t", float(i % 4)) for i in range(len(parents))), parents)
    place = np.empty(len(flow), dtype=int)
    place[flow.order] = np.arange(len(flow))
    assert sorted(flow.order.tolist()) == list(range(len(flow)))
    assert all(place[parent] < place[task] for task in range(len(flow)) for parent in parents[task])
    length, path = flow.critical_path()
    assert length == pytest.approx(sum(flow.runtimes[list(path)]))
    assert all(one in parents[other] for one, other in itertools.pairwise(path))
    assert sum(flow.widths) == len(flow)
