"""The parameters that a space is made of."""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tradewind.errors import ConfigurationError, SpecError
from tradewind.problem.columns.named_offers import offers_named
from tradewind.problem.columns.offer_features import Features, OfferFeatures, scale
from tradewind.problem.configuration import Value, plain_number
from tradewind.problem.expression import Column, Expression
from tradewind.problem.offer import Offer, attributes_of

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
    def count(self) -> float:
        """The number of values; infinite for a continuous parameter."""

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
        for end in (self.low, self.high):
            if not _is_finite(end):
                raise SpecError(f"{self.name}: low and high must be finite numbers, of at most {_LARGEST:.2g}")
        if self.low > self.high:
            low, high = self._text(self.low), self._text(self.high)
            raise SpecError(f"{self.name}: low {low} is above high {high}", hint="swap them")
        if self.log and self.low <= 0:
            raise SpecError(f"{self.name}: a log scale needs low above 0, got {self._text(self.low)}")

    @abstractmethod
    def place(self, value: float) -> int:
        """The place of a value, from 0 for the least, where values can be counted."""

    def index(self, value: Value) -> int | None:
        """The place of a value, however it is written; None for one that is not in the range."""
        try:
            return self.place(float(self.coerce(value)))
        except ConfigurationError:
            return None

    def features(self, values: Column) -> Features:
        """One column: the value on its scale."""
        return scale(np.asarray(values, dtype=float), self.low, self.high, self.log)[:, None]

    def feature_names(self) -> tuple[str, ...]:
        """The parameter's own name."""
        return (self.name,)

    def describe(self) -> str:
        """The range."""
        return f"{self._text(self.low)} to {self._text(self.high)}" + (" (log)" if self.log else "")

    @staticmethod
    def _text(number: float) -> str:
        return f"{number:.{_DIGITS}g}"


_LARGEST = sys.float_info.max


def _is_finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # a whole number beyond all floats
        return False


class _Grid:
    """Numbers at equal distances, as a person writes them: the third after 0 in steps of 0.05 is 0.15.

    They are computed with whole numbers, of the unit that all three bounds are multiples of: sums of floats would
    give 0.15000000000000002.

    Args:
        low: The first of them.
        high: None is above it.
        step: The distance.
    """

    def __init__(self, low: float, high: float, step: float) -> None:
        exact = [Fraction(repr(float(number))) for number in (low, high, step)]
        self._unit = math.lcm(*(number.denominator for number in exact))
        self._first, last, self._step = (int(number * self._unit) for number in exact)
        self.count = (last - self._first) // self._step + 1
        # Quotients of whole numbers that are floats themselves are rounded as they should be.
        self._exact = max(abs(self._first), abs(last), self._step, self._unit) <= _EXACT

    def at(self, places: NDArray[np.int64]) -> Features:
        """The numbers at some places, shape (n,)."""
        if self._exact:
            numbers: Features = (self._first + places * self._step).astype(float) / float(self._unit)
            return numbers
        return np.array([self.number(int(place)) for place in places], dtype=float)

    def number(self, place: int) -> float:
        """The number at a place."""
        return (self._first + place * self._step) / self._unit


@lru_cache(maxsize=256)
def _grid(low: float, high: float, step: float) -> _Grid:
    return _Grid(low, high, step)


