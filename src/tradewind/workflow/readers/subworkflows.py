"""Opens the files of workflows that stand for a task of another one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from tradewind.errors import WorkflowError
from tradewind.workflow.graph import Workflow

MOST_LEVELS = 20
"""Workflows that may be within each other."""


MOST_FILES = 10_000
"""Files of workflows within a workflow: files that name others twice could come to any number."""


class WorkflowOpener(Protocol):
    """Reads the file of a workflow that is within another one."""

    def __call__(self, path: Path, properties: Path | None = None) -> Workflow:
        """Read the workflow of a file.

        Args:
            path: The file.
            properties: The properties of Pegasus that hold for it, where they are in a file of its own.

        Raises:
            WorkflowError: It holds itself, or something in it is wrong.
        """


class SubworkflowOpener:
    """Opens sub-workflows, each file once, and refuses files that hold each other.

    Args:
        read: Reads the workflow of a file, with an opener for those in it.
        outer: The files around it, from the outermost on.
        opened: What has been read.
    """

    def __init__(
        self,
        read: Callable[[Path, Path | None, WorkflowOpener], Workflow],
        outer: Sequence[Path],
        opened: dict[tuple[Path, Path | None], Workflow] | None = None,
    ) -> None:
        self._read, self._outer = read, tuple(outer)
        self._opened: dict[tuple[Path, Path | None], Workflow] = {} if opened is None else opened

    def __call__(self, path: Path, properties: Path | None = None) -> Workflow:
        """See `WorkflowOpener`."""
        chain = check_nesting(self._outer, path)
        key = path.resolve(), properties
        if key not in self._opened:
            self._opened[key] = self._read(path, properties, SubworkflowOpener(self._read, chain, self._opened))
        return _with_locations(self._opened[key], path.parent, self._outer[-1].parent)


def _with_locations(flow: Workflow, folder: Path, outer: Path) -> Workflow:
    """A workflow that knows where its raw files are, if they are beside it and it is in another folder."""
    if folder.resolve() == outer.resolve():
        return flow
    raw = {name for names in flow.from_outside for name in names if name not in flow.locations}
    there = {name: str(folder.absolute() / name) for name in sorted(raw) if (folder / name).exists()}
    return replace(flow, locations={**flow.locations, **there}) if there else flow


def check_nesting(outer: Sequence[Path], path: Path) -> tuple[Path, ...]:
    """Check that a file is not one of those around it, and that there are not too many; returns it with them.

    Raises:
        WorkflowError: It is one of them, or there are more than `MOST_LEVELS`.
    """
    chain = (*outer, path)
    if path.resolve() in {each.resolve() for each in outer}:
        circle = " -> ".join(each.name for each in chain)
        hint = "take out the task that stands for a workflow around it"
        raise WorkflowError(f"workflows are in a circle, one in another one: {circle}", file=str(outer[-1]), hint=hint)
    if len(outer) > MOST_LEVELS:
        raise WorkflowError(f"{path.name} is the {len(outer)}th workflow within another one", file=str(outer[-1]),
                            hint=f"{MOST_LEVELS} are read")  # fmt: skip
    return chain
