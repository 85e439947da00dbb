"""Runs that HTCondor has no room for wait, and are submitted as others end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.deployer.helpers import OWNER, request_for
from tests.engines import condor as engine
from tests.engines.condor import Condor
from tests.waiting import eventually

from tradewind.deployer.runner.htcondor import backlog
from tradewind.deployer.runner.htcondor.runner import HtCondorRunner
from tradewind.deployer.runner.htcondor.settings import HtCondorSettings
from tradewind.errors import TradewindError
from tradewind.problem import Fault, Handle, RunRequest, RunState, RunStatus

pytestmark = pytest.mark.xdist_group("htcondor")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Condor]:
    yield from engine.running(tmp_path_factory.mktemp("condor"))


@pytest.fixture
def condor(server: Condor, monkeypatch: pytest.MonkeyPatch) -> Iterator[Condor]:
    monkeypatch.setattr(backlog, "_SOON", 0.05)
    monkeypatch.setattr(backlog, "_LATEST", 0.3)
    server.config()
    yield server
    server.clear()
    server.config()


def runner_over(condor: Condor, folder: Path, **settings: Any) -> HtCondorRunner:
    given = {"bin": str(condor.bin), "interval": 0.2, "grace": 0.3, "files": "shared", **settings}
    return HtCondorRunner(settings=HtCondorSettings(**given), data_folder=folder / "data")


def request(folder: Path, run_id: str, script: str = "sleep 0.2; echo ran >> count") -> RunRequest:
    return request_for(folder, ("sh", "-c", script), run_id)


def launched(runner: HtCondorRunner, requests: list[RunRequest]) -> list[Handle]:
    answers = runner.submit_all([(each, []) for each in requests])
    for answer in answers.values():
        assert not isinstance(answer, TradewindError), answer
    return [answer for answer in answers.values() if isinstance(answer, Handle)]


def ends(runner: HtCondorRunner, handles: list[Handle]) -> dict[str, RunStatus]:
    found: dict[str, RunStatus] = {}

    def done() -> bool:
        left = [each for each in handles if each.run_id not in found]
        found.update({name: each for name, each in runner.poll(left).items() if each.state.ended})
        return len(found) == len(handles)

    eventually(done, 60, "the end of all")
    return found


def test_what_exceeds_the_limit_waits_and_runs_as_others_end(condor: Condor, tmp_path: Path) -> None:
    condor.config(max_jobs=2)
    runner = runner_over(condor, tmp_path)
    script = f"while [ ! -e {tmp_path}/go ]; do sleep 0.1; done"
    requests = [request(tmp_path, f"run-{i}", script) for i in range(5)]
    handles = launched(runner, requests)
    waiting = [each for each in runner.poll(handles).values() if "MAX_JOBS_PER_OWNER" in each.reason]
    assert len(waiting) == 3
    assert {each.state for each in waiting} == {RunState.SUBMITTING}
    (tmp_path / "go").touch()
    assert {status.state for status in ends(runner, handles).values()} == {RunState.DONE}
    assert all(condor.starts(each.folder.absolute()) == 1 for each in requests), "each ran once"
    runner.close()


def test_a_run_that_waits_is_cancelled_without_a_job(condor: Condor, tmp_path: Path) -> None:
    condor.config(max_jobs=0)
    runner = runner_over(condor, tmp_path)
    [handle] = launched(runner, [request(tmp_path, "run-1")])
    assert "expires" not in handle.data, "its time does not count"
    runner.cancel(handle, "not wanted")
    condor.config()
    status = runner.poll([handle])["run-1"]
    assert (status.state, status.reason, status.runtime) == (RunState.CANCELLED, "not wanted", 0.0)
    time.sleep(0.5)
    runner.poll([handle])
    assert condor.of("run-1") is None
    runner.forget(handle)
    assert runner.find(OWNER) == []
    runner.close()


def test_another_process_finds_what_waits_and_submits_it(condor: Condor, tmp_path: Path) -> None:
    condor.config(max_jobs=0)
    first = runner_over(condor, tmp_path)
    launched(first, [request(tmp_path, "run-1")])
    first.close()
    condor.config()
    second = runner_over(condor, tmp_path)
    looked = second.find(None)
    for _ in range(3):
        assert second.poll(looked)["run-1"].state is RunState.SUBMITTING, "who only looks submits nothing"
        time.sleep(0.2)
    assert condor.of("run-1") is None
    assert ends(second, second.find(OWNER))["run-1"].state is RunState.DONE
    second.close()


def test_a_submission_that_was_not_written_down_is_not_made_again(condor: Condor, tmp_path: Path) -> None:
    condor.config(max_jobs=0)
    runner = runner_over(condor, tmp_path)
    given = request(tmp_path, "run-1")
    [handle] = launched(runner, [given])
    condor.config()
    runner.close()
    place = given.folder / "condor" / "waits.sub"
    text = place.read_text()
    other = runner_over(condor, tmp_path)
    with other._condor.alone() as lock:
        other._condor.submit(text, lock)  # and then it was killed
    assert ends(other, [handle])["run-1"].state is RunState.DONE
    assert condor.starts(given.folder.absolute()) == 1
    other.close()


def test_who_gets_no_room_for_long_is_told(condor: Condor, tmp_path: Path) -> None:
    condor.config(max_jobs=0)
    runner = runner_over(condor, tmp_path, full=0.5)
    [handle] = launched(runner, [request(tmp_path, "run-1")])
    status = ends(runner, [handle])["run-1"]
    assert (status.state, status.fault) == (RunState.FAILED, Fault.CAPACITY)
    assert "MAX_JOBS_PER_OWNER" in status.reason
    runner.close()
