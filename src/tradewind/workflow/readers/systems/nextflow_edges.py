"""Finds which tasks of a Nextflow run waited for which, from the graph of its processes and the times of its tasks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

_GATHERING = frozenset(
    {
        "collect",
        "toList",
        "toSortedList",
        "collectFile",
        "count",
        "sum",
        "min",
        "max",
        "reduce",
        "last",
        "groupTuple",
        "buffer",
        "collate",
    }
)
"""Operators that give on nothing before they have all items."""

_SLACK = 1.0
"""Seconds by which times of a trace are uncertain: those that it writes for people are rounded."""


@dataclass(frozen=True)
class MeasuredTask:
    """One task of a trace.

    Attributes:
        id: Its name.
        process: The process that it is a task of.
        tag: The text in brackets behind the process; a number where its author gave none.
        submit: Seconds at which it was submitted; None if not known.
        complete: Seconds at which it ended; None if not known.
    """

    id: str
    process: str
    tag: str
    submit: float | None = None
    complete: float | None = None

    @property
    def tagged(self) -> bool:
        """True where the tag is one that the author of the workflow gave."""
        return bool(self.tag) and re.fullmatch(r"\d+", self.tag) is None


@dataclass
class FoundEdges:
    """Edges between the tasks of two processes, and the rule that found them."""

    edges: list[tuple[str, str]] = field(default_factory=list)
    by_order: bool = False
    by_all: bool = False


def edges_of(
    parents: Sequence[MeasuredTask], children: Sequence[MeasuredTask], operators: Sequence[str] = ()
) -> FoundEdges:
    """Match the tasks of two processes of which one reads what the other writes.

    1. Where an operator between them gathers (``collect``, ``groupTuple``, ...), or there is one child, each
       child waits for all parents.
    2. Tasks with the same tag wait for each other.
    3. As many children as parents: a channel is a queue, so that the parent that ended first is that of the child that
       was submitted first.
    4. Otherwise each child waits for all parents.

    No task waits for one that had not ended when it was submitted.

    Args:
        parents: Tasks of the process that writes.
        children: Tasks of the process that reads.
        operators: Operators on the way between them.
    """
    gathers = any(each in _GATHERING for each in operators)
    if gathers or len(children) == 1:
        return FoundEdges(_possible(parents, children))
    by_tag: dict[str, list[MeasuredTask]] = {}
    for parent in parents:
        if parent.tagged:
            by_tag.setdefault(parent.tag, []).append(parent)
    pairs = [(parent, child) for child in children for parent in by_tag.get(child.tag, ()) if _before(parent, child)]
    if pairs and len({child.id for _, child in pairs}) == len(children):
        return FoundEdges([(parent.id, child.id) for parent, child in pairs])
    if len(parents) == len(children):
        first = sorted(parents, key=lambda task: _key(task.complete, task))
        then = sorted(children, key=lambda task: _key(task.submit, task))
        queue = list(zip(first, then, strict=True))
        if all(_before(parent, child) for parent, child in queue):
            return FoundEdges([(parent.id, child.id) for parent, child in queue], by_order=len(parents) > 1)
    return FoundEdges(_possible(parents, children), by_all=len(parents) > 1)


def _possible(parents: Sequence[MeasuredTask], children: Sequence[MeasuredTask]) -> list[tuple[str, str]]:
    return [(parent.id, child.id) for child in children for parent in parents if _before(parent, child)]


def _before(parent: MeasuredTask, child: MeasuredTask) -> bool:
    """False where the trace says that the parent had not ended when the child was submitted."""
    if parent.complete is None or child.submit is None:
        return True
    return parent.complete <= child.submit + _SLACK + 0.01 * abs(parent.complete - (parent.submit or parent.complete))


def _key(moment: float | None, task: MeasuredTask) -> tuple[float, int, str]:
    # Without times, and for tasks without tags, the numbers of Nextflow are the order.
    return (0.0 if moment is None else moment, int(task.tag) if task.tag.isdecimal() else 0, task.id)
