"""Reads task graphs of the Standard Task Graph Set (Kasahara and Tobita, 2002)."""

from __future__ import annotations

import re
from pathlib import Path

from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.readers.builder import WorkflowBuilder

_NUMBERS = re.compile(r"[ \t\d]+")


def is_stg(text: str) -> bool:
    """True for a text of whole numbers only: one or two, and then lines of three or more."""
    lines = [line for line in text[:4096].lstrip("\ufeff").splitlines()[:3] if line.strip()]
    if len(lines) < 2 or not all(_NUMBERS.fullmatch(line) for line in lines[:2]):
        return False
    return len(lines[0].split()) <= 2 and len(lines[1].split()) >= 3


def read_stg(text: str, file: str, *, lenient: bool = False, declared_edges: bool = False) -> Workflow:
    """Read a task graph: the number of tasks, then for each its number, its time, and the tasks that it waits for.

    The tasks of 0 s at the beginning and the end that the number of tasks does not count are dummies, and are left
    out. A second number in the first line, of processors, says nothing of the tasks. Times are taken as seconds.

    Args:
        text: The text; what follows a line that begins with # is a description.
        file: Its path, for messages and the workflow's name.
        lenient: As `WorkflowBuilder` has it.
        declared_edges: Likewise.

    Raises:
        WorkflowError: The rows are not as many as its first line says, or a row is not as long as it says; this is
            also so in graphs with costs of communication, which are not supported.
    """
    builder = WorkflowBuilder(file, Path(file).name.removesuffix(".gz").rsplit(".", 1)[0], lenient, declared_edges)
    lines = text.lstrip("\ufeff").splitlines()
    end = next((number for number, line in enumerate(lines) if line.lstrip().startswith("#")), len(lines))
    rows: list[tuple[int, list[int]]] = []
    for number, line in enumerate(lines[:end], 1):
        if line.strip():
            if not _NUMBERS.fullmatch(line):
                raise builder.fail(f"a row of STG has {line.strip()[:40]!r}, and not only whole numbers", number)
            rows.append((number, [int(word) for word in line.split()]))
    counted, tasks = rows[0][1][0], rows[1:]
    for place, row in tasks:
        if len(row) < 3 or len(row) != 3 + row[2]:
            hint = "costs of communication are not supported"
            raise builder.fail("a row of STG is not: task, time, number of tasks before it, those tasks", place, hint)
    dummies = _dummies(tasks, len(tasks) - counted)
    if len(tasks) - len(dummies) != counted:
        last = tasks[-1][0] if tasks else 1
        raise builder.fail(f"there are {len(tasks)} tasks in it, and its first line says {counted}", last)
    builder.note(
        "dummy tasks at the beginning and the end, which are left out", *(f"t{each}" for each in sorted(dummies))
    )
    for place, (name, time, _, *before) in tasks:
        if name not in dummies:
            builder.task(Task(f"t{name}", f"t{name}", float(time)), place)
            for parent in before:
                if parent not in dummies:
                    builder.edge(f"t{parent}", f"t{name}", place)
    return builder.workflow()


def _dummies(tasks: list[tuple[int, list[int]]], most: int) -> set[int]:
    """The last task, and the first, where they take no time and there are more than the first line says."""
    found: set[int] = set()
    if tasks and most > 0 and tasks[-1][1][1] == 0:
        found.add(tasks[-1][1][0])
    if tasks and most > len(found) and tasks[0][1][1] == 0 and tasks[0][1][2] == 0:
        found.add(tasks[0][1][0])
    return found
