from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from tests.reporting.conftest import Build, make_trial, some_trials

from tradewind.problem import TrialState
from tradewind.reporting.log_files import LogFileReader, tail_offset
from tradewind.reporting.study import documents as export
from tradewind.reporting.study import tables
from tradewind.reporting.study.data import StudyData, space_size
from tradewind.reporting.study.html import render_html
from tradewind.store.base import Store
from tradewind.store.studies import tabular
from tradewind.store.studies import tabular as frames


def test_csv_has_a_column_for_every_setting_and_metric(store: Store, build: Build) -> None:
    trials = [
        make_trial(0, {"workers": 2, "codec": "a,b"}, 0.25, metrics={"ratio": 2.5}),
        make_trial(1, {"workers": 4}, 0.5, state=TrialState.FAILED, reason="exit\ncode"),
        make_trial(2, {"workers": 8}, state=TrialState.RUNNING),
    ]
    stream = io.StringIO()
    assert export.write_csv(store, build(trials), stream) == 3
    stream.seek(0)
    rows = list(csv.DictReader(stream))
    assert list(rows[0])[-3:] == ["config.codec", "config.workers", "metric.ratio"]
    assert rows[0]["config.codec"] == "a,b"
    assert float(rows[0]["cost"]) == 0.25
    assert rows[1]["config.codec"] == ""
    assert rows[1]["reason"] == "exit\ncode"
    assert rows[2]["state"] == "running"
    assert rows[2]["cost"] == ""


def test_words_that_are_formulas_are_no_formulas_in_a_file_for_others(store: Store, build: Build) -> None:
    """Text that a user types arrives in another's spreadsheet; numbers stay numbers."""
    wrong = "=HYPERLINK(evil)"
    study = build([make_trial(0, {wrong: 1, "codec": wrong, "shift": "-1.5", "mail": "@a", "at": 3}, 0.25)])
    plain, guarded = io.StringIO(), io.StringIO()
    export.write_csv(store, study, plain)
    export.write_csv(store, study, guarded, guarded=True)
    plain.seek(0)
    guarded.seek(0)
    assert next(csv.DictReader(plain))["config.codec"] == wrong
    row = next(csv.DictReader(guarded))
    assert [row[f"config.{name}"] for name in ("codec", "shift", "mail", "at")] == [f"'{wrong}", "-1.5", "'@a", "3"]


def test_csv_of_nothing_is_a_heading(store: Store, build: Build) -> None:
    stream = io.StringIO()
    assert export.write_csv(store, build(), stream) == 0
    assert stream.getvalue() == "number,state,configuration\n"


def test_json_is_strict_and_in_pages(store: Store, build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tabular, "_PAGE", 7)
    trials = [make_trial(i, {"a": i}, 0.1, objective=float("inf"), metrics={"m": float("nan")}) for i in range(20)]
    study = build(trials)
    stream = io.StringIO()
    assert export.write_json(tabular.trial_documents(store, study), stream) == 20
    documents = json.loads(stream.getvalue(), parse_constant=lambda word: pytest.fail(word))
    assert [one["number"] for one in documents] == list(range(20))
    assert documents[0]["objective"] is None
    assert documents[0]["metrics"] == {"m": None}
    assert documents[3]["configuration"] == {"a": 3}
    lines = io.StringIO()
    assert export.write_json_lines(tabular.trial_documents(store, study), lines) == 20
    assert len(lines.getvalue().splitlines()) == 20
    empty = io.StringIO()
    assert export.write_json(iter(()), empty) == 0
    assert json.loads(empty.getvalue()) == []


def test_frames_have_a_row_a_trial(store: Store, build: Build) -> None:
    trials = [*some_trials(8), make_trial(8, {"workers": "auto"}, 0.1)]
    study = build(trials)
    pandas = frames.to_pandas(tabular.flat_columns(store, study))
    assert len(pandas) == 9
    assert pandas["config.workers"].tolist()[8] == "auto"
    polars = frames.to_polars(tabular.flat_columns(store, study))
    assert polars["cost"].sum() == pytest.approx(sum(t.spent for t in trials))
    assert polars["config.workers"].to_list()[0] == str(trials[0].configuration["workers"])
    assert frames.to_polars(tabular.flat_columns(store, build())).is_empty()


