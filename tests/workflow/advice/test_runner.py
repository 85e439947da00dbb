"""The runner whose runs are plans, in the suite of all runners and in a job YAML."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.workflow.advice.samples import by_hand, drawn, store

from tradewind import plugins
from tradewind.deployer.runner.base import Runner
from tradewind.engine.search_builder import build_search, new_study
from tradewind.errors import PluginError, SpecError, WorkflowError
from tradewind.problem import Offer, RunRequest, TrialState, WorkflowJob
from tradewind.problem.job_spec.spec import parse_spec
from tradewind.testing.runners import OWNER_A, RunnerBench, RunnerConformance
from tradewind.workflow.advice.runner import WorkflowRunner

_FLOW = {"name": "pair", "tasks": {"a": {"command": ["true"], "runtime": 2.5, "cores": 2}}}
_OFFERS = {
    "good": Offer("here", "plain", 2, 4, 0.1),
    "long": Offer("here", "slow", 2, 4, 0.1),
    "hog": Offer("here", "slow", 2, 4, 0.1),
    "cpus": Offer("here", "plain", 2, 4, 0.1),
    "bad": Offer("here", "small", 1, 4, 0.1),  # the task does not fit
    "missing": Offer("here", "small", 1, 4, 0.1),
}


def made(folder: Path, **settings: Any) -> Runner:
    (folder / "pair.yaml").write_text(yaml.safe_dump(_FLOW))
    given = {"speeds": {"slow": 0.04}, **settings}
    runner = plugins.create("runner", "workflow", given, data_folder=folder / "data")
    assert isinstance(runner, Runner)
    return runner


def pair(folder: Path, **changes: Any) -> WorkflowJob:
    return WorkflowJob(**{"file": str(folder / "pair.yaml"), "planner": {"use": "heft"}, **changes})


class WorkflowBench(RunnerBench):
    def make(self) -> Runner:
        return made(self.folder)

    def request(self, kind: str, run_id: str = "run-1", owner: str = OWNER_A) -> RunRequest:
        request = super().request(kind, run_id, owner)
        return replace(request, offer=_OFFERS[kind], workflow=pair(self.folder))


class TestWorkflowRunner(RunnerConformance):
    @pytest.fixture
    def bench(self, tmp_path: Path) -> Iterator[RunnerBench]:
        bench = WorkflowBench(tmp_path)
        yield bench
        bench.close()


def test_a_run_takes_the_makespan_and_measures_what_a_plan_is_judged_by(tmp_path: Path) -> None:
    runner = made(tmp_path, boot="10s")
    bench = WorkflowBench(tmp_path)
    request = replace(bench.request("good"), offer=replace(_OFFERS["good"], nodes=2))
    handle = runner.submit(request, [])
    runner.wait([handle], 1e9)
    assert runner.poll([handle])["run-1"].runtime == 12.5
    metrics = json.loads((request.folder / "metrics.jsonl").read_text())
    assert metrics["makespan"] == metrics["lower_bound"] == 12.5
    assert (metrics["gap"], metrics["serial"]) == (0.0, 2.5)
    assert metrics["utilisation"] == pytest.approx(5.0 / (4 * 12.5))


def test_what_can_never_run_is_refused_before_the_first_trial(tmp_path: Path) -> None:
    runner = made(tmp_path)
    assert isinstance(runner, WorkflowRunner)
    runner.check_workflow(pair(tmp_path), _OFFERS["good"])
    with pytest.raises(WorkflowError, match=r"there is no file .*none\.xml"):
        runner.check_workflow(pair(tmp_path, file=str(tmp_path / "none.xml")), _OFFERS["good"])
    with pytest.raises(PluginError, match="there is no planner named 'hefd'"):
        runner.check_workflow(pair(tmp_path, planner={"use": "hefd"}), _OFFERS["good"])
    (tmp_path / "idle.yaml").write_text('tasks: {a: {command: "true"}}')
    with pytest.raises(WorkflowError, match="have no run times, and a simulation"):
        runner.check_workflow(pair(tmp_path, file=str(tmp_path / "idle.yaml")), _OFFERS["good"])
    with pytest.raises(SpecError, match="soon"):
        made(tmp_path, boot="soon")
    with pytest.raises(SpecError, match="speeds"):
        made(tmp_path, speeds={"slow": 0})


@pytest.mark.slow
@pytest.mark.parametrize("planner", ["heft", {"use": "search", "turns": 50}])
@pytest.mark.parametrize("storage", ["none", "local"])
def test_a_job_yaml_searches_the_machines_of_a_workflow(tmp_path: Path, planner: Any, storage: str) -> None:
    path, flow = drawn(tmp_path, 9, 12)
    (tmp_path / "prices.csv").write_text(
        "API Name,Provider,CPU,Memory,Category,Price,Speed\n"
        "one,here,1,2,general,0.1,1\nquick,here,2,4,general,0.5,2.5\n"
    )
    document = {
        "name": "machines",
        "job": {"workflow": {"file": path.name, "planner": planner}},
        "space": {"instance": {"provider": ["csv"]}, "nodes": [1, 3]},
        "catalogues": {"csv": {"path": "prices.csv"}},
        "objective": {"minimise": "cost"},
        "constraints": {"deadline": "1h"},
        "searcher": "exhaustive",
        "abort": False,
        "deploy": {
            "runner": {"use": "workflow", "boot": "20s", "storage": storage},
            "billing": {"minimum": "60s"},
        },
    }
    spec = parse_spec(yaml.safe_dump(document), file="job.yaml", base=tmp_path)
    kept = store(tmp_path)
    study = kept.create_study(new_study(spec))
    search = build_search(spec, study, kept, tmp_path / "data")
    search.run()
    trials = search.parts.machine.history.trials.values()
    assert len(trials) == 4
    for trial in trials:
        assert trial.state is TrialState.SUCCEEDED
        seen = trial.observation
        assert seen is not None
        span, cost = by_hand(flow, trial.offer, trial.offer.nodes, 2.5 if trial.offer.vcpu == 2 else 1.0)
        if planner == "heft":
            assert (seen.runtime, seen.cost) == pytest.approx((span, cost), abs=2e-9)
        assert seen.runtime <= span + 1e-9
        assert seen.metrics["lower_bound"] <= seen.runtime * (1 + 1e-9)
