"""The parameters that a space is made of."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tradewind.errors import ConfigurationError, SpecError
from tradewind.problem.configuration import Value, plain_number
from tradewind.problem.expression import Column, Expression
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


_LOG_RATIO = 4.0
"""Numbers that span at least this ratio are given to models on a log scale."""

ENUMERABLE = 2_000_000
"""Values, or combinations of them, up to which they are listed; more are sampled, like continuous ones."""

_DIGITS = 12
"""Significant digits of the real numbers that are proposed: as many as read back as the same number everywhere."""

_FEWEST_VALUES = 1000
"""Fewer different numbers than these are no range that a searcher could refine."""

_EXACT = 2**53
"""Whole numbers up to here are exact as floats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter(ABC):
    """One thing to choose.

    Attributes:
        name: Its name, as templates and constraints use it.
        when: The parameter exists only where this holds; it may name parameters declared before this one.
        attribute: Name of an offer's attribute (``vcpu``, ``memory``, ``category``) that the selector matches with it.
    """

    kind: ClassVar[str]
    name: str
    when: Expression | None = None
    attribute: str | None = None

    @property
    @abstractmethod
    def levels(self) -> Column | None:
        """All values in order, shape (levels,); None for a continuous parameter, or one of too many values to list."""

    def level(self, index: int) -> Value:
        """The value at a place of `levels`, as this parameter writes it."""
        levels = self.levels
        assert levels is not None
        value: Value = levels[index].item()
        return value

    @abstractmethod
    def draw(self, unit: Features) -> Column:
        """Turn numbers of [0, 1), shape (n,), into values: equal numbers give equal values."""

    @abstractmethod
    def features(self, values: Column) -> Features:
        """Turn values, shape (n,), into numbers for a model, shape (n, k), each about in [0, 1]."""

    @abstractmethod
    def feature_names(self) -> tuple[str, ...]:
        """Names of the k columns of `features`."""

    @abstractmethod
    def coerce(self, value: Value) -> Value:
        """The value as this parameter writes it.

        Raises:
            ConfigurationError: It is not one of this parameter's values.
        """

    def describe(self) -> str:
        """The values in a few words."""
        levels = self.levels
        return "" if levels is None else ", ".join(str(v) for v in levels[:8]) + ("…" if len(levels) > 8 else "")

    def _refuse(self, value: Value, wanted: str) -> ConfigurationError:
        return ConfigurationError(f"{self.name}={value!r} is not in the space", hint=f"wanted {wanted}")


def _pick(levels: Column, unit: Features) -> Column:
    chosen: Column = levels[np.minimum((unit * len(levels)).astype(int), len(levels) - 1)]
    return chosen


def canonical_text(value: Value) -> str:
    """Canonical text of a value, the same for all ways to write it: 2 and 2.0 are the same."""
    return str(plain_number(value))


def _number(parameter: Parameter, value: Value) -> float:
    if isinstance(value, bool):
        raise parameter._refuse(value, "a number")
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise parameter._refuse(value, "a number") from None
    if not math.isfinite(number):
        raise parameter._refuse(value, "a finite number")
    return number


