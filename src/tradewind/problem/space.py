"""The space: parameters, conditions and constraints, and the configurations that they allow."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tradewind.errors import ConfigurationError, SpecError
from tradewind.problem.columns.offer_features import Features
from tradewind.problem.configuration import Configuration, Value
from tradewind.problem.expression import Column, Expression, Mask
from tradewind.problem.parameter import (
    ENUMERABLE,
    Categorical,
    Float,
    Instance,
    Integer,
    Listed,
    Parameter,
    canonical_text,
    column,
)

Codes = NDArray[np.int32]
"""Configurations of a finite space: shape (n, parameters), the index of each level, -1 where inactive."""

_CHUNK = 1 << 18
_FIRST = 4


class Space:
    """The set of configurations that may be chosen.

    A finite space is kept as one array of small integers, never as a list of objects: a million combinations of
    six parameters take 24 MB.

    Args:
        parameters: In order; a condition may name only parameters before its own.
        where: Constraints that every configuration keeps. One that names an inactive parameter holds.

    Raises:
        SpecError: Names are repeated or unknown, or nothing is allowed.
    """

    def __init__(self, parameters: Iterable[Parameter], where: Iterable[Expression] = ()) -> None:
        self.parameters = tuple(parameters)
        self.where = tuple(where)
        self.names = tuple(p.name for p in self.parameters)
        for name in self.names:
            if self.names.count(name) > 1:
                raise SpecError(f"the parameter {name!r} is declared twice")
        if not self.parameters:
            raise SpecError("the space is empty", hint="declare at least one parameter")
        for i, parameter in enumerate(self.parameters):
            if parameter.when is not None:
                parameter.when.require(self.names[:i])
                if not parameter.when.names:
                    raise SpecError(f"{parameter.name}: the condition {parameter.when.text!r} names no parameter")
        for constraint in self.where:
            constraint.require(self.names)
            if not constraint.names:
                raise SpecError(f"the constraint {constraint.text!r} names no parameter", hint="remove it")
        self._by_name = {p.name: p for p in self.parameters}

    def __repr__(self) -> str:
        parts = [*map(repr, self.parameters), *(f"where {constraint}" for constraint in self.where)]
        return f"Space({', '.join(parts)})"

    def __getitem__(self, name: str) -> Parameter:
        return self._by_name[name]

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    # ------------------------------------------------------------------ finite spaces

    @cached_property
    def levels(self) -> tuple[Column | None, ...]:
        """The values of each parameter; None for one that cannot be listed."""
        return tuple(p.levels for p in self.parameters)

    @cached_property
    def combinations(self) -> float:
        """Combinations before conditions and constraints; infinite for a continuous space."""
        return math.prod(float(parameter.count) for parameter in self.parameters)

    @property
    def size_text(self) -> str:
        """The reason in words that a space cannot be listed, as in "a space with a continuous parameter"."""
        if any(parameter.count == math.inf for parameter in self.parameters):
            return "a continuous parameter"
        return f"{self.combinations:g} combinations"

    @property
    def enumerable(self) -> bool:
        """True when `codes` may be asked for."""
        return self.combinations <= ENUMERABLE

    @cached_property
    def codes(self) -> Codes:
        """All allowed configurations of an enumerable space, in lexicographic order, shape (n, parameters)."""
        if not self.enumerable:
            raise SpecError(f"the space has {self.size_text}, too many to list")
        rows = np.zeros((1, 0), dtype=np.int32)
        for i, parameter in enumerate(self.parameters):
            listed = self.levels[i]
            assert listed is not None
            active = self._active(parameter, self.names[:i], rows)
            repeats = np.where(active, len(listed), 1)
            ends = np.cumsum(repeats)
            code = np.arange(ends[-1] if len(ends) else 0, dtype=np.int32) - np.repeat(ends - repeats, repeats)
            code = np.where(np.repeat(active, repeats), code, -1).astype(np.int32)
            rows = np.column_stack([np.repeat(rows, repeats, axis=0), code])
            done = self.names[: i + 1]
            for constraint in self.where:
                if constraint.names <= set(done) and parameter.name in constraint.names:
                    rows = rows[self._holds(constraint, done, rows)]
        if not len(rows):
            raise SpecError("no combination of values keeps all constraints", hint="loosen one under 'where'")
        return rows

    @cached_property
    def required(self) -> frozenset[str]:
        """The parameters that every configuration has: those without a condition."""
        return frozenset(p.name for p in self.parameters if p.when is None)

    def __len__(self) -> int:
        """Number of allowed configurations of an enumerable space."""
        return len(self.codes)

    def configuration(self, code: Sequence[int] | Codes) -> Configuration:
        """The configuration of one row of `codes`."""
        values: dict[str, Value] = {}
        for parameter, index in zip(self.parameters, code, strict=True):
            if index >= 0:
                values[parameter.name] = parameter.level(int(index))
        return Configuration(values)

    def code(self, configuration: Mapping[str, Value]) -> tuple[int, ...]:
        """The row of a configuration of an enumerable space; the inverse of `configuration`."""
        checked = self.check(configuration)
        row = self.place(checked)
        assert row is not None
        return row

    def place(self, values: Mapping[str, Value]) -> tuple[int, ...] | None:
        """The row that some values of an enumerable space would have, whether it is allowed or not; None if none."""
        row = []
        for parameter in self.parameters:
            index = -1
            if parameter.name in values:
                index = self._place_of(parameter, values[parameter.name])
            if index < -1:
                return None
            row.append(index)
        return tuple(row)

    def _place_of(self, parameter: Parameter, value: Value) -> int:
        """The place of a value among the levels of a parameter; -2 if it is not there."""
        if isinstance(parameter, Float | Integer):
            found = parameter.index(value)
            return -2 if found is None else found
        return self._places[parameter.name].get(canonical_text(value), -2)

    @cached_property
    def _places(self) -> dict[str, dict[str, int]]:
        """The places of listed values; those of a range, which may be millions, are computed."""
        return {
            p.name: {canonical_text(p.level(i)): i for i in range(len(listed))}
            for p, listed in zip(self.parameters, self.levels, strict=True)
            if listed is not None and not isinstance(p, Float | Integer)
        }

    # ------------------------------------------------------------------ any space

    def check(self, values: Mapping[str, Value]) -> Configuration:
        """The configuration of some values: complete, in range, and allowed.

        Raises:
            ConfigurationError: One is missing, unknown, out of range, or a constraint is broken.
        """
        for name in values:
            if name not in self:
                raise ConfigurationError(f"there is no parameter {name!r}", hint=f"known: {', '.join(self.names)}")
        chosen: dict[str, Value] = {}
        for parameter in self.parameters:
            if parameter.when is not None and not self._true(parameter.when, chosen, inactive=False):
                if parameter.name in values:
                    raise ConfigurationError(f"{parameter.name} exists only when {parameter.when}")
                continue
            if parameter.name not in values:
                raise ConfigurationError(f"{parameter.name} is missing", hint=f"wanted {parameter.describe()}")
            chosen[parameter.name] = parameter.coerce(values[parameter.name])
        for constraint in self.where:
            if not self._true(constraint, chosen, inactive=True):
                raise ConfigurationError(f"{Configuration(chosen)} breaks the constraint {constraint}")
        return Configuration(chosen)

    def implied(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """The parameters that some values leave a single value for, those that have only one anyway included.

        Args:
            values: Values of some parameters, as their parameters write them.

        Returns:
            The value of each; nothing where no allowed configuration has the given ones.
        """
        if not self.enumerable:
            found: dict[str, Value] = {}
            for parameter, listed in zip(self.parameters, self.levels, strict=True):
                exists = parameter.when is None or self._true(parameter.when, {**found, **values}, inactive=False)
                if parameter.name not in values and listed is not None and len(listed) == 1 and exists:
                    found[parameter.name] = parameter.level(0)
            return found
        rows = self.codes
        for i, parameter in enumerate(self.parameters):
            if parameter.name in values:
                rows = rows[rows[:, i] == self._place_of(parameter, values[parameter.name])]
        if not len(rows):
            return {}
        only = (rows == rows[0]).all(axis=0)
        return {
            parameter.name: parameter.level(int(rows[0, i]))
            for i, parameter in enumerate(self.parameters)
            if only[i] and rows[0, i] >= 0 and parameter.name not in values
        }

    def complete(self, values: Mapping[str, Value], otherwise: Mapping[str, Value]) -> Configuration:
        """The configuration of some values, after a change: what is inactive is dropped, what is missing is filled in.

        Args:
            values: The values wanted.
            otherwise: A value for each parameter that may be missing.

        Raises:
            ConfigurationError: It is not allowed.
        """
        chosen: dict[str, Value] = {}
        for parameter in self.parameters:
            if parameter.when is None or self._true(parameter.when, chosen, inactive=False):
                name = parameter.name
                chosen[name] = parameter.coerce(values[name] if name in values else otherwise[name])
        return self.check(chosen)

    def holds(self, expression: Expression, values: Mapping[str, Value]) -> bool:
        """True if a condition or constraint holds for some values; a condition on what is not given does not."""
        return self._true(expression, values, inactive=expression in self.where)

    def sample(self, rng: np.random.Generator, n: int, *, tries: int = 200) -> list[Configuration]:
        """Up to ``n`` different allowed configurations, each parameter uniform on its scale.

        Fewer come back where the space has fewer, or where constraints leave so little that ``tries`` rounds of
        ``n`` draws do not find them.
        """
        return list(self.samples(rng, n, tries=tries))

    def samples(self, rng: np.random.Generator, n: int, *, tries: int = 200) -> Iterator[Configuration]:
        """As `sample`, one after the other: only those that are taken are made."""
        if self.enumerable:
            yield from (self.configuration(self.codes[i]) for i in rng.permutation(len(self.codes))[:n])
            return
        found: set[str] = set()
        for _ in range(tries):
            unit = rng.random((max(n, 16), len(self.parameters)))
            # Most callers take the first ones only: the others are not made of their numbers before they are wanted.
            for configuration in itertools.chain(self._drawn(unit[:_FIRST]), self._drawn(unit[_FIRST:])):
                if configuration.key in found:
                    continue
                found.add(configuration.key)
                yield configuration
                if len(found) == n:
                    return

    def draw(self, unit: Features) -> list[Configuration]:
        """The configurations of points of the unit cube, shape (n, parameters); those not allowed are left out."""
        return list(self._drawn(unit))

    def _drawn(self, unit: Features) -> Iterator[Configuration]:
        listed = self._listed_whole
        for point in self._points(unit):
            if listed:
                point = Configuration({name: listed.get(name, {}).get(value, value) for name, value in point.items()})
            yield point

    @cached_property
    def _listed_whole(self) -> dict[str, dict[Value, Value]]:
        """The whole numbers of lists that have others too: an array of both has 1.0 for the 1 that was listed."""
        found: dict[str, dict[Value, Value]] = {}
        for parameter in self.parameters:
            if isinstance(parameter, Listed) and column(parameter.values).dtype.kind == "f":
                found[parameter.name] = {value: value for value in parameter.values if isinstance(value, int)}
        return {name: whole for name, whole in found.items() if whole}

    def _points(self, unit: Features) -> Iterator[Configuration]:
        columns = {p.name: p.draw(unit[:, i]) for i, p in enumerate(self.parameters)}
        if columns and not self.where and len(self.required) == len(columns):  # plain, and drawn from all the time
            for values in zip(*columns.values(), strict=True):
                yield Configuration({name: _plain(value) for name, value in zip(self.names, values, strict=True)})
            return
        active: dict[str, Column] = {}
        for parameter in self.parameters:
            mask = np.ones(len(unit), dtype=bool)
            if parameter.when is not None:
                mask = self._mask(parameter.when, columns, active, inactive=False)
            active[parameter.name] = mask
        allowed = np.ones(len(unit), dtype=bool)
        for constraint in self.where:
            allowed &= self._mask(constraint, columns, active, inactive=True)
        for i in np.flatnonzero(allowed):
            yield Configuration({name: _plain(columns[name][i]) for name in self.names if active[name][i]})

    # ------------------------------------------------------------------ numbers for models

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the columns of `encode`; a conditional parameter has one more, ``name?``, of 0 and 1."""
        parts = [
            (*p.feature_names(), f"{p.name}?") if p.when is not None else p.feature_names() for p in self.parameters
        ]
        return tuple(itertools.chain.from_iterable(parts))

    def encode(self, configurations: Sequence[Mapping[str, Value]]) -> Features:
        """Configurations as numbers for a model, shape (n, features), about in [0, 1]; inactive ones are 0.5."""
        blocks: list[Features] = []
        for parameter in self.parameters:
            active = np.array([parameter.name in c for c in configurations], dtype=bool)
            width = len(parameter.feature_names())
            block = np.full((len(configurations), width), 0.5)
            values = [c[parameter.name] for c in configurations if parameter.name in c]
            if values and width:
                block[active] = parameter.features(np.array(values, dtype=object))
            blocks.append(block)
            if parameter.when is not None:
                blocks.append(active.astype(float)[:, None])
        return np.concatenate(blocks, axis=1)

    def encode_codes(self, codes: Codes) -> Features:
        """As `encode`, for rows of `codes`: one table look-up a parameter, quick for a million rows."""
        out = np.empty((len(codes), len(self.feature_names)))
        start = 0
        for i, parameter in enumerate(self.parameters):
            listed = self.levels[i]
            assert listed is not None
            end = start + len(parameter.feature_names())
            # The last row answers index -1: inactive.
            table = np.vstack([parameter.features(listed), np.full((1, end - start), 0.5)])
            out[:, start:end] = table[codes[:, i]]
            if parameter.when is not None:
                out[:, end] = codes[:, i] >= 0
                end += 1
            start = end
        return out

    # ------------------------------------------------------------------ conditions and constraints

    def _facts(self, name: str, attribute: str) -> Column:
        """A fact of each value of an instance parameter."""
        parameter = self._by_name[name]
        if not isinstance(parameter, Instance):
            raise SpecError(f"{name}.{attribute}: only an instance has facts, {name} is {parameter.kind}")
        return parameter.facts(attribute)

    def _true(self, expression: Expression, chosen: Mapping[str, Value], *, inactive: bool) -> bool:
        columns = {name: self._column_of(name, value) for name, value in chosen.items()}
        active = {name: np.array([name in chosen]) for name in self.names}
        return bool(self._mask(expression, columns, active, inactive=inactive)[0])

    def _column_of(self, name: str, value: Value) -> Column:
        """One value as an array, of objects where its parameter lists numbers and texts: these are compared to both."""
        listed = self.levels[self.names.index(name)]
        return np.array([value], dtype=object) if listed is not None and listed.dtype == object else column([value])

    def _mask(
        self, expression: Expression, columns: Mapping[str, Column], active: Mapping[str, Column], *, inactive: bool
    ) -> NDArray[np.bool_]:
        """Find where an expression holds; it is ``inactive`` where it names a parameter that is not active."""

        def fact(name: str, attribute: str) -> Column:
            table = self._facts(name, attribute)
            place = self._places[name]
            return table[[place[canonical_text(value)] for value in columns[name][usable]]]

        usable = _all_active(expression, active)
        chosen = {name: columns[name][usable] for name in expression.names} if usable.any() else {}
        return _where_true(expression, chosen, usable, fact, inactive=inactive)

    def _active(self, parameter: Parameter, names: Sequence[str], rows: Codes) -> NDArray[np.bool_]:
        if parameter.when is None:
            return np.ones(len(rows), dtype=bool)
        return self._over_rows(parameter.when, names, rows, inactive=False)

    def _holds(self, constraint: Expression, names: Sequence[str], rows: Codes) -> NDArray[np.bool_]:
        return self._over_rows(constraint, names, rows, inactive=True)

    def _over_rows(
        self, expression: Expression, names: Sequence[str], rows: Codes, *, inactive: bool
    ) -> NDArray[np.bool_]:
        """As `_mask`, for rows of codes; facts are looked up by level, not by value."""
        parts = [np.zeros(0, dtype=bool)]
        for start in range(0, len(rows), _CHUNK):  # bounded memory, whatever the size of the space
            codes = {name: rows[start : start + _CHUNK, names.index(name)] for name in expression.names}
            usable = _all_active(expression, {name: code >= 0 for name, code in codes.items()})
            used = {name: code[usable] for name, code in codes.items()}

            def fact(name: str, attribute: str, used: Mapping[str, Codes] = used) -> Column:
                return self._facts(name, attribute)[used[name]]

            chosen = {name: self._listed(name)[code] for name, code in used.items()}
            parts.append(_where_true(expression, chosen, usable, fact, inactive=inactive))
        return np.concatenate(parts)

    def _listed(self, name: str) -> Column:
        listed = self.levels[self.names.index(name)]
        assert listed is not None
        return listed


