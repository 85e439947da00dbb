"""Learning curves that stand for what programs report: made once from a formula, and written down as numbers."""

from __future__ import annotations

from collections.abc import Sequence

from tradewind.stopper.base import LearningCurve

RECORDED: dict[str, tuple[float, ...]] = {
    "good": (0.90, 0.55, 0.38, 0.30, 0.26, 0.24, 0.23, 0.22, 0.215),
    "slow": (0.95, 0.85, 0.74, 0.62, 0.50, 0.39, 0.30, 0.24, 0.200),  # a late bloomer: the best in the end
    "usual": (0.91, 0.66, 0.52, 0.45, 0.41, 0.39, 0.38, 0.375, 0.372),
    "flat": (0.93, 0.88, 0.86, 0.85, 0.85, 0.85, 0.85, 0.85, 0.850),
    "stuck": (0.97, 0.97, 0.96, 0.97, 0.97, 0.96, 0.97, 0.97, 0.970),
    "diverges": (0.90, 0.70, 0.95, 2.40, float("inf"), float("nan"), float("nan"), float("nan"), float("nan")),
}
"""Loss after each epoch, by what the curve looks like."""


def curve(values: Sequence[float], *, over: bool = False, finished: bool = False) -> LearningCurve:
    """A curve with these losses at steps 1, 2, ..."""
    made = LearningCurve()
    made.extend((float(i), value) for i, value in enumerate(values, 1))
    made.over, made.finished = over or finished, finished
    return made


def recorded(name: str, steps: int | None = None, *, finished: bool = False) -> LearningCurve:
    """A recorded curve, or its beginning; of the last point alone it is new."""
    values = RECORDED[name][:steps]
    made = curve(values[:-1], finished=finished)
    made.extend([(float(len(values)), values[-1])])
    return made
