"""Callbacks of a study: each trial once, and nothing that goes wrong there stops a search."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import tradewind
from tradewind import AsyncStudy, Study
from tradewind.cli.app import run
from tradewind.engine.records import running_reports, trial_callbacks
from tradewind.errors import MissingProgramError, SpecError
from tradewind.store.base import store_at
from tradewind.utils.paths import store_url

TRACKER = """
import json
import time
from pathlib import Path

from pydantic import Field

from tradewind.callback.base import Callback
from tradewind.plugins import Settings


class TrackerSettings(Settings):
    file: Path = Field(description="The file that lines are added to")


class Tracker(Callback):
    \"\"\"Adds a line for each trial.\"\"\"

    Settings = TrackerSettings

    def _add(self, **line):
        down = self.settings.file.with_name("down")
        if down.exists():
            raise ConnectionError(down.read_text())
        with self.settings.file.open("a") as file:
            file.write(json.dumps(line) + "\\n")

    def open(self):
        self._add(open=self.study.name)
        lines = [json.loads(line) for line in self.settings.file.read_text().splitlines()]
        return {line["trial"] for line in lines if "trial" in line}

    def begin(self, begun):
        self._add(begun=begun.trial.number, x=begun.trial.configuration["x"], state=begun.trial.state)

    def report(self, begun):
        self._add(running=begun.trial.number, series=begun.series)

    def log(self, ended):
        if ended.trial.configuration["x"] == self.study.problem.job.parameters.values.get("bad"):
            raise ValueError("that one not")
        while self.settings.file.with_name("slow").exists():
            time.sleep(0.01)
        self._add(trial=ended.trial.number, state=ended.trial.state, series=ended.series, reason=ended.reason)

    def close(self, end):
        self._add(close=end.status, trials=end.trials)
