"""Machines that a provider takes back are noticed, and nothing that only seems to be so."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.deployer.provisioner.terraform.helpers import Sky, ready_run, under_sky
from tests.waiting import eventually

from tradewind.deployer.lifecycle.cost_meter import CostMeter
from tradewind.deployer.provisioner.base import Cluster, ClusterState
from tradewind.deployer.provisioner.terraform import azure as terraform_azure
from tradewind.deployer.provisioner.terraform import gcp as terraform_gcp
from tradewind.deployer.provisioner.terraform import machine_health as terraform_watch
from tradewind.deployer.provisioner.terraform.aws import AmazonCloud
from tradewind.deployer.provisioner.terraform.machine_health import MachineLoss, MachineLossMonitor
from tradewind.deployer.provisioner.terraform.provisioner import ProviderClouds, TerraformProvisioner
from tradewind.errors import TeardownError, UnreachableError
from tradewind.problem import Billing, Run

HERE, ONCE, LOST = MachineLoss(), MachineLoss((), True), MachineLoss(("m",), True)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terraform_watch, "_EVERY_SECONDS", 0.0)


def losses(sky: Sky, watch: MachineLossMonitor, *machines: str, sure: bool = True) -> Callable[[], MachineLoss]:
    """What is known after one more look; the look after it is then on its way, or done."""

    def after_a_look() -> MachineLoss:
        looks = len(sky.looks)
        eventually(lambda: watch.look(sky, "x", machines, sure=sure) is not None and len(sky.looks) > looks + 1)
        return watch.look(sky, "x", machines, sure=sure)

    return after_a_look


def test_a_machine_is_lost_when_two_looks_in_a_row_miss_it() -> None:
    sky, watch = Sky("m", "other"), MachineLossMonitor()
    assert watch.look(sky, "x", ["m"], sure=True) == HERE, "nobody waits for the answer"
    look = losses(sky, watch, "m")
    assert look() == HERE
    sky.there.discard("m")
    eventually(lambda: watch.look(sky, "x", ["m"], sure=True) == LOST)
    sky.there.add("m")
    eventually(lambda: watch.look(sky, "x", ["m"], sure=True) == HERE)
    assert watch.look(sky, "x", [], sure=True) == HERE


def test_one_look_that_misses_it_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terraform_watch, "_EVERY_SECONDS", 3600.0)
    sky, watch = Sky(), MachineLossMonitor()
    watch.look(sky, "x", ["m"], sure=True)
    eventually(lambda: watch.look(sky, "x", ["m"], sure=True) == ONCE)
    assert sky.looks == [{"m"}], "it is not asked more often than that"


def test_some_machines_of_several() -> None:
    sky, watch = Sky("a"), MachineLossMonitor()
    eventually(lambda: watch.look(sky, "x", ["a", "m"], sure=True).lost != ())
    assert watch.look(sky, "x", ["a", "m"], sure=True) == MachineLoss(("m",), False)


@pytest.mark.parametrize("problem", [UnreachableError("no network"), TeardownError("another account"), KeyError("bug")])
def test_a_provider_that_does_not_answer_has_taken_nothing_back(problem: Exception) -> None:
    sky, watch = Sky(), MachineLossMonitor()
    sky.problem = problem
    look = losses(sky, watch, "m")
    assert [look(), look(), look()] == [HERE] * 3


def test_where_names_may_differ_only_what_was_seen_is_missed() -> None:
    sky, watch = Sky(), MachineLossMonitor()
    look = losses(sky, watch, "m", sure=False)
    assert [look(), look(), look()] == [HERE] * 3
    sky.there.add("m")
    look()
    assert look() == HERE
    sky.there.clear()
    eventually(lambda: watch.look(sky, "x", ["m"], sure=False) == LOST)


def test_all_runs_of_a_place_share_its_looks() -> None:
    sky, watch = Sky("a", "b", "c"), MachineLossMonitor()

    def all_asked() -> bool:
        for machine in "abc":
            watch.look(sky, "x", [machine], sure=True)
        return {"a", "b", "c"} in sky.looks

    eventually(all_asked)
    looks = len(sky.looks)
    eventually(lambda: watch.look(sky, "x", ["a"], sure=True) == HERE and {"a"} in sky.looks[looks:])
    assert {"a", "b", "c"} not in sky.looks[looks + 2 :], "those that ended are not asked for any more"


@pytest.fixture
def sky(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sky]:
    made = Sky("m")
    monkeypatch.setattr(ProviderClouds, "_make", lambda self, provider, account: made)
    yield made


def polled(provisioner: TerraformProvisioner) -> Cluster:
    return provisioner.poll([Cluster("run-1", ClusterState.UNKNOWN)])["run-1"]


def test_machines_that_were_taken_back_have_failed(tmp_path: Path, sky: Sky) -> None:
    ready_run(tmp_path)
    provisioner = under_sky(tmp_path)
    eventually(lambda: polled(provisioner).state is ClusterState.READY and len(sky.looks) > 2)
    assert not polled(provisioner).vanished
    sky.there.clear()
    eventually(lambda: polled(provisioner).state is ClusterState.FAILED)
    cluster = polled(provisioner)
    assert cluster.reason == "aws does not run m any more: taken back, or turned off"
    assert cluster.vanished
    # Its disks and security group may still be there.
    assert provisioner.destroy(cluster).state is ClusterState.GONE
    assert "run-1" in sky.given_back


def test_machines_that_were_taken_back_while_they_booted(tmp_path: Path, sky: Sky) -> None:
    ready_run(tmp_path, ready=None, started=4e9)
    sky.there.clear()
    provisioner = under_sky(tmp_path, ready="ssh", ssh={"host": "127.0.0.1", "port": 9})
    eventually(lambda: polled(provisioner).state is ClusterState.FAILED)
    assert "taken back" in polled(provisioner).reason


@pytest.mark.parametrize(
    ("record", "settings"),
    [({"account": ""}, {}), ({}, {"sweep": False}), ({"provider": "gcp"}, {}), ({"made": None, "ready": None}, {})],
)
def test_nothing_is_concluded_where_the_provider_may_not_know(
    tmp_path: Path, sky: Sky, record: Mapping[str, Any], settings: Mapping[str, Any]
) -> None:
    written = ready_run(tmp_path, **{"started": 4e9, **record})
    sky.there.clear()
    provisioner = under_sky(tmp_path, **settings)
    asked = written.account == ""
    eventually(lambda: polled(provisioner) is not None and (not asked or len(sky.looks) > 3))
    assert polled(provisioner).state is not ClusterState.FAILED
    assert not polled(provisioner).vanished
    assert bool(sky.looks) == asked


def test_machines_that_have_vanished_cost_nothing_more() -> None:
    meter = CostMeter(Billing(), makes=True)
    run = Run("run-1", 0, started=100.0, handle=None, runtime=1.0)

    def seen(at: float, state: ClusterState = ClusterState.READY, *, vanished: bool = False) -> float | None:
        meter.note(Cluster("run-1", state, setup_seconds=30.0, vanished=vanished), at)
        meter.tick(at)
        return meter.cost(run, 3600.0)

    assert seen(130.0) == 30.0 + 1.0
    assert seen(200.0) == 100.0
    assert seen(215.0, vanished=True) == 100.0
    assert seen(230.0) == 130.0, "it was there all the while"
    assert seen(245.0, vanished=True) == 130.0
    assert seen(260.0, ClusterState.FAILED, vanished=True) == 130.0
    meter.note_destroy_request(270.0)
    assert meter.cost(run, 3600.0) == 130.0


def test_what_runs_at_google(monkeypatch: pytest.MonkeyPatch) -> None:
    states = {"a": "RUNNING", "b": "STAGING", "c": "TERMINATED", "d": "STOPPING", "e": "RUNNING"}
    listed = [{"name": name, "status": status} for name, status in states.items()]
    monkeypatch.setattr(terraform_gcp, "ask", lambda *_: listed)
    assert terraform_gcp.GoogleCloud("p").alive("r", ["a", "b", "c", "d", "gone"]) == {"a", "b"}


def test_what_runs_at_azure(monkeypatch: pytest.MonkeyPatch) -> None:
    states = {"A-1": "VM running", "a-2": "VM deallocated", "a-3": "VM stopped", "a-4": None, "a-5": "VM starting"}
    listed = [{"vmId": name, "powerState": state} for name, state in states.items()]
    monkeypatch.setattr(terraform_azure, "ask", lambda *_: listed)
    assert terraform_azure.AzureCloud("s").alive("r", ["a-1", "a-2", "a-3", "a-4", "a-6"]) == {"a-1", "a-4"}


def test_what_runs_at_amazon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any number of machines, of which EC2 wants to be asked for 200 at a time."""
    amazon, asked = AmazonCloud((), "http://127.0.0.1:9"), []
    state = {"i-0": "running", "i-1": "pending", "i-2": "shutting-down", "i-3": "stopped", "i-399": "running"}

    def all_of(region: str, action: str, Filters: list[dict[str, Any]]) -> list[dict[str, Any]]:  # noqa: N803
        [ids] = [each["Values"] for each in Filters if each["Name"] == "instance-id"]
        asked.append(len(ids))
        return [{"Instances": [{"InstanceId": i, "State": {"Name": state[i]}} for i in ids if i in state]}]

    monkeypatch.setattr(amazon._ec2, "all", all_of)
    assert amazon.alive("us-east-1", [f"i-{n}" for n in range(400)]) == {"i-0", "i-1", "i-399"}
    assert max(asked) <= 200
    assert sum(asked) == 400
    other = AmazonCloud((), "http://127.0.0.1:9", "1")
    monkeypatch.setattr(other._ec2, "account", lambda _region: "2")
    with pytest.raises(TeardownError, match="AWS account 1"):
        other.alive("us-east-1", ["i-0"])
