"""Machines that outlive their run: kept for the next one, lost, given back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.deployer.helpers import OFFER, OWNER, request_for, row

from tradewind.deployer.lifecycle.deployer import Deployer
from tradewind.deployer.lifecycle.hooks import Hooks
from tradewind.deployer.lifecycle.kept_machines import KeptNews
from tradewind.deployer.provisioner.base import Cluster, ClusterState
from tradewind.deployer.provisioner.simulated import SimulatedProvisioner, SimulatedSettings
from tradewind.deployer.runner.simulated import SimulatedOutcome, SimulatedRunner
from tradewind.errors import TeardownError
from tradewind.plugins import Settings
from tradewind.problem import Billing, Fault, Run, RunRequest, RunState, TakenMachines
from tradewind.utils.clock import Clock, SimulatedClock


class _Minute(SimulatedRunner):
    """Each run takes 60 seconds."""

    name = "minute"
    Settings = Settings

    def answer(self, request: RunRequest) -> SimulatedOutcome:
        failed = "it broke" if "broken" in request.argv else ""
        return SimulatedOutcome(60.0, failed=failed)


def deployer(folder: Path, *, hooks: Hooks | None = None, clock: Clock | None = None, **settings: Any) -> Deployer:
    cloud = SimulatedProvisioner(settings=SimulatedSettings(boot=100.0, **settings), data_folder=folder)
    runner = _Minute(settings=Settings(), data_folder=folder)
    if clock is not None:
        assert isinstance(clock, SimulatedClock)
        runner._clock = clock
    return Deployer(
        provisioner=cloud,
        runner=runner,
        billing=Billing(granularity_seconds=0.001),
        owner=OWNER,
        hooks=hooks,
        keeps=True,
    )


def request(folder: Path, deployer: Deployer, run_id: str = "run-1", argv: tuple[str, ...] = ("train",)) -> RunRequest:
    now = deployer.clock.now()
    return request_for(folder, argv, run_id, expires=now + 600.0, machines_expire=now + 3600.0)


def ended(deployer: Deployer, run_id: str = "run-1", *, keep: bool = True) -> Run:
    """Poll until a run has ended, and answer whether its machines are kept."""
    for _ in range(1000):
        for run in deployer.poll():
            if run.run_id == run_id and run.state.ended:
                return run
        waiting = deployer.free_machines()
        for free in waiting:
            assert free.run_id == run_id
            deployer.decide(run_id, keep=keep)
        if not waiting:
            deployer.wait(60.0)
    raise AssertionError("the run does not end")


def second_run(deployer: Deployer, first: Run) -> Run:
    """The row of a run that takes over what the first one has left."""
    assert first.lease is not None
    idle = deployer.clock.now() - first.lease.since
    taken = TakenMachines(first.lease.cluster, first.lease.seconds + idle, first.lease.expires)
    return replace(row("run-2"), started=deployer.clock.now(), taken=taken)


def there(deployer: Deployer) -> list[Cluster]:
    return deployer.provisioner.find(OWNER)


def test_machines_are_there_after_their_run_and_the_next_one_pays_no_set_up(tmp_path: Path) -> None:
    mine = deployer(tmp_path)
    mine.launch(row(), request(tmp_path, mine))
    first = ended(mine)
    assert first.state is RunState.DONE
    assert first.cost == pytest.approx(160.0, abs=0.01)
    assert first.lease is not None
    assert (first.lease.cluster, first.lease.since) == ("run-1", first.ended)
    assert first.lease.seconds == pytest.approx(160.0, abs=0.01)
    assert [cluster.state for cluster in there(mine)] == [ClusterState.READY]
    mine.settle("run-1")
    mine.clock.sleep(25.0)
    began = mine.clock.now()
    mine.launch(second_run(mine, first), request(tmp_path, mine, "run-2"))
    second = ended(mine, "run-2", keep=False)
    assert (second.state, second.lease) == (RunState.DONE, None)
    assert second.cost == pytest.approx(60.0, abs=0.01)
    assert second.ended == pytest.approx(began + 60.0), "it did not wait for a boot"
    assert not there(mine), "what another run made is given back with the run that has it"


def test_stages_of_booting_and_their_hooks_are_for_machines_that_boot(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    hook = {"command": ["sh", "-c", f"echo $TRADEWIND_MOMENT $TRADEWIND_RUN_ID >> {seen}"], "timeout": 60.0}
    mine = deployer(tmp_path, hooks=Hooks.from_spec({"after_booting": [hook], "before_bootstrapping": [hook]}))
    mine.launch(row(), request(tmp_path, mine))
    first = ended(mine)
    mine.launch(second_run(mine, first), request(tmp_path, mine, "run-2"))
    ended(mine, "run-2", keep=False)
    assert seen.read_text().splitlines() == [
        "after_booting run-1",
        "before_bootstrapping run-1",
        "before_bootstrapping run-2",
    ]


def test_the_machines_of_a_program_that_failed_are_as_good_as_others(tmp_path: Path) -> None:
    mine = deployer(tmp_path)
    mine.launch(row(), request(tmp_path, mine, argv=("broken",)))
    first = ended(mine)
    assert (first.state, first.fault) == (RunState.FAILED, Fault.JOB)
    assert first.lease is not None


def test_machines_of_a_run_that_is_stopped_go_with_it(tmp_path: Path) -> None:
    mine = deployer(tmp_path)
    mine.launch(row(), request(tmp_path, mine))
    while not mine.free_machines():
        mine.poll()
        mine.wait(60.0)
    stopped = mine.cancel("run-1", "the user stopped the search")
    assert stopped is not None
    assert (stopped.state, stopped.lease) == (RunState.DONE, None)
    assert not there(mine)


def test_machines_that_are_lost_while_they_are_kept_are_noticed(tmp_path: Path) -> None:
    mine = deployer(tmp_path)
    mine.launch(row(), request(tmp_path, mine))
    first = ended(mine)
    mine.clock.sleep(5.0)
    mine.provisioner.destroy(Cluster("run-1", ClusterState.UNKNOWN))
    mine.poll()
    assert mine.kept.news() == [KeptNews("run-1", gone=True, until=mine.clock.now())]
    assert not mine.kept.tags
    mine.launch(second_run(mine, first), request(tmp_path, mine, "run-2"))
    second = ended(mine, "run-2")
    assert (second.state, second.fault, second.cost) == (RunState.FAILED, Fault.INFRASTRUCTURE, 0.0)
    assert "the machines that were kept are lost" in second.reason


def test_a_refused_teardown_is_tried_again_and_paid_for_until_it_is_taken(tmp_path: Path) -> None:
    mine = deployer(tmp_path, refusals=0.9, seed=3, shutdown=30.0)
    mine.launch(row(), request(tmp_path, mine))
    ended(mine)
    begun = mine.clock.now()
    mine.kept.give_back("run-1")
    while not (news := mine.kept.news()):
        mine.poll()
        mine.wait(60.0)
    [gone] = news
    fleet_gone = mine.clock.now()
    assert gone.gone
    assert begun < gone.until <= fleet_gone - 30.0, "the order was refused at first, and the way down is not billed"
    assert not there(mine)


def test_machines_that_never_go_are_an_error_of_who_waits_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = deployer(tmp_path)
    mine.launch(row(), request(tmp_path, mine))
    ended(mine)

    def refuse(cluster: Cluster) -> Cluster:
        raise TeardownError("no")

    monkeypatch.setattr(mine.provisioner, "destroy", refuse)
    monkeypatch.setattr("tradewind.deployer.lifecycle.kept_machines._PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(type(mine.provisioner), "patience_seconds", 0.0)
    with pytest.raises(TeardownError, match="the kept machines of run run-1 are not given back: no"):
        mine.kept.finish()


def test_after_a_crash_a_run_on_taken_machines_is_found_with_them_and_pays_them_once(tmp_path: Path) -> None:
    mine = deployer(tmp_path)
    mine.launch(row(), request(tmp_path, mine))
    first = ended(mine)
    asked = request(tmp_path, mine, "run-2")
    launched = mine.launch(second_run(mine, first), asked)
    mine.poll()
    mine.clock.sleep(20.0)
    again = deployer(tmp_path, clock=mine.clock)
    assert not again.sweep({"run-2", "run-1"}), "the tag of the machines is that of the run that made them"
    again.adopt(launched, asked)
    second = ended(again, "run-2", keep=False)
    assert second.state is RunState.DONE
    assert second.cost == pytest.approx(60.0, abs=0.01)
    assert not there(again)


def test_what_an_earlier_process_kept_is_watched_and_paid_for_no_longer_than_it_was_seen(tmp_path: Path) -> None:
    mine = deployer(tmp_path)
    mine.launch(row(), request(tmp_path, mine))
    ended(mine)
    again = deployer(tmp_path, clock=mine.clock)
    again.kept.watch("run-1")
    again.kept.watch("never-seen")
    again.poll()
    assert again.kept.news() == [KeptNews("never-seen", gone=True, until=float("-inf"))]
    assert again.kept.tags == {"run-1"}
    again.kept.finish()
    assert not there(again)


def test_without_the_wish_nothing_waits_for_an_answer(tmp_path: Path) -> None:
    cloud = SimulatedProvisioner(settings=SimulatedSettings(boot=100.0), data_folder=tmp_path)
    runner = _Minute(settings=Settings(), data_folder=tmp_path)
    mine = Deployer(provisioner=cloud, runner=runner, billing=Billing(), owner=OWNER)
    mine.launch(row(), request(tmp_path, mine))
    assert ended(mine).lease is None
    assert not there(mine)
    assert OFFER.hourly == 3600.0
