from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.reporting.conftest import SPEC, make_trial, run_of, some_trials

from tradewind.cli.common import find_study, open_store
from tradewind.cli.study.status import status
from tradewind.errors import InputError, StudyNotFoundError
from tradewind.problem import MachineLease, Trial
from tradewind.store.base import Change, StudyRow
from tradewind.store.studies import rows

app = typer.Typer()
app.command()(status)


def build(trials: list[Trial], name: str = "zip", spec: dict[str, Any] = SPEC, **fields: Any) -> int:
    """Store a study in the user's own store."""
    with contextlib.closing(open_store()) as store:
        row = store.create_study(StudyRow(0, name, "key", spec, 1000.0))
        runs = [run_of(trial) for trial in trials if trial.attempts]
        store.write(row.id, Change(trials=trials, runs=runs, study=fields))
        return row.id


def run(*words: str) -> None:
    app(list(words), standalone_mode=False)


def test_no_store_is_one_clear_error() -> None:
    with pytest.raises(StudyNotFoundError, match="there is no store"):
        run()


def test_all_studies(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    build(some_trials(10))
    build([], name="other")
    run()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert lines[1].split()[:3] == ["2", "other", "open"]
    assert lines[2].split()[:3] == ["1", "zip", "stopped"]
    assert lines[3].startswith("all studies: 1 open, 1 stopped; 0.")


def test_an_empty_store(capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.closing(open_store()):
        pass
    run()
    assert "No study is stored yet" in capsys.readouterr().out
    run("--json")
    assert json.loads(capsys.readouterr().out) == []


@pytest.mark.slow
def test_only_the_newest_studies_without_all(capsys: pytest.CaptureFixture[str]) -> None:
    for i in range(22):
        build([], name=f"study{i}")
    run()
    out = capsys.readouterr().out
    assert "and 2 older" in out
    assert "study1 " not in out
    run("--all", "--json")
    assert len(json.loads(capsys.readouterr().out)) == 22


@pytest.mark.slow
def test_a_list_reads_the_specifications_of_what_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(30):
        build([], name=f"study{i}")
    read, of_row = list[str](), rows.study_of

    def counted(row: Any) -> StudyRow:
        study = of_row(row)
        read.append(study.name)
        return study

    monkeypatch.setattr(rows, "study_of", counted)
    run()
    assert len(read) == 20
    read.clear()
    with contextlib.closing(open_store()) as store:
        build(some_trials(3), name="study3")
        read.clear()
        assert find_study(store, "study3").id == 31
        assert find_study(store, None).id == 31
        assert len(read) <= 2 + 20
        with pytest.raises(StudyNotFoundError, match="did you mean 'study29'"):
            find_study(store, "study29x")


@pytest.mark.slow
def test_one_study_with_its_last_trials(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    build(some_trials(30), state="finished", reason="the budget is spent")
    run("zip")
    lines = capsys.readouterr().out.splitlines()
    assert "stopped: the budget is spent" in lines
    assert lines[-1] == "and 10 earlier: tradewind status zip --all"
    assert lines[5].split()[0] == "10"
    run("zip", "--all")
    assert len(capsys.readouterr().out.splitlines()) == 35
    run("1", "--json")
    document = json.loads(capsys.readouterr().out)
    assert document["trials_total"] == 30
    assert [trial["number"] for trial in document["trials"]] == list(range(10, 30))
    assert document["reason"] == "the budget is spent"
    assert document["budget"] == {"dollars": 5.0, "hours": None, "trials": 100}
    assert document["best"]["configuration"]["codec"] == "zlib"


def test_the_best_of_a_maximised_metric_is_the_greatest(capsys: pytest.CaptureFixture[str]) -> None:
    trials = [make_trial(i, {"a": i}, 0.1, objective=value) for i, value in enumerate([0.3, 0.9, 0.5])]
    build(trials, spec={"objective": {"maximise": "accuracy"}})
    run("zip", "--json")
    assert json.loads(capsys.readouterr().out)["best"]["number"] == 1


def test_a_held_study_is_running_and_names_its_process(capsys: pytest.CaptureFixture[str]) -> None:
    from tradewind.problem import RunState, TrialState
    from tradewind.store.base import this_process

    trial = make_trial(0, {"a": 1}, state=TrialState.RUNNING)
    study = build([])
    with contextlib.closing(open_store()) as store:
        store.hold(study, this_process(), 60.0)
        why = "its machines are not given back yet: gcloud auth login"
        waiting = replace(run_of(trial), reserved=0.5, state=RunState.EXECUTING, reason=why)
        store.write(study, Change(trials=[trial], runs=[waiting]))
    run("zip")
    out = capsys.readouterr().out
    assert "running in process" in out
    assert "$0.500 total is reserved" in out
    assert "trial 0: its machines are not given back yet: gcloud auth login" in out
    run("zip", "--json")
    document = json.loads(capsys.readouterr().out)
    assert document["state"] == "running"
    assert document["holder"]
    assert document["troubles"] == {"0": why}


def test_an_unknown_study_names_a_near_one(tmp_path: Path) -> None:
    build([])
    with pytest.raises(StudyNotFoundError, match="did you mean 'zip'"):
        run("zipp")


def test_totals_alone(capsys: pytest.CaptureFixture[str]) -> None:
    build(some_trials(10))
    build([], name="other")
    run("--totals")
    words = capsys.readouterr().out
    assert words.startswith("all studies: 1 open, 1 stopped; 0.")
    run("--totals", "--json")
    found = json.loads(capsys.readouterr().out)
    assert found["studies"] == {"open": 1, "stopped": 1}
    assert found["spent"] == pytest.approx(sum(trial.spent for trial in some_trials(10)))
    assert found["reserved"] == 0
    for more in ("zip", "--all"):
        with pytest.raises(InputError, match="--totals is of all studies"):
            run("--totals", more)


def test_simulated_money_is_not_spent(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    build([make_trial(0, {"a": 1}, 2.0)])
    for number, runner in enumerate(("workflow", "replay")):
        spec = {**SPEC, "job": {"space": {}, "deploy": {"runner": {"use": runner}}, "budget": {"dollars": 100}}}
        build([make_trial(0, {"a": 1}, 4.0)], name=f"unpaid{number}", spec=spec)
    run("--totals", "--json")
    found = json.loads(capsys.readouterr().out)
    assert (found["spent"], found["reserved"], found["simulated"]) == (2.0, 0.0, 8.0)
    run()
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "all studies: 3 stopped; $2.00 spent; $8.00 simulated, not paid"
    assert ["simulated" in line for line in lines[1:-1]] == [True, True, False]
    run("--json")
    assert [each["simulated"] for each in json.loads(capsys.readouterr().out)] == [True, True, False]


def test_totals_have_what_is_reserved_for_machines_that_are_kept(capsys: pytest.CaptureFixture[str]) -> None:
    spec = {**SPEC, "job": {"deploy": {"keep": "10m"}}}
    trial = make_trial(0, {"a": 1}, 0.25)
    study = build([trial], spec=spec)
    lease = MachineLease("r", 1.0, 9.0, 2.0, reserved=0.75)
    with contextlib.closing(open_store()) as store:
        gone = replace(lease, reserved=8.0, ended=3.0)
        runs = [
            replace(run_of(trial), run_id=f"r{n}", attempt=n, lease=each) for n, each in enumerate((lease, gone), 1)
        ]
        store.write(study, Change(runs=runs))
    for state in ("open", "finished"):
        with contextlib.closing(open_store()) as store:
            store.write(study, Change(study={"state": state}))
        run("--totals", "--json")
        assert json.loads(capsys.readouterr().out)["reserved"] == (0.75 if state == "open" else 0.0)


def test_very_long_names_are_cut_in_the_middle(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setenv("COLUMNS", "9000")
    number = build([make_trial(0, {"word": "v" * 3000 + "w"}, 0.25)], name="n" * 3000 + "m")
    run()
    table = capsys.readouterr().out
    assert f"{'n' * 66}…{'n' * 32}m" in table
    assert "n" * 67 not in table
    run(str(number))
    assert f"word={'v' * 66}…{'v' * 32}w" in capsys.readouterr().out
