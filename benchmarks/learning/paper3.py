"""What Table 3 of WorkflowSim4RL is, and what its method comes to: ``python paper3.py [episodes]``.

For each of its 80 cells: W, the run times on the slow machine; X, the reading of shared files at 15 MB/s; the share
(table - X) / W; WorkflowSim's FCFS makespan; and our reading of the method, its serial time and makespan.
Prints one summary, and writes ``work/paper3.csv``.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
from scenarios import DATASETS, graph

from tradewind.plugins import Settings
from tradewind.workflow.bounds import lower_bound
from tradewind.workflow.graph import Workflow
from tradewind.workflow.learning.learners import QLearner
from tradewind.workflow.planner.heft import HeftPlanner
from tradewind.workflow.readers.platform_yaml import paper3
from tradewind.workflow.simulator.workflowsim import WorkflowSim, WorkflowSimVm

HERE = Path(__file__).parent
VCPU = (16, 32, 64, 128)
TABLE = {
    "CyberShake_30": (6559.71, 6517.74, 6278.79, 6166.39),
    "CyberShake_50": (12762.63, 12550.50, 12316.62, 12183.19),
    "CyberShake_100": (25354.15, 25113.91, 24562.39, 24199.95),
    "CyberShake_1000": (47807.61, 44118.30, 40629.30, 38257.61),
    "Epigenomics_24": (15085.01, 9496.22, 9798.79, 7766.11),
    "Epigenomics_46": (33232.34, 31314.53, 22698.94, 17552.66),
    "Epigenomics_100": (320684.21, 254145.95, 197687.41, 201803.33),
    "Epigenomics_997": (3006902.18, 2246804.08, 1707749.73, 1422339.80),
    "Inspiral_30": (6176.08, 4454.18, 4586.26, 3374.25),
    "Inspiral_50": (9720.62, 8972.35, 7286.11, 6228.70),
    "Inspiral_100": (16078.31, 12785.12, 10975.93, 10184.21),
    "Inspiral_1000": (172362.68, 126508.68, 95578.53, 77739.38),
    "Montage_25": (226.70, 174.01, 175.80, 114.62),
    "Montage_50": (477.42, 424.33, 330.19, 250.10),
    "Montage_100": (950.57, 774.25, 647.64, 520.82),
    "Montage_1000": (9938.84, 7834.66, 6347.65, 5264.15),
    "Sipht_30": (3733.51, 5180.81, 5213.3, 1388.70),
    "Sipht_60": (9643.12, 7425.38, 6878.84, 2968.70),
    "Sipht_100": (15379.13, 14702.93, 10397.34, 5846.22),
    "Sipht_1000": (131305.53, 102202.37, 75976.43, 66467.61),
}
"""Table 3: seconds, by graph, for 16, 32, 64 and 128 vCPU."""


def fcfs(flow: Workflow, vcpu: int) -> float:
    """WorkflowSim's makespan with FCFS, its default, by the emulation that gives its measured makespans exactly."""
    vms = [*[WorkflowSimVm(1000.0)] * 8, *[WorkflowSimVm(4156.0, 8)] * ((vcpu - 8) // 8)]
    return WorkflowSim(flow, vms, "FCFS", "SHARED").run().makespan


def main(episodes: int) -> None:
    (HERE / "work").mkdir(exist_ok=True)
    rows = []
    for name, cells in TABLE.items():
        if not (DATASETS / "dax" / f"{name}.xml.gz").is_file():
            print(f"{name} is not in the datasets")
            continue
        flow = graph(name)
        for vcpu, table in zip(VCPU, cells, strict=True):
            platform = paper3(vcpu)
            work, reading = float(flow.runtimes.sum()), float(platform.reading(flow).sum())
            learner = QLearner(flow, platform, QLearner.Settings())
            runs = [learner.step() for _ in range(episodes)]
            heft = HeftPlanner(settings=Settings()).plan(flow, platform).makespan
            rows.append(
                {
                    "graph": name, "vcpu": vcpu, "table": table, "work": work, "reading": reading,
                    "share": (table - reading) / work, "fcfs": fcfs(flow, vcpu),
                    "serial": float(np.mean([run.serial for run in runs[-10:]])),
                    "makespan": float(np.mean([run.makespan for run in runs[-10:]])),
                    "best": min(run.makespan for run in runs), "heft": heft, "bound": lower_bound(flow, platform),
                }
            )  # fmt: skip
        print(name, flush=True)
    with (HERE / "work" / "paper3.csv").open("w", newline="") as file:
        out = csv.DictWriter(file, rows[0])
        out.writeheader()
        out.writerows(rows)
    column = {key: np.array([row[key] for row in rows]) for key in rows[0] if key != "graph"}
    share = column["share"]
    print(
        f"(table - X) / W in [1/4.156, 1]: {((share >= 1 / 4.156 - 1e-9) & (share <= 1 + 1e-9)).sum()} of {len(rows)}"
    )
    faster = column["table"] / column["fcfs"]
    print(f"table / WorkflowSim's FCFS makespan: {means(faster)}; above 1 in {(faster > 1).sum()} of {len(rows)}")
    print(f"table / serial time of our reading: {means(column['table'] / column['serial'])}")
    for name in ("makespan", "best", "heft"):
        print(f"{name} / lower bound: {means(column[name] / column['bound'])}")
    print(f"table / lower bound: {means(column['table'] / column['bound'])}")
    for vcpu in VCPU:
        here = column["vcpu"] == vcpu
        print(f"{vcpu} vCPU: mean share {share[here].mean():.3f}, ours {serial_share(column, here):.3f}")


def serial_share(column: dict[str, np.ndarray], here: np.ndarray) -> float:
    return float(((column["serial"] - column["reading"]) / column["work"])[here].mean())


def means(ratios: np.ndarray) -> str:
    return f"geometric mean {np.exp(np.log(ratios).mean()):.2f}, {ratios.min():.2f} to {ratios.max():.2f}"


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