"""

JOB: dict[str, Any] = {
    "name": "tracked",
    "space": {"x": "1..4"},
    "objective": {"minimise": "value"},
    "searcher": {"use": "exhaustive", "order": "declared"},
}


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tracker.py").write_text(TRACKER)
    return tmp_path / "lines"


MINE = [{"use": "tracker.py:Tracker", "file": "lines"}]


def value(x: int) -> float:
    return float(x)


def _lines(file: Path, key: str = "trial") -> list[dict[str, Any]]:
    return [line for text in file.read_text().splitlines() if key in (line := json.loads(text))]


def _trials(file: Path) -> list[int]:
    return sorted(line["trial"] for line in _lines(file))


def test_a_study_writes_each_trial_with_its_steps_and_its_end(file: Path) -> None:
    def steps(x: int) -> float:
        for step in (1, 2):
            tradewind.report(step=step, value=x / step, seen=step)
        if x == 2:
            raise RuntimeError("no luck")
        return x

    with Study(JOB, callbacks=MINE) as study:
        study.optimise(steps)
    found = {line["trial"]: line for line in _lines(file)}
    assert sorted(found) == [0, 1, 2, 3]
    assert found[3]["series"] == {"value": [[1, 4.0], [2, 2.0]], "seen": [[1, 1.0], [2, 2.0]]}
    assert (found[1]["state"], found[1]["reason"]) == ("failed", "RuntimeError: no luck")
    assert found[1]["series"]["value"] == [[1, 2.0], [2, 1.0]]
    assert _lines(file, "close") == [{"close": "finished", "trials": 4}]


def _seen(file: Path, what: dict[str, Any]) -> None:
    """Wait until a line was written."""
    deadline = time.monotonic() + 60.0
    while not (file.exists() and what in _lines(file, next(iter(what)))):
        assert time.monotonic() < deadline, file.read_text()
        time.sleep(0.01)


@pytest.mark.parametrize("shared", [False, True])
def test_a_trial_is_given_when_it_begins_and_while_it_reports(
    file: Path, monkeypatch: pytest.MonkeyPatch, *, shared: bool
) -> None:
    monkeypatch.setattr(running_reports, "_EVERY", 0.01)

    def steps(x: int) -> float:
        _seen(file, {"begun": x - 1, "x": x, "state": "running"})
        for step in (1, 2):
            tradewind.report(step=step, value=x / step)
            seen = [[one, x / one] for one in range(1, step + 1)]
            _seen(file, {"running": x - 1, "series": {"value": seen}})
        return x

    with Study.open(None, JOB, callbacks=MINE) if shared else Study(JOB, callbacks=MINE) as study:
        study.optimise(steps, 2)
    assert _trials(file) == [0, 1]
    assert len(_lines(file, "running")) == 4


def test_a_trial_that_runs_is_given_to_the_next_process(file: Path) -> None:
    with Study(JOB, callbacks=MINE) as study:
        study.ask()
    assert not _trials(file)
    with Study(JOB, callbacks=MINE) as study:
        _seen(file, {"begun": 0, "x": 1, "state": "running"})
        (asked,) = study.ask()
        study.tell(asked, runtime=1.0, metrics={"value": 1.0})
    assert _trials(file) == [0]


def test_what_is_written_already_is_not_written_again(file: Path) -> None:
    for trials in (1, 2, 1):
        with Study(JOB, callbacks=MINE) as study:
            study.optimise(value, trials)
    assert _trials(file) == [0, 1, 2, 3]


def test_an_error_in_the_loop_is_how_the_session_ends(file: Path) -> None:
    with pytest.raises(ZeroDivisionError), Study(JOB, callbacks=MINE) as study:
        study.optimise(value, 1)
        raise ZeroDivisionError
    assert _lines(file, "close") == [{"close": "failed", "trials": 1}]


@pytest.mark.slow
def test_after_a_kill_the_next_process_writes_what_is_missing(file: Path) -> None:
    program = (
        "import os\nfrom tests.engine.records.test_trial_callbacks import JOB, MINE, value\n"
        "from tradewind import Study\nopen('slow', 'w').close()\n"
        "study = Study(JOB, callbacks=MINE)\nstudy.optimise(value, 2)\nos._exit(9)\n"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", program], env={**_environment(), "PYTHONPATH": str(root)}, timeout=110)
    assert done.returncode == 9
    Path("slow").unlink()
    with Study(JOB, callbacks=MINE) as study:
        study.optimise(value, 1)
    assert _trials(file) == [0, 1, 2]


def _environment() -> dict[str, str]:
    import os

    return dict(os.environ)


def test_a_tracker_that_is_down_stops_nothing_and_gets_all_at_the_end(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    down = file.with_name("down")
    down.write_text("nobody\nlistens")
    with caplog.at_level(logging.WARNING, "tradewind.engine"), Study(JOB, callbacks=MINE) as study:
        study.optimise(value)
        down.unlink()
        assert len(study.trials) == 4
    assert _trials(file) == [0, 1, 2, 3]
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.endswith("ConnectionError: nobody listens; the search goes on, and its trials are written later")


def test_a_tracker_that_stays_down_is_a_line_with_what_to_do(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    down = file.with_name("down")
    down.write_text("nobody listens")
    with caplog.at_level(logging.WARNING, "tradewind.engine"), Study(JOB, callbacks=MINE) as study:
        study.optimise(value)
    last = caplog.records[-1].getMessage()
    assert "4 trials could not be written: ConnectionError: nobody listens; tradewind export tracked --to " in last
    down.unlink()
    assert run(["export", "tracked", "--to", "tracker.py:Tracker", "--setting", "file=lines"]) == 0
    assert _trials(file) == [0, 1, 2, 3]


def test_a_trial_that_is_refused_holds_up_no_other(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    job = {**JOB, "job": {"command": ["ask-and-tell"], "parameters": {"bad": 2}}}
    with caplog.at_level(logging.WARNING, "tradewind.engine"), Study(job, callbacks=MINE) as study:
        study.optimise(value)
    assert _trials(file) == [0, 2, 3]
    assert "1 trial could not be written: ValueError: that one not" in caplog.records[-1].getMessage()
    assert _lines(file, "close")


def test_a_tracker_that_hangs_is_left_behind(
    file: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_callbacks, "_PATIENCE", 0.05)
    slow = file.with_name("slow")
    slow.touch()
    with caplog.at_level(logging.WARNING, "tradewind.engine"), Study(JOB, callbacks=MINE) as study:
        study.optimise(value)
    slow.unlink()
    assert "4 trials could not be written: nothing was done for 0.05 seconds" in caplog.records[-1].getMessage()


def test_several_workers_write_what_they_tell_and_the_last_one_the_end(file: Path) -> None:
    with Study.open(None, JOB, callbacks=MINE) as one:
        with Study.open(None, JOB, callbacks=MINE) as two:
            for worker in (one, two, one, two):
                (asked,) = worker.ask()
                worker.tell(asked, runtime=1.0, metrics={"value": 1.0})
        assert not _lines(file, "close")
    assert _trials(file) == [0, 1, 2, 3]
    assert len(_lines(file, "close")) == 1
    with Study.open(None, "tracked", callbacks=MINE):
        pass
    assert _trials(file) == [0, 1, 2, 3]


async def _tune() -> None:
    async with AsyncStudy(JOB, callbacks=MINE) as study:
        await study.optimise(_reporting, parallel=2)


async def _reporting(x: int) -> float:
    tradewind.report(step=1, value=x)
    return float(x)


def test_an_async_study_writes_them_too(file: Path) -> None:
    import asyncio

    asyncio.run(_tune())
    assert Counter(len(line["series"]["value"]) for line in _lines(file)) == {1: 4}


@pytest.mark.parametrize("name", ["mlflow", "tensorboard"])
def test_without_the_package_nothing_begins(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingProgramError) as caught:
        Study(JOB, callbacks=[name])
    assert caught.value.hint == f"pip install 'tradewind[{name}]'"
    assert store_at(store_url()).list_studies() == []


def test_an_unknown_callback_is_refused() -> None:
    with pytest.raises(SpecError, match=r"callbacks\.0: there is no callback named 'mlfow'"):
        Study(JOB, callbacks=["mlfow"])


YAML = """
name: programs
job: {command: [sh, -c, 'echo "{\\"step\\": 1, \\"value\\": {{ x }}}" > $TRADEWIND_METRICS']}
space: {instance: {provider: local, vcpu: 1, limit: 1}, x: 1..3}
objective: {minimise: value}
searcher: exhaustive
callbacks: {use: 'tracker.py:Tracker', file: lines}
"""


LIVE = """
name: live
job:
  command:
    - sh
    - -c
    - 'echo "{\\"step\\": 1, \\"value\\": 3}" > $TRADEWIND_METRICS; until test -e {{ go }}; do sleep 0.02; done'
  parameters: {go: GO}
