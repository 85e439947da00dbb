"""Tradewind's parameters as Optuna's distributions, their values there and back, and bounds as its constraints."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tradewind.problem import Categorical, Float, Instance, Integer, Parameter, Value

if TYPE_CHECKING:
    import optuna


def optuna_distribution(parameter: Parameter) -> optuna.distributions.BaseDistribution:
    """What Optuna draws a parameter's values from: categories, places in a list, or numbers."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(parameter, Float):
        return FloatDistribution(parameter.low, parameter.high, log=parameter.log)
    if isinstance(parameter, Integer):
        low, step = int(parameter.low), parameter.step
        high = low + (int(parameter.high) - low) // step * step
        return IntDistribution(low, high, log=parameter.log and step == 1, step=step)
    levels = parameter.levels
    assert levels is not None
    if isinstance(parameter, Categorical | Instance):
        return CategoricalDistribution([parameter.level(i) for i in range(len(levels))])
    return IntDistribution(0, len(levels) - 1)


def suggest_value(trial: optuna.Trial, parameter: Parameter) -> Any:
    """Optuna's suggestion for a parameter, as Optuna knows it."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    wanted = optuna_distribution(parameter)
    if isinstance(wanted, FloatDistribution):
        return trial.suggest_float(parameter.name, wanted.low, wanted.high, log=wanted.log)
    if isinstance(wanted, IntDistribution):
        return trial.suggest_int(parameter.name, wanted.low, wanted.high, step=wanted.step, log=wanted.log)
    assert isinstance(wanted, CategoricalDistribution)
    return trial.suggest_categorical(parameter.name, wanted.choices)


def _by_place(parameter: Parameter) -> bool:
    return not isinstance(parameter, Float | Integer | Categorical | Instance)


def to_optuna(parameter: Parameter, value: Value) -> Any:
    """A value as Optuna knows it."""
    if not _by_place(parameter):
        return value
    levels = parameter.levels
    assert levels is not None
    return [parameter.level(i) for i in range(len(levels))].index(value)


def from_optuna(parameter: Parameter, value: Any) -> Value:
    """A value of Optuna's as the parameter writes it; real numbers are rounded to 12 digits, as everywhere."""
    if isinstance(parameter, Float):
        return min(max(float(f"{value:.12g}"), float(parameter.low)), float(parameter.high))
    return parameter.coerce(parameter.level(int(value)) if _by_place(parameter) else value)


def constraint_excess(value: float, bound: float) -> float:
    """By which share of a bound (of 1 for 0) a value is above it; a missing value is as bad as twice the bound.

    The excesses of all bounds are added up: none may outweigh the others by its unit.
    """
    if not math.isfinite(value):
        return 1.0 if math.isnan(value) or value > 0 else -1.0
    return (value - bound) / (abs(bound) or 1.0)
