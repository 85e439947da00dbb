"""What a search may expect of its next run: for the priority by expected gain."""

from __future__ import annotations

import math
from collections.abc import Sequence

_TAIL = 0.25
"""Share of the results that the shape of the best values is read from."""

_LEAST = 4
_PRIOR = 2.0
"""Results that the chance of a record, 1 / (n + 1), counts for beside the tail of the values."""


def chance(values: Sequence[float], target: float) -> float:
    """The chance that the next of exchangeable draws is no larger than a target.

    The excess of the best quarter of the values below its edge is taken as exponential (a generalised Pareto tail of
    shape 0: Pickands, "Statistical inference using extreme order statistics", Annals of Statistics 3(1), 1975), and
    mixed with what holds whatever the values are, 1 / (n + 1) for a value that was never reached.

    Args:
        values: The results so far; smaller is better, infinite for failed ones.
        target: The value to reach.
    """
    count = len(values)
    reached = sum(value <= target for value in values)
    plain = (reached + 1.0) / (count + 1.0) if count else 1.0
    found = sorted(value for value in values if math.isfinite(value))
    if len(found) < _LEAST:
        return plain
    tail = found[: max(_LEAST, int(len(found) * _TAIL))]
    edge, excess = tail[-1], sum(tail[-1] - value for value in tail) / (len(tail) - 1)
    if target >= edge:
        shaped = sum(value <= target for value in found) / count
    elif excess <= 0:
        shaped = 0.0
    else:
        shaped = len(tail) / count * math.exp(-(edge - target) / excess)
    return (count * shaped + _PRIOR * plain) / (count + _PRIOR)


def improvement(values: Sequence[float]) -> float:
    """What the next of exchangeable draws is expected to improve the best by, as a share of what was gained so far.

    Args:
        values: The results so far, in order.

    Returns:
        Infinity before the first two results that did not fail: nothing is known then.
    """
    found = sorted(value for value in values if math.isfinite(value))
    if len(found) < 2:
        return math.inf if len(values) < 2 * _LEAST else 1.0 / (len(values) + 1.0)
    gained = found[len(found) // 2] - found[0]
    if len(found) < _LEAST or gained <= 0:
        return 1.0 / (len(values) + 1.0)
    tail = found[: max(_LEAST, int(len(found) * _TAIL))]
    excess = sum(tail[-1] - value for value in tail) / (len(tail) - 1)
    if excess <= 0:
        return 0.0
    return len(tail) / len(values) * excess * math.exp(-(tail[-1] - tail[0]) / excess) / gained


def gain(values: Sequence[float], seconds: Sequence[float], target: float | None = None) -> float | None:
    """What is expected of the next run of a search for each second of it; None where nothing is known.

    Args:
        values: The results so far; smaller is better.
        seconds: How long each run took.
        target: The value that the search is to reach, or None.
    """
    if not seconds:
        return None
    mean = max(sum(seconds) / len(seconds), 1e-9)
    return (improvement(values) if target is None else chance(values, target)) / mean
