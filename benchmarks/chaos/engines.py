"""The engines that controllers are killed over: how each starts, what a study on it says, and what is left of one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_SOLD = ("pool", "opennebula")
_PRICES = "API Name,Provider,CPU,Memory,Category,Price\n" + "".join(
    f"small,{name},1,0.25,general,3.6\n" for name in _SOLD
)


@dataclass(frozen=True)
class Engine:
    """An engine that runs.

    Attributes:
        runner: The runner's settings in the job file.
        left: What is there of any run or machine now, by the engine's own word.
        provisioner: The provisioner's settings in the job file.
        job: Further keys of ``job`` in the job file.
        provider: Who sells the offers.
        journal: How the job reaches the folder that it notes its runs in; empty for an absolute path.
        longest: Seconds that a controller lives at most, before it is killed at any moment.
        python: Python on its machines; empty for this one's.
        imports: Packages that its parts import late.
        environment: What a controller needs in its environment.
    """

    runner: Mapping[str, Any]
    left: Callable[[], list[str]]
    provisioner: Mapping[str, Any] = field(default_factory=lambda: {"use": "none"})
    job: Mapping[str, Any] = field(default_factory=dict)
    instance: Mapping[str, Any] = field(default_factory=lambda: {"provider": "pool"})
    journal: str = ""
    longest: float = 2.5
    python: str = ""
    imports: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def catalogues(self) -> Mapping[str, Any]:
        """The catalogues of the job file."""
        return {"csv": {"path": "offers.csv"}} if self.instance["provider"] in _SOLD else {}


def write_prices(folder: Path) -> None:
    """Write the price list that the job file names: a tenth of a cent for each second."""
    (folder / "offers.csv").write_text(_PRICES)


_LOCAL = {"provider": "local", "vcpu": 1}


@contextmanager
def process(folder: Path) -> Iterator[Engine]:
    """Processes of this machine."""
    yield Engine({"use": "process"}, list, instance=_LOCAL, longest=2.0)


@contextmanager
def docker(folder: Path) -> Iterator[Engine]:
    """A Docker daemon."""
    from tests.engines.docker import IMAGE, PYTHON, docker_engine

    with docker_engine() as engine:
        runner = {"use": "docker", "host": engine.host, "network": "none", "grace": 0}

        def left() -> list[str]:
            return engine.docker("ps", "-aq", "--filter", "label=tradewind.owner").stdout.decode().split()

        yield Engine(runner, left, job={"image": IMAGE}, journal=".", python=PYTHON, longest=3.0)


@contextmanager
def ssh(folder: Path) -> Iterator[Engine]:
    """Three hosts in network namespaces, each with an SSH server."""
    from tests.engines.hosts import Hosts

    hosts = Hosts(folder / "hosts")
    try:
        hosts.start()
        provisioner = {"use": "none", "hosts": list(hosts.addresses.values()), "ssh": {**hosts.facts}}
        runner = {"use": "ssh", "folder": "/mnt/far", "ssh": {**hosts.facts}}

        def left() -> list[str]:
            return [name for name in hosts.names if not hosts.is_empty(name, "/mnt/far/runs")]

        yield Engine(runner, left, provisioner, longest=4.0)
    finally:
        hosts.stop()


@contextmanager
def slurm(folder: Path) -> Iterator[Engine]:
    """Slurm with three nodes."""
    from tests.engines.slurm import slurm_cluster

    with slurm_cluster(folder / "slurm") as cluster:
        quick = {"interval": 0.1, "settle": 2.0, "grace": 0.3, "margin": 0.0, "sbatch": ["--mem=300M"]}
        environment = {"SLURM_CONF": str(cluster.conf)}
        yield Engine({"use": "slurm", **quick}, cluster.jobs, environment=environment, longest=3.0)


@contextmanager
def htcondor(folder: Path) -> Iterator[Engine]:
    """Programs that behave like HTCondor's."""
    from tests.engines.condor import running

    with contextmanager(running)(folder) as condor:

        def left() -> list[str]:
            return [*(str(job["ClusterId"]) for job in condor.jobs()), *map(str, condor.left())]

        runner = {"use": "htcondor", "bin": str(condor.bin), "interval": 0.1, "grace": 0.2, "files": "shared"}
        yield Engine(runner, left, longest=3.0)