def _all_active(expression: Expression, active: Mapping[str, Column]) -> NDArray[np.bool_]:
    named = [active[name] for name in sorted(expression.names)]
    together: NDArray[np.bool_] = np.logical_and.reduce(named)
    return together


def _where_true(
    expression: Expression,
    chosen: Mapping[str, Column],
    usable: NDArray[np.bool_],
    fact: Callable[[str, str], Column],
    *,
    inactive: bool,
) -> NDArray[np.bool_]:
    """The truth of an expression over the usable rows, and ``inactive`` in all others."""
    result = np.full(len(usable), inactive)
    count = int(usable.sum())
    if count:
        value = expression.evaluate(chosen, fact)
        result[usable] = np.broadcast_to(value.astype(bool), (count,))
    return result


def _plain(value: object) -> Value:
    """A numpy scalar as the Python value of the same meaning."""
    plain = value.item() if isinstance(value, np.generic) else value
    assert isinstance(plain, str | int | float | bool)
    return plain


_PROBES = (0, 1, -1)
"""What ranges that cannot be listed are tried with, besides their ends."""


def reject_division_by_zero(space: Space) -> None:
    """See that no condition or constraint of a space divides by zero for a configuration that it is asked about.

    It is not asked about what a constraint without a division leaves out (``where: [n > 0, 8 / n > 2]``), nor where
    one of its parameters is not active. Ranges that cannot be listed, those of real numbers above all, are tried
    at their ends, at 0, 1 and -1; so are the longest of the others where all together are too many to be listed.

    Args:
        space: The space.

    Raises:
        SpecError: One does; with an example, and how to write it.
    """
    conditions = [p.when for p in space.parameters if p.when is not None]
    for expression in (*conditions, *space.where):
        if expression.divides:
            _check(expression, space)


