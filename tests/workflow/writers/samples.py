"""Workflows and plans for the tests of writers, and what has to come back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tradewind.workflow.files import Plan
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.platform import Platform, Vm
from tradewind.workflow.readers.command_words import with_streams
from tradewind.workflow.schedule import Schedule

SIZES = {"raw.txt": 30_000_000, "part/left.txt": 15_000_000, "right.txt": 0, "l.sum": 1000, "report.txt": 7}


def sample_flow(**first: Any) -> Workflow:
    """A diamond with all that a task can have; ``first`` replaces what its first task has."""
    given: dict[str, Any] = {
        "id": "split", "activity": "split", "runtime": 2.5, "inputs": ("raw.txt",),
        "outputs": ("part/left.txt", "right.txt"), "cores": 2, "memory_bytes": 2 << 30, "gpus": 1,
        "disk_bytes": 3_000_000_001, "priority": -4,
        "command": ("sh", "-c", 'seq 20 > part/left.txt; echo "it is $HOME" > right.txt'),
    }  # fmt: skip
    tasks = (
        Task(**{**given, **first}),
        Task(
            "left", "sum", 30.0, ("part/left.txt",), ("l.sum",),
            command=("/opt/bin/sum", "-n", "a b", "it's", "", '"q"'), priority=7,
        ),
        Task(
            "right", "sum", 0.1 + 0.2, ("right.txt",), ("r.sum",), memory_bytes=500_000_000,
            command=tuple(with_streams(["sum", "--all"], "right.txt", "r.sum", "")),
        ),
        Task("report", "report", 5.0, ("l.sum", "r.sum"), ("report.txt",), cores=4, command=("cat", "l.sum", "r.sum")),
    )  # fmt: skip
    return Workflow("totals", tasks, ((), (0,), (0,), (1, 2)), SIZES)


def sample_plan(flow: Workflow, folder: Path | None = None, *names: str) -> Plan:
    """A plan for two small machines and a large one, which begins right before left."""
    small, other, large = names or ("small-1", "small-2", "large-1")
    vms = (Vm(small, kind="small", slots=2), Vm(other, kind="small", slots=2), Vm(large, 2.5, 4, 0.4, "large", gpus=1))
    start, finish = np.array([0.0, 2.0, 1.0, 40.0]), np.array([1.0, 32.0, 2.0, 42.0])
    return Plan(flow, Platform(vms), Schedule(np.array([2, 0, 1, 2]), start, finish), "by hand", folder)


def same(found: Workflow, flow: Workflow) -> None:
    """See that all came back: tasks with what they need, edges, sizes."""
    assert found.tasks == flow.tasks
    assert found.parents == flow.parents
    assert dict(found.sizes) == dict(flow.sizes)