@contextmanager
def opennebula(folder: Path) -> Iterator[Engine]:
    """A server that behaves like OpenNebula's, whose machines are this one, by SSH."""
    from tests.engines.oned import USERS, running
    from tests.engines.ssh import Sshd

    with ExitStack() as stack:
        sshd = Sshd(folder / "sshd")
        stack.callback(sshd.stop)
        sshd.start()
        oned = stack.enter_context(contextmanager(running)(folder))
        slow = {"template.instantiate": 0.03, "vm.action": 0.02}
        oned.config(slow=slow, prolog=0.02, boot=0.02, epilog=0.02)
        provisioner: dict[str, Any] = {"use": "opennebula", "template": "node", "endpoint": oned.endpoint}
        provisioner |= {"auth": "env:CHAOS_ONE", "ready": "ssh", "interval": 0.05, "timeout": 5}
        provisioner |= {"port": sshd.port, "identity": str(sshd.keys.client)}

        def left() -> list[str]:
            return [str(vm["name"]) for vm in oned.alive()]

        environment = {"CHAOS_ONE": f"ada:{USERS['ada'][0]}"}
        runner = {"use": "ssh", "folder": str(folder / "far")}
        yield Engine(runner, left, provisioner, instance={"provider": "opennebula"}, environment=environment)


@contextmanager
def kubernetes(folder: Path) -> Iterator[Engine]:
    """A server that behaves like Kubernetes' API, whose pods are processes."""
    from tests.engines.kube_api import KubeApi

    cluster = KubeApi()
    try:
        runner = {"use": "kubernetes", "kubeconfig": cluster.kubeconfig(folder / "kubeconfig")}

        def left() -> list[str]:
            return [name for kind in ("jobs", "pods", "secrets", "services") for name in cluster.objects[kind]]

        job, late = {"image": "local/py:1"}, ("kubernetes.client", "kubernetes.config")
        yield Engine({**runner, "helper_image": "local/busybox:1"}, left, job=job, imports=late, longest=3.5)
    finally:
        cluster.close()


@contextmanager
def ray(folder: Path) -> Iterator[Engine]:
    """A Ray cluster of a head and two workers."""
    from tests.engines.ray import RayCluster

    cluster = RayCluster()
    try:
        cluster.start()
        scratch = folder / "scratch"
        runner = {"use": "ray", "address": cluster.address, "scratch": str(scratch)}

        def left() -> list[str]:
            kept = ("tradewind-ray-bundles", "tradewind-ray-code-")  # files that later runs find again
            return [each.name for each in scratch.glob("*") if not each.name.startswith(kept)]

        yield Engine(runner, left, environment={"RAY_AUTH_MODE": "disabled"}, longest=8.0)
    finally:
        cluster.stop()


@contextmanager
def terraform(folder: Path) -> Iterator[Engine]:
    """Terraform with Amazon's provider, on moto; the jobs run on the host that plays the machines."""
    from tests.engines import moto as engine
    from tests.engines.ssh import Sshd

    with ExitStack() as stack:
        server = engine.Moto(folder)
        stack.callback(server.close)
        server.start()
        sshd = Sshd(folder / "sshd")
        stack.callback(sshd.stop)
        sshd.start()
        user = {"host": "127.0.0.1", "user": "root", **sshd.facts}
        provisioner: dict[str, Any] = {
            "use": "terraform",
            "endpoint": server.endpoint,
            "image": engine.DEBIAN,
            "ready": "ssh",
        }
        provisioner |= {"caller_cidr": "127.0.0.1/32", "regions": ["us-east-1"], "listing_seconds": 0.5, "ssh": user}
        instance = {"provider": "aws", "region": "us-east-1", "types": ["t3.small"]}
        runner = {"use": "ssh", "folder": str(folder / "far")}
        environment = engine.environment(folder)
        os.environ.update(environment)  # asking moto needs them too

        def left() -> list[str]:
            return server.leftovers("us-east-1")

        yield Engine(runner, left, provisioner, instance=instance, environment=environment, longest=40.0)


ENGINES: Mapping[str, Callable[[Path], Any]] = {
    each.__name__: each for each in (process, docker, ssh, slurm, htcondor, opennebula, kubernetes, ray, terraform)
}
"""All of them, by name."""


@contextmanager
def started(name: str) -> Iterator[Engine]:
    """Start an engine in a folder of its own, and stop it at the end."""
    os.environ.setdefault("TRADEWIND_TEST_OWNER", f"chaos-{os.getpid()}")
    with tempfile.TemporaryDirectory(prefix="tw-ch-") as place, ENGINES[name](Path(place)) as engine:
        yield engine