space: {instance: {provider: local, vcpu: 1, limit: 1}, x: 1..1}
objective: {minimise: value}
searcher: exhaustive
"""


@pytest.mark.slow
@pytest.mark.parametrize("tracker", ["tensorboard", pytest.param("mlflow", marks=pytest.mark.thorough)])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of MLflow's own code
def test_a_program_is_seen_in_the_tracker_while_it_runs(
    tracker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.callback.readers import mlflow_runs, mlflow_trials, tensorboard_trials

    monkeypatch.setattr(running_reports, "_EVERY", 0.05)
    uri, seen, go = f"sqlite:///{tmp_path / 'mlflow.db'}", list[Any](), tmp_path / "go"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    Path("job.yaml").write_text(LIVE.replace("GO", str(go)))
    home = Path(store_url().removeprefix("sqlite:///")).parent / "tensorboard"
    if tracker == "mlflow":
        assert not mlflow_runs(uri, "")  # its tables are made once

    def found() -> Any:
        if tracker == "mlflow":
            return mlflow_trials(uri, next(s.owner for s in store_at(store_url()).list_studies()))[0]
        return tensorboard_trials(next(home.glob("live-*")))[0]

    def look() -> None:
        deadline = time.monotonic() + 60.0
        while not seen and time.monotonic() < deadline:
            time.sleep(0.1)
            with contextlib.suppress(StopIteration, KeyError):
                seen.extend([found()] if found().points.get("value") else [])
        go.touch()

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        assert run(["tune", "job.yaml", "--quiet", "--callback", tracker]) == 0
    finally:
        watcher.join()
    assert [(one.status, list(one.points["value"]), str(one.parameters["x"])) for one in seen] == [
        ("running", [(1, 3.0)], "1")
    ]
    assert (found().status, list(found().points["value"])) == ("good", [(1, 3.0)])


@pytest.mark.slow
def test_a_search_of_programs_writes_them(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("job.yaml").write_text(YAML)
    assert run(["tune", "job.yaml", "--quiet", "--trials", "1"]) == 0
    assert _trials(file) == [0]
    assert run(["tune", "job.yaml", "--quiet"]) == 0
    assert _trials(file) == [0, 1, 2]
    assert sorted(line["series"]["value"][0][1] for line in _lines(file)) == [1.0, 2.0, 3.0]
    assert run(["tune", "job.yaml", "--quiet", "--fresh", "--callback", "tensorboard"]) == 0
    assert _trials(file) == [0, 1, 2]
    home = Path(store_url().removeprefix("sqlite:///")).parent
    assert len(list(home.glob("tensorboard/programs-tw-*/trial-*/*tfevents*"))) == 3
    capsys.readouterr()
    assert run(["export", "programs", "--to", "tensorboard", "--setting", "folder=runs", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["to"], told["trials"]) == ("tensorboard", 3)
    assert len(list(Path(told["place"]).rglob("*tfevents*"))) == 3


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--to", "mlfow"], "there is no callback named 'mlfow'"),
        (["--to", "tensorboard", "--format", "csv"], "--to has a form of its own"),
        (["--to", "tensorboard", "--setting", "runs"], "--setting runs: that is no setting with a value"),
        (["--to", "tensorboard", "--setting", "place=x"], "unknown setting 'place'"),
        (["--setting", "folder=x"], "--setting is for --to"),
    ],
)
def test_an_export_that_cannot_be_is_one_line(words: list[str], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    with Study(JOB):
        pass
    assert run(["export", "tracked", *words]) != 0
    assert error in capsys.readouterr().err
