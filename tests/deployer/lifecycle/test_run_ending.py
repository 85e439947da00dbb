from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tests.deployer.helpers import deployer_over, drive, request_for, row
from tests.deployer.lifecycle.test_background_tasks import SlowRunner, fleet, until

from tradewind.deployer.lifecycle.hooks import Hooks
from tradewind.deployer.lifecycle.run_lifecycle import RunEnding, load_ending, save_ending
from tradewind.deployer.provisioner.base import Cluster
from tradewind.deployer.provisioner.simulated import SimulatedProvisioner, SimulatedSettings
from tradewind.errors import UnreachableError
from tradewind.problem import Fault, Run, RunState, RunStatus, Usage


def test_what_is_noted_is_read_again_and_the_first_note_stays(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert load_ending(folder) is None
    ending = RunEnding(RunState.FAILED, "it exited with 3", Fault.JOB)
    usage = Usage(peak_memory_bytes=7, cpu_seconds=1.5, profile={"cpu": 0.5})
    status = RunStatus(RunState.FAILED, 2.5, "it exited with 3", Fault.JOB, 3, usage)
    save_ending(folder, ending, status)
    save_ending(folder, RunEnding(RunState.CANCELLED, "too late"), None)
    assert load_ending(folder) == (ending, status)
    bare = tmp_path / "bare"
    save_ending(bare, RunEnding(RunState.CANCELLED, "enough"), None)
    assert load_ending(bare) == (RunEnding(RunState.CANCELLED, "enough"), None)


@pytest.mark.parametrize("text", ["", "[]", '{"ending": 1, "status": null}', '{"ending": {"state": "lost"}}'])
def test_a_note_that_is_no_note_is_none(tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "ended.json").write_text(text)
    with caplog.at_level(logging.WARNING, "tradewind.deployer"):
        assert load_ending(tmp_path) is None
    assert "cannot be read" in caplog.text


def test_where_it_cannot_be_noted_machines_are_given_back_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING, "tradewind.deployer"):
        save_ending(tmp_path / "file" / "run", RunEnding(RunState.DONE), None)
    assert "cannot be noted" in caplog.text


class Vanishing(SimulatedProvisioner):
    """Its machines take with them what their jobs were, and the answer does not come through."""

    runner: SlowRunner
    silent = True

    def destroy(self, cluster: Cluster) -> Cluster:
        gone = super().destroy(cluster)
        self.runner.jobs.pop(cluster.run_id, None)
        if self.silent:
            raise UnreachableError("the line is cut")
        return gone


@pytest.mark.parametrize(
    ("ends", "command"), [(RunState.DONE, "stop"), (RunState.DONE, "go on"), (RunState.FAILED, "go on")]
)
def test_a_crash_when_the_machines_are_gone_keeps_the_end_of_the_run(
    tmp_path: Path, ends: RunState, command: str
) -> None:
    cloud = Vanishing(settings=SimulatedSettings(boot=0), data_folder=tmp_path / "data")
    runner = cloud.runner = SlowRunner(tmp_path, 0.0)
    runner.ends = ends
    hooks = Hooks.from_spec({"on_error": ["sh", "-c", f"echo once >> {tmp_path}/hooks"]})
    first = deployer_over(tmp_path, runner=runner, provisioner=cloud, hooks=hooks)
    request = request_for(tmp_path, ("true",))
    stored: list[Run] = [first.launch(row(), request)]

    def looked() -> bool:
        stored.extend(run for run in first.poll() if "not given back" not in run.reason)
        return bool(runner.submissions) and not runner.jobs

    until(first, looked)
    assert fleet(tmp_path) == {}
    cloud.silent = False
    # It was killed there: the store has the row of before, and the machines are gone with the job.
    second = deployer_over(tmp_path, runner=runner, provisioner=cloud, hooks=hooks)
    if command == "stop":
        ended = second.end(stored[-1], request, "it was ended by hand")
    else:
        second.adopt(stored[-1], request)
        ended = drive(second)[-1]
    assert (ended.state, ended.machines) == (ends, ())
    assert runner.submissions == ["run-1"]
    assert (tmp_path / "hooks").exists() == (ends is RunState.FAILED)
    if ends is RunState.FAILED:
        assert (tmp_path / "hooks").read_text() == "once\n"
