from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from tests.reporting.conftest import make_trial, run_of

from tradewind.cli.common import open_store
from tradewind.cli.study import logs as module
from tradewind.cli.study.logs import logs
from tradewind.errors import InputError
from tradewind.problem import RunState, Trial, TrialState
from tradewind.store.base import Change, StudyRow

app = typer.Typer()
app.command()(logs)

Prepare = Callable[..., int]


def run(*words: str) -> None:
    app(list(words), standalone_mode=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of trial 1's last run."""
    path = tmp_path / "run"
    path.mkdir()
    (path / "stdout").write_bytes(b"one\ntwo \xff\nthree\n")
    (path / "stderr").write_text("oops\n")
    return path


@pytest.fixture
def study(folder: Path) -> int:
    """A study with a best trial (1), a failed one (2), and one that waits (3)."""
    trials: list[Trial] = [
        make_trial(0, {"a": 0}, 0.5),
        make_trial(1, {"a": 1}, 0.1),
        make_trial(2, {"a": 2}, 0.2, state=TrialState.FAILED, reason="exit code 1"),
        make_trial(3, {"a": 3}, state=TrialState.PENDING),
    ]
    first = replace(run_of(trials[1]), run_id="run-1a", state=RunState.PREEMPTED, folder=str(folder / "gone"))
    last = replace(run_of(trials[1]), run_id="run-1b", attempt=2, folder=str(folder))
    failed = replace(run_of(trials[2]), folder=str(folder.parent / "nowhere"), state=RunState.FAILED, reason="exit 1")
    with contextlib.closing(open_store()) as store:
        row = store.create_study(StudyRow(0, "zip", "key", {}, 1000.0))
        store.write(row.id, Change(trials=trials, runs=[run_of(trials[0]), first, last, failed]))
        return row.id


def test_the_last_run_of_a_trial(study: int, capsys: pytest.CaptureFixture[str]) -> None:
    run("zip", "1")
    assert capsys.readouterr().out == "one\ntwo �\nthree\n"
    run("zip", "best", "--stderr")
    assert capsys.readouterr().out == "oops\n"
    run("zip", "1", "--tail", "1")
    assert capsys.readouterr().out == "three\n"


def test_json_says_where_it_is(study: int, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("zip", "1", "--json")
    assert json.loads(capsys.readouterr().out) == {
        "run": "run-1b",
        "trial": 1,
        "attempt": 2,
        "state": "done",
        "path": str(folder / "stdout"),
        "bytes": 16,
    }
    run("zip", "--json")
    document = json.loads(capsys.readouterr().out)
    assert (document["trial"], document["bytes"]) == (2, None)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["zip"], "trial 2 .* has no stdout: its folder .* is gone"),
        (["zip", "0"], "trial 0 .* has no stdout: this run keeps no files"),
        (["zip", "3"], "trial 3 has not been started"),
        (["zip", "9"], "there is no trial 9"),
        (["zip", "first"], "'first' is no trial"),
        (["zip", "1", "--json", "-f"], "do not go together"),
    ],
)
def test_nothing_to_print_is_one_clear_error(study: int, words: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        run(*words)
    assert "\n" not in str(caught.value)


def test_a_missing_file_in_a_folder_that_is_there(study: int, folder: Path) -> None:
    (folder / "stderr").unlink()
    with pytest.raises(InputError, match="has no stderr in"):
        run("zip", "1", "--stderr")


def test_no_best_and_nothing_started() -> None:
    with contextlib.closing(open_store()) as store:
        store.create_study(StudyRow(0, "new", "key", {}, 1000.0))
    with pytest.raises(InputError, match="there is no best trial"):
        run("new", "best")
    with pytest.raises(InputError, match="no trial has been started yet"):
        run("new")


def test_of_a_large_log_the_last_lines(
    study: int, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WHOLE", 10)
    monkeypatch.setattr(module, "SHORTENED", 2)
    run("zip", "1")
    out, err = capsys.readouterr()
    assert out == "two �\nthree\n"
    assert err.startswith("tradewind: the last 2 lines of 16 B")
    run("zip", "1", "--tail", "0")
    assert capsys.readouterr().out == "one\ntwo �\nthree\n"


def test_following_ends_with_the_run(
    study: int, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "POLL_SECONDS", 0.01)
    trial = make_trial(4, {"a": 4}, state=TrialState.RUNNING)
    going = replace(run_of(trial), folder=str(folder / "live"), state=RunState.EXECUTING)
    with contextlib.closing(open_store()) as store:
        store.write(study, Change(trials=[trial], runs=[going]))
    path = folder / "live" / "stdout"

    def program() -> None:
        path.parent.mkdir()
        path.write_text("first\n")
        with path.open("a") as file:
            file.write("last\n")
        with contextlib.closing(open_store()) as store:
            store.write(study, Change(trials=[trial], runs=[replace(going, state=RunState.DONE)]))

    timer = threading.Timer(0.2, program)
    timer.start()
    run("zip", "4", "-f", "--tail", "5")
    timer.join()
    assert capsys.readouterr().out == "first\nlast\n"


def test_last_is_the_latest_of_the_search_and_of_single_runs(
    study: int, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    single = make_trial(0, {"a": 5}, 0.5)
    with contextlib.closing(open_store()) as store:
        for key, started, text in (("new/runs", 5000.0, "latest\n"), ("old/runs", 10.0, "earlier\n")):
            place = folder.parent / text.strip()
            place.mkdir()
            (place / "stdout").write_text(text)
            row = store.create_study(StudyRow(0, "zip.runs", key, {}, 1000.0))
            trial = replace(single, started=started)
            store.write(row.id, Change(trials=[trial], runs=[replace(run_of(trial), folder=str(place))]))
    for name in ("zip", "zip.runs"):
        run(name)
        assert capsys.readouterr().out == "latest\n", name
    run("zip", "1")
    assert capsys.readouterr().out.startswith("one\n"), "a number is that of the search's trial"
    with contextlib.closing(open_store()) as store:
        row = store.create_study(StudyRow(0, "only.runs", "key/runs", {}, 1000.0))
        store.write(row.id, Change(trials=[single], runs=[replace(run_of(single), folder=str(folder))]))
    for words in (("only",), ("only", "0")):
        run(*words)
        assert capsys.readouterr().out.startswith("one\n")


def test_a_program_that_only_complained_is_said(study: int, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "stdout").write_text("")
    run("zip", "1")
    assert capsys.readouterr().err == "tradewind: it printed nothing; --stderr shows its standard error\n"
    run("zip", "1", "--stderr")
    assert capsys.readouterr() == ("oops\n", "")
