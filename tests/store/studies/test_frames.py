"""Frames of trials."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import polars as pl
import pytest

from tradewind.errors import MissingProgramError
from tradewind.problem import Configuration, Proposal, Value
from tradewind.store.base import Change, Store
from tradewind.store.studies import tabular
from tradewind.testing.stores import study_row, trial

Columns = Mapping[str, Sequence[Any]]


@pytest.fixture
def columns(sqlite_url: str, open_store: Callable[..., Store]) -> Columns:
    store = open_store(sqlite_url)
    study = store.create_study(study_row())
    chosen: list[dict[str, Value]] = [
        {"nodes": 2, "codec": "zstd", "level": 3, "ratio": 1, "size": "auto", "fast": True},
        {"nodes": 4, "codec": "none", "ratio": 0.5, "size": 64, "fast": False},
        {"nodes": 8, "codec": "gzip", "level": 9, "ratio": 0.25},
    ]
    given = [trial(0, 0.5), trial(1, 0.75, feasible=False), trial(2)]
    given = [replace(t, proposal=Proposal(Configuration(values))) for t, values in zip(given, chosen, strict=True)]
    store.write(study.id, Change(given))
    return store.columns(study.id)


PARAMETERS = ["param.codec", "param.fast", "param.level", "param.nodes", "param.ratio", "param.size"]


def test_pandas(columns: Columns) -> None:
    frame = tabular.to_pandas(columns)
    assert list(frame.columns) == [name for name in columns if name != "configuration"] + PARAMETERS
    assert frame["number"].dtype == "int64"
    assert frame["objective"].dtype == "float64"
    assert frame["feasible"].dtype == "boolean"
    assert frame["param.nodes"].dtype == "int64"
    assert frame["param.level"].dtype == "Int64"
    assert frame["param.ratio"].dtype == "float64"
    assert frame["param.fast"].dtype == "boolean"
    assert frame["param.codec"].tolist() == ["zstd", "none", "gzip"]
    assert frame["param.size"].tolist()[:2] == ["auto", "64"]
    assert frame["param.size"].isna().tolist() == [False, False, True]
    assert frame["param.level"].tolist() == [3, pd.NA, 9]
    assert frame["objective"].tolist()[:2] == [0.5, 0.75]
    assert frame["created"].tolist() == [1_800_000_000.125, 1_800_000_001.125, 1_800_000_002.125]


def test_pandas_with_times(columns: Columns) -> None:
    frame = tabular.to_pandas(columns, datetimes=True)
    assert str(frame["created"].dt.tz) == "UTC"
    assert frame["created"][0].to_pydatetime() == datetime.fromtimestamp(1_800_000_000.125, UTC)
    assert frame["ended"].isna().tolist() == [False, False, True]


@pytest.mark.slow
def test_polars(columns: Columns) -> None:
    frame = tabular.to_polars(columns)
    assert frame.columns == [name for name in columns if name != "configuration"] + PARAMETERS
    assert frame["param.level"].to_list() == [3, None, 9]
    assert frame["param.size"].to_list() == ["auto", "64", None]
    assert frame["param.ratio"].to_list() == [1.0, 0.5, 0.25]
    assert frame["feasible"].to_list() == [True, False, None]
    kinds = {name: frame.schema[name] for name in ("number", "objective", "feasible", "state", "param.level")}
    assert list(kinds.values()) == [pl.Int64(), pl.Float64(), pl.Boolean(), pl.String(), pl.Int64()]


@pytest.mark.slow
def test_polars_with_times(columns: Columns) -> None:
    frame = tabular.to_polars(columns, datetimes=True)
    assert frame["created"][0] == datetime.fromtimestamp(1_800_000_000.125, UTC)
    assert frame["ended"].null_count() == 1


@pytest.mark.parametrize("convert", [tabular.to_pandas, tabular.to_polars])
def test_a_study_without_trials(
    convert: Callable[[Columns], Any], sqlite_url: str, open_store: Callable[..., Store]
) -> None:
    store = open_store(sqlite_url)
    frame = convert(store.columns(store.create_study(study_row()).id))
    assert frame.shape == (0, 17)


@pytest.mark.parametrize(("package", "convert"), [("pandas", tabular.to_pandas), ("polars", tabular.to_polars)])
def test_a_missing_package(package: str, convert: Callable[[Columns], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        MissingProgramError, match=rf"{package} is not installed \(pip install 'tradewind\[{package}\]'"
    ):
        convert({})
