"""Logs of runs that are running elsewhere: a runner of another package has them in a file of its own."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.reporting.conftest import make_trial, run_of

from tradewind import plugins
from tradewind.cli.app import run
from tradewind.cli.common import open_store
from tradewind.cli.study import logs as module
from tradewind.engine.search_builder import new_study
from tradewind.problem import Handle, Run, RunState, TrialState
from tradewind.problem.job_spec.spec import parse_spec
from tradewind.store.base import Change, StudyRow

RUNNER = '''
from pathlib import Path
from pydantic import Field
from tradewind import plugins
from tradewind.deployer.runner.base import Runner, StreamsLogs
from tradewind.errors import UnreachableError
from tradewind.problem import RunState, RunStatus

class FarSettings(plugins.Settings):
    place: Path = Field(description="Where its runs write.")

class FarRunner(Runner, StreamsLogs):
    """Runs somewhere else."""
    Settings = FarSettings

    def submit(self, request, machines): raise NotImplementedError
    def poll(self, handles): return {h.run_id: RunStatus(RunState.EXECUTING) for h in handles}
    def cancel(self, handle, reason=""): pass
    def find(self, owner): return []

    def read_log(self, handle, stream, offset):
        if (self.settings.place / "down").exists():
            raise UnreachableError("the far engine does not answer")
        try:
            return (self.settings.place / handle.data["job"] / stream).read_bytes()[offset:][:7]
        except OSError:
            return b""
'''

JOB = """\
name: far
job: {command: ["true"]}
space: {a: 1..9}
objective: {minimise: runtime}
budget: {trials: 1}
deploy: {runner: {use: far, place: elsewhere}}
"""


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder in which the far runner's run writes."""
    info = tmp_path / "site" / "far-1.0.dist-info"
    info.mkdir(parents=True)
    (info.parent / "far_runner.py").write_text(RUNNER)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: far\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tradewind.runners]\nfar = far_runner:FarRunner\n")
    monkeypatch.syspath_prepend(str(info.parent))
    monkeypatch.setattr(module, "FAR_SECONDS", 0.01)
    monkeypatch.setattr(module, "POLL_SECONDS", 0.01)
    plugins._everything.cache_clear()
    plugins._load.cache_clear()
    place = tmp_path / "elsewhere" / "job-7"
    place.mkdir(parents=True)
    yield place
    plugins._everything.cache_clear()
    plugins._load.cache_clear()


@pytest.fixture
def study(far: Path, tmp_path: Path) -> StudyRow:
    with contextlib.closing(open_store()) as store:
        made = store.create_study(new_study(parse_spec(JOB, base=tmp_path)))
    write(made, running(tmp_path))
    return made


def running(folder: Path) -> Run:
    """The row of a run that is running."""
    trial = make_trial(0, {"a": 1}, state=TrialState.RUNNING)
    handle = Handle("run-0", "far", {"job": "job-7"})
    return replace(run_of(trial), folder=str(folder / "run"), state=RunState.EXECUTING, handle=handle)


def write(study: StudyRow, row: Run) -> None:
    with contextlib.closing(open_store()) as store:
        store.write(study.id, Change([make_trial(0, {"a": 1}, state=TrialState.RUNNING)], [row]))


def test_what_there_is_so_far(study: StudyRow, far: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (far / "stdout").write_bytes("one\ntwo é\nthree".encode())
    assert run(["logs", "far", "0"]) == 0
    assert capsys.readouterr().out == "one\ntwo é\nthree"
    assert run(["logs", "far", "0", "--tail", "2"]) == 0
    assert capsys.readouterr().out == "two é\nthree"
    assert run(["logs", "far", "0", "--stderr"]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.slow
def test_following_goes_on_here_when_the_run_has_ended(
    study: StudyRow, far: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = running(tmp_path)
    write(study, replace(row, handle=None, state=RunState.BOOTING))
    whole = "first é second\nlast line, which was never read there\n".encode()

    def program() -> None:
        time.sleep(0.1)
        write(study, row)
        (far / "stdout").write_bytes(whole[:7])  # in the middle of a character
        time.sleep(0.5)
        (far.parent / "down").touch()
        time.sleep(0.8)
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "stdout").write_bytes(whole[:3])  # half of it has come
        time.sleep(0.1)
        (tmp_path / "run" / "stdout").write_bytes(whole)
        write(study, replace(row, state=RunState.DONE))

    thread = threading.Thread(target=program)
    thread.start()
    code = run(["logs", "far", "0", "-f"])
    thread.join()
    captured = capsys.readouterr()
    assert (code, captured.out) == (0, whole.decode())
    assert captured.err == "tradewind: the far engine does not answer; trying again\n"


def test_a_run_whose_log_never_comes(
    study: StudyRow,
    far: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (far / "stdout").write_bytes(b"cut \xc3")
    begin = module._begin

    def begin_and_end(*arguments: Any) -> None:
        begin(*arguments)
        write(study, replace(running(tmp_path), state=RunState.PREEMPTED))

    monkeypatch.setattr(module, "_begin", begin_and_end)
    assert run(["logs", "far", "0", "-f"]) == 0
    assert capsys.readouterr().out == "cut �"


def test_an_engine_that_does_not_answer(study: StudyRow, far: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (far.parent / "down").touch()
    assert run(["logs", "far", "0"]) == 10
    assert capsys.readouterr().err == "tradewind: the far engine does not answer\n"


def test_a_run_that_has_ended_is_not_looked_for_there(
    study: StudyRow, far: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(study, replace(running(tmp_path), state=RunState.DONE))
    (far / "stdout").write_text("old")
    assert run(["logs", "far", "0"]) == 3
    assert "its folder" in capsys.readouterr().err
