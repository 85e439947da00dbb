"""Real runs of whole workflows as trials: their makespan is their time, and what fails says so."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.waiting import eventually
from tests.workflow.advice.samples import store

from tradewind import plugins
from tradewind.deployer.runner import resource_limits
from tradewind.engine.search_builder import build_search, new_study
from tradewind.errors import SpecError, WorkflowError
from tradewind.problem import Configuration, Fault, Handle, Limits, Offer, RunRequest, RunState, RunStatus, WorkflowJob
from tradewind.problem.job_spec.spec import parse_spec
from tradewind.workflow.job.local_runner import WorkflowLocalRunner

_OFFER = Offer("local", "local.c1", 1, 1, 0.1)


def made(folder: Path, **settings: Any) -> WorkflowLocalRunner:
    runner = plugins.create("runner", "workflow_local", settings, data_folder=folder / "data")
    assert isinstance(runner, WorkflowLocalRunner)
    return runner


def request(folder: Path, tasks: dict[str, Any], wall: float = 60.0) -> RunRequest:
    (folder / "flow.yaml").write_text(yaml.safe_dump({"name": "flow", "tasks": tasks}))
    return RunRequest(
        run_id="run-1", owner="tw-flow", expires=time.time() + 600, argv=("none",), folder=folder / "run",
        workdir=folder, offer=_OFFER, configuration=Configuration({"word": "hello"}),
        limits=Limits(wall_seconds=wall), workflow=WorkflowJob(str(folder / "flow.yaml"), {"use": "heft"}),
    )  # fmt: skip


def ended(runner: WorkflowLocalRunner, handle: Handle) -> RunStatus:
    eventually(lambda: runner.poll([handle])[handle.run_id].state.ended)
    return runner.poll([handle])[handle.run_id]


@pytest.mark.slow
def test_a_search_runs_the_workflow_and_its_tasks_see_the_parameters(tmp_path: Path) -> None:
    tasks = {
        "first": {"command": ["sh", "-c", "sleep 0.2; echo $TRADEWIND_PARAM_WORD > a.txt"], "outputs": ["a.txt"]},
        "second": {"command": ["cp", "a.txt", "b.txt"], "inputs": ["a.txt"], "outputs": ["b.txt"]},
    }
    (tmp_path / "flow.yaml").write_text(yaml.safe_dump({"name": "flow", "tasks": tasks}))
    document = {
        "name": "here",
        "job": {"workflow": "flow.yaml"},
        "space": {"instance": {"provider": "local", "types": ["local.c1"]}, "nodes": [1], "word": ["hello"]},
        "searcher": "exhaustive",
        "deploy": {"runner": "workflow_local"},
    }
    spec = parse_spec(yaml.safe_dump(document), file="job.yaml", base=tmp_path)
    kept = store(tmp_path)
    search = build_search(spec, new_study(spec), kept, tmp_path / "data")
    search.run()
    (trial,) = search.trials.values()
    seen = trial.observation
    assert seen is not None
    assert seen.feasible, seen.reason
    # Of the whole process, which plans and gets its machines, only the makespan counts.
    assert 0.2 <= seen.runtime == seen.metrics["makespan"]
    assert seen.cost == pytest.approx(spec.billing.cost(seen.runtime, trial.offer.hourly))
    (run,) = kept.runs(search.study.id)
    assert (Path(run.folder) / "workflow" / "files" / "b.txt").read_text() == "hello\n"
    assert json.loads((Path(run.folder) / "workflow" / "results.json").read_text())["workflow"] == "flow"


@pytest.mark.thorough
@pytest.mark.slow
def test_a_task_that_fails_and_a_time_that_is_over_end_a_run_with_the_reason(tmp_path: Path) -> None:
    runner = made(tmp_path, retries=0)
    try:
        status = ended(runner, runner.submit(request(tmp_path, {"bad": {"command": ["false"]}}), []))
        assert (status.state, status.fault) == (RunState.FAILED, Fault.JOB)
        assert status.reason == "task 'bad' failed: it exited with code 1"
        other = replace(request(tmp_path, {"long": {"command": ["sleep", "60"]}}, wall=0.3), folder=tmp_path / "late")
        status = ended(runner, runner.submit(replace(other, run_id="run-2", owner="tw-late"), []))
        assert (status.state, status.runtime) == (RunState.TIMED_OUT, 0.3)
    finally:
        runner.close()


def test_what_cannot_be_run_here_is_refused(tmp_path: Path) -> None:
    runner = made(tmp_path)
    asked = request(tmp_path, {"a": {"command": ["true"]}})
    assert asked.workflow is not None
    runner.check_workflow(asked.workflow, _OFFER)
    many = replace(_OFFER, nodes=resource_limits.cpus_here() + 1)
    with pytest.raises(WorkflowError, match=r"nodes of local\.c1 have \d+ CPUs, this machine has \d+ \(where: nodes"):
        runner.check_workflow(asked.workflow, many)
    made(tmp_path, commands=False).check_workflow(
        request(tmp_path, {"a": {"command": ["none"], "runtime": 3}}).workflow or asked.workflow, many
    )
    empty = request(tmp_path, {"a": {"runtime": 3}}).workflow
    assert empty is not None
    with pytest.raises(WorkflowError, match="command"):
        made(tmp_path).check_workflow(empty, _OFFER)
    with pytest.raises(SpecError, match="scale"):
        made(tmp_path, scale=0)
