"""The engines that real.py and bare.py measure on: this machine, a Slurm of three nodes, a Ray head with two workers.

Each is started as the tests start it (``tests/engines``), and stopped at the end whatever happens. The two CPUs of the
machine are told to the engines as more: the runs sleep.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.engines.ray import ENVIRONMENT, RayCluster  # noqa: E402
from tests.engines.slurm import SlurmCluster, slurm_cluster  # noqa: E402

ENGINES = ("local", "slurm", "ray")


@dataclass
class Ground:
    """An engine that runs.

    Attributes:
        name: Of the engine.
        runner: As a job YAML has it under ``deploy: runner``.
        slurm: The Slurm, where it is one.
        ray: The Ray cluster, where it is one.
    """

    name: str
    runner: dict[str, Any]
    slurm: SlurmCluster | None = None
    ray: RayCluster | None = None

    def part(self, folder: Path) -> Any:
        """A runner of the engine."""
        from tradewind.engine.deployment import make_plugin

        settings = {key: value for key, value in self.runner.items() if key != "use"}
        return make_plugin("runner", self.runner["use"], settings, folder, folder)

    def nodes(self, folder: Path) -> Mapping[str, Mapping[str, float]]:
        """The nodes of an engine that has some, as it says itself."""
        found: Mapping[str, Mapping[str, float]] = self.part(folder).nodes()
        return found


class WideRay(RayCluster):
    """A Ray cluster whose workers have so many CPUs each."""

    def __init__(self, cpus: int, python: str) -> None:
        super().__init__(python)
        self._cpus = cpus

    def start_worker(self, name: str) -> None:
        self._launch(name, f"--address={self.address}", f"--num-cpus={self._cpus}", "--memory=16000000000")


@contextmanager
def ground(engine: str, cpus: int, python: str = "") -> Iterator[Ground]:
    """An engine with so many CPUs in all: on three nodes, on Ray's two workers, or on this machine.

    Args:
        engine: Its name.
        cpus: The CPUs.
        python: The Python whose Ray is started; empty for this one.
    """
    # A time limit from outside stops what was started here, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended from outside"))
    if engine == "local":
        yield Ground(engine, {"use": "process", "share": False})  # its runs sleep
    elif engine == "slurm":
        with slurm_cluster(Path(tempfile.mkdtemp(prefix="tw-slurm-")), cpus=-(-cpus // 3)) as slurm:
            os.environ["SLURM_CONF"] = str(slurm.conf)
            yield Ground(engine, {"use": "slurm", "partition": "main", "interval": 0.1, "grace": 0.3}, slurm=slurm)
    else:
        os.environ.update(ENVIRONMENT)
        ray = WideRay(-(-cpus // 2), python)
        try:
            ray.start()
            found = Ground(engine, {"use": "ray", "address": ray.address, "scratch": str(ray.folder / "runs")}, ray=ray)
            with closing(found.part(ray.folder)) as kept:
                kept.nodes()  # connects; who comes later shares the connection
                yield found
        finally:
            ray.stop()
