"""Trials as documents and as flat rows: what exports, answers of the service and data frames are made of."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tradewind.errors import MissingProgramError
from tradewind.problem import Trial
from tradewind.store.base import Store
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


_PAGE = 2000
_KINDS = {"config": "configuration", "metric": "metrics", "profile": "profile"}
"""Prefixes of the flat columns, and the objects of a document that they come from."""


def trial_documents(store: Store, study_id: int) -> Iterator[dict[str, Any]]:
    """Each trial as a JSON-able document with ``configuration`` and ``metrics`` as objects.

    Args:
        store: An open store.
        study_id: The study's number in it.
    """
    since = 0
    while page := store.trials(study_id, since=since, limit=_PAGE):
        yield from (trial_document(trial) for trial in page)
        since = page[-1].number + 1


def trial_document(trial: Trial) -> dict[str, Any]:
    """One trial as a JSON-able document."""
    seen, offer = trial.observation, trial.offer
    return {
        "number": trial.number,
        "state": trial.state.value,
        "key": trial.key,
        "objective": _finite(seen.objective) if seen else None,
        "cost": _finite(seen.cost) if seen else None,
        "runtime": _finite(seen.runtime) if seen else None,
        "feasible": seen.feasible if seen else None,
        "censored": seen.censored if seen else None,
        "reason": seen.reason if seen else "",
        "spent": trial.spent,
        "attempts": trial.attempts,
        "fidelity": trial.proposal.fidelity,
        "provider": offer.provider,
        "region": offer.region,
        "instance_type": offer.instance_type,
        "machines": offer.nodes,
        "vcpu": offer.vcpu,
        "memory_gib": offer.memory_gib,
        "price_per_hour": offer.price_per_hour,
        "created": trial.created,
        "started": trial.started,
        "ended": trial.ended,
        "configuration": dict(trial.configuration),
        "metrics": {name: _finite(value) for name, value in seen.metrics.items()} if seen else {},
        "profile": {name: _finite(value) for name, value in seen.profile.items()} if seen else {},
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def flat_rows(store: Store, study_id: int) -> list[dict[str, Any]]:
    """Each trial as one flat row.

    Settings are ``config.<parameter>``, metrics ``metric.<name>`` and low-level metrics ``profile.<name>``. All rows
    have the same keys in the same order; a value that a trial does not have is None.

    Args:
        store: An open store.
        study_id: The study's number in it.
    """
    flat = [_flat(one) for one in trial_documents(store, study_id)]
    names: dict[str, None] = {}
    for row in flat:
        names.update(dict.fromkeys(row))
    plain = [name for name in names if "." not in name]
    order = plain + [name for kind in _KINDS for name in names if name.startswith(f"{kind}.")]
    return [{name: row.get(name) for name in order} for row in flat]


def _flat(trial: Mapping[str, Any]) -> dict[str, Any]:
    row = {name: value for name, value in trial.items() if name not in _KINDS.values()}
    for kind, field in _KINDS.items():
        row |= {f"{kind}.{name}": value for name, value in trial[field].items()}
    return row


def flat_columns(store: Store, study_id: int) -> dict[str, list[Any]]:
    """The same as `flat_rows`, by column: `frames` makes data frames of it.

    Args:
        store: An open store.
        study_id: The study's number in it.
    """
    found = flat_rows(store, study_id)
    return {name: [row[name] for row in found] for name in (found[0] if found else ())}


def frame_columns(store: Store, study_id: int) -> Mapping[str, Sequence[Any]]:
    """`flat_columns` with the parameters as ``param.<name>``, too, and the number of machines as ``nodes``.

    Args:
        store: An open store.
        study_id: The study's number in it.
    """
    found = flat_columns(store, study_id)
    if not found:
        return store.columns(study_id)
    chosen = {f"param.{name.removeprefix('config.')}": v for name, v in found.items() if name.startswith("config.")}
    return {**found, "nodes": found["machines"], **chosen}
