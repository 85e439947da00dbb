"""What all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

EVERYTHING = os.environ.get("TRADEWIND_ENGINES") == "all"
"""Whether the long tests of real engines run too: several minutes each on two cores."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the long tests of real engines to ``make test-engines``, and say so."""
    if EVERYTHING:
        return
    long = [item for item in items if item.get_closest_marker("engine_long")]
    for item in items:
        if item.get_closest_marker("xdist_group") and item.get_closest_marker("slow"):
            long.append(item)
    if long:
        left_out = set(long)
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=list(left_out))


def pytest_report_header() -> str:
    """What is left out."""
    return "" if EVERYTHING else "long tests of real engines are left out: make test-engines runs them"


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test has a data folder of its own: no test sees the user's store."""
    monkeypatch.setenv("TRADEWIND_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TRADEWIND_STORE", raising=False)
