"""Controllers, slurmctld and nodes fail at all moments; nothing is lost, nothing is left, nothing runs twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.deployer.helpers import OWNER, deployer_over, drive, request_for, row
from tests.deployer.runner.slurm.helpers import programs, slurm_runner
from tests.engines.slurm import SlurmCluster, slurm  # noqa: F401  (a fixture)
from tests.waiting import eventually

from tradewind.deployer.lifecycle.deployer import Deployer
from tradewind.errors import UnreachableError
from tradewind.problem import Fault, Handle, RunState
from tradewind.testing.runners import poll_until, processes_of, wait_for_end

pytestmark = pytest.mark.xdist_group("slurm")

_SCRIPT = "echo ran >> count-$TRADEWIND_RUN_ID; setsid sleep 60 & sleep 60"

_CONTROLLER = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.deployer.helpers import deployer_over, request_for, row
from tests.deployer.runner.slurm.helpers import slurm_runner
folder = Path({folder!r})
deployer = deployer_over(folder, runner=slurm_runner(folder, bin={bin!r}))
print("ready", flush=True)
for i in range(0, 1000, 3):
    for j in range(i, i + 3):
        run_id = f"run-{{j}}"
        print(run_id, flush=True)          # the row is stored before anything is created
        deployer.launch(row(run_id), request_for(folder, ("sh", "-c", {script!r}), run_id))
    for _ in range({rest}):
        deployer.poll()
        deployer.wait(0.05)
"""


@pytest.fixture
def cluster(slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:  # noqa: F811
    monkeypatch.setenv("SLURM_CONF", str(slurm.conf))
    yield slurm
    slurm.heal()


def controller(folder: Path, *, bin_folder: str = "", rest: int = 4) -> subprocess.Popen[str]:
    """A process that launches runs, three at a time."""
    (folder / "work").mkdir(parents=True, exist_ok=True)
    root = str(Path(__file__).parents[4])
    code = _CONTROLLER.format(root=root, folder=str(folder), bin=bin_folder, script=_SCRIPT, rest=rest)
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "TRADEWIND_TEST_OWNER": OWNER},
        stdout=subprocess.PIPE,
        text=True,
    )


def take_over(folder: Path, cluster: SlurmCluster, known: list[str], adopted: list[str]) -> None:
    """What the next session does after a kill: it adopts the runs that it has rows of, and sweeps the rest away."""
    deployer = deployer_over(folder, runner=slurm_runner(folder))
    for run_id in adopted:
        deployer.adopt(row(run_id), request_for(folder, ("sh", "-c", _SCRIPT), run_id))
    deployer.poll()
    deployer.sweep(set(adopted))
    for run_id in adopted:
        last = deployer.cancel(run_id, "the test is over")
        assert last is not None
        assert last.state in (RunState.CANCELLED, RunState.PREEMPTED), last
        deployer.settle(run_id)
    # A program that the killed process had started may still have been on its way.
    eventually(lambda: _swept(deployer) and not cluster.jobs())
    assert not [run_id for run_id in known if processes_of(run_id)]
    for count in (folder / "work").glob("count-*"):
        assert count.read_text() == "ran\n", f"{count} was started twice"
    deployer.close()


def _swept(deployer: Deployer) -> bool:
    deployer.sweep(set())
    return not deployer.runner.find(OWNER)


def verify_after_kills(folder: Path, cluster: SlurmCluster, kills: int, seed: int) -> None:
    """Kill controllers at random moments, and look after each that nothing was lost, left or run twice."""
    chance = random.Random(seed)
    for turn in range(kills):
        base = folder / str(turn)
        with controller(base, rest=chance.choice((1, 4, 12))) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            time.sleep(chance.uniform(0.0, 0.6))
            process.kill()
            known = process.stdout.read().split()
        take_over(base, cluster, known, [run_id for run_id in known if chance.random() < 0.6])


@pytest.mark.slow
def test_controllers_killed_at_random_moments(tmp_path: Path, cluster: SlurmCluster) -> None:
    verify_after_kills(tmp_path, cluster, int(os.environ.get("TRADEWIND_KILLS", "3")), 1)


