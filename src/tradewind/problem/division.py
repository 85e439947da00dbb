"""Tells of conditions and constraints that divide by zero: what they then compare is no number that anybody meant."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from tradewind.errors import ConfigurationError, SpecError
from tradewind.problem.configuration import Value
from tradewind.problem.expression import Column, Expression, Mask
from tradewind.problem.parameter import ENUMERABLE, Categorical, Float, Instance, Integer, Parameter
from tradewind.problem.space import Codes, Space

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
    except SpecError:  # nothing is allowed, or too much to be listed: that is told elsewhere
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
    for place in sorted(range(len(parameters)), key=lambda i: -_count(parameters[i])):
        if math.prod(map(_count, parameters)) <= ENUMERABLE:
            break
        parameters[place] = _probed(parameters[place])
    return Space(parameters, where)


def _count(parameter: Parameter) -> float:
    return math.inf if parameter.levels is None else len(parameter.levels)


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
