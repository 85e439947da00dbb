"""What a run may cost and how long it may take, and machines that cannot be had."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.workflow.execution.plans import QUICK, carry, flow_of, history, plan_of, records, sh

from tradewind.cli.app import run as cli
from tradewind.deployer.provisioner.base import Cluster
from tradewind.deployer.provisioner.simulated import SimulatedProvisioner
from tradewind.errors import (
    BudgetError,
    CredentialsError,
    DeployError,
    LimitReachedError,
    NoOfferError,
    WorkflowError,
)
from tradewind.problem import Offer, RunState
from tradewind.workflow.execution.events import ExecutionEnding
from tradewind.workflow.execution.machines.rows import FileRows
from tradewind.workflow.files import Plan, parse_plan, plan_document, write_plan
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.platform import Platform, Vm
from tradewind.workflow.schedule import Schedule

OFFER = Offer("moon", "m1", 1.0, 1.0, 36.0, region="east")


def sold(seconds: float, vms: int = 1, **machine: Any) -> Plan:
    """A plan of one task of so many seconds on each machine, which a provider sells for a cent a second."""
    machines = tuple(
        Vm(f"vm-{n + 1}", price_per_hour=36.0, **{"offer": OFFER, "kind": "m1", **machine}) for n in range(vms)
    )
    tasks = tuple(Task(f"t{n}", "a", seconds) for n in range(vms))
    flow = Workflow("sold", tasks, tuple(() for _ in tasks))
    schedule = Schedule(np.arange(vms, dtype=np.int32), np.zeros(vms), np.full(vms, seconds))
    return Plan(flow, Platform(machines), schedule, "heft")


def maker(folder: Path, kind: type[SimulatedProvisioner] = SimulatedProvisioner, **settings: Any) -> Any:
    given = kind.Settings(**{"boot": 0.0, **settings})
    return kind(settings=given, data_folder=folder / "data")


def rows(folder: Path) -> dict[str, RunState]:
    return {row.run_id.partition("-")[2]: row.state for row in FileRows(folder / "machines/.rows").saved_runs()}


def test_machines_are_made_by_their_offers_and_given_back(tmp_path: Path) -> None:
    made: list[tuple[str, Offer, bool]] = []
    folder = tmp_path / "run"

    class Notes(SimulatedProvisioner):
        def make(self, run_id: str, owner: str, expires: float, offer: Offer) -> Cluster:
            saved = {row.run_id: row for row in FileRows(folder / "machines/.rows").saved_runs()}
            made.append((run_id, offer, saved[run_id].state is RunState.PENDING))
            return super().make(run_id, owner, expires, offer)

    provisioner = maker(tmp_path, Notes)
    carried = carry(sold(0.2, vms=2), folder, provisioner=provisioner, synthetic=True)
    assert carried.ending is ExecutionEnding.DONE
    assert [(offer, before) for _, offer, before in made] == [(OFFER, True)] * 2, "their rows are there before"
    assert rows(folder) == {"m1-1": RunState.DONE, "m2-1": RunState.DONE}
    saved = FileRows(folder / "machines/.rows").saved_runs()
    assert all(row.cost > 0 and row.reserved == pytest.approx(0.01) and row.offer_key == OFFER.key for row in saved)
    assert maker(tmp_path).find(None) == []
    assert carried.results["engine"] == "simulated+process"


def test_a_plan_that_costs_more_than_the_budget_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(
        BudgetError, match=r"the machines of the plan \(2 x [^)]+\) cost \$20.* the budget is \$5"
    ) as found:
        carry(sold(1000.0, vms=2), tmp_path / "run", provisioner=maker(tmp_path), synthetic=True, budget=5.0)
    assert found.value.exit_code == 5
    assert rows(tmp_path / "run") == {}
    assert history(tmp_path / "run").header is None


@pytest.mark.parametrize(("limit", "said"), [({"budget": 0.07}, "budget of"), ({"deadline": 0.5}, "deadline of")])
def test_a_run_that_takes_longer_is_ended_at_its_limit(tmp_path: Path, limit: dict[str, Any], said: str) -> None:
    plan = sold(0.1)
    slow = replace(plan, flow=flow_of(sh("t0", "sleep 60", runtime=0.1)))
    carried = carry(slow, tmp_path / "run", provisioner=maker(tmp_path), **limit)
    assert carried.ending is ExecutionEnding.INTERRUPTED
    assert isinstance(carried.limit, LimitReachedError)
    assert said in str(carried.limit)
    assert carried.limit.exit_code == 17
    assert set(rows(tmp_path / "run").values()) <= {RunState.DONE, RunState.CANCELLED}
    assert maker(tmp_path).find(None) == []
    [row] = FileRows(tmp_path / "run/machines/.rows").saved_runs()
    assert row.cost <= limit.get("budget", 1.0)


def test_a_provider_that_does_not_know_us_is_asked_before_anything_is_begun(tmp_path: Path) -> None:
    class Locked(SimulatedProvisioner):
        def find(self, owner: str | None) -> list[Cluster]:
            raise CredentialsError("there are no credentials for the cloud", hint="log in")

    with pytest.raises(CredentialsError, match="there are no credentials for the cloud"):
        carry(sold(0.1), tmp_path / "run", provisioner=maker(tmp_path, Locked), synthetic=True)
    assert records(tmp_path / "run") == []


def test_a_machine_that_the_provider_does_not_sell(tmp_path: Path) -> None:
    class Refuses(SimulatedProvisioner):
        def refuses(self, offer: Offer) -> str:
            return f"there is no {offer.instance_type}"

    with pytest.raises(
        NoOfferError, match=r"machine 'vm-1' of the plan \(moon:east:m1\) cannot be had: there is no m1"
    ):
        carry(sold(0.1), tmp_path / "run", provisioner=maker(tmp_path, Refuses), synthetic=True)


def test_a_plan_of_an_older_version_says_nothing_of_who_sells_its_machines(tmp_path: Path) -> None:
    document = plan_document(sold(0.1))
    del document["vms"][0]["offer"]
    old = parse_plan(json.dumps(document).encode(), "plan.json")
    with pytest.raises(WorkflowError, match="the plan does not say who sells machine 'vm-1'"):
        carry(old, tmp_path / "run", provisioner=maker(tmp_path), synthetic=True)
    assert carry(old, tmp_path / "run", synthetic=True).ending is ExecutionEnding.DONE, "here it needs no seller"


def test_an_offer_is_read_back_from_a_plan(tmp_path: Path) -> None:
    write_plan(tmp_path / "plan.json", sold(0.1))
    read = parse_plan((tmp_path / "plan.json").read_bytes(), "plan.json")
    assert read.platform.vms[0].offer == OFFER


def test_machines_that_never_come_up_end_the_run_with_their_reason(tmp_path: Path) -> None:
    provisioner = maker(tmp_path, quota=0)
    with pytest.raises(DeployError) as found:
        carry(sold(0.1), tmp_path / "run", provisioner=provisioner, synthetic=True)
    assert "quota" in str(found.value)
    assert rows(tmp_path / "run") == {"m1-1": RunState.FAILED}


def test_a_killed_controller_leaves_rows_that_the_next_one_settles(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    plan = plan_of(flow_of(sh("a", "sleep 0.3; echo a >> log; echo 1 > x", writes="x", runtime=0.3)), vms=1)
    stopped = carry(plan, folder, wanted=lambda: not (folder / "machines/vm-1/1/address.json").exists(), terms=QUICK)
    assert stopped.ending is ExecutionEnding.INTERRUPTED
    saved = FileRows(folder / "machines/.rows")
    [row] = saved.saved_runs()
    saved.save_run(replace(row, state=RunState.EXECUTING, ended=None))
    assert carry(plan, folder).ending is ExecutionEnding.DONE
    assert rows(folder) == {"m1-1": RunState.CANCELLED, "m1-2": RunState.DONE}


def test_words_of_limits_and_places(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRADEWIND_HOME", str(tmp_path / "home"))
    write_plan(Path("plan.json"), sold(1000.0))
    Path("deploy.yaml").write_text("deploy:\n  provisioner: {use: simulated, boot: 0}\n")
    Path("wrong.yaml").write_text("deploy:\n  provisioner: {use: simulated, boots: 0}\n")
    cases: dict[tuple[str, ...], tuple[int, str]] = {
        ("--budget", "$0"): (3, "--budget '$0' leaves nothing"),
        ("--deadline", "soon"): (3, "soon"),
        ("--deploy", "deploy.yaml", "--budget", "$5"): (5, "the budget is $5"),
        ("--on", "simulated+process", "--set", "provisioner.boot=0", "--budget", "$5"): (5, "the budget is $5"),
        ("--deploy", "deploy.yaml", "--on", "ssh"): (3, "--deploy says where the plan runs"),
        ("--deploy", "wrong.yaml"): (3, "wrong.yaml:2"),
        ("--on", "terraform+process"): (13, "'terraform+process' cannot carry out a plan: process runs on this"),
        ("--on", "script"): (13, "'script' cannot carry out a plan: script opens no channel"),
        ("--on", "moon+ssh"): (13, "there is no provisioner named 'moon'"),
    }
    for words, (code, says) in cases.items():
        assert cli(["workflow", "run", "plan.json", "--synthetic", "-q", *words]) == code, words
        assert says in capsys.readouterr().err, words