_STAGES = {
    "before sbatch has begun": 'touch "$0.now"; sleep 0.4; exec "$REAL" "$@"',
    "before its answer": '"$REAL" "$@" > "$0.said"; touch "$0.now"; sleep 0.4; cat "$0.said"',
    "while it runs": '"$REAL" "$@"; code=$?; touch "$0.now"; exit $code',
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "adopt"),
    [
        ("before sbatch has begun", True),
        ("before its answer", True),
        ("before its answer", False),
        ("while it runs", True),
    ],
)
def test_controllers_killed_around_sbatch(tmp_path: Path, cluster: SlurmCluster, stage: str, adopt: bool) -> None:
    slow = programs(tmp_path / "bin", sbatch=_STAGES[stage])
    now = slow / "sbatch.now"
    with controller(tmp_path, bin_folder=str(slow), rest=1000) as process:
        assert process.stdout is not None
        eventually(now.exists)
        process.kill()
        known = process.stdout.read().split()[1:]
    assert known == ["run-0", "run-1", "run-2"]
    take_over(tmp_path, cluster, known, known[:2] if adopt else [])


def test_a_look_leaves_batches_alone_that_are_being_handed_over(tmp_path: Path, cluster: SlurmCluster) -> None:
    """``tradewind reap --dry-run`` in the same data folder, while one of them has to wait for slurmctld."""
    waits = 'until [ -e "$0.go" ]; do touch "$0.now"; sleep 0.05; done; exec "$REAL" "$@"'
    slow = programs(tmp_path / "bin", sbatch=waits)
    runner = slurm_runner(tmp_path, bin=str(slow), max_array=1)
    requests = [request_for(tmp_path, ("true",), f"run-{i}") for i in range(2)]
    answers: dict[str, object] = {}
    thread = threading.Thread(target=lambda: answers.update(runner.submit_all([(each, ()) for each in requests])))
    thread.start()
    try:
        eventually((slow / "sbatch.now").exists)
        looker = slurm_runner(tmp_path, settle=0.0)
        found = looker.find(None)
        assert {each.run_id for each in found} == {"run-0", "run-1"}
        for _ in range(2):
            assert {status.state for status in looker.poll(found).values()} == {RunState.SUBMITTING}
    finally:
        (slow / "sbatch.go").touch()
        thread.join()
    for handle in answers.values():
        assert isinstance(handle, Handle)
        assert wait_for_end(runner, handle).state is RunState.DONE


@pytest.mark.slow
def test_runs_go_on_without_slurmctld_and_their_ends_are_seen(tmp_path: Path, cluster: SlurmCluster) -> None:
    runner = slurm_runner(tmp_path, timeout=1.0)
    script = "echo ran >> count; until [ -e go ]; do sleep 0.05; done; exit 3"
    ends = runner.submit(request_for(tmp_path, ("sh", "-c", script), "ends"), [])
    goes_on = runner.submit(request_for(tmp_path, ("sleep", "60"), "goes-on"), [])
    requests = [request_for(tmp_path, ("sh", "-c", f"echo ran >> count-{i}; sleep 1"), f"run-{i}") for i in range(8)]
    many = [h for h in runner.submit_all([(each, ()) for each in requests]).values() if isinstance(h, Handle)]
    for handle in (ends, goes_on):
        poll_until(runner, handle, lambda status: status.state is RunState.EXECUTING)
    cluster.save()
    cluster.kill_controller()
    began = time.monotonic()
    assert runner.poll([goes_on])["goes-on"].state is RunState.EXECUTING
    assert time.monotonic() - began < 5
    (tmp_path / "work" / "go").touch()
    status = wait_for_end(runner, ends)
    assert (status.state, status.exit_code) == (RunState.FAILED, 3)
    with pytest.raises(UnreachableError):
        runner.find(OWNER)
    # It is ended by a file that its job looks at.
    runner.cancel(goes_on)
    assert wait_for_end(runner, goes_on).state is RunState.CANCELLED
    assert not processes_of("goes-on")
    late = request_for(tmp_path, ("sh", "-c", "echo ran >> late"), "late")
    with pytest.raises(UnreachableError):
        runner.submit(late, [])
    cluster.start_controller()
    # What was submitted meanwhile is submitted when Slurm is there again, once.
    handle = slurm_runner(tmp_path).submit(late, [])
    for each in (handle, *many):
        assert wait_for_end(slurm_runner(tmp_path), each).state is RunState.DONE
    assert wait_for_end(slurm_runner(tmp_path), ends).exit_code == 3
    assert {p.read_text() for p in (tmp_path / "work").glob("*") if p.name != "go"} == {"ran\n"}


