"""How tests are shared out between pytest's workers."""

from __future__ import annotations

import fcntl
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from pathlib import Path
from typing import Any

from xdist.scheduler.loadscope import LoadScopeScheduling

ROOT = Path(__file__).parents[1]


def count() -> int:
    """One worker more than there are cores, for one of them mostly waits for engines."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores + 1


@cache
def engine_of(file: str) -> str:
    """The engine that the tests of a file need, by its path from the root, or an empty text.

    xdist's own groups are names that it adds to the ids of tests, which pytest 9 does not take any more.
    """
    path = ROOT / file
    named = re.search(r'xdist_group\("(\w+)"\)', path.read_text()) if path.is_file() else None
    return named[1] if named else ""


class ByEngine(LoadScopeScheduling):  # type: ignore[misc]
    """One worker runs all tests of an engine: two of a kind would stand in each other's way.

    The first worker begins with the engines, the others with everything else.
    """

    def _split_scope(self, nodeid: str) -> str:
        return engine_of(nodeid.partition("::")[0]) or nodeid

    def _assign_work_unit(self, node: Any) -> None:
        waits = node.gateway.id == "gw0"
        wanted = next((scope for scope in self.workqueue if ("::" not in scope) == waits), None)
        if wanted is not None:
            self.workqueue.move_to_end(wanted, last=False)
        super()._assign_work_unit(node)


def compile_once(folder: Path) -> None:
    """Let numba compile each function in one worker, while the others that want it wait, and take it from its cache.

    Args:
        folder: Where the locks are.
    """
    if "numba" in sys.modules:
        from numba.core.dispatcher import Dispatcher

        Dispatcher.compile = _one_at_a_time(Dispatcher.compile, folder)  # type: ignore[method-assign]


def _one_at_a_time(compile_: Callable[..., Any], folder: Path) -> Callable[..., Any]:
    @wraps(compile_)
    def compiled(self: Any, signature: Any) -> Any:
        function = self.py_func
        with _locked(folder / re.sub(r"\W", "_", f"{function.__module__}.{function.__qualname__}")):
            return compile_(self, signature)

    return compiled


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