def last(path: Path, lines: int) -> str:
    return path.read_bytes()[tail_offset(path, lines) :].decode()


def test_the_tail_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("one\ntwo\nthree\n")
    assert last(path, 1) == "three\n"
    assert last(path, 2) == "two\nthree\n"
    assert last(path, 3) == last(path, 99) == "one\ntwo\nthree\n"
    assert last(path, 0) == ""
    path.write_text("one\ntwo")
    assert last(path, 1) == "two"
    path.write_text("")
    assert last(path, 3) == ""
    path.write_text("\n\n\n")
    assert last(path, 2) == "\n\n"


def test_the_tail_of_a_file_of_many_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tradewind.reporting import log_files

    path = tmp_path / "log"
    lines = [f"line {i}" for i in range(500)]
    path.write_text("\n".join(lines) + "\n")
    for block in (1, 3, 64, 1000):
        monkeypatch.setattr(log_files, "_BLOCK", block)
        assert last(path, 37) == "\n".join(lines[-37:]) + "\n"


def test_a_huge_file_is_read_from_its_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb") as file:
        file.truncate(1 << 30)
        file.seek(0, 2)
        file.write(b"\nthe end\n")
    assert tail_offset(path, 1) == (1 << 30) + 1


def test_a_log_that_grows_and_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "log"
    reader = LogFileReader(path)
    assert list(reader.read()) == []
    path.write_bytes(b"gr\xc3")  # half of a character
    assert "".join(reader.read()) == "gr"
    with path.open("ab") as file:
        file.write(b"\xbcn \xffx\xc3")
    assert "".join(reader.read()) == "ün �x"
    assert reader.rest() == "�"
    path.write_bytes(b"new")
    assert "".join(reader.read()) == "new"


def test_the_space_of_a_stored_specification(tmp_path: Path) -> None:
    from tradewind.problem.job_spec.spec import load_spec

    path = tmp_path / "job.yaml"
    plain = "name: t\njob: {command: [echo, '{{ a }}']}\nspace:\n  a: {values: [1, 2, 3]}\n  b: %s\n"
    path.write_text(plain % "1..5")
    document = load_spec(path).document()
    assert space_size(document) == 15
    path.write_text(plain % "0.5..1.5")
    assert space_size(load_spec(path).document()) is None
    assert space_size({}) is None


def test_low_level_metrics_and_the_share_of_the_input_are_exported_and_shown(store: Store, build: Build) -> None:
    whole, part = make_trial(0, {"a": 1}, 0.25), make_trial(1, {"a": 2}, 0.01)
    assert whole.observation is not None
    used = {"peak_memory_bytes": 2.0**30, "cpu_seconds": 90.0, "read_bytes": 4096.0}
    whole = replace(whole, observation=replace(whole.observation, profile=used))
    part = replace(part, proposal=replace(part.proposal, fidelity=1 / 60))
    study = build([whole, part])
    rows = tabular.flat_rows(store, study)
    assert {name for name in rows[0] if "." in name} == {"config.a", *(f"profile.{name}" for name in used)}
    assert (rows[0]["profile.read_bytes"], rows[1]["profile.read_bytes"]) == (4096.0, None)
    assert [row["fidelity"] for row in rows] == [1.0, 1 / 60]
    data = StudyData.load(store, study)
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(tables.trials([tables.TrialLine.row(data, row) for row in (0, 1)], data.goal.objective, 100))
    console.print(tables.facts(tables.best_facts(whole, data.goal.objective), 100))
    text = console.export_text()
    assert "1.67 %" in text
    assert "1 GiB at its peak" in text
    assert "1m 30s" in text
    assert "(on 1.67 % of the input)" in render_html(data)
    assert data.best is not None
    assert data.best.number == 0


def test_a_follower_passes_over_the_hole_of_a_log_over_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "stdout"
    with path.open("wb") as file:
        file.seek(64 << 20)
        file.write(b"end\n")
    if path.stat().st_blocks * 512 > 1 << 20:
        pytest.skip("this file system makes no holes")
    assert "".join(LogFileReader(path, 4096).read()) == "end\n"
