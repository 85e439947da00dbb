"""The cases of the benchmark: graphs, machines, and what is not as planned."""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path

from tradewind.plugins import Settings
from tradewind.workflow.graph import Workflow
from tradewind.workflow.learning.arrays import EpisodeArrays
from tradewind.workflow.planner.heft import HeftPlanner
from tradewind.workflow.platform import Platform, Vm
from tradewind.workflow.readers.dax import read_dax
from tradewind.workflow.schedule import Schedule
from tradewind.workflow.simulator.world import World

DATASETS = Path(__file__).parents[3] / "shared" / "datasets"

TRAINING = ("Montage_50", "CyberShake_50", "Epigenomics_46", "Inspiral_50", "Sipht_60")
TESTING = (
    "Montage_100",
    "CyberShake_100",
    "Epigenomics_100",
    "Inspiral_100",
    "Sipht_100",
    "Montage_1000",
)

TRAINING_SEEDS = 0
TEST_SEEDS = 1_000_000_000
"""Where the seeds of each begin; there are fewer than that of either."""


def _paper(fast: int) -> Platform:
    slow = [Vm(f"slow-{i + 1}", 1.0, 1, 0.067, "m3.medium") for i in range(8)]
    return Platform((*slow, *(Vm(f"fast-{i + 1}", 4.156, 1, 0.532, "m3.2xlarge") for i in range(fast))), "shared")


PLATFORMS = {
    "16 vCPU": _paper(1),
    "64 vCPU": _paper(7),
    "128 vCPU": _paper(15),
    "12 alike": Platform(tuple(Vm(f"vm-{i + 1}") for i in range(12)), "shared"),
    "cores": Platform(
        (*(Vm(f"a-{i}", 1.0, 2) for i in range(4)), *(Vm(f"b-{i}", 1.6, 4) for i in range(3)), Vm("c", 2.5, 8)),
        "shared",
    ),
}
"""The paper's sets with one activation on a machine at a time, machines that are alike, and machines of many cores."""

SCENARIOS: dict[str, dict[str, float]] = {
    "known": {},
    "noise": {"noise": 0.4},
    "unknown": {"unknown": 0.5, "noise": 0.1},
    "drift": {"drift": 0.1, "noise": 0.1},
    "migration": {"migration": 0.1, "noise": 0.1},
    "failures": {"failure": 0.1, "noise": 0.1},
    "all": {"noise": 0.3, "unknown": 0.4, "drift": 0.1, "migration": 0.05, "failure": 0.05},
}
"""What deviates; a period is a twentieth of the makespan that HEFT plans, and a migration takes one."""


@cache
def graph(name: str) -> Workflow:
    """A Pegasus graph of the datasets."""
    file = DATASETS / "dax" / f"{name}.xml.gz"
    return read_dax(gzip.decompress(file.read_bytes()), name, lenient=True)


class Case:
    """A graph on machines.

    Args:
        name: Of the graph.
        machines: Of the machines.
    """

    def __init__(self, name: str, machines: str) -> None:
        self.flow, self.platform = graph(name), PLATFORMS[machines]
        self.arrays = EpisodeArrays(self.flow, self.platform)
        self.heft: Schedule = HeftPlanner(settings=Settings()).plan(self.flow, self.platform)

    def deviations(self, scenario: str) -> dict[str, float]:
        """What deviates, in the words of `World`."""
        period = self.heft.makespan / 20
        return {**SCENARIOS[scenario], "period": period, "pause": period}

    def world(self, scenario: str, seed: int) -> World:
        """One world of a scenario."""
        given = self.deviations(scenario)
        return World(
            noise=given.get("noise", 0.0), unknown=given.get("unknown", 0.0), drift=given.get("drift", 0.0),
            period=given["period"], migration=given.get("migration", 0.0), pause=given["pause"],
            failure=given.get("failure", 0.0), seed=seed, last_ends_well=True,
        )  # fmt: skip
