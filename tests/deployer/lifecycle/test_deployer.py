"""From a run's row to its end: stages, money, machines given back, adoption, sweeping."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.deployer.helpers import OFFER, OWNER, deployer_over, drive, process_runner, python, request_for, row
from tests.waiting import eventually

from tradewind import plugins
from tradewind.deployer.lifecycle.deployer import Deployer
from tradewind.deployer.lifecycle.hooks import Hooks
from tradewind.deployer.provisioner.base import Cluster, ReachableBySsh
from tradewind.deployer.provisioner.simulated import SimulatedProvisioner, SimulatedSettings
from tradewind.deployer.runner.base import Runner
from tradewind.deployer.runner.replay import ReplayRunner, ReplaySettings
from tradewind.errors import CredentialsError, DeployError, TeardownError, UnreachableError
from tradewind.plugins import CallsNetwork
from tradewind.problem import Billing, Fault, Handle, Machine, Offer, RunRequest, RunState, RunStatus
from tradewind.testing.runners import processes_of

Make = Callable[..., Deployer]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Deployer] = []

    def deployer(**parts: Any) -> Deployer:
        made.append(deployer_over(tmp_path, **parts))
        return made[-1]

    yield deployer
    for each in made:
        each.close()


def replay(folder: Path, rows: str = "1,10", **settings: Any) -> ReplayRunner:
    recorded = folder / "recorded.csv"
    recorded.write_text("x,runtime\n" + rows.replace(" ", "\n") + "\n")
    return ReplayRunner(settings=ReplaySettings(file=recorded, **settings), data_folder=folder / "data")


def cloud(folder: Path, **settings: Any) -> SimulatedProvisioner:
    return SimulatedProvisioner(settings=SimulatedSettings(**settings), data_folder=folder / "data")


def fleet(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "data" / "simulated-fleet.json").read_text() or "{}")
    return found


class Stub(Runner):
    """A runner that does what a test tells it."""

    name = "stub"

    def __init__(self, folder: Path) -> None:
        super().__init__(settings=plugins.Settings(), data_folder=folder)
        self.status = RunStatus(RunState.EXECUTING)
        self.error: Exception | None = None
        self.there: list[str] = []
        self.cancelled: list[str] = []

    def submit(self, request: RunRequest, machines: Sequence[Machine]) -> Handle:
        self.there.append(request.run_id)
        if self.error is not None:
            raise self.error
        return Handle(request.run_id, self.name, {})

    def poll(self, handles: Sequence[Handle]) -> Mapping[str, RunStatus]:
        return {
            h.run_id: RunStatus(RunState.CANCELLED, runtime=2.0) if h.run_id in self.cancelled else self.status
            for h in handles
        }

    def wait(self, handles: Sequence[Handle], seconds: float) -> None:
        time.sleep(0.001)

    def cancel(self, handle: Handle, reason: str = "") -> None:
        self.cancelled.append(handle.run_id)

    def find(self, owner: str | None) -> list[Handle]:
        return [Handle(run_id, self.name, {}) for run_id in self.there]


def test_a_run_from_its_row_to_its_end(make: Make, tmp_path: Path) -> None:
    deployer = make()
    request = request_for(tmp_path, ("sh", "-c", "echo hello; sleep 0.2"))
    launched = deployer.launch(row(), request)
    assert launched.state is RunState.EXECUTING
    assert launched.handle is not None
    assert set(deployer.active) == {"run-1"}
    assert deployer.launch(row(), request) == launched
    last = drive(deployer)[-1]
    assert (last.state, last.exit_code, last.fault, last.reason) == (RunState.DONE, 0, None, "")
    assert last.machines == ()
    assert last.started is not None
    assert last.ended is not None
    assert last.started <= last.ended
    assert last.cost == 1.0
    assert last.usage.cpu_seconds is not None
    assert deployer.active == {}
    assert deployer.poll() == []
    output = deployer.output(last, request)
    assert output.stdout.read_text() == "hello\n"
    assert (output.exit_code, output.cost, output.truncated) == (0, 1.0, False)
    deployer.settle("run-1")
    assert deployer.sweep(set()) == []
    assert deployer.cancel("run-1", "gone") is None


def test_truncated_output_is_marked(make: Make, tmp_path: Path) -> None:
    deployer = make()
    request = request_for(tmp_path, ("sh", "-c", "seq 500"), log=500)
    deployer.launch(row(), request)
    output = deployer.output(drive(deployer)[-1], request)
    assert output.truncated
    log = output.stdout.read_text()
    assert len(log) <= 500 and log.startswith("1\n2\n3\n") and log.endswith("\n499\n500\n")


def test_the_jobs_failures_are_its_fault(make: Make, tmp_path: Path) -> None:
    deployer = make(billing=Billing(setup_seconds=10))
    deployer.launch(row("run-1"), request_for(tmp_path, ("sh", "-c", "exit 3"), "run-1"))
    failed = drive(deployer, "run-1")[-1]
    assert (failed.state, failed.fault, failed.exit_code) == (RunState.FAILED, Fault.JOB, 3)
    assert failed.cost == 11.0

    missing = deployer.launch(row("run-2"), request_for(tmp_path, ("no-such-program",), "run-2"))
    assert (missing.state, missing.fault) == (RunState.FAILED, Fault.JOB)
    assert "no-such-program" in missing.reason
    assert missing.cost == 0
    assert missing.ended is not None

    deployer.launch(row("run-3"), request_for(tmp_path, ("sleep", "60"), "run-3", wall=0.2))
    late = drive(deployer, "run-3")[-1]
    assert (late.state, late.cost) == (RunState.TIMED_OUT, 11.0)


@pytest.mark.parametrize(("retryable", "fault"), [(True, Fault.INFRASTRUCTURE), (False, Fault.JOB)])
def test_whose_fault_a_failed_submission_is(make: Make, tmp_path: Path, retryable: bool, fault: Fault) -> None:
    stub = Stub(tmp_path)
    stub.error = DeployError("the engine does not answer", retryable=retryable)
    deployer = make(runner=stub, billing=Billing(minimum_seconds=60))
    ended = deployer.launch(row(), request_for(tmp_path, ("true",)))
    assert (ended.state, ended.fault) == (RunState.FAILED, fault)
    assert "does not answer" in ended.reason
    # It may have been started although the answer was lost: then it was ended, and cost money.
    assert stub.cancelled == ["run-1"]
    assert ended.cost == 60.0


def test_the_row_of_a_run_that_waits_says_why_and_one_that_runs_or_has_ended_well_says_nothing(
    make: Make, tmp_path: Path
) -> None:
    stub = Stub(tmp_path)
    stub.status = RunStatus(RunState.SUBMITTING, reason="QOSMaxCpuPerUserLimit")
    deployer = make(runner=stub)
    deployer.launch(row(), request_for(tmp_path, ("true",)))
    assert [run.reason for run in deployer.poll()] == ["it waits: QOSMaxCpuPerUserLimit"]
    assert deployer.poll() == [], "nothing has changed"
    stub.status = RunStatus(RunState.EXECUTING, reason="SUSPENDED")
    assert [run.reason for run in deployer.poll()] == ["SUSPENDED"]
    stub.status = RunStatus(RunState.EXECUTING, runtime=1.0)
    assert [run.reason for run in deployer.poll()] == [""]
    stub.status = RunStatus(RunState.SUBMITTING, reason="Resources")
    deployer.poll()
    stub.status = RunStatus(RunState.DONE, runtime=2.0, exit_code=0)
    assert [(run.state, run.reason) for run in deployer.poll()] == [(RunState.DONE, "")]


def test_a_bug_in_a_runner_ends_the_run_and_gives_machines_back(make: Make, tmp_path: Path) -> None:
    stub = Stub(tmp_path)
    stub.error = ZeroDivisionError("oops")
    deployer = make(runner=stub, provisioner=cloud(tmp_path, boot=0))
    ended = deployer.launch(row(), request_for(tmp_path, ("true",)))
    assert (ended.state, ended.fault) == (RunState.FAILED, Fault.INFRASTRUCTURE)
    assert ended.reason == "ZeroDivisionError: oops"
    assert fleet(tmp_path) == {}


def test_cancel(make: Make, tmp_path: Path) -> None:
    deployer = make(billing=Billing(granularity_seconds=0.001))
    deployer.launch(row(), request_for(tmp_path, ("sh", "-c", "sleep 60 & sleep 60")))
    cancelled = deployer.cancel("run-1", "it can no longer win")
    assert cancelled is not None
    assert (cancelled.state, cancelled.reason, cancelled.fault) == (RunState.CANCELLED, "it can no longer win", None)
    assert cancelled.cost == pytest.approx(cancelled.runtime, abs=0.002)
    assert cancelled.cost > 0
    assert not processes_of("run-1")
    assert deployer.cancel("run-1", "again") == cancelled
    assert deployer.poll() == []


def test_cancelling_what_has_just_ended_keeps_its_end(make: Make, tmp_path: Path) -> None:
    deployer = make()
    request = request_for(tmp_path, ("true",))
    deployer.launch(row(), request)
    eventually((request.folder / "result.json").exists)
    eventually(lambda: deployer.runner.poll([Handle("run-1", "process", {})])["run-1"].state.ended)
    ended = deployer.cancel("run-1", "too late")
    assert ended is not None
    assert (ended.state, ended.reason) == (RunState.DONE, "")


@pytest.mark.slow
def test_adopting_by_handle_and_by_id(make: Make, tmp_path: Path) -> None:
    first, request = make(), request_for(tmp_path, ("sh", "-c", "echo ran >> count; sleep 0.5"))
    launched = first.launch(row(), request)
    first.close()
    second = make()
    assert second.adopt(launched, request).state is RunState.EXECUTING
    third = make()
    assert third.adopt(row(), request).state is RunState.EXECUTING  # the handle never reached the store
    for deployer in (second, third):
        last = drive(deployer)[-1]
        assert (last.state, last.cost) == (RunState.DONE, 1.0)
    assert (request.workdir / "count").read_text() == "ran\n"
    ended = make()
    assert ended.adopt(last, request) == last


@pytest.mark.slow
def test_a_sweep_ends_what_nobody_waits_for(make: Make, tmp_path: Path) -> None:
    first = make(provisioner=cloud(tmp_path, boot=0))
    for name in ("run-1", "run-2", "run-3"):
        first.launch(row(name), request_for(tmp_path, ("sleep", "60"), name))
    first.launch(row("run-4"), request_for(tmp_path, ("true",), "run-4"))
    eventually((tmp_path / "runs" / "run-4" / "result.json").exists)
    first.close()
    second = make(provisioner=cloud(tmp_path, boot=0))
    words = second.sweep({"run-1"})
    # A run-0 is of a test before that has the same owner, and was still ending.
    assert sorted(word for word in words if "run-0" not in word) == [
        "ended run run-2, which nobody waited for",
        "ended run run-3, which nobody waited for",
        "gave back the machines of run run-2",
        "gave back the machines of run run-3",
        "gave back the machines of run run-4",
    ]
    assert processes_of("run-1")
    assert not processes_of("run-2") + processes_of("run-3")
    assert set(fleet(tmp_path)) == {"run-1"}
    assert second.sweep({"run-1"}) == []
    assert len(second.sweep(set())) == 2
    assert fleet(tmp_path) == {}
    assert not processes_of("run-1")


def test_a_stray_that_does_not_end_is_an_error(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tradewind.deployer.lifecycle.orphans._PATIENCE_SECONDS", 0.05)
    stub = Stub(tmp_path)
    stub.there = ["orphan"]
    monkeypatch.setattr(stub, "cancel", lambda handle: None)
    with pytest.raises(TeardownError, match="orphan"):
        make(runner=stub).sweep(set())


class Cloud(SimulatedProvisioner, ReachableBySsh):
    """Machines that jobs run on, and end with."""


def real(folder: Path) -> Cloud:
    return Cloud(settings=SimulatedSettings(boot=0), data_folder=folder / "data")


def test_the_job_of_machines_that_are_gone_is_not_waited_for(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub, provisioner = Stub(tmp_path), real(tmp_path)
    stub.there = ["lost", "there"]
    forgotten: list[str] = []
    monkeypatch.setattr(stub, "forget", lambda handle: forgotten.append(handle.run_id))
    provisioner.make("there", OWNER, 4e9, OFFER)
    began = time.monotonic()
    assert make(runner=stub, provisioner=provisioner).sweep(set()) == [
        "forgot run lost, whose machines are gone",
        "ended run there, which nobody waited for",
        "gave back the machines of run there",
    ]
    assert time.monotonic() - began < 5
    assert (forgotten, stub.cancelled) == (["lost", "there"], ["there"])


def test_a_provider_that_does_not_answer_has_not_lost_machines(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub, provisioner = Stub(tmp_path), real(tmp_path)
    stub.there = ["orphan"]

    def silent(owner: str | None) -> list[Cluster]:
        raise UnreachableError("the cloud does not answer")

    monkeypatch.setattr(provisioner, "find", silent)
    with pytest.raises(UnreachableError):
        make(runner=stub, provisioner=provisioner).sweep(set())
    assert stub.cancelled == ["orphan"], "it is ended as if its machines were there"


def test_machines_that_boot_are_billed_as_measured(make: Make, tmp_path: Path) -> None:
    deployer = make(
        runner=replay(tmp_path), provisioner=cloud(tmp_path, boot=60, shutdown=5), billing=Billing(setup_seconds=1)
    )
    first = deployer.launch(row(), request_for(tmp_path, ("true",), offer=OFFER.times(2)))
    assert first.state is RunState.BOOTING
    assert [machine.id for machine in first.machines] == ["run-1-0", "run-1-1"]
    rows = drive(deployer)
    states = list(dict.fromkeys(each.state for each in rows))
    assert states == [RunState.BOOTING, RunState.EXECUTING, RunState.COLLECTING, RunState.DONE]
    assert [each.cost for each in rows] == sorted(each.cost for each in rows)
    going = [each for each in rows if each.state is RunState.COLLECTING]
    assert all(each.machines for each in going), "the row keeps its machines until they are gone"
    last = rows[-1]
    assert (last.runtime, last.machines, last.cost) == (10.0, (), 2 * 70.0)
    assert fleet(tmp_path) == {}


def test_machines_that_do_not_come_up(make: Make, tmp_path: Path) -> None:
    deployer = make(runner=replay(tmp_path), provisioner=cloud(tmp_path, boot=60, failures=1))
    deployer.launch(row(), request_for(tmp_path, ("true",)))
    last = drive(deployer)[-1]
    assert (last.state, last.fault, last.cost) == (RunState.FAILED, Fault.INFRASTRUCTURE, 60.0)
    assert "did not boot" in last.reason
    assert fleet(tmp_path) == {}


def test_who_is_not_known_to_the_provider_is_no_fault_of_the_job(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> Cluster:
        raise CredentialsError("aws: the token has expired")

    provisioner = cloud(tmp_path)
    monkeypatch.setattr(provisioner, "make", refuse)
    refused = make(runner=replay(tmp_path), provisioner=provisioner).launch(row(), request_for(tmp_path, ("true",)))
    assert (refused.state, refused.fault, refused.cost) == (RunState.FAILED, Fault.CREDENTIALS, 0.0)


@pytest.mark.parametrize("network", [False, True])
def test_machines_that_were_made_in_vain_are_paid_for(make: Make, tmp_path: Path, network: bool) -> None:
    class InVain(SimulatedProvisioner):
        def make(self, run_id: str, owner: str, expires: float, offer: Offer) -> Cluster:
            error = DeployError("one of two machines came up, and was given back")
            error.paid_seconds = 600.0
            raise error

    class FarInVain(InVain, CallsNetwork):
        """In a thread."""

    provisioner = (FarInVain if network else InVain)(settings=SimulatedSettings(), data_folder=tmp_path / "data")
    deployer = make(runner=replay(tmp_path), provisioner=provisioner, billing=Billing(setup_seconds=1))
    first = deployer.launch(row(), request_for(tmp_path, ("true",), offer=OFFER.times(2)))
    last = first if first.state.ended else drive(deployer)[-1]
    assert (last.state, last.fault, last.cost) == (RunState.FAILED, Fault.INFRASTRUCTURE, 2 * 600.0)


@pytest.mark.slow
def test_what_a_run_costs_does_not_depend_on_who_runs_beside_it(make: Make, tmp_path: Path) -> None:
    """The order to go is repeated while machines take five minutes to go, and only others keep the clock busy."""
    costs = []
    for turn, others in enumerate((0, 1)):
        folder = tmp_path / str(turn)
        folder.mkdir()
        deployer = make(runner=replay(folder), provisioner=cloud(folder, boot=1, shutdown=300))
        for place in range(1 + others):
            deployer.launch(row(f"run-{place}"), request_for(folder, ("true",), f"run-{place}"))
        costs.append(drive(deployer, "run-0")[-1].cost)
    assert costs[0] == costs[1] == 11.0


def test_a_quota_is_the_infrastructures_fault_and_costs_nothing(make: Make, tmp_path: Path) -> None:
    deployer = make(runner=replay(tmp_path), provisioner=cloud(tmp_path, quota=1))
    deployer.launch(row("run-1"), request_for(tmp_path, ("true",), "run-1"))
    refused = deployer.launch(row("run-2"), request_for(tmp_path, ("true",), "run-2"))
    assert (refused.state, refused.fault, refused.cost) == (RunState.FAILED, Fault.INFRASTRUCTURE, 0.0)
    assert "quota" in refused.reason
    assert drive(deployer, "run-1")[-1].state is RunState.DONE


def test_a_refused_teardown_is_tried_again_and_the_run_stays_open(make: Make, tmp_path: Path) -> None:
    provisioner = cloud(tmp_path, boot=1, refusals=0.7, seed=3)
    deployer = make(runner=replay(tmp_path), provisioner=provisioner)
    refused = 0
    for i in range(8):
        run_id = f"run-{i}"
        deployer.launch(row(run_id), request_for(tmp_path, ("true",), run_id))
        rows = drive(deployer, run_id)
        late = any("not given back yet" in each.reason for each in rows)
        refused += late
        assert all(each.machines for each in rows[:-1])
        assert (rows[-1].state, rows[-1].reason) == (RunState.DONE, "")
        # They are paid for until they are told to go again: after ten seconds, and later ever more seldom.
        waits = (10.0, 10.0, 10.0, 10.0, 16.0, 32.0, 60.0)
        assert rows[-1].cost in ({11.0 + sum(waits[: n + 1]) for n in range(len(waits))} if late else {11.0})
    assert refused >= 3
    assert fleet(tmp_path) == {}


def test_cancelling_gives_machines_back_and_says_when_it_cannot(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployer = make(runner=replay(tmp_path), provisioner=cloud(tmp_path, boot=60, shutdown=30))
    deployer.launch(row(), request_for(tmp_path, ("true",)))
    deployer.clock.sleep(20)
    cancelled = deployer.cancel("run-1", "no more time")
    assert cancelled is not None
    assert (cancelled.state, cancelled.cost, cancelled.machines) == (RunState.CANCELLED, 20.0, ())
    assert fleet(tmp_path) == {}

    def refuse(cluster: Cluster) -> Cluster:
        raise TeardownError("the provider says no")

    monkeypatch.setattr("tradewind.deployer.lifecycle.deployer._PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(deployer.provisioner, "patience_seconds", 0.05)
    monkeypatch.setattr(deployer.provisioner, "destroy", refuse)
    deployer.launch(row("run-2"), request_for(tmp_path, ("true",), "run-2"))
    with pytest.raises(TeardownError, match=r"run-2 has not ended: .*the provider says no"):
        deployer.cancel("run-2", "no more time")
    assert set(deployer.active) == {"run-2"}
    assert set(fleet(tmp_path)) == {"run-2"}


def test_adopting_a_run_whose_machines_were_made_before_the_crash(make: Make, tmp_path: Path) -> None:
    request = request_for(tmp_path, ("true",))
    first = make(runner=replay(tmp_path, start=1e9), provisioner=cloud(tmp_path, boot=60))
    booting = first.launch(row(), request)
    for lost in (row(), booting):  # the crash came before, or after, the first row was stored
        second = make(runner=replay(tmp_path, start=1e9 + 30), provisioner=cloud(tmp_path, boot=60))
        assert second.adopt(lost, request).state is RunState.BOOTING
        assert len(fleet(tmp_path)) == 1
    last = drive(second)[-1]
    assert (last.state, last.cost) == (RunState.DONE, 70.0)
    assert fleet(tmp_path) == {}


def test_adopting_an_executing_run_never_makes_new_machines(make: Make, tmp_path: Path) -> None:
    request = request_for(tmp_path, ("true",))
    first = make(runner=replay(tmp_path), provisioner=cloud(tmp_path, boot=60))
    executing = first.launch(row(), request)
    while executing.state is not RunState.EXECUTING:
        first.wait(100)
        [executing] = first.poll()
    second = make(runner=replay(tmp_path), provisioner=cloud(tmp_path, boot=60))
    second.adopt(executing, request)
    last = drive(second)[-1]
    assert (last.state, last.cost) == (RunState.DONE, 70.0)
    assert fleet(tmp_path) == {}


def test_hooks_see_every_stage_in_order(make: Make, tmp_path: Path) -> None:
    from tradewind.deployer.lifecycle.hooks import MOMENTS

    note = ("sh", "-c", "echo $TRADEWIND_MOMENT >> moments")
    hooks = Hooks.from_spec({moment: list(note) for moment in MOMENTS})
    deployer = make(hooks=hooks)
    request = request_for(tmp_path, ("sh", "-c", "echo job >> moments"))
    began = time.monotonic()
    first = deployer.launch(row(), request)
    assert first.state is RunState.BOOTING, "launch does not wait for hooks"
    assert time.monotonic() - began < 30
    assert drive(deployer)[-1].state is RunState.DONE
    seen = (request.workdir / "moments").read_text().split()
    assert [word for word in seen if word != "job"] == list(MOMENTS[:-1])


def test_a_failing_before_hook_is_the_infrastructures_fault(make: Make, tmp_path: Path) -> None:
    hooks = Hooks.from_spec(
        {
            "before_submitting": ["sh", "-c", "echo broken; exit 4"],
            "on_error": ["sh", "-c", 'echo "$TRADEWIND_REASON" > why'],
        }
    )
    deployer = make(runner=process_runner(tmp_path), provisioner=cloud(tmp_path, boot=0), hooks=hooks)
    request = request_for(tmp_path, ("touch", "ran"))
    deployer.launch(row(), request)
    last = drive(deployer)[-1]
    assert (last.state, last.fault) == (RunState.FAILED, Fault.INFRASTRUCTURE)
    assert "before_submitting" in last.reason
    assert "exit code 4" in last.reason
    assert "before_submitting" in (request.workdir / "why").read_text()
    assert (request.folder / "hooks.log").read_text() == "broken\n"
    assert not (request.workdir / "ran").exists()
    assert fleet(tmp_path) == {}


def test_a_hook_that_fails_while_the_job_runs_ends_the_job(make: Make, tmp_path: Path) -> None:
    hooks = Hooks.from_spec({"before_executing": ["false"], "after_booting": ["false"]})
    deployer = make(hooks=hooks)
    deployer.launch(row(), request_for(tmp_path, ("sleep", "60")))
    last = drive(deployer)[-1]
    assert (last.state, last.fault) == (RunState.FAILED, Fault.INFRASTRUCTURE)
    assert last.cost > 0
    assert not processes_of("run-1")


def test_inputs_and_outputs(make: Make, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "data.txt").write_text("in")
    code = "import os; open('model.bin', 'w').write(open(os.environ['TRADEWIND_INPUTS'] + '/data.txt').read() + ' out')"
    request = request_for(tmp_path, python(code), inputs=("data.txt",), outputs=("*.bin",))
    deployer = make()
    deployer.launch(row(), request)
    assert drive(deployer)[-1].state is RunState.DONE
    assert (request.folder / "outputs" / "model.bin").read_text() == "in out"

    gone = request_for(tmp_path, ("true",), "run-2", inputs=("not-there",))
    deployer.launch(row("run-2"), gone)
    last = drive(deployer, "run-2")[-1]
    assert (last.state, last.fault, last.cost) == (RunState.FAILED, Fault.PREREQUISITE, 0.0)


@pytest.mark.parametrize("missing", [{"inputs": ("not-there",)}, {"secrets": {"KEY": "env:NOT_SET_ANYWHERE"}}])
def test_no_machine_is_made_where_an_input_or_a_secret_is_missing(
    make: Make, tmp_path: Path, missing: dict[str, Any]
) -> None:
    deployer = make(runner=process_runner(tmp_path), provisioner=cloud(tmp_path, boot=0))
    deployer.launch(row(), request_for(tmp_path, ("true",), **missing))
    last = drive(deployer)[-1]
    assert (last.state, last.fault, last.cost) == (RunState.FAILED, Fault.PREREQUISITE, 0.0)
    assert not (tmp_path / "data" / "simulated-fleet.json").exists()


def test_hooks_may_bring_the_inputs(make: Make, tmp_path: Path) -> None:
    hooks = Hooks.from_spec({"after_booting": ["touch", "late.txt"]})
    deployer = make(runner=process_runner(tmp_path), provisioner=cloud(tmp_path, boot=0), hooks=hooks)
    deployer.launch(row(), request_for(tmp_path, ("true",), inputs=("late.txt",)))
    assert drive(deployer)[-1].state is RunState.DONE


def test_outputs_of_a_failed_job_do_not_hide_why_it_failed(make: Make, tmp_path: Path) -> None:
    deployer = make()
    for run_id, command, words in (("run-1", "exit 3", "code 3"), ("run-2", "exit 0", "leaves")):
        deployer.launch(row(run_id), request_for(tmp_path, ("sh", "-c", command), run_id, outputs=("../x",)))
        last = drive(deployer, run_id)[-1]
        assert last.state is RunState.FAILED
        assert words in last.reason


def test_cancelling_during_a_hook(make: Make, tmp_path: Path) -> None:
    deployer = make(hooks=Hooks.from_spec({"before_submitting": ["sleep", "60"]}))
    deployer.launch(row(), request_for(tmp_path, ("touch", "ran")))
    cancelled = deployer.cancel("run-1", "stop")
    assert cancelled is not None
    assert (cancelled.state, cancelled.cost) == (RunState.CANCELLED, 0.0)
    assert not (tmp_path / "work" / "ran").exists()
    eventually(lambda: not processes_of("run-1"))


def test_an_interruption_in_the_middle_of_a_step_loses_nothing(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployer = make(provisioner=cloud(tmp_path, boot=0))
    submit = deployer.runner.submit

    def interrupted(request: RunRequest, machines: Sequence[Machine]) -> Handle:
        submit(request, machines)
        monkeypatch.setattr(deployer.runner, "submit", submit)
        raise KeyboardInterrupt

    monkeypatch.setattr(deployer.runner, "submit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        deployer.launch(row(), request_for(tmp_path, ("sleep", "60")))
    cancelled = deployer.cancel("run-1", "interrupted")
    assert cancelled is not None
    assert cancelled.state is RunState.CANCELLED
    assert not processes_of("run-1")
    assert fleet(tmp_path) == {}


def test_preempted_runs_cost_what_is_known_of_them(make: Make, tmp_path: Path) -> None:
    stub = Stub(tmp_path)
    deployer = make(runner=stub)
    deployer.launch(row(), request_for(tmp_path, ("true",)))
    stub.status = RunStatus(RunState.EXECUTING, runtime=7.5)
    deployer.poll()
    stub.status = RunStatus(RunState.PREEMPTED, runtime=0.0, reason="gone", fault=Fault.INFRASTRUCTURE)
    [last] = deployer.poll()
    assert (last.state, last.fault, last.runtime, last.cost) == (
        RunState.PREEMPTED,
        Fault.INFRASTRUCTURE,
        7.5,
        8.0,
    )


def test_room_and_clock_are_the_runners(make: Make, tmp_path: Path) -> None:
    deployer = make(runner=replay(tmp_path))
    assert deployer.clock is deployer.runner.clock
    assert deployer.provisioner.clock is deployer.runner.clock
    assert deployer.room(OFFER, [OFFER] * 1000)
    assert deployer.owner == OWNER


def test_what_is_given_up_is_not_waited_for_and_is_tried_again(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployer = make(runner=replay(tmp_path, "1,100", start=1e9), provisioner=cloud(tmp_path, boot=0, shutdown=50))
    destroy = deployer.provisioner.destroy
    refused: list[str] = []

    def refuse(cluster: Cluster) -> Cluster:
        if cluster.run_id == "run-2" and len(refused) < 2:
            refused.append(cluster.run_id)
            raise TeardownError("the provider says no")
        return destroy(cluster)

    monkeypatch.setattr(deployer.provisioner, "destroy", refuse)
    for name in ("run-1", "run-2", "run-3"):
        deployer.launch(row(name), request_for(tmp_path, ("true",), name))
    before = deployer.clock.now()
    rows = deployer.abort({"run-1": "too dear", "run-2": "too late", "unknown": "whatever"})
    assert deployer.clock.now() == before, "it was waited for"
    assert [(each.run_id, each.state.ended) for each in rows] == [("run-1", False), ("run-2", False)]
    assert "not given back yet: the provider says no" in rows[1].reason
    assert [each.state.ended for each in deployer.abort({"run-2": "another reason"})] == [False]
    assert len(refused) == 1, "whoever asks twice does not ask the provider twice"
    ended = {name: drive(deployer, name)[-1] for name in ("run-1", "run-2", "run-3")}
    assert {name: (each.state, each.reason) for name, each in ended.items()} == {
        "run-1": (RunState.CANCELLED, "too dear"),
        "run-2": (RunState.CANCELLED, "too late"),
        "run-3": (RunState.DONE, ""),
    }
    assert len(refused) == 2
    assert fleet(tmp_path) == {}
    assert deployer.abort({"run-1": "again"}) == [ended["run-1"]]


def test_giving_up_what_has_just_ended_keeps_its_end(make: Make, tmp_path: Path) -> None:
    deployer = make()
    request = request_for(tmp_path, ("true",))
    deployer.launch(row(), request)
    eventually((request.folder / "result.json").exists)
    eventually(lambda: deployer.runner.poll([Handle("run-1", "process", {})])["run-1"].state.ended)
    deployer.abort({"run-1": "too late"})
    ended = drive(deployer)[-1]
    assert (ended.state, ended.reason) == (RunState.DONE, "")


def test_what_is_not_wanted_any_more_is_found_again_only_to_be_ended(make: Make, tmp_path: Path) -> None:
    request = request_for(tmp_path, ("true",))
    first = make(runner=replay(tmp_path, start=1e9), provisioner=cloud(tmp_path, boot=60))
    booting = first.launch(row(), request)
    gone = make(runner=replay(tmp_path, start=1e9 + 30), provisioner=cloud(tmp_path, boot=60))
    ended = gone.adopt(booting, request, "too dear")
    assert (ended.state, ended.reason, ended.cost) == (RunState.CANCELLED, "too dear", 30.0)
    assert fleet(tmp_path) == {}
    once_more = make(runner=replay(tmp_path, start=1e9 + 30), provisioner=cloud(tmp_path, boot=60))
    assert once_more.adopt(row(), request, "too dear").state is RunState.CANCELLED
    assert fleet(tmp_path) == {}
