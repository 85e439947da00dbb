"""What the caller of a study measured, as numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tradewind.errors import ConfigurationError


def as_numbers(trial: int, metrics: Mapping[str, Any]) -> dict[str, float]:
    """What was measured, as numbers; NaN and infinities are some, and fail the trial.

    Args:
        trial: The trial's number, for the words of an error.
        metrics: What was told, by name.

    Raises:
        ConfigurationError: A metric is no number.
    """
    found: dict[str, float] = {}
    for name, value in metrics.items():
        try:
            found[str(name)] = _converted(value)
        except (TypeError, ValueError, OverflowError):
            raise ConfigurationError(
                f"trial {trial}: the metric {name} cannot be {value!r}", hint="tell a number"
            ) from None
    return found


def as_number(value: Any) -> float:
    """A number; NaN for what is none."""
    try:
        return _converted(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _converted(value: Any) -> float:
    if isinstance(value, str | bytes):
        raise TypeError  # float() would read some of them
    return float(value)
