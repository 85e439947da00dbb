from __future__ import annotations

import contextlib
import csv
import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
import typer
from tests.cli.study.test_status import build
from tests.reporting.conftest import make_trial, some_trials

from tradewind.cli.common import open_store
from tradewind.cli.study.export import export, import_records
from tradewind.errors import InputError, RecordError, StudyBusyError, StudyNotFoundError

app = typer.Typer()
app.command("export")(export)
app.command("import")(import_records)


def run(*words: str) -> None:
    app(list(words), standalone_mode=False)


def test_csv_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    build(some_trials(12))
    run("export", "zip")
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert len(rows) == 12
    assert rows[0]["config.codec"] in ("zlib", "bz2", "lzma")


@pytest.mark.parametrize("words", [["--json"], ["--format", "json"]])
def test_json_to_standard_output(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    build(some_trials(3))
    run("export", *words)
    assert [one["number"] for one in json.loads(capsys.readouterr().out)] == [0, 1, 2]


@pytest.mark.slow
def test_the_ending_chooses_the_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build(some_trials(5))
    for name in ("a.csv", "a.json", "a.jsonl", "a.parquet"):
        run("export", "zip", "--out", str(tmp_path / name))
    assert capsys.readouterr().out.splitlines()[3] == f"wrote 5 trials to {tmp_path / 'a.parquet'}"
    assert (tmp_path / "a.csv").read_text().startswith("number,state,")
    assert len(json.loads((tmp_path / "a.json").read_text())) == 5
    assert len((tmp_path / "a.jsonl").read_text().splitlines()) == 5
    assert pl.read_parquet(tmp_path / "a.parquet")["number"].to_list() == [0, 1, 2, 3, 4]
    assert sorted(path.name for path in tmp_path.glob(".*")) == []
    run("export", "zip", "--out", str(tmp_path / "plain"))
    run("export", "zip", "--out", str(tmp_path / "a.txt"), "--format", "csv")
    assert (tmp_path / "plain").read_text() == (tmp_path / "a.txt").read_text() == (tmp_path / "a.csv").read_text()
    capsys.readouterr()
    run("export", "zip", "--out", str(tmp_path / "b.csv"), "--json")
    assert json.loads(capsys.readouterr().out) == {"file": str(tmp_path / "b.csv"), "format": "csv", "trials": 5}


def test_a_pipe_and_a_link_stay_what_they_are(tmp_path: Path) -> None:
    build(some_trials(3))
    pipe, link = tmp_path / "out.csv", tmp_path / "link.csv"
    os.mkfifo(pipe)
    link.symlink_to("real.csv")
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(pipe.read_text)
        run("export", "zip", "--out", str(pipe))
        assert read.result(10).startswith("number,")
    assert pipe.is_fifo()
    run("export", "zip", "--out", str(link))
    assert link.is_symlink() and (tmp_path / "real.csv").is_file()


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    build(some_trials(2))
    with pytest.raises(InputError, match="cannot write"):
        run("export", "zip", "--out", str(tmp_path / "missing" / "a.csv"))
    with pytest.raises(InputError, match=r"t\.XLS: no format has the ending \.XLS \(end it with \.csv, "):
        run("export", "zip", "--out", str(tmp_path / "t.XLS"))
    assert list(tmp_path.glob("t.*")) == []
    with pytest.raises(InputError, match="parquet is no text"):
        run("export", "zip", "--format", "parquet")


def test_records_go_out_and_come_in(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trials = some_trials(15)
    build(trials)
    build([], name="copy")
    path = tmp_path / "records.jsonl"
    run("export", "zip", "--format", "records", "--out", str(path))
    assert capsys.readouterr().out == f"wrote 15 trials to {path}\n"
    run("import", str(path), "--study", "copy")
    assert capsys.readouterr().out == "took 15 trials into study copy (id 2)\n"
    with contextlib.closing(open_store()) as store:
        assert store.trials(2) == store.trials(1)
        assert store.summaries([2])[0].holder == ""
    run("import", str(path), "--study", "copy", "--json")
    shown = json.loads(capsys.readouterr().out)
    assert (shown["imported"], shown["known"], shown["made"], shown["renumbered"]) == (0, 15, False, [])
    run("import", str(path), "--study", "copy")
    assert "left out 15 trials that it has already" in capsys.readouterr().out


def test_numbers_that_are_taken_are_replaced_with_a_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build(some_trials(3))
    path = tmp_path / "records.jsonl"
    run("export", "zip", "--format", "records", "--out", str(path))
    there = [replace(make_trial(number, {"workers": 2}, 0.5), attempts=0) for number in (1, 7)]
    other = build(there, name="other")
    run("import", str(path), "--study", "other")
    assert "renumbered 1 trial whose numbers it has already: 1 is 8" in capsys.readouterr().out
    with contextlib.closing(open_store()) as store:
        assert [trial.number for trial in store.trials(other)] == [0, 1, 2, 7, 8]


def test_records_of_version_1_come_in_and_what_they_lack_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    build(some_trials(4))
    path = tmp_path / "records.jsonl"
    run("export", "zip", "--format", "records", "--out", str(path))
    lines = path.read_text().splitlines()[1:]
    path.write_text("\n".join(json.dumps({**json.loads(line), "record": 1}) for line in lines))
    monkeypatch.setenv("TRADEWIND_HOME", str(tmp_path / "empty"))
    with pytest.raises(RecordError, match="have no job that a study could be made of") as caught:
        run("import", str(path))
    assert "--study job.yaml" in str(caught.value)
    job = tmp_path / "job.yaml"
    job.write_text("name: zip\njob: {command: [zip]}\nspace: {workers: [1, 2, 4, 8]}\n")
    capsys.readouterr()
    run("import", str(path), "--study", str(job))
    out = capsys.readouterr()
    assert out.out == "took 4 trials into a new study zip (id 1)\n"
    assert "these records are of version 1: they lack the job, its searcher and interpreters, versions" in out.err


def test_wrong_records_change_nothing(tmp_path: Path) -> None:
    build(some_trials(2))
    path = tmp_path / "records"
    with pytest.raises(RecordError, match="there is no such file"):
        run("import", str(path), "--study", "zip")
    with pytest.raises(RecordError, match="it is a folder"):
        run("import", str(tmp_path), "--study", "zip")
    path.write_text("{")
    with pytest.raises(RecordError, match="records:1: it is not JSON"):
        run("import", str(path), "--study", "zip")
    path.write_text('{"number": "x"}\n')
    for words in (["--study", "zip"], []):
        with pytest.raises(RecordError, match="records: record 1 is no record") as caught:
            run("import", str(path), *words)
        assert "\n" not in str(caught.value)
    run("export", "zip", "--format", "jsonl", "--out", str(path))
    with pytest.raises(RecordError, match="exported as json or jsonl; tradewind export --format records"):
        run("import", str(path))
    with pytest.raises(StudyNotFoundError):
        run("import", str(path), "--study", "none")
    with contextlib.closing(open_store()) as store:
        assert len(store.trials(1)) == 2
        assert store.summaries([1])[0].holder == ""
        assert len(store.find_studies()) == 1


def test_logs_are_for_records_only(tmp_path: Path) -> None:
    build(some_trials(2))
    with pytest.raises(InputError, match="csv has no place for logs"):
        run("export", "zip", "--with-logs")
    with pytest.raises(InputError, match="much"):
        run("export", "zip", "--format", "records", "--with-logs", "--log-limit", "much")


def test_a_study_that_is_running_takes_no_records(tmp_path: Path) -> None:
    study = build([])
    path = tmp_path / "records"
    path.write_text('{"record": 1}')
    with contextlib.closing(open_store()) as store:
        store.hold(study, "another-host.example:17:1.00", 60.0)
    with pytest.raises(StudyBusyError):
        run("import", str(path), "--study", "zip")
