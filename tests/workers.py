"""How tests are shared out between pytest's workers."""

from __future__ import annotations

import fcntl
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, wraps
from pathlib import Path
from typing import Any

import pytest
from _pytest.pathlib import ImportMode, import_path
from xdist.scheduler.loadscope import LoadScopeScheduling

ROOT = Path(__file__).parents[1]


def count(*, quick: bool) -> int:
    """Number of workers: two more than there are cores, for one of them waits for engines and slow tests for programs.

    Args:
        quick: Only quick tests run, and no engine.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores if quick else cores + 2


def import_own_share(session: pytest.Session) -> None:
    """Import every n-th test module before the others, in a worker that collects all tests.

    pytest rewrites the assertions of a module when it is first imported and keeps the result on the disk, which takes
    more time than the rest of the collection. Workers that all begin with the same module would all rewrite it.
    """
    given = getattr(session.config, "workerinput", None)
    if given is None or session.config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    for file in files[int(given["workerid"].removeprefix("gw")) :: given["workercount"]]:
        with suppress(Exception):  # collecting it says what is wrong
            import_path(file, mode=ImportMode.importlib, root=ROOT, consider_namespace_packages=False)


@cache
def engine_of(file: str) -> str:
    """The engine that the tests of a file need, by its path from the root, or an empty text.

    xdist's own groups are names that it adds to the ids of tests, which pytest 9 does not take any more.
    """
    path = ROOT / file
    named = re.search(r'xdist_group\("(\w+)"\)', path.read_text()) if path.is_file() else None
    return named[1] if named else ""


@cache
def shares_a_setup(file: str) -> bool:
    """True for a test module that sets something up once for all its tests, a browser above all.

    Args:
        file: Its path from the root.
    """
    path = ROOT / file
    return path.is_file() and bool(re.search(r'scope="module"|\b(open_page|browser)\b', path.read_text()))


class ByEngine(LoadScopeScheduling):  # type: ignore[misc]
    """One worker runs all tests of an engine: two of a kind would stand in each other's way.

    The first worker begins with the engines, the others with everything else. One worker also runs all tests of a
    module that share what it sets up: otherwise each worker would set it up for some of them.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return engine_of(file) or (f"{file}::" if shares_a_setup(file) else nodeid)

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