def test_jobs_that_slurmctld_forgot_are_repeated_and_end(tmp_path: Path, cluster: SlurmCluster) -> None:
    runner = slurm_runner(tmp_path, settle=0.5)
    request = request_for(tmp_path, ("sh", "-c", "echo ran >> count; sleep 60"))
    handle = runner.submit(request, [])
    eventually((request.workdir / "count").exists)
    cluster.kill_controller()
    back = threading.Timer(0.5, cluster.start_controller)
    back.start()
    # It waits for slurmctld, and Slurm may give it the number of the first.
    patient = slurm_runner(tmp_path, patience=30)
    second = patient.submit(request_for(tmp_path, ("sleep", "60"), "run-2"), [])
    back.join()
    status = wait_for_end(runner, handle)
    assert (status.state, status.fault) == (RunState.PREEMPTED, Fault.INFRASTRUCTURE)
    eventually(lambda: not processes_of("run-1"))
    assert (request.workdir / "count").read_text() == "ran\n"
    runner.cancel(handle)
    patient.cancel(second)
    assert wait_for_end(patient, second).state in (RunState.CANCELLED, RunState.PREEMPTED)


def test_a_node_that_goes_down_is_the_infrastructures_fault(tmp_path: Path, cluster: SlurmCluster) -> None:
    deployer = deployer_over(tmp_path, runner=slurm_runner(tmp_path, sbatch=[f"--nodelist={cluster.nodes[1]}"]))
    deployer.launch(row(), request_for(tmp_path, ("sleep", "60")))
    eventually(lambda: [deployer.poll(), processes_of("run-1")][-1])
    cluster.call("scontrol", "update", f"nodename={cluster.nodes[1]}", "state=down", "reason=test")
    [*_, last] = drive(deployer)
    assert (last.state, last.fault, last.reason) == (RunState.PREEMPTED, Fault.INFRASTRUCTURE, "a node failed")
    deployer.settle("run-1")
    # As the engine does it: the same again under another id.
    deployer = deployer_over(tmp_path, runner=slurm_runner(tmp_path, sbatch=[f"--exclude={cluster.nodes[1]}"]))
    deployer.launch(row("run-2"), request_for(tmp_path, ("true",), "run-2"))
    [*_, last] = drive(deployer, "run-2")
    assert last.state is RunState.DONE, last.reason


def test_a_job_that_somebody_else_cancels_is_repeated(tmp_path: Path, cluster: SlurmCluster) -> None:
    runner = slurm_runner(tmp_path)
    running = runner.submit(request_for(tmp_path, ("sleep", "60")), [])
    poll_until(runner, running, lambda status: status.state is RunState.EXECUTING and status.runtime > 0)
    waits = slurm_runner(tmp_path, sbatch=["--hold"]).submit(request_for(tmp_path, ("true",), "run-2"), [])
    cluster.call("scancel", str(running.data["job"]), str(waits.data["job"]))
    for handle in (running, waits):
        status = wait_for_end(runner, handle)
        assert (status.state, status.fault) == (RunState.PREEMPTED, Fault.INFRASTRUCTURE)
        assert "somebody else cancelled" in status.reason
    assert not processes_of("run-1")


def test_a_killed_job_script_is_the_infrastructures_fault(tmp_path: Path, cluster: SlurmCluster) -> None:
    runner = slurm_runner(tmp_path)
    handle = runner.submit(request_for(tmp_path, ("sleep", "60")), [])
    poll_until(runner, handle, lambda status: status.state is RunState.EXECUTING and bool(processes_of("run-1")))
    os.kill(processes_of("run-1")[0].ppid(), signal.SIGKILL)
    status = wait_for_end(runner, handle)
    assert (status.state, status.fault) == (RunState.PREEMPTED, Fault.INFRASTRUCTURE)
    eventually(lambda: not processes_of("run-1"))
