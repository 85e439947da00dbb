"""Completes a configuration of which a user gives a part: the cheapest machines, and middle values."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tradewind.errors import ConfigurationError, NoOfferError
from tradewind.problem.columns.row_numbers import RowNumbers
from tradewind.problem.configuration import Configuration, Value
from tradewind.problem.parameter import Categorical, Instance, Parameter
from tradewind.problem.problem import Problem
from tradewind.problem.space import Codes
from tradewind.utils.suggestions import did_you_mean

_TRIES = 20_000
"""Configurations of a space that cannot be listed that are looked at, until one is allowed."""

_DRAWS = 1000
"""Random points of its settings that are tried where the middle is not allowed."""


def parse_values(text: str) -> dict[str, str]:
    """The values of ``NAME=VALUE,NAME=VALUE``, as texts; a piece without ``=`` belongs to the value before it.

    Raises:
        ConfigurationError: It is not of that form, or a name is given twice.
    """
    words: list[str] = []
    for piece in text.split(","):
        if "=" in piece or not words:
            words.append(piece)
        else:
            words[-1] += f",{piece}"
    found: dict[str, str] = {}
    for word in words:
        name, sign, value = (piece.strip() for piece in word.partition("="))
        if not sign or not name:
            raise ConfigurationError(f"{text}: it is not NAME=VALUE,NAME=VALUE", hint="write workers=4")
        if name in found:
            raise ConfigurationError(f"{text}: {name!r} is given twice", hint="give each of them once")
        found[name] = value
    return found


def completed(problem: Problem, values: Mapping[str, Value]) -> Configuration:
    """The configuration that has some values, and for the parameters that are missing the plainest ones.

    Of the machines that fit these are the cheapest per hour; of settings with an order the value in the middle of
    its scale, of others the first that is allowed.

    Args:
        problem: The problem.
        values: Values of some or all parameters.

    Raises:
        ConfigurationError: A value is not in the space, or no configuration that is allowed and sold has them all.
    """
    space = problem.space
    given: dict[str, Value] = {}
    for name, value in values.items():
        if name not in space:
            raise ConfigurationError(
                f"there is no parameter {name!r}", hint=did_you_mean(str(name), space.names, "known:")
            )
        given[name] = space[name].coerce(value)
    if given.keys() >= set(space.names):
        return space.check(given)
    found = _listed(problem, given) if space.enumerable else _drawn(problem, given)
    if found is None:
        if space.required <= given.keys():
            return space.check(given)  # says what is wrong with them
        raise ConfigurationError(
            f"no configuration with {Configuration(given)} is allowed and sold", hint="leave a value out, or change it"
        )
    return found


def _listed(problem: Problem, given: Mapping[str, Value]) -> Configuration | None:
    """The plainest configuration of an enumerable space; None where none has the given values."""
    space = problem.space
    rows = space.codes
    wanted = space.place(given)
    assert wanted is not None
    for i, name in enumerate(space.names):
        if name in given:
            rows = rows[rows[:, i] == wanted[i]]
    if not len(rows):
        return None
    hourly = _prices(problem, rows)
    rows = rows[hourly == hourly.min()]
    if not np.isfinite(hourly.min()):
        return None
    away = np.zeros(len(rows))
    for i, parameter in enumerate(space.parameters):
        away += _distances(parameter, rows[:, i])
    return space.configuration(rows[int(np.argmin(np.round(away, 9)))])


def _prices(problem: Problem, rows: Codes) -> NDArray[np.float64]:
    """USD per hour of each row of codes; infinite where nobody sells it."""
    space, machine = problem.space, problem.resolver.machine_parameters
    chosen = [i for i, name in enumerate(space.names) if name in machine]
    _, first, which = np.unique(RowNumbers(rows[:, chosen]).numbers, return_index=True, return_inverse=True)
    prices = []
    for i in first:
        try:
            prices.append(problem.resolver.resolve(space.configuration(rows[i])).hourly)
        except NoOfferError:
            prices.append(np.inf)
    return np.array(prices)[which]


def _distances(parameter: Parameter, codes: NDArray[np.int32]) -> NDArray[np.float64]:
    """Distance of each value from the middle of its scale; of values without an order, from the first."""
    levels = parameter.levels
    assert levels is not None
    if isinstance(parameter, Categorical | Instance):
        table = np.arange(len(levels)) / len(levels)
    else:
        table = np.abs(parameter.features(levels)[:, 0] - 0.5)
    return np.append(table, 0.0)[codes]  # the last answers -1: inactive


def _drawn(problem: Problem, given: Mapping[str, Value]) -> Configuration | None:
    """The plainest configuration found of a space that cannot be listed: middle values, else other ones."""
    missing = [parameter for parameter in problem.space.parameters if parameter.name not in given]
    machine = {p.name: p for p in missing if p.name in problem.resolver.machine_parameters and p.levels is not None}
    others = [parameter for parameter in missing if parameter.name not in machine]
    choices = [[parameter.level(i) for i in range(_count(parameter))] for parameter in machine.values()]
    tries = 0
    for point in _points(others):
        found: list[tuple[float, Configuration]] = []
        for chosen in itertools.product(*choices):
            tries += 1
            if tries > _TRIES:
                break
            try:
                configuration = problem.space.complete(given, {**point, **dict(zip(machine, chosen, strict=True))})
                hourly = problem.resolver.resolve(configuration).hourly
            except (ConfigurationError, NoOfferError):
                continue
            if given.keys() <= configuration.keys():
                found.append((hourly, configuration))
        if found:
            return min(found, key=lambda one: one[0])[1]
        if tries > _TRIES:
            break
    return None


def _count(parameter: Parameter) -> int:
    levels = parameter.levels
    return 0 if levels is None else len(levels)


def _points(parameters: Sequence[Parameter]) -> Iterator[dict[str, Value]]:
    """Values of some parameters: first the middle of each scale, the first of what has no order; then random ones."""
    rng = np.random.default_rng(0)
    middle = np.array([0.0 if isinstance(parameter, Categorical) else 0.5 for parameter in parameters])
    for unit in (middle, *rng.random((_DRAWS, len(parameters)))):
        values = [parameter.draw(unit[i : i + 1])[0] for i, parameter in enumerate(parameters)]
        yield {
            parameter.name: parameter.coerce(value.item() if isinstance(value, np.generic) else value)
            for parameter, value in zip(parameters, values, strict=True)
        }
