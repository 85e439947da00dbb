"""Facts of offers as features of models."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tradewind.problem.columns.named_offers import coded
from tradewind.problem.offer import Offer, fact_names_of

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
    if not math.isfinite(float(high) - float(low)):  # half of it is a number
        values, low, high = values / 2.0, low / 2.0, high / 2.0
    scaled: Features = (values - low) / (high - low) if high > low else np.zeros_like(values)
    return scaled


class OfferFeatures:
    """Logarithms of vCPU, memory, price and other positive facts; 0 and 1 for each word; constants left out.

    Of offers that differ by name only, there is one feature for each value. Words are kept as their numbers: a column
    of 0 and 1 for each family of a hundred thousand offers would take hundreds of megabytes.

    Args:
        name: The parameter that chooses among the offers.
        values: Its values.
        offers: The offer of each of them.

    Attributes:
        names: The features' names, ``name.fact`` or ``name.fact=word``.
        log_ranges: The range of the logarithm of each feature that is on a log scale, 0 for others.
    """

    def __init__(self, name: str, values: Sequence[str], offers: Sequence[Offer]) -> None:
        names: list[str] = []
        ranges: list[float] = []
        self._columns: list[Features | tuple[NDArray[np.intp], list[int]]] = []
        for fact in (*_FACTS, *sorted(fact_names_of(offers))):
            names += self._add(f"{name}.{fact}", *coded(offers, fact), ranges)
        if not self._columns and len(values) > 1:
            names = [f"{name}={value}" for value in values]
            self._columns.append((np.arange(len(values)), list(range(len(values)))))
        self.names = tuple(names)
        self.log_ranges = (*ranges, *[0.0] * (len(names) - len(ranges)))

    def _add(
        self, label: str, values: Sequence[float | str | None], places: NDArray[np.intp], ranges: list[float]
    ) -> list[str]:
        """Add one fact of all offers and return its features' names: none where some lack it, or all have the same.

        Args:
            label: The name of the fact.
            values: What it may be.
            places: The place of each offer's among these.
            ranges: The range of each feature's logarithm is added to these.
        """
        there = np.flatnonzero(np.bincount(places, minlength=len(values)))
        facts = [values[place] for place in there.tolist()]
        kinds = set(map(type, facts))
        if type(None) in kinds or len(set(facts)) == 1:
            return []
        # By the place of a value: those that no offer has are never looked up.
        if all(issubclass(kind, int | float) for kind in kinds):
            numbers = np.array(facts, dtype=float)
            low, high = float(numbers.min()), float(numbers.max())
            scaled = np.zeros(len(values))
            scaled[there] = scale(numbers, low, high, low > 0)
            self._columns.append(scaled[places])
            ranges.append(math.log(high) - math.log(low) if low > 0 else 0.0)
            return [label]
        texts = [str(fact) for fact in facts]
        words = sorted(set(texts))
        number = {word: place for place, word in enumerate(words)}
        shown = list(range(len(words))) if len(words) > 2 else list(range(1, len(words)))
        of_value = np.zeros(len(values), dtype=np.intp)
        of_value[there] = [number[text] for text in texts]
        self._columns.append((of_value[places], shown))
        ranges += [0.0] * len(shown)
        return [f"{label}={words[place]}" for place in shown]

    def rows(self, places: NDArray[np.intp]) -> Features:
        """The features of some values, shape (n, features).

        Args:
            places: Places of the values, shape (n,).
        """
        found: Features = np.zeros((len(places), len(self.names)))
        start = 0
        for column in self._columns:
            if isinstance(column, tuple):
                numbers, shown = column
                found[:, start : start + len(shown)] = numbers[places, None] == np.array(shown)
                start += len(shown)
            else:
                found[:, start] = column[places]
                start += 1
        return found
