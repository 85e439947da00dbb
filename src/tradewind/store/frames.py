"""Trials as a pandas or polars frame: one row a trial, one column a parameter."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tradewind.errors import MissingProgramError
from tradewind.utils.dependencies import install_command

if TYPE_CHECKING:
    import pandas
    import polars

_INTEGERS = ("number", "nodes")
_FLOATS = ("objective", "cost", "runtime", "fidelity", "spent", "price_per_hour", "created", "started", "ended")
_BOOLEANS = ("feasible", "censored")
_MOMENTS = ("created", "started", "ended")


def to_pandas(columns: Mapping[str, Sequence[Any]], *, datetimes: bool = False) -> pandas.DataFrame:
    """The columns of `Store.columns` as a pandas frame.

    Each parameter has a column ``param.<name>``, empty where the parameter was not active. Integers and booleans
    that may be missing have pandas' nullable types.

    Args:
        columns: What `Store.columns` gave, or others: what kind an unknown one is follows from its values.
        datetimes: Give ``created``, ``started`` and ``ended`` as UTC times instead of seconds since the epoch.

    Raises:
        MissingProgramError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise _missing("pandas") from error
    frame = {}
    for name, (kind, values) in _typed(columns).items():
        dtype = {"integer": "Int64", "float": "float64", "boolean": "boolean", "text": "string"}[kind]
        if dtype == "Int64" and None not in values:
            dtype = "int64"
        series = pd.Series(values, dtype=dtype)
        if datetimes and name in _MOMENTS:
            series = pd.to_datetime(series, unit="s", utc=True)
        frame[name] = series
    return pd.DataFrame(frame)


def to_polars(columns: Mapping[str, Sequence[Any]], *, datetimes: bool = False) -> polars.DataFrame:
    """The columns of `Store.columns` as a polars frame.

    Each parameter has a column ``param.<name>``, null where the parameter was not active.

    Args:
        columns: What `Store.columns` gave, or others: what kind an unknown one is follows from its values.
        datetimes: Give ``created``, ``started`` and ``ended`` as UTC times instead of seconds since the epoch.

    Raises:
        MissingProgramError: polars is not installed.
    """
    try:
        import polars as pl
    except ImportError as error:
        raise _missing("polars") from error
    kinds = {"integer": pl.Int64, "float": pl.Float64, "boolean": pl.Boolean, "text": pl.String}
    frame = []
    for name, (kind, values) in _typed(columns).items():
        series = pl.Series(name, values, dtype=kinds[kind], strict=kind != "float")
        if datetimes and name in _MOMENTS:
            micros = (series * 1e6).round().cast(pl.Int64)
            series = micros.cast(pl.Datetime("us")).dt.replace_time_zone("UTC")
        frame.append(series)
    return pl.DataFrame(frame)


def _missing(package: str) -> MissingProgramError:
    return MissingProgramError(f"{package} is not installed", hint=install_command(package))


def _typed(columns: Mapping[str, Sequence[Any]]) -> dict[str, tuple[str, list[Any]]]:
    """Each column's kind of value and its values, the parameters last."""
    typed: dict[str, tuple[str, list[Any]]] = {}
    for name, values in columns.items():
        if name == "configuration":
            continue
        kind = "integer" if name in _INTEGERS else "float" if name in _FLOATS else ""
        kind = "boolean" if name in _BOOLEANS else kind
        typed[name] = (kind, list(values)) if kind else _inferred(values)
    configurations = json.loads(f"[{','.join(columns.get('configuration', ()))}]")
    for name in sorted({name for configuration in configurations for name in configuration}):
        typed[f"param.{name}"] = _inferred([configuration.get(name) for configuration in configurations])
    return typed


def _inferred(values: Sequence[Any]) -> tuple[str, list[Any]]:
    """The kind of some values; those of several kinds, text and numbers say, all become text."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return "boolean", list(values)
    if kinds == {int}:
        return "integer", list(values)
    if kinds and kinds <= {int, float}:
        return "float", list(values)
    return "text", [None if value is None else str(value) for value in values]
