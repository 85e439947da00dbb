"""Numbers for models: what a searcher sees of a value, and of an offer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tradewind.problem.offer import Offer

Features = NDArray[np.float64]

_FACTS = ("vcpu", "memory", "price", "gpus", "provider", "category", "family", "arch", "spot")


def scale(values: Features, low: float, high: float, log: bool) -> Features:
    """Values between two bounds as numbers from 0 to 1; 0 where the bounds are one.

    Args:
        values: Any shape.
        low: What becomes 0.
        high: What becomes 1.
        log: By their logarithms.
    """
    if log:
        values, low, high = np.log(values), math.log(low), math.log(high)
    scaled: Features = (values - low) / (high - low) if high > low else np.zeros_like(values)
    return scaled


def offer_features(name: str, values: Sequence[str], offers: Sequence[Offer]) -> tuple[tuple[str, ...], Features]:
    """Logarithms of vCPU, memory, price and other positive facts; 0 and 1 for each word; constants left out.

    Args:
        name: The parameter that chooses among the offers.
        values: Its values.
        offers: The offer of each of them.

    Returns:
        The features' names, ``name.fact`` or ``name.fact=word``, and the features of each value, shape (values,
        features). Of offers that differ by name only, there is one for each value.
    """
    columns: list[tuple[str, Features]] = []
    for fact in (*_FACTS, *sorted({name for offer in offers for name in offer.facts})):
        columns += _columns(f"{name}.{fact}", [offer.attribute(fact) for offer in offers])
    if not columns and len(values) > 1:
        columns = list(zip((f"{name}={value}" for value in values), np.eye(len(values)), strict=True))
    table = np.stack([column for _, column in columns], axis=1) if columns else np.zeros((len(values), 0))
    return tuple(label for label, _ in columns), table


def _columns(label: str, facts: Sequence[Any]) -> list[tuple[str, Features]]:
    """One fact of all offers as columns with their names; none where it is not known of all, or the same everywhere."""
    if any(fact is None for fact in facts) or len(set(facts)) == 1:
        return []
    if all(isinstance(fact, int | float) for fact in facts):
        numbers = np.array(facts, dtype=float)
        low, high = float(numbers.min()), float(numbers.max())
        return [(label, scale(numbers, low, high, low > 0))]
    texts = np.array([str(fact) for fact in facts], dtype=object)
    words = sorted(set(texts))
    return [(f"{label}={word}", (texts == word).astype(float)) for word in (words if len(words) > 2 else words[1:])]
