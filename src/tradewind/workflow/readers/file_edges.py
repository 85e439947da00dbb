"""Finds the edges that files imply: a task that reads a file waits for the one that writes it."""

from __future__ import annotations

from tradewind.errors import WorkflowError
from tradewind.workflow.graph import Workflow

_MOST = 2_000_000
"""Pairs of tasks that files may imply; those of a file that thousands write and thousands read are no dependencies."""


def implied_edges(flow: Workflow, *, some: bool = False) -> dict[tuple[int, int], str]:
    """Find the pairs of writer and reader of a file of which the reader does not wait for the writer.

    A reader that waits for the writer by way of others is left out. Where several tasks write a file, a reader that
    waits for one of them has its version; otherwise it waits for all of them, but for those that wait for the reader:
    they make a later version.

    Args:
        flow: The workflow with its declared edges.
        some: Stop looking where there are too many, instead of raising.

    Returns:
        For each pair of tasks, writer and reader, the first file between them.

    Raises:
        WorkflowError: There are too many.
    """
    readings: list[tuple[int, str, tuple[int, ...]]] = []
    asked: set[tuple[int, int]] = set()
    producers = flow.producers
    for place, task in enumerate(flow.tasks):
        if len(asked) > _MOST:
            break
        parents = set(flow.parents[place])
        for name in task.inputs:
            makers = producers.get(name, ())
            if not makers or makers == (place,) or any(maker in parents for maker in makers):
                continue
            others = tuple(maker for maker in makers if maker != place)
            readings.append((place, name, others))
            asked.update((maker, place) for maker in others)
            if len(makers) > 1:
                asked.update((place, maker) for maker in others)
            if len(asked) > _MOST and not some:
                hint = "read it with --declared-edges"
                raise WorkflowError(f"its files imply more than {_MOST:,} edges, many of them {name!r}", hint=hint)
    waits = flow.waiting(asked)
    found: dict[tuple[int, int], str] = {}
    for place, name, makers in readings:
        if not any((maker, place) in waits for maker in makers):
            for maker in makers:
                # One writer alone that waits for the reader is a cycle, which is for the user to see.
                if (place, maker) not in waits or producers[name] == (maker,):
                    found.setdefault((maker, place), name)
    return found