@dataclass(frozen=True, slots=True, kw_only=True)
class _Range(Parameter):
    """Common base of `Float` and `Integer`.

    Attributes:
        low: The least value.
        high: The greatest value.
        log: True to search and model it on a log scale.
    """

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high)):
            raise SpecError(f"{self.name}: low and high must be finite numbers")
        if self.low > self.high:
            raise SpecError(f"{self.name}: low {self.low:g} is above high {self.high:g}", hint="swap them")
        if self.log and self.low <= 0:
            raise SpecError(f"{self.name}: a log scale needs low above 0, got {self.low:g}")

    def features(self, values: Column) -> Features:
        """One column: the value on its scale."""
        return scale(np.asarray(values, dtype=float), self.low, self.high, self.log)[:, None]

    def feature_names(self) -> tuple[str, ...]:
        """The parameter's own name."""
        return (self.name,)

    def describe(self) -> str:
        """The range."""
        return f"{self.low:g} to {self.high:g}" + (" (log)" if self.log else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Float(_Range):
    """A real number between ``low`` and ``high``, both included."""

    kind: ClassVar[str] = "float"

    def __post_init__(self) -> None:
        _Range.__post_init__(self)
        width, largest = self.high - self.low, max(abs(self.low), abs(self.high))
        if not math.isfinite(width):
            raise SpecError(
                f"{self.name}: from {self.low:g} to {self.high:g} is wider than the largest number that a float can be",
                hint="give bounds that are nearer to each other",
            )
        # Values are written with `_DIGITS` digits; near zero floats themselves are coarser.
        finest = max(10.0 ** (math.floor(math.log10(largest)) + 1 - _DIGITS), math.ulp(largest)) if largest else 0.0
        if 0 < width < _FEWEST_VALUES * finest:
            raise SpecError(
                f"{self.name}: too few numbers of {_DIGITS} digits lie between {self.low!r} and {self.high!r}",
                hint="let the parameter be the difference from a fixed number, and add that number in the program",
            )

    @property
    def levels(self) -> Column | None:
        """None, unless low equals high."""
        return np.array([float(self.low)]) if self.low == self.high else None

    def draw(self, unit: Features) -> Column:
        """Uniform on the scale; rounded to `_DIGITS` digits, so that a value reads back as the same value."""
        if self.log:
            values = np.exp(math.log(self.low) + unit * (math.log(self.high) - math.log(self.low)))
        else:
            values = self.low + unit * (self.high - self.low)
        rounded = np.array([float(f"{v:.{_DIGITS}g}") for v in values])
        # `np.clip` takes ten times as long for the few values that are drawn at a time.
        clipped: Column = np.minimum(np.maximum(rounded, self.low), self.high)
        return clipped

    def coerce(self, value: Value) -> Value:
        """A float within the range."""
        number = _number(self, value)
        if not self.low <= number <= self.high:
            raise self._refuse(value, self.describe())
        return number


@dataclass(frozen=True, slots=True, kw_only=True)
class Integer(_Range):
    """A whole number from ``low`` to ``high``, both included, in steps.

    Attributes:
        step: The distance between values.
    """

    kind: ClassVar[str] = "integer"
    step: int = 1

    def __post_init__(self) -> None:
        _Range.__post_init__(self)
        if self.low != int(self.low) or self.high != int(self.high):
            raise SpecError(f"{self.name}: an integer needs whole low and high")
        if max(abs(self.low), abs(self.high)) > _EXACT:
            raise SpecError(f"{self.name}: whole numbers go up to {_EXACT}", hint="use a float")
        if self.step < 1:
            raise SpecError(f"{self.name}: step must be at least 1, got {self.step}")

    @property
    def levels(self) -> Column | None:
        """All whole numbers of the range; None for more than `ENUMERABLE` of them."""
        if self._count > ENUMERABLE:
            return None
        return np.arange(int(self.low), int(self.high) + 1, self.step)

    @property
    def _count(self) -> int:
        return (int(self.high) - int(self.low)) // self.step + 1

    def draw(self, unit: Features) -> Column:
        """Uniform over the levels, or over the log of the range."""
        if self.log:
            low, high = math.log(self.low - 0.5), math.log(self.high + 0.5)
            raw = np.exp(low + unit * (high - low))
            index = np.rint((raw - self.low) / self.step)
        else:
            index = np.floor(unit * self._count)
        whole = np.clip(index, 0, self._count - 1).astype(np.int64)
        chosen: Column = int(self.low) + whole * self.step
        return chosen

    def coerce(self, value: Value) -> Value:
        """An int among the levels."""
        number = _number(self, value)
        if number != int(number) or not self.low <= number <= self.high or (number - self.low) % self.step:
            raise self._refuse(value, self.describe() + (f" in steps of {self.step}" if self.step > 1 else ""))
        return int(number)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listed(Parameter):
    """Common base of parameters with listed values.

    Attributes:
        values: The values, in order.
    """

    values: tuple[Value, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise SpecError(f"{self.name}: the list of values is empty")
        seen: set[str] = set()
        for value in self.values:
            if isinstance(value, float) and not math.isfinite(value):
                raise SpecError(f"{self.name}: {value} is not a finite number")
            if canonical_text(value) in seen:
                raise SpecError(f"{self.name}: the value {value!r} is listed twice")
            seen.add(canonical_text(value))

    @property
    def levels(self) -> Column | None:
        """The listed values."""
        return column(self.values)

    def level(self, index: int) -> Value:
        """The value as it was listed."""
        return self.values[index]

    def draw(self, unit: Features) -> Column:
        """Uniform over the list."""
        levels = column(self.values)
        return _pick(levels, unit)

    def coerce(self, value: Value) -> Value:
        """The listed value that equals the given one, or is written like it; a text is read as the list has it."""
        for known in self.values:
            if known == value and isinstance(known, bool) == isinstance(value, bool):
                return known
        for fits in (_written_alike, _read_alike):
            for known in self.values:
                if fits(known, value):
                    return known
        raise self._refuse(value, "one of " + ", ".join(str(v) for v in self.values[:12]))

    def _indices(self, values: Column) -> NDArray[np.intp]:
        place = {canonical_text(v): i for i, v in enumerate(self.values)}
        return np.array([place[canonical_text(v)] for v in values], dtype=np.intp)


def _written_alike(known: Value, value: Value) -> bool:
    return str(known).lower() == str(value).lower()


def _read_alike(known: Value, value: Value) -> bool:
    """True if a text says a listed number or truth; a listed text is that text alone, as ``1.1`` is not ``1.10``."""
    if not isinstance(value, str) or isinstance(known, str):
        return False
    if isinstance(known, bool):
        return _TRUTH.get(value.lower()) is known
    try:
        return float(value) == known
    except ValueError:
        return False


_TRUTH = {"yes": True, "on": True, "no": False, "off": False}
"""What else people write for true and false."""


def column(values: Sequence[Value]) -> Column:
    """Values as an array: of numbers if all are numbers, else of objects."""
    numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    return np.array(values) if numeric else np.array(values, dtype=object)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordinal(_Listed):
    """Values with an order: numbers, or words from small to large."""

    kind: ClassVar[str] = "ordinal"

    def features(self, values: Column) -> Features:
        """One column: numbers on a linear or log scale, words by their rank."""
        levels = column(self.values)
        if levels.dtype == object:
            ranks = self._indices(values).astype(float)
            return scale(ranks, 0.0, float(len(self.values) - 1), False)[:, None]
        low, high = float(levels.min()), float(levels.max())
        log = low > 0 and high / low >= _LOG_RATIO
        return scale(np.asarray(values, dtype=float), low, high, log)[:, None]

    def feature_names(self) -> tuple[str, ...]:
        """The parameter's own name."""
        return (self.name,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Categorical(_Listed):
    """Values without an order."""

    kind: ClassVar[str] = "categorical"

    def features(self, values: Column) -> Features:
        """One column for two values, else one for each value, of 0 and 1."""
        indices = self._indices(values)
        if len(self.values) <= 2:
            return indices.astype(float)[:, None]
        table: Features = np.eye(len(self.values))[indices]
        return table

    def feature_names(self) -> tuple[str, ...]:
        """``name`` or ``name=value``."""
        if len(self.values) <= 2:
            return (self.name,)
        return tuple(f"{self.name}={v}" for v in self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance(_Listed):
    """The instance type, out of the offers that a query found in the catalogue.

    Attributes:
        offers: The offer of one node, by value.
    """

    kind: ClassVar[str] = "instance"
    offers: Mapping[str, Offer] = field(default_factory=dict, hash=False)
    _encoded: list[tuple[tuple[str, ...], dict[str, Features]]] = field(
        default_factory=list, init=False, repr=False, compare=False
    )

    def fact(self, values: Column, name: str) -> Column:
        """A fact of each value's offer as a column.

        Raises:
            SpecError: No offer has such a fact.
        """
        return self.facts(name)[self._indices(values)]

    def facts(self, name: str) -> Column:
        """A fact of each level's offer, shape (levels,); NaN where an offer does not have it.

        Raises:
            SpecError: No offer has such a fact.
        """
        found = [self.offers[str(value)].attribute(name) for value in self.values]
        if all(fact is None for fact in found):
            raise SpecError(f"{self.name}.{name}: no offer has this fact", hint="vcpu, memory, price, category, ...")
        return column([math.nan if fact is None else fact for fact in found])

    def features(self, values: Column) -> Features:
        """Logarithms of vCPU, memory, price and other positive facts; 0 and 1 for each word; constants left out."""
        names, table = self._encoding()
        return np.array([table[str(v)] for v in values]) if len(values) else np.zeros((0, len(names)))

    def feature_names(self) -> tuple[str, ...]:
        """``name.fact`` and ``name.fact=word``."""
        return self._encoding()[0]

    def _encoding(self) -> tuple[tuple[str, ...], dict[str, Features]]:
        """The features' names, and the features of each value: made once, since there may be thousands of offers."""
        if not self._encoded:
            texts = [str(value) for value in self.values]
            names, rows = offer_features(self.name, texts, [self.offers[text] for text in texts])
            self._encoded.append((names, dict(zip(texts, rows, strict=True))))
        return self._encoded[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes(_Listed):
    """The number of machines, on a log scale."""

    kind: ClassVar[str] = "nodes"

    def __post_init__(self) -> None:
        _Listed.__post_init__(self)
        for value in self.values:
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise SpecError(f"{self.name}: a number of machines must be a whole number from 1, got {value!r}")

    def features(self, values: Column) -> Features:
        """One column: the logarithm of the count."""
        numbers = [float(v) for v in self.values]
        return scale(np.asarray(values, dtype=float), min(numbers), max(numbers), True)[:, None]

    def feature_names(self) -> tuple[str, ...]:
        """The parameter's own name."""
        return (self.name,)
