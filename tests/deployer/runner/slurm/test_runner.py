"""The Slurm runner, on a real Slurm of three nodes."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.deployer.continued import assert_copied, assert_goes_on
from tests.deployer.helpers import (
    FOREIGN,
    OFFER,
    OWNER,
    deployer_over,
    drive,
    foreign_program,
    python,
    request_for,
    row,
)
from tests.deployer.runner.slurm.helpers import programs, slurm_runner
from tests.engines import require
from tests.engines.slurm import SlurmCluster, slurm  # noqa: F401  (a fixture)
from tests.engines.ssh import Sshd
from tests.examples.shortened import assert_searched, shortened
from tests.waiting import eventually

from tradewind.deployer.runner.architectures import architecture_here, may_be_emulated
from tradewind.deployer.runner.slurm.runner import SlurmRunner
from tradewind.errors import DeployError, ImageError, OfferRefusedError, UnreachableError
from tradewind.problem import Fault, Handle, RunState
from tradewind.testing.runners import RunnerBench, RunnerConformance, poll_until, processes_of, wait_for_end

pytestmark = [pytest.mark.xdist_group("slurm"), pytest.mark.slow]

Make = Callable[..., SlurmRunner]


@pytest.fixture
def cluster(slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> SlurmCluster:  # noqa: F811
    monkeypatch.setenv("SLURM_CONF", str(slurm.conf))
    return slurm


@pytest.fixture
def make(tmp_path: Path, cluster: SlurmCluster) -> Iterator[Make]:
    made: list[SlurmRunner] = []

    def runner(**settings: object) -> SlurmRunner:
        made.append(slurm_runner(tmp_path, **settings))
        return made[-1]

    yield runner
    for each in made:
        each.close()
    cluster.call("scancel", "--me", check=False)


class SlurmBench(RunnerBench):
    def __init__(self, folder: Path, cluster: SlurmCluster) -> None:
        super().__init__(folder)
        self.cluster = cluster

    def make(self) -> SlurmRunner:
        return slurm_runner(self.folder)

    def left(self, run_id: str) -> Sequence[object]:
        # Its job script leaves the queue a moment after it has written down the run's end.
        eventually(lambda: not self.cluster.jobs(f"--name={run_id}"), pause=0.05)
        return super().left(run_id)


class TestConformance(RunnerConformance):
    @pytest.fixture
    def bench(self, tmp_path: Path, cluster: SlurmCluster) -> Iterator[RunnerBench]:
        bench = SlurmBench(tmp_path, cluster)
        yield bench
        bench.close()


def test_words_variables_and_output_arrive_as_they_are(make: Make, tmp_path: Path) -> None:
    odd = "a 'b' \"c\" $HOME `id` ; \\ \n end *"
    code = "import os, sys; print(sys.argv[1:], os.environ['ODD'], os.getcwd(), os.environ['TRADEWIND_PARAM_X'])"
    request = request_for(tmp_path, (*python(code), odd, "", "-x"), env={"ODD": odd})
    (tmp_path / "mine").write_text("1")
    runner = make(sbatch=["--comment=overridden", "--job-name=other"])
    assert wait_for_end(runner, runner.submit(request, [])).state is RunState.DONE
    work = request.workdir.resolve()
    assert (request.folder / "stdout").read_text() == f"{[odd, '', '-x']} {odd} {work} 1\n"
    assert runner.read_log(Handle("run-1", "slurm", {"owner": OWNER}), "stdout", 1).startswith(b"'a")
    assert runner.read_log(Handle("run-1", "slurm", {"owner": OWNER}), "../secret", 0) == b""


def test_reports_are_read_while_the_run_goes_on(make: Make, tmp_path: Path) -> None:
    runner = make()
    handle = runner.submit(request_for(tmp_path, ("sh", "-c", "echo '{}' > $TRADEWIND_METRICS; sleep 60")), [])
    eventually(lambda: runner.read_report(handle, 0) == b"{}\n")
    assert runner.read_report(handle, 1) == b"}\n"
    runner.cancel(handle)
    assert wait_for_end(runner, handle).state is RunState.CANCELLED


def test_secrets_reach_the_job_and_nothing_else(
    make: Make, tmp_path: Path, cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "s3cr3t-value")
    runner = make(sbatch=["--hold"])
    code = "import os; print(len(os.environ['TOKEN']))"
    handle = runner.submit(request_for(tmp_path, python(code), secrets={"TOKEN": "env:MY_TOKEN"}), [])
    order = tmp_path / "data" / "slurm" / "batches" / "run-1" / "0"
    assert b"s3cr3t-value" in order.read_bytes()
    assert stat.S_IMODE(order.stat().st_mode) == 0o600
    status = runner.poll([handle])["run-1"]
    assert (status.state, status.reason, status.runtime) == (RunState.SUBMITTING, "JobHeldUser", 0.0)
    job = str(handle.data["job"])
    told = cluster.call("scontrol", "show", "job", job) + cluster.call("scontrol", "write", "batch_script", job, "-")
    assert "s3cr3t" not in told + json.dumps(handle.to_json())
    cluster.call("scontrol", "release", job)
    assert wait_for_end(runner, handle).state is RunState.DONE
    assert (tmp_path / "runs" / "run-1" / "stdout").read_text() == "12\n"
    assert not [p for p in tmp_path.rglob("*") if p.is_file() and b"s3cr3t" in p.read_bytes()]
    # What Slurm kept of the job has the environment of sbatch only.
    spools = [p for p in cluster.folder.rglob("*") if p.is_file() and "log" not in p.name]
    assert not [p for p in spools if b"s3cr3t" in _content(p)]


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:  # Slurm makes and removes files of its own meanwhile
        return b""


def test_runs_that_ask_for_the_same_become_one_array(make: Make, tmp_path: Path, cluster: SlurmCluster) -> None:
    runner = make(max_array=4)
    small = [
        request_for(tmp_path, ("sh", "-c", "echo $TRADEWIND_RUN_ID; exit $N"), f"a-{i}", env={"N": str(i)})
        for i in range(6)
    ]
    wide = request_for(tmp_path, ("nproc",), "wide", offer=replace(OFFER, vcpu=2))
    gone = request_for(tmp_path, ("true",), "gone", workdir=tmp_path / "not-there")
    answers = runner.submit_all([(each, ()) for each in [*small, wide, gone]])
    assert isinstance(answers["gone"], DeployError)
    handles = [answer for answer in answers.values() if isinstance(answer, Handle)]
    assert [h.data["batch"] for h in handles] == ["a-0+3"] * 4 + ["a-4+2"] * 2 + ["wide"]
    assert len({h.data["job"] for h in handles}) == 3
    statuses = {h.run_id: wait_for_end(runner, h) for h in handles}
    assert [statuses[f"a-{i}"].exit_code for i in range(6)] == [0, 1, 2, 3, 4, 5]
    assert (small[5].folder / "stdout").read_text() == "a-5\n"
    assert (wide.folder / "stdout").read_text() == "2\n"
    assert {h.run_id for h in runner.find(OWNER)} == set(statuses)
    for handle in handles:
        runner.forget(handle)
    assert runner.find(OWNER) == []
    assert not list((tmp_path / "data" / "slurm" / "batches").iterdir())


def test_elements_of_an_array_are_cancelled_one_by_one(make: Make, tmp_path: Path, cluster: SlurmCluster) -> None:
    runner = make()
    runs = [request_for(tmp_path, ("sleep", "60"), f"run-{i}") for i in range(9)]
    handles = [h for h in runner.submit_all([(r, ()) for r in runs]).values() if isinstance(h, Handle)]
    poll_until(runner, handles[0], lambda status: status.state is RunState.EXECUTING)
    waiting = [h for h in handles if runner.poll(handles)[h.run_id].state is RunState.SUBMITTING]
    assert len(waiting) >= 3  # there are six CPUs
    for each in (handles[0], waiting[-1]):
        runner.cancel(each, "enough")
        status = wait_for_end(runner, each)
        assert (status.state, status.reason) == (RunState.CANCELLED, "enough")
    assert wait_for_end(make(), waiting[-1]).state is RunState.CANCELLED
    eventually(lambda: len(cluster.jobs(f"--name={handles[0].data['batch']}")) == 7)


def test_a_job_on_several_nodes_starts_once_and_finds_them(make: Make, tmp_path: Path) -> None:
    runner = make()
    script = (
        'echo start; echo "$TRADEWIND_NODES"; echo "$TRADEWIND_NODE_IPS"; cat "$TRADEWIND_HOSTFILE"; '
        "srun sh -c 'echo at $SLURMD_NODENAME with $SLURM_CPUS_PER_TASK' | sort"
    )
    request = request_for(tmp_path, ("sh", "-c", script), offer=replace(OFFER, vcpu=2, nodes=2))
    assert wait_for_end(runner, runner.submit(request, [])).state is RunState.DONE
    lines = (request.folder / "stdout").read_text().splitlines()
    assert lines[:4] == ["start", "2", "127.0.0.1", "127.0.0.1"]
    assert lines[4:6] == ["127.0.0.1 slots=2"] * 2
    assert len(set(lines[6:])) == 2
    assert all(line.endswith(" with 2") for line in lines[6:])


def test_mpi_starts_one_task_for_each_cpu(make: Make, tmp_path: Path) -> None:
    runner = make(mpi="none")
    request = request_for(tmp_path, ("sh", "-c", "echo $SLURMD_NODENAME"), offer=replace(OFFER, vcpu=2, nodes=2))
    assert wait_for_end(runner, runner.submit(request, [])).state is RunState.DONE
    nodes = (request.folder / "stdout").read_text().split()
    assert len(nodes) == 4
    assert {nodes.count(node) for node in nodes} == {2}


_REDUCE = """
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
    int rank, size, total = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Reduce(&rank, &total, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("%d of %d\\n", total, size);
    return MPI_Finalize();
}
"""


def test_an_mpi_program_runs_over_the_nodes(make: Make, tmp_path: Path) -> None:
    require("mpirun", "mpicc", package="openmpi-bin libopenmpi-dev")
    (tmp_path / "sum.c").write_text(_REDUCE)
    subprocess.run(["mpicc", "-o", str(tmp_path / "sum"), str(tmp_path / "sum.c")], check=True, timeout=60)
    # Root, and nodes that are one machine: no real cluster needs these.
    env = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_btl": "self,tcp"}
    runner = make(mpi="mpirun")
    request = request_for(tmp_path, (str(tmp_path / "sum"),), offer=replace(OFFER, vcpu=2, nodes=2), env=env)
    status = wait_for_end(runner, runner.submit(request, []))
    assert status.state is RunState.DONE, (request.folder / "stderr").read_text()
    assert (request.folder / "stdout").read_text() == "6 of 4\n"


_BUSY = """
import os, subprocess, sys, time
x = b'x' * (64 << 20)
end = time.process_time() + 0.3
while time.process_time() < end: pass
subprocess.Popen(['setsid', 'sleep', '60'])
time.sleep(0.5)
"""


def test_ways_to_end_and_what_was_used(make: Make, tmp_path: Path) -> None:
    runner, late = make(), make(sbatch=["--begin=now+2"])
    stubborn = ("sh", "-c", "trap '' TERM; while :; do sleep 0.05; done")
    busy = request_for(tmp_path, python(_BUSY), "busy")
    requests = [
        request_for(tmp_path, ("sh", "-c", "kill -SEGV $$"), "signal"),
        request_for(tmp_path, stubborn, "stubborn", wall=0.4),
        busy,
    ]
    waits = late.submit(request_for(tmp_path, ("sleep", "1.2"), "late"), [])
    began = time.monotonic()
    assert late.poll([waits])["late"].reason in ("BeginTime", "None")
    handles = {
        h.run_id: h for h in runner.submit_all([(each, ()) for each in requests]).values() if isinstance(h, Handle)
    }
    status = wait_for_end(runner, handles["signal"])
    assert (status.state, status.exit_code, status.fault) == (RunState.FAILED, -11, Fault.JOB)
    assert "SIGSEGV" in status.reason
    # One that ignores SIGTERM is killed after the grace.
    status = wait_for_end(runner, handles["stubborn"])
    assert (status.state, status.exit_code) == (RunState.TIMED_OUT, -9)
    assert 0.7 <= status.runtime < 3
    # Memory, processor time and logs; what it leaves behind is ended.
    status = wait_for_end(runner, handles["busy"])
    assert status.state is RunState.DONE
    assert not processes_of("busy")
    assert status.usage.cpu_seconds is not None and 0.3 <= status.usage.cpu_seconds < 5
    assert {"read_bytes", "written_bytes", "network_bytes"} <= set(status.usage.profile)
    assert status.usage.peak_memory_bytes is not None and 64 << 20 < status.usage.peak_memory_bytes < 200 << 20
    # Time in the queue is not run time.
    poll_until(late, waits, lambda status: status.runtime > 0.5)
    status = wait_for_end(late, waits)
    assert 1.2 <= status.runtime < 1.9 < time.monotonic() - began


def test_programs_and_folders_that_are_not_there_on_the_node(make: Make, tmp_path: Path) -> None:
    runner = make()
    work = tmp_path / "work"
    work.mkdir()
    (work / "data.txt").write_text("x")
    passing = tmp_path / "passing"
    passing.mkdir()
    inert = runner.submit(request_for(tmp_path, ("./data.txt",), "inert"), [])
    held = make(sbatch=["--hold"]).submit(request_for(tmp_path, ("true",), "moved", workdir=passing), [])
    passing.rmdir()
    runner._programs.ask("scontrol", "release", str(held.data["job"]), timeout=5)
    status = wait_for_end(runner, inert)
    assert (status.state, status.exit_code, status.fault) == (RunState.FAILED, 127, Fault.JOB)
    assert "not executable" in status.reason
    status = wait_for_end(runner, held)
    assert (status.state, status.fault) == (RunState.PREEMPTED, Fault.INFRASTRUCTURE)
    assert "cannot enter the working folder" in status.reason


def test_a_node_that_does_not_see_the_folders_is_named(make: Make, tmp_path: Path) -> None:
    runner = make(sbatch=["--hold"])
    handle = runner.submit(request_for(tmp_path, ("true",)), [])
    spool = tmp_path / "data" / "slurm" / "batches"
    spool.rename(tmp_path / "elsewhere")
    runner._programs.ask("scontrol", "release", str(handle.data["job"]), timeout=5)
    eventually(lambda: ("run-1", 0) not in runner._queue.all().rows)
    (tmp_path / "elsewhere").rename(spool)
    status = wait_for_end(runner, handle)
    assert (status.state, status.fault) == (RunState.PREEMPTED, Fault.INFRASTRUCTURE)
    assert "does not see" in status.reason
    assert "set `folder`" in status.reason


def test_a_folder_on_another_file_system(make: Make, tmp_path: Path) -> None:
    runner = make(folder=tmp_path / "shared")
    script = "echo $TRADEWIND_OUTPUTS; echo 1 > $TRADEWIND_OUTPUTS/x; ln -s /etc/passwd $TRADEWIND_OUTPUTS/link"
    request = request_for(tmp_path, ("sh", "-c", script))
    handle = runner.submit(request, [])
    assert wait_for_end(runner, handle).state is RunState.DONE
    runner.collect(handle, request)
    shared = tmp_path / "shared" / "runs" / "run-1"
    assert (request.folder / "stdout").read_text() == f"{shared}/outputs\n"
    assert (request.folder / "outputs" / "x").read_text() == "1\n"
    assert (request.folder / "outputs" / "link").is_symlink()


def test_a_login_host(make: Make, tmp_path: Path, cluster: SlurmCluster) -> None:
    require("sshd", "ssh", "ssh-keygen", package="openssh-server openssh-client")
    (tmp_path / "sshd").mkdir()
    server = Sshd(tmp_path / "sshd", [f"SetEnv SHLVL=3 SLURM_CONF={cluster.conf}"])
    server.start()
    given = {"host": server.address, "ssh": server.facts, "folder": tmp_path / "shared"}
    try:
        runner = make(**given)
        request = request_for(tmp_path, ("sh", "-c", "echo ran >> count; echo hello $MINE"), env={"MINE": "a 'b'"})
        handle = runner.submit(request, [])
        assert wait_for_end(runner, handle).state is RunState.DONE
        runner.collect(handle, request)
        assert (request.folder / "stdout").read_text() == "hello a 'b'\n"
        other = make(**given)
        assert [each.run_id for each in other.find(OWNER)] == ["run-1"]
        long = runner.submit(request_for(tmp_path, ("sleep", "60"), "run-2"), [])
        server.stop()
        assert other.poll([long])["run-2"].state is RunState.EXECUTING
        with pytest.raises(UnreachableError):
            other.find(OWNER)
        server.start()
        other.cancel(long)
        assert wait_for_end(other, long).state is RunState.CANCELLED
    finally:
        server.stop()


def test_what_waits_for_ever_is_given_up(make: Make, tmp_path: Path, cluster: SlurmCluster) -> None:
    """Slurm's first word on it stands for up to a second, and is another one."""
    runner = make(partition="short", settle=2.0)
    handle = runner.submit(request_for(tmp_path, ("true",), wall=600), [])
    status = wait_for_end(runner, handle)
    assert (status.state, status.fault) == (RunState.FAILED, Fault.JOB), "as where sbatch refuses it"
    assert "time limit is shorter" in status.reason
    eventually(lambda: not cluster.jobs("--name=run-1"))


