"""A Slurm of three nodes on this machine, in a folder of its own and on ports of its own.

It does not touch ``/etc/slurm`` or another Slurm: every program is told its configuration by ``SLURM_CONF``. Without a
munge daemon: ``auth/none`` believes anyone, which is all right for a few seconds on loopback. The nodes hold jobs to
their CPUs and their memory by cgroups, as real clusters do.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from tests.engines import program, require
from tests.waiting import eventually

NODES = 3

_CONF = """\
ClusterName={cluster}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
MpiDefault=none
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdSpoolDir={folder}/spool-%n
StateSaveLocation={folder}/state
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
JobCompType=jobcomp/filetxt
JobCompLoc={folder}/jobcomp.log
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
MessageTimeout=5
TCPTimeout=2
SlurmdTimeout=10
KillWait=2
MinJobAge={min_job_age}
MaxArraySize=1001
MaxJobCount={max_jobs}
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=short Nodes={last} MaxTime=2 State=UP
PartitionName=closed Nodes={last} State=UP AllowGroups=nobody-is-in-it
"""

_CGROUP = "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\nConstrainCores=yes\nConstrainRAMSpace=yes\n"


class SlurmCluster:
    """A running Slurm.

    Args:
        folder: Where all its files go.
        cpus: CPUs of each node; more than the machine has is allowed.
        min_job_age: Seconds that the controller remembers an ended job.
        max_jobs: Jobs that it may have at a time, those that it remembers included.

    Attributes:
        nodes: The names of its nodes. Nodes of a name share their jobs' control groups, and Slurm kills all that is in
            one: no other Slurm on this machine has such nodes.
    """

    def __init__(self, folder: Path, *, cpus: int = 2, min_job_age: int = 300, max_jobs: int = 5000) -> None:
        self.folder = folder
        self.conf = folder / "slurm.conf"
        host = socket.gethostname().partition(".")[0]
        ports = _free_ports(1 + NODES)
        self.nodes = tuple(f"{letter}{ports[0]}" for letter in "abc"[:NODES])
        nodes = "\n".join(
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} RealMemory=8000"
            for name, port in zip(self.nodes, ports[1:], strict=True)
        )
        about = {"cluster": f"tw{os.getpid()}", "host": host, "port": ports[0], "last": self.nodes[-1]}
        text = _CONF.format(**about, folder=folder, nodes=nodes, min_job_age=min_job_age, max_jobs=max_jobs)
        for name in ("state", *(f"spool-{node}" for node in self.nodes)):
            (folder / name).mkdir(parents=True, exist_ok=True)
        self.conf.write_text(text)
        (folder / "cgroup.conf").write_text(_CGROUP)
        self.env = {**os.environ, "SLURM_CONF": str(self.conf)}

    def call(self, name: str, *words: str, check: bool = True) -> str:
        """What one of its programs prints."""
        command = [str(program(name)), *words]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=30, check=False)
        assert not check or done.returncode == 0, f"{name} {' '.join(words)}: {done.stderr}"
        return done.stdout

    def start_controller(self) -> None:
        """Start slurmctld and wait until it answers."""
        self._start("slurmctld")
        eventually(self.answers, 20, "slurmctld", self.folder / "slurmctld.log")

    def start_node(self, node: str) -> None:
        """Start the daemon of a node."""
        self._start("slurmd", "-N", node)

    def start(self) -> None:
        """Start everything and wait until all nodes are idle."""
        self.start_controller()
        for node in self.nodes:
            self.start_node(node)
        eventually(self.idle, 30, "three idle nodes", self.folder / "slurmctld.log")

    def _start(self, name: str, *words: str) -> None:
        command = [str(program(name)), *words]
        # The daemons would keep the pipes of a test runner open.
        subprocess.run(
            command, env=self.env, check=True, timeout=30, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def answers(self) -> bool:
        """True when slurmctld answers."""
        return "is UP" in self.call("scontrol", "ping", check=False)

    def idle(self) -> bool:
        """True when all nodes wait for work."""
        return self.call("sinfo", "-h", "-p", "main", "-o", "%D %t", check=False).split() == [str(NODES), "idle"]

    def jobs(self, *words: str) -> list[str]:
        """The ids of the jobs that have not ended, array elements one by one."""
        return self.call("squeue", "-h", "-r", "-o", "%i", *words).split()

    def save(self) -> None:
        """Wait until slurmctld has written down the jobs that it has; one that is killed before forgets them."""
        began = time.time()
        state = self.folder / "state" / "job_state"
        eventually(lambda: state.exists() and state.stat().st_mtime > began, 15, "the saved state of slurmctld")

    def kill_controller(self) -> None:
        """Kill slurmctld with SIGKILL."""
        self._kill(self.folder / "slurmctld.pid")

    def kill_node(self, node: str) -> None:
        """Kill the daemon of a node with SIGKILL; its jobs go on."""
        self._kill(self.folder / f"slurmd-{node}.pid")

    def heal(self) -> None:
        """Start what a test has killed, and bring all nodes back."""
        if not self.answers():
            self.start_controller()
        for node in self.nodes:
            if _process(self.folder / f"slurmd-{node}.pid") is None:
                self.start_node(node)
        eventually(self._idle_again, 30, "three idle nodes", self.folder / "slurmctld.log")

    def _idle_again(self) -> bool:
        if self.jobs():
            self.call("scancel", "--me", check=False)
        if not self.idle():
            self.call("scontrol", "update", f"nodename={','.join(self.nodes)}", "state=resume", check=False)
        return self.idle()

    def _kill(self, pidfile: Path) -> None:
        process = _process(pidfile)
        if process is not None:
            process.send_signal(signal.SIGKILL)
            eventually(lambda: _process(pidfile) is None, 10, "the end of a daemon")

    def stop(self) -> None:
        """End every job, every daemon and every step that is left."""
        if self.answers():
            self.call("scancel", "--me", check=False)
            end = time.monotonic() + 5
            while self.jobs() and time.monotonic() < end:
                time.sleep(0.05)
        for pidfile in (self.folder / "slurmctld.pid", *(self.folder / f"slurmd-{node}.pid" for node in self.nodes)):
            self._kill(pidfile)
        for process in psutil.process_iter():
            # What a killed daemon left: its steps know its configuration.
            with suppress(psutil.Error):
                if process.name().startswith("slurm") and process.environ().get("SLURM_CONF") == str(self.conf):
                    process.kill()
        for group in (path for node in self.nodes for path in Path("/sys/fs/cgroup").glob(f"*/slurm_{node}")):
            for place in [*sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True), group]:
                with suppress(OSError):
                    place.rmdir()


def _process(pidfile: Path) -> psutil.Process | None:
    try:
        process = psutil.Process(int(pidfile.read_text()))
    except (OSError, ValueError, psutil.NoSuchProcess):
        return None
    return None if process.status() == psutil.STATUS_ZOMBIE else process


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, and that the kernel gives to no connection meanwhile."""
    found: list[int] = []
    # Below the kernel's own range; sessions beside this one begin elsewhere in it.
    for port in random.sample(range(20000, 32000), 2000):
        with socket.socket() as sock, suppress(OSError):
            sock.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            break
    return found


@contextmanager
def slurm_cluster(
    folder: Path, *, cpus: int = 2, min_job_age: int = 300, max_jobs: int = 5000
) -> Iterator[SlurmCluster]:
    """A Slurm that is stopped at the end, whatever happens."""
    made = SlurmCluster(folder, cpus=cpus, min_job_age=min_job_age, max_jobs=max_jobs)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """A Slurm of three nodes with two CPUs each."""
    require("slurmctld", "slurmd", "sbatch", "squeue", package="slurm-wlm")
    with slurm_cluster(tmp_path_factory.mktemp("slurm")) as made:
        yield made
