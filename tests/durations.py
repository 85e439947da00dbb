"""Durations of tests as this machine has measured them, in pytest's cache: which are long, and begin first.

A machine that never ran a test goes by what stands beside it: its marker `slow`, an engine that it needs, or a fixture
that starts a program. Once it has run, its duration counts as well, and no list has to be kept.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import pytest

LONG = 0.5
"""Seconds, all phases of a test together, above which ``-m "not slow"`` leaves it out."""

REMEMBERED = 3
"""Measurements kept for a test. The shortest counts: others were taken while the machine did something else."""

STARTS_A_PROGRAM = frozenset({"open_page", "postgresql_url", "quick"})
"""Fixtures that start a browser, a database server or a Python process: their tests are long."""

_KEY = "tradewind/durations"


class Durations:
    """Measures all tests of a run and remembers it for the next one; a plugin of pytest.

    xdist's workers get what is known from the process that started them, for all of them must collect the same tests.

    Attributes:
        known: Seconds by the id of a test, the shortest of its last runs.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._cache = getattr(config, "cache", None)
        given: Mapping[str, Any] | None = getattr(config, "workerinput", None)
        self._is_worker = given is not None
        self.known: dict[str, float] = (
            dict(given.get("durations", {})) if given is not None else shortest(self._remembered())
        )
        self._measured: dict[str, float] = defaultdict(float)

    def is_long(self, item: pytest.Item) -> bool:
        """Say whether a test takes long, as far as is known, or else as its fixtures let expect.

        Args:
            item: The test; its markers are not looked at.
        """
        if item.nodeid in self.known:
            return self.known[item.nodeid] > LONG
        return not STARTS_A_PROGRAM.isdisjoint(getattr(item, "fixturenames", ()))

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Give a worker of xdist what is known."""
        node.workerinput["durations"] = self.known

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add one phase of a test."""
        self._measured[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        """Remember the durations, unless the machine was busy with other things."""
        if self._cache is not None and self._measured and not self._is_worker and not busy():
            self._cache.set(_KEY, extended(self._remembered(), self._measured))

    def _remembered(self) -> dict[str, list[float]]:
        return dict(self._cache.get(_KEY, {})) if self._cache is not None else {}


def busy() -> bool:
    """Say whether so many processes want the cores that durations mean nothing: more than three for each."""
    return os.getloadavg()[0] > 3 * (os.cpu_count() or 1)


def shortest(remembered: Mapping[str, list[float]]) -> dict[str, float]:
    """The shortest measurement of each test.

    Args:
        remembered: Seconds by the id of a test, the last measurement last.
    """
    return {name: min(seconds) for name, seconds in remembered.items()}


def extended(remembered: Mapping[str, list[float]], measured: Mapping[str, float]) -> dict[str, list[float]]:
    """Earlier measurements with new ones, at most `REMEMBERED` for each test.

    Args:
        remembered: Seconds by the id of a test, the last measurement last.
        measured: The new ones.
    """
    new = {name: [*remembered.get(name, ()), round(took, 3)][-REMEMBERED:] for name, took in measured.items()}
    return {**remembered, **new}
