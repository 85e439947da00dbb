"""Write the graphs and machines of the comparison as plain JSON, which every simulator reads in its own way.

    python benchmarks/simulator/prepare.py --datasets ../shared/datasets --into SCRATCH

Montage_25 and Montage_1000 as they are, and ten copies of Montage_1000 side by side; 8 machines of speed 1 and 15 of
speed 4.156 that run one task at a time, files from a shared file system at 15 MB/s. With each graph goes the schedule
of the policy (queue order, the fastest idle machine), which is the plan that static simulators follow.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from tradewind.workflow.files import open_platform, read_workflow
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.platform import Platform, Vm
from tradewind.workflow.simulator.compiled import CompiledSimulator

COPIES = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", type=Path, required=True)
    parser.add_argument("--into", type=Path, required=True)
    options = parser.parse_args()
    options.into.mkdir(parents=True, exist_ok=True)
    small, large = (
        read_workflow(options.datasets / "dax" / f"{name}.xml.gz", lenient=True)
        for name in ("Montage_25", "Montage_1000")
    )
    for name, flow, copies in (("25", small, 1), ("1000", large, 1), ("10000", large, COPIES)):
        (options.into / f"{name}.json").write_text(json.dumps(document(flow, copies)))


def document(flow: Workflow, copies: int) -> dict[str, object]:
    """Run times, bytes to read at 1000 MB/s, parents, speeds, and the plan."""
    machines = open_platform("paper3:128")
    count = len(flow)
    # As whole nanoseconds, so that every simulator begins with the same numbers and meets the same ties.
    nanoseconds = [round(seconds * 1e9) for seconds in machines.reading(flow)] * copies
    parents = [[p + copy * count for p in each] for copy in range(copies) for each in flow.parents]
    tasks = tuple(
        Task(str(place), "task", runtime, (f"in{place}",))
        for place, runtime in enumerate(flow.runtimes.tolist() * copies)
    )
    sizes = {f"in{place}": size for place, size in enumerate(nanoseconds)}
    several = Workflow(flow.name, tasks, tuple(tuple(each) for each in parents), sizes)
    platform = Platform(tuple(Vm(f"vm{i}", vm.speed) for i, vm in enumerate(machines.vms)), "shared", 1000.0)
    preference = np.argsort(-platform.speeds, kind="stable")
    plan = CompiledSimulator(several, platform).queue(np.zeros(len(several)), preference)
    return {
        "runtimes": several.runtimes.tolist(),
        "sizes": nanoseconds,
        "reading": platform.reading(several).tolist(),
        "parents": parents,
        "speeds": platform.speeds.tolist(),
        "preference": preference.tolist(),
        "vm": plan.vm.tolist(),
        "order": {str(vm): list(order) for vm, order in plan.order_in(several).items()},
        "makespan": plan.makespan,
    }


if __name__ == "__main__":
    main()
