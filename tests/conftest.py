"""What all tests share."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

EVERYTHING = os.environ.get("TRADEWIND_ENGINES") == "all"
"""Whether the long tests of real engines run too: several minutes each on two cores."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the long tests of real engines to ``make test-engines``, and say so."""
    if EVERYTHING:
        return
    long = [item for item in items if item.get_closest_marker("xdist_group") and _is_long(item)]
    if long:
        left_out = set(long)
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=list(left_out))


def _is_long(item: pytest.Item) -> bool:
    """Slow, or about faults: cables are cut and daemons killed there, and waited for; but no documented example."""
    if item.get_closest_marker("example") is not None:
        return False
    return item.get_closest_marker("slow") is not None or item.path.stem.endswith("_faults")


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """One worker runs all tests of an engine: two of a kind would stand in each other's way.

    xdist's own groups are names that it adds to the ids of tests, which pytest 9 does not take any more.
    """
    from xdist.scheduler.loadscope import LoadScopeScheduling

    class ByEngine(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return _engine(nodeid.partition("::")[0]) or nodeid

    return ByEngine(config, log)


@cache
def _engine(file: str) -> str:
    """The group that a test file names, or an empty text."""
    path = Path(__file__).parents[1] / file
    named = re.search(r'xdist_group\("(\w+)"\)', path.read_text()) if path.is_file() else None
    return named[1] if named else ""


def pytest_report_header() -> str:
    """What is left out."""
    return "" if EVERYTHING else "long tests of real engines are left out: make test-engines runs them"


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test has a data folder of its own: no test sees the user's store."""
    monkeypatch.setenv("TRADEWIND_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TRADEWIND_STORE", raising=False)