@pytest.mark.skipif(os.geteuid() != 0, reason="suspending needs an operator of Slurm")
def test_time_in_which_a_job_is_suspended_is_not_run_time(make: Make, tmp_path: Path, cluster: SlurmCluster) -> None:
    runner = make()
    handle = runner.submit(request_for(tmp_path, ("sleep", "2"), wall=3.0), [])
    poll_until(runner, handle, lambda status: status.state is RunState.EXECUTING)
    cluster.call("scontrol", "suspend", str(handle.data["job"]))
    poll_until(runner, handle, lambda status: status.reason == "SUSPENDED")
    time.sleep(4.0)  # longer than the run may take
    cluster.call("scontrol", "resume", str(handle.data["job"]))
    status = wait_for_end(runner, handle)
    assert status.state is RunState.DONE, status.reason
    assert status.runtime < 3.5


def test_what_slurm_sets_for_a_job_stays(
    make: Make, tmp_path: Path, cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller may be in a job itself, with other GPUs."""
    prolog = cluster.folder / "taskprolog"
    prolog.write_text("#!/bin/sh\necho export CUDA_VISIBLE_DEVICES=3\necho export GIVEN=prolog\n")
    prolog.chmod(0o755)
    plain = cluster.conf.read_text()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    monkeypatch.setenv("MINE", "7")
    try:
        cluster.conf.write_text(f"{plain}TaskProlog={prolog}\n")
        cluster.call("scontrol", "reconfigure")
        script = "echo $CUDA_VISIBLE_DEVICES $MINE $GIVEN"
        request = request_for(tmp_path, ("sh", "-c", script), env={"GIVEN": "by the job"})
        runner = make()
        assert wait_for_end(runner, runner.submit(request, [])).state is RunState.DONE
    finally:
        cluster.conf.write_text(plain)
        cluster.call("scontrol", "reconfigure")
    assert (request.folder / "stdout").read_text() == "3 7 by the job\n"


@pytest.mark.parametrize("how", ["cancel", "limit"])
def test_a_container_ends_with_its_run(
    make: Make, tmp_path: Path, cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """An engine whose containers outlive the program that asked for them, as those of Docker and Podman do."""
    engine = tmp_path / "bin" / "podman"
    engine.parent.mkdir()
    pids = tmp_path / "pids"
    engine.write_text(
        "#!/bin/sh\n"
        "case $1 in\n"
        f"run) for word; do case $word in --label=*) label=${{word#--label=}};; esac; done\n"
        f'  echo "$label" > {pids}; setsid sleep 60 & echo $! >> {pids}; trap "" TERM; while :; do sleep 1; done ;;\n'
        f'ps) for word; do [ "$word" = "label=$(head -n 1 {pids})" ] && tail -n 1 {pids}; done ;;\n'
        f'kill|rm) for word; do :; done; echo "$1 $word" >> {tmp_path}/said ;;\n'
        "esac\n"
    )
    engine.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    runner = make(container="podman")
    handle = runner.submit(request_for(tmp_path, ("app",), image="x:1", wall=2.0 if how == "limit" else 60.0), [])
    poll_until(runner, handle, lambda status: status.state is RunState.EXECUTING)
    eventually(lambda: pids.exists() and len(pids.read_text().splitlines()) == 2)
    if how == "cancel":
        runner.cancel(handle)
    assert wait_for_end(runner, handle).state is (RunState.CANCELLED if how == "cancel" else RunState.TIMED_OUT)
    container = pids.read_text().split()[-1]
    assert (tmp_path / "said").read_text().splitlines() == [f"kill {container}", f"rm {container}"]


def test_a_job_that_another_data_folder_has_is_found_and_ended(
    make: Make, tmp_path: Path, cluster: SlurmCluster
) -> None:
    runner = make()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    runs = [request_for(tmp_path, ("sleep", "60"), f"run-{i}") for i in range(2)]
    runner.submit_all([(each, ()) for each in runs])
    other = slurm_runner(tmp_path / "two")
    # One that waits in the queue has no expiry, and one that has not begun needs the folder that goes below.
    eventually(lambda: all((each.folder / "result.json").exists() for each in runs))
    found = {h.run_id: h for h in other.find(OWNER)}
    assert set(found) == {"run-0", "run-1"}
    assert float(found["run-0"].data["expires"]) == pytest.approx(runs[0].expires, abs=1)
    # Even when nothing is left of that folder.
    shutil.rmtree(tmp_path / "data")
    orphans = slurm_runner(tmp_path / "one").find(OWNER)
    assert len(orphans) == 2
    for orphan in orphans:
        other.cancel(orphan)
        assert wait_for_end(other, orphan).state is RunState.CANCELLED
    eventually(lambda: not cluster.jobs())


def test_time_in_the_queue_does_not_bring_a_run_nearer_to_its_expiry(
    make: Make, tmp_path: Path, cluster: SlurmCluster
) -> None:
    """It waits for longer than it was to last, and is kept; when it has begun it has all of its time."""
    runner = make()
    first = runner.submit(replace(request_for(tmp_path, ("sleep", "60"), "first"), offer=replace(OFFER, nodes=3)), [])
    poll_until(runner, first, lambda status: status.state is RunState.EXECUTING)
    request = replace(request_for(tmp_path, ("sleep", "60"), "second"), expires=time.time() + 2)
    second = runner.submit(replace(request, offer=replace(OFFER, nodes=3, vcpu=2)), [])

    def expiry() -> float | None:
        [handle] = [each for each in slurm_runner(tmp_path / "other").find(OWNER) if each.run_id == "second"]
        told = handle.data.get("expires")
        return None if told is None else float(told)

    (tmp_path / "other").mkdir()
    time.sleep(2.5)
    assert runner.poll([second])["second"].state is RunState.SUBMITTING
    assert expiry() is None
    assert "expires" not in next(each for each in runner.find(OWNER) if each.run_id == "second").data
    runner.cancel(first)
    began = time.time()
    poll_until(runner, second, lambda status: status.state is RunState.EXECUTING)
    told = expiry()
    assert told is not None
    assert began <= told <= time.time() + 2.5
    runner.cancel(second)
    for handle in (first, second):
        assert wait_for_end(runner, handle).state is RunState.CANCELLED


@pytest.mark.parametrize(
    ("settings", "offer", "error", "words"),
    [
        ({"partition": "nope"}, {}, OfferRefusedError, "invalid partition"),
        ({"constraint": "fast"}, {}, OfferRefusedError, "constraint"),
        ({}, {"memory_gib": 9000.0}, OfferRefusedError, "no node"),
        ({}, {"gpus": 1}, OfferRefusedError, "gres"),
        ({"sbatch": ["--frobnicate"]}, {}, DeployError, "setting `sbatch`"),
        ({"sbatch": ["--array=0-5000"], "max_array": 1}, {}, DeployError, "max_array"),
    ],
)
def test_what_sbatch_refuses_is_one_clear_error(
    make: Make,
    tmp_path: Path,
    settings: dict[str, object],
    offer: dict[str, Any],
    error: type[DeployError],
    words: str,
) -> None:
    runner = make(**settings)
    request = request_for(tmp_path, ("true",), offer=replace(OFFER, **offer))
    with pytest.raises(error, match=words) as caught:
        runner.submit(request, [])
    assert not caught.value.retryable
    assert runner.find(OWNER) == []


def test_an_image_needs_a_way_to_run_it(make: Make, tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="set `container`"):
        make().submit(request_for(tmp_path, ("true",), image="python:3"), [])


def test_an_image_is_run_with_names_of_variables_only(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    podman = tmp_path / "bin" / "podman"
    podman.write_text('#!/bin/sh\nfor each; do echo "$each"; done\n')
    podman.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("MY_TOKEN", "s3cr3t-value")
    runner = make(container="podman")
    request = request_for(tmp_path, ("prog", "a b"), image="python:3", secrets={"TOKEN": "env:MY_TOKEN"})
    handle = runner.submit(request, [])
    assert wait_for_end(runner, handle).state is RunState.DONE
    words = (request.folder / "stdout").read_text().splitlines()
    assert words[-3:] == ["python:3", "prog", "a b"]
    assert "--env=TOKEN" in words
    assert f"--volume={request.folder}:{request.folder}" in words
    assert not [word for word in words if "s3cr3t" in word]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_full_disk(make: Make, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], check=False).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        runner = make(folder=disk)
        request = request_for(tmp_path, ("sh", "-c", "cat /dev/zero > $TRADEWIND_OUTPUTS/x"))
        status = wait_for_end(runner, runner.submit(request, []))
        assert (status.state, status.exit_code) == (RunState.FAILED, 1)
        with pytest.raises(DeployError, match=r"disk under .* is full") as caught:
            runner.submit(request_for(tmp_path, ("true",), "run-2"), [])
        assert caught.value.retryable
        assert [each.run_id for each in runner.find(OWNER)] == ["run-1"]
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_lost_answer_is_looked_for_and_nothing_is_submitted_twice(
    make: Make, tmp_path: Path, cluster: SlurmCluster
) -> None:
    lossy = programs(
        tmp_path / "bin", sbatch='"$REAL" "$@" > /dev/null; echo "sbatch: error: Socket timed out" >&2; exit 1'
    )
    request = request_for(tmp_path, ("sh", "-c", "echo ran >> count"))
    with pytest.raises(UnreachableError):
        make(bin=str(lossy)).submit(request, [])
    runner = make()
    handle = runner.submit(request, [])
    assert wait_for_end(runner, handle).state is RunState.DONE
    assert (request.workdir / "count").read_text() == "ran\n"
    # The same, with another try within the call, and a job that ended before it was looked for.
    again = request_for(tmp_path, ("sh", "-c", "echo ran >> count2"), "run-2")
    patient = make(bin=str(lossy), patience=5)
    assert wait_for_end(patient, patient.submit(again, [])).state is RunState.DONE
    assert (request.workdir / "count2").read_text() == "ran\n"


def test_of_two_jobs_for_one_run_one_runs_it(make: Make, tmp_path: Path) -> None:
    twice = programs(tmp_path / "bin", sbatch='"$REAL" "$@" > /dev/null; exec "$REAL" "$@"')
    runner = make(bin=str(twice))
    request = request_for(tmp_path, ("sh", "-c", "echo ran >> count; sleep 0.3"))
    assert wait_for_end(runner, runner.submit(request, [])).state is RunState.DONE
    eventually(lambda: not runner._queue.all().rows)
    assert (request.workdir / "count").read_text() == "ran\n"


@pytest.mark.example
@pytest.mark.timeout(300)
def test_the_example_is_a_study_on_slurm(cluster: SlurmCluster, tmp_path: Path) -> None:
    job = shortened("slurm", tmp_path, lambda job: job["job"]["parameters"].update(darts=60000), trials=2)
    result = assert_searched(job, tmp_path / "home", trials=2)
    assert result["best"]["observation"]["metrics"]["pi"] > 3.1
    eventually(lambda: not cluster.jobs())  # Slurm cleans up after the end that the job has told
    assert not list((tmp_path / "home" / "slurm" / "batches").iterdir())


@pytest.mark.skipif(may_be_emulated(FOREIGN), reason="this machine emulates it")
@pytest.mark.parametrize("settings", [{}, {"mpi": "none"}])
def test_a_program_for_another_processor(make: Make, tmp_path: Path, settings: dict[str, str]) -> None:
    deployer = deployer_over(tmp_path, runner=make(**settings))
    request = request_for(tmp_path, ("./prog",), offer=replace(OFFER, arch=architecture_here()))
    foreign_program(request.workdir / "prog")
    deployer.launch(row(), request)
    last = drive(deployer)[-1]
    assert (last.state, last.fault) == (RunState.FAILED, Fault.ARCHITECTURE)
    assert f"./prog is for another processor architecture ({FOREIGN})" in last.reason
    deployer.settle("run-1")


def test_paused_promoted_and_interrupted_trials_go_on_from_their_checkpoints(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    assert_goes_on(tmp_path, {"use": "slurm"})
    assert not cluster.jobs()


def test_members_of_a_population_have_copies_of_the_same_checkpoint(cluster: SlurmCluster, tmp_path: Path) -> None:
    assert_copied(tmp_path, {"use": "slurm"})


def test_a_trial_whose_node_is_lost_goes_on_from_its_checkpoint(cluster: SlurmCluster, tmp_path: Path) -> None:
    def lose(run_id: str) -> None:
        [node] = cluster.call("squeue", "-h", f"--name={run_id}", "-o", "%N").split()
        cluster.call("scontrol", "update", f"nodename={node}", "state=down", "reason=lost")

    try:
        assert_goes_on(tmp_path, {"use": "slurm"}, lose=lose)
    finally:
        cluster.heal()