def _check(expression: Expression, space: Space) -> None:
    try:
        part = _part(expression, space)
        codes = part.codes
    except SpecError:  # nothing is allowed, or too much to be listed: that is reported elsewhere
        return
    chosen: dict[str, Codes] = {name: codes[:, part.names.index(name)] for name in expression.names}
    active = np.logical_and.reduce([code >= 0 for code in chosen.values()])
    chosen = {name: code[active] for name, code in chosen.items()}
    levels = dict(zip(part.names, part.levels, strict=True))
    columns: dict[str, Column] = {}
    for name, code in chosen.items():
        listed = levels[name]
        assert listed is not None
        columns[name] = listed[code]

    def fact(name: str, attribute: str) -> Column:
        parameter = part[name]
        assert isinstance(parameter, Instance)
        return parameter.facts(attribute)[chosen[name]]

    zero = expression.divides_by_zero(columns, fact, int(active.sum()))
    if zero.any():
        raise _error(expression, columns, zero)


def _error(expression: Expression, columns: Mapping[str, Column], zero: Mask) -> SpecError:
    first = int(np.flatnonzero(zero)[0])
    if zero.all():
        return SpecError(f"the expression {expression.text!r} divides by zero, whatever is chosen", hint="correct it")
    example = ", ".join(f"{name}={columns[name][first]}" for name in sorted(columns))
    hint = "leave that value out, or say in front of it what holds then: n == 0 or 8 / n > 2"
    return SpecError(f"the expression {expression.text!r} divides by zero where {example}", hint=hint)


def _part(expression: Expression, space: Space) -> Space:
    """The parameters that an expression depends on, with the conditions and constraints among them."""
    wanted = set(expression.names)
    for parameter in reversed(space.parameters):  # a condition names only parameters before its own
        if parameter.name in wanted and parameter.when is not None:
            wanted |= parameter.when.names
    parameters = [p for p in space.parameters if p.name in wanted]
    where = [one for one in space.where if not one.divides and one.names <= wanted]
    parameters = [_probed(p) if p.levels is None else p for p in parameters]
    for place in sorted(range(len(parameters)), key=lambda i: -parameters[i].count):
        if math.prod(float(p.count) for p in parameters) <= ENUMERABLE:
            break
        parameters[place] = _probed(parameters[place])
    return Space(parameters, where)


def _probed(parameter: Parameter) -> Parameter:
    if not isinstance(parameter, Float | Integer):
        return parameter
    values = tuple(dict.fromkeys(_allowed(parameter, (*_PROBES, parameter.low, parameter.high))))
    return Categorical(name=parameter.name, when=parameter.when, values=values)


def _allowed(parameter: Parameter, values: Iterable[float]) -> Iterable[Value]:
    for value in values:
        try:
            yield parameter.coerce(value)
        except ConfigurationError:
            continue