@dataclass(frozen=True, slots=True, kw_only=True)
class Float(_Range):
    """A real number between ``low`` and ``high``, both included, or one of those in steps from ``low`` on.

    Attributes:
        step: The distance between values, None for any number of the range. Values are then those that a person
            writes, 0.15 and not 0.15000000000000002, and the greatest of them is ``high`` or the last one below it.
    """

    kind: ClassVar[str] = "float"
    step: float | None = None

    def __post_init__(self) -> None:
        _Range.__post_init__(self)
        width, largest = self.high - self.low, max(abs(self.low), abs(self.high))
        if not math.isfinite(width):
            low, high = self._text(self.low), self._text(self.high)
            raise SpecError(
                f"{self.name}: from {low} to {high} is wider than the largest number that a float can be",
                hint="give bounds that are nearer to each other",
            )
        # Values are written with `_DIGITS` digits; near zero floats themselves are coarser.
        finest = max(10.0 ** (math.floor(math.log10(largest)) + 1 - _DIGITS), math.ulp(largest)) if largest else 0.0
        if self.step is not None:
            self._check_step(self.step, finest)
        elif 0 < width < _FEWEST_VALUES * finest:
            raise SpecError(
                f"{self.name}: too few numbers of {_DIGITS} digits lie between {self.low!r} and {self.high!r}",
                hint="let the parameter be the difference from a fixed number, and add that number in the program",
            )

    def _check_step(self, step: float, finest: float) -> None:
        if not _is_finite(step) or step <= 0:
            raise SpecError(f"{self.name}: step must be a finite number above 0, got {step}")
        if step < max(finest, sys.float_info.min):  # floats below that one have few digits
            raise SpecError(
                f"{self.name}: a step of {self._text(step)} is too fine for numbers of {_DIGITS} digits up to "
                f"{self._text(max(abs(self.low), abs(self.high)))}",
                hint="leave the step out, or let the parameter be the difference from a fixed number",
            )

    @property
    def _stepped(self) -> _Grid | None:
        return None if self.step is None else _grid(self.low, self.high, self.step)

    @property
    def greatest(self) -> float:
        """The greatest value: ``high``, or the last one below it that is on the grid."""
        grid = self._stepped
        return float(self.high) if grid is None else grid.number(grid.count - 1)

    @property
    def count(self) -> float:
        """The number of values; infinite without a step."""
        grid = self._stepped
        if grid is not None:
            return grid.count
        return 1 if self.low == self.high else math.inf

    @property
    def levels(self) -> Column | None:
        """All values of a range with a step, or of one number; None where there are more than `ENUMERABLE`."""
        grid = self._stepped
        if grid is None:
            return np.array([float(self.low)]) if self.low == self.high else None
        return None if grid.count > ENUMERABLE else grid.at(np.arange(grid.count))

    def level(self, index: int) -> Value:
        """The value at a place, from 0 for the least, of a range with a step or of one number."""
        grid = self._stepped
        return float(self.low) if grid is None else grid.number(index)

    def place(self, value: float) -> int:
        """The place of a value of a range with a step, or of the nearest one; 0 without a step."""
        grid = self._stepped
        if grid is None or self.step is None:
            return 0
        # Steps are much longer than the distance between floats: the quotient is nearest to the right number.
        return min(round((min(max(value, self.low), self.high) - self.low) / self.step), grid.count - 1)

    def draw(self, unit: Features) -> Column:
        """Uniform on the scale, on the grid of the steps.

        Without a step it is rounded to `_DIGITS` digits, so that a value reads back as the same value.
        """
        grid = self._stepped
        if grid is not None:
            drawn: Column = grid.at(self._places(unit, grid.count))
            return drawn
        if self.log:
            values = np.exp(math.log(self.low) + unit * (math.log(self.high) - math.log(self.low)))
        else:
            values = self.low + unit * (self.high - self.low)
        rounded = np.array([float(f"{v:.{_DIGITS}g}") for v in values])
        # `np.clip` takes ten times as long for the few values that are drawn at a time.
        clipped: Column = np.minimum(np.maximum(rounded, self.low), self.high)
        return clipped

    def _places(self, unit: Features, count: int) -> NDArray[np.int64]:
        """The places of the grid that numbers of [0, 1) stand for."""
        assert self.step is not None
        if self.log:
            half = self.step / 2.0
            # All that is nearest to the least value is this value: decades of it would be drawn in vain.
            least, greatest = max(self.low - half, half / 2.0), max(self.low, min(self.greatest + half, _LARGEST))
            low, high = math.log(min(least, greatest)), math.log(greatest)
            places = np.rint((np.exp(low + unit * (high - low)) - self.low) / self.step)
        else:
            places = np.floor(unit * count)
        return np.clip(places, 0, count - 1).astype(np.int64)

    def coerce(self, value: Value) -> Value:
        """A float within the range; one that a sum of steps has missed by some last digits is put on the grid."""
        number = _number(self, value)
        if self.step is not None:
            nearest = self.level(self.place(number))
            assert isinstance(nearest, float)
            if abs(number - nearest) > max(1e-9 * self.step, min(4.0 * math.ulp(number), self.step / 4.0)):
                raise self._refuse(value, self.describe())
            return nearest
        if not self.low <= number <= self.high:
            raise self._refuse(value, self.describe())
        return number

    def features(self, values: Column) -> Features:
        """One column: the value on its scale."""
        return scale(np.asarray(values, dtype=float), self.low, self.greatest, self.log)[:, None]

    def describe(self) -> str:
        """The range, with its steps."""
        steps = "" if self.step is None else f" in steps of {self._text(self.step)}"
        return f"{self._text(self.low)} to {self._text(self.greatest)}{steps}" + (" (log)" if self.log else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Integer(_Range):
    """A whole number from ``low`` to ``high``, both included, in steps.

    Attributes:
        step: The distance between values; the greatest is ``high`` or the last one below it.
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
    def count(self) -> float:
        """The number of whole numbers in the range."""
        return (int(self.high) - int(self.low)) // self.step + 1

    @property
    def levels(self) -> Column | None:
        """All whole numbers of the range; None for more than `ENUMERABLE` of them."""
        return None if self.count > ENUMERABLE else self._at(np.arange(self.count, dtype=np.int64))

    @property
    def greatest(self) -> int:
        """The greatest value: ``high``, or the last one below it that the steps come to."""
        return int(self.low) + (int(self.count) - 1) * self.step

    def level(self, index: int) -> Value:
        """The value at a place, from 0 for the least."""
        return int(self.low) + index * self.step

    def place(self, value: float) -> int:
        """The place of a value, from 0 for the least."""
        return (int(value) - int(self.low)) // self.step

    def _at(self, places: NDArray[np.int64]) -> Column:
        # A step beyond the range, which leaves one value, may be beyond all numbers of an array.
        numbers: Column = int(self.low) + places * min(self.step, 2 * _EXACT)
        return numbers

    def draw(self, unit: Features) -> Column:
        """Uniform over the levels, or over the log of the range."""
        if self.log:
            low, high = math.log(self.low - 0.5), math.log(self.high + 0.5)
            raw = np.exp(low + unit * (high - low))
            index = np.rint((raw - self.low) / self.step)
        else:
            index = np.floor(unit * self.count)
        return self._at(np.clip(index, 0, self.count - 1).astype(np.int64))

    def coerce(self, value: Value) -> Value:
        """An int among the levels."""
        number = _number(self, value)
        whole = value if isinstance(value, int) else int(number)
        if number != whole or not self.low <= whole <= self.high or (whole - int(self.low)) % self.step:
            raise self._refuse(value, self.describe())
        return whole

    def describe(self) -> str:
        """The range, with its steps."""
        steps = f" in steps of {self.step}" if self.step > 1 else ""
        return f"{int(self.low)} to {self.greatest}{steps}" + (" (log)" if self.log else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed(Parameter):
    """Common base of parameters with listed values.

    Attributes:
        values: The values, in order.
    """

    values: tuple[Value, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise SpecError(f"{self.name}: the list of values is empty")
        if set(map(type, self.values)) == {str} and len(set(self.values)) == len(self.values):
            return  # the names of a hundred thousand offers, which are none of what follows
        seen: set[str] = set()
        for value in self.values:
            if isinstance(value, float) and not math.isfinite(value):
                raise SpecError(f"{self.name}: {value} is not a finite number")
            if canonical_text(value) in seen:
                raise SpecError(f"{self.name}: the value {value!r} is listed twice")
            seen.add(canonical_text(value))

    @property
    def count(self) -> float:
        """The length of the list."""
        return len(self.values)

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
        if len(set(map(type, self.values))) > 1 or levels.dtype.kind == "f":
            levels = _objects(self.values)  # 1 and 2.5 as they are listed, not 1.0 and 2.5
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
    """Values as an array: of numbers if all are numbers that one kind of number can hold, else of objects."""
    if all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        numbers = np.array(values)
        # Beside a fraction, whole numbers become floats: those beyond 2^53 would lose their last digits.
        if all(number == value for number, value in zip(numbers.tolist(), values, strict=True) if value == value):
            return numbers
    return _objects(values)


def _objects(values: Sequence[Value]) -> Column:
    return np.array(values, dtype=object)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordinal(Listed):
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
class Categorical(Listed):
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
class Instance(Listed):
    """The instance type, out of the offers that a query found in the catalogue.

    Attributes:
        offers: The offer of one node, by value.
    """

    kind: ClassVar[str] = "instance"
    offers: Mapping[str, Offer] = field(default_factory=dict, hash=False)
    _encoded: list[tuple[OfferFeatures, dict[str, int]]] = field(
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
        found = attributes_of(offers_named(self.offers, [str(value) for value in self.values]), name)
        if all(fact is None for fact in found):
            raise SpecError(f"{self.name}.{name}: no offer has this fact", hint="vcpu, memory, price, category, ...")
        return column([math.nan if fact is None else fact for fact in found])

    def features(self, values: Column) -> Features:
        """Logarithms of vCPU, memory, price and other positive facts; 0 and 1 for each word; constants left out."""
        features, places = self._encoding()
        return features.rows(np.array([places[str(value)] for value in values], dtype=np.intp))

    def feature_names(self) -> tuple[str, ...]:
        """``name.fact`` and ``name.fact=word``."""
        return self._encoding()[0].names

    def log_ranges(self) -> tuple[float, ...]:
        """The range of the logarithm of each feature that is on a log scale, 0 for others."""
        return self._encoding()[0].log_ranges

    def _encoding(self) -> tuple[OfferFeatures, dict[str, int]]:
        """The features, and the place of each value: made once, since there may be thousands of offers."""
        if not self._encoded:
            texts = [str(value) for value in self.values]
            features = OfferFeatures(self.name, texts, offers_named(self.offers, texts))
            self._encoded.append((features, {text: place for place, text in enumerate(texts)}))
        return self._encoded[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes(Listed):
    """The number of machines, on a log scale."""

    kind: ClassVar[str] = "nodes"

    def __post_init__(self) -> None:
        Listed.__post_init__(self)
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
