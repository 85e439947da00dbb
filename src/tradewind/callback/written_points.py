"""The points of a trial's metrics that a tracker has: what comes again is there once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from tradewind.callback.base import SeriesPoint


class WrittenPoints:
    """By metric and step the values that are there.

    Args:
        key: The name that the tracker gives a metric.
        stored: The value as the tracker keeps it.
    """

    def __init__(self, key: Callable[[str], str] = str, stored: Callable[[float], float] = float) -> None:
        self._key, self._stored = key, stored
        self._points: dict[str, dict[int, set[float | None]]] = {}

    def add(self, name: str, step: int, value: float) -> None:
        """Note a point that is there."""
        self._points.setdefault(self._key(name), {}).setdefault(step, set()).add(self._same(value))

    def has(self, name: str, step: int, value: float) -> bool:
        """True where a point is there."""
        return self._same(value) in self._points.get(self._key(name), {}).get(step, ())

    def missing(self, series: Mapping[str, Sequence[SeriesPoint]]) -> Iterator[tuple[str, int, float]]:
        """The points of steps that are not there; one that is there with another value is left to the trial's end."""
        for name, points in series.items():
            there = self._points.get(self._key(name), {})
            yield from [(name, step, value) for step, value in points if step not in there]

    def agree(self, series: Mapping[str, Sequence[SeriesPoint]]) -> bool:
        """True where no step is there with other values only, as of a run that was repeated and did something else."""
        return all(
            self.has(name, step, value) or step not in self._points.get(self._key(name), {})
            for name, points in series.items()
            for step, value in points
        )

    def _same(self, value: float) -> float | None:
        """The value to compare: one that is no number is like the other."""
        return None if math.isnan(value) else self._stored(value)
