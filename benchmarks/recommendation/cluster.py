"""A virtual cluster on this machine: network namespaces as nodes, with a share of the processor and a bandwidth each.

A vCPU is a small share of a core, so that all nodes together never want more than the machine has: times are then those
of a cluster that is as many times slower, and more nodes really compute more. It needs root, Linux control groups
(version 1 or 2), iproute2 and Open MPI.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")
_NET = "10.98.7"
_BRIDGE = "twrec"
_PERIOD_US = 20_000
_TRIES = 3


@dataclass(frozen=True)
class Node:
    """A node: its network namespace, control group and address."""

    name: str
    group: Path
    address: str


class Cluster:
    """Nodes that are there until `close`.

    Args:
        nodes: How many.
        share: Of a core, for a vCPU.
        mbit: Megabits per second of a node's network, in each direction; None for no limit.
    """

    def __init__(self, nodes: int, share: float, mbit: float | None = None) -> None:
        self._share = share
        self._unified = not (_GROUPS / "cpu").is_dir()
        top = _GROUPS if self._unified else _GROUPS / "cpu"
        self.nodes = [Node(f"twrec{i}", top / f"twrec{i}", f"{_NET}.{10 + i}") for i in range(nodes)]
        self._folder = Path(tempfile.mkdtemp(prefix="twrec-"))
        self.close()
        _ip("link", "add", _BRIDGE, "type", "bridge")
        _ip("addr", "add", f"{_NET}.1/24", "dev", _BRIDGE)
        _ip("link", "set", _BRIDGE, "up")
        for i, node in enumerate(self.nodes):
            self._make(i, node, mbit)

    def _make(self, i: int, node: Node, mbit: float | None) -> None:
        ours, theirs = f"twrech{i}", "eth0"
        _ip("netns", "add", node.name)
        _ip("link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", node.name)
        _ip("link", "set", ours, "master", _BRIDGE, "up")
        _ip("-n", node.name, "addr", "add", f"{node.address}/24", "dev", theirs)
        _ip("-n", node.name, "link", "set", theirs, "up")
        _ip("-n", node.name, "link", "set", "lo", "up")
        if mbit is not None:
            limit = ["root", "tbf", "rate", f"{mbit}mbit", "burst", "32kb", "latency", "400ms"]
            _do("tc", "qdisc", "add", "dev", ours, *limit)
            _do("tc", "-n", node.name, "qdisc", "add", "dev", theirs, *limit)
        node.group.mkdir(exist_ok=True)

    def close(self) -> None:
        """Take everything away; what is not there is no error."""
        for i, node in enumerate(self.nodes):
            _ip("netns", "del", node.name, check=False)
            _ip("link", "del", f"twrech{i}", check=False)
            with contextlib.suppress(OSError):
                node.group.rmdir()
        _ip("link", "del", _BRIDGE, check=False)

    def run(
        self, program: Path, words: Sequence[str], *, nodes: int, vcpu: int, given: str = "", head: bool = False
    ) -> str:
        """Run an MPI program with one process on each node, and as many threads as it has vCPUs.

        Args:
            program: The program.
            words: Its arguments.
            nodes: On the first so many nodes.
            vcpu: Of each.
            given: Its standard input.
            head: Whether the first node has one process more, the first of all.

        Returns:
            Its standard output.
        """
        for node in self.nodes[:nodes]:
            self._limit(node, vcpu)
        agent = self._folder / "agent.sh"
        agent.write_text(_AGENT.format(groups=self.nodes[0].group.parent, net=_NET))
        agent.chmod(0o755)
        hosts = self._folder / "hosts"
        lines = [f"{node.address} slots={2 if head and i == 0 else 1}" for i, node in enumerate(self.nodes[:nodes])]
        hosts.write_text("\n".join(lines) + "\n")
        network = f"{_NET}.0/24"
        parameters = {
            "plm_rsh_agent": str(agent),
            "plm_rsh_no_tree_spawn": "1",
            "btl": "tcp,self",
            "btl_tcp_if_include": network,
            "oob_tcp_if_include": network,
            "mpi_yield_when_idle": "1",
            "rmaps_base_oversubscribe": "1",
            "hwloc_base_binding_policy": "none",
        }
        command = ["mpirun", "--allow-run-as-root", "--hostfile", str(hosts), "-np", str(nodes + head)]
        for name, value in parameters.items():
            command += ["--mca", name, value]
        command += ["-x", f"OMP_NUM_THREADS={vcpu}", str(program), *words]
        for _ in range(_TRIES):  # on a busy machine Open MPI gives up on a node that comes late
            done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=3600)
            if done.returncode == 0:
                break
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    def _limit(self, node: Node, vcpu: int) -> None:
        quota = round(vcpu * self._share * _PERIOD_US)
        if self._unified:
            (node.group / "cpu.max").write_text(f"{quota} {_PERIOD_US}")
            (node.group / "cpu.weight").write_text("10000")
            return
        (node.group / "cpu.cfs_quota_us").write_text("-1")
        (node.group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
        (node.group / "cpu.cfs_quota_us").write_text(str(quota))
        (node.group / "cpu.shares").write_text("262144")


_AGENT = """#!/bin/sh
host=$1; shift
name=twrec$((${{host##*.}} - 10))
echo $$ > {groups}/$name/cgroup.procs
exec ip netns exec $name unshare --uts sh -c "hostname $name; $*"
"""


@contextlib.contextmanager
def cluster(nodes: int, share: float, mbit: float | None = None) -> Iterator[Cluster]:
    """A cluster that is taken away at the end, whatever happens."""
    if os.geteuid() != 0:
        sys.exit("the virtual cluster needs root: it makes network namespaces and control groups")
    made = Cluster(nodes, share, mbit)
    try:
        yield made
    finally:
        made.close()


def _ip(*words: str, check: bool = True) -> None:
    _do("ip", *words, check=check)


def _do(*words: str, check: bool = True) -> None:
    subprocess.run(words, check=check, capture_output=not check, timeout=30)
