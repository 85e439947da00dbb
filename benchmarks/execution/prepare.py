"""Write the plans that run.py carries out: synthetic workflows on 2 to 8 machines, planned by HEFT; see README.md."""

from __future__ import annotations

import argparse
import random
from pathlib import Path

from tradewind import plugins
from tradewind.workflow.files import Plan, write_plan
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.platform import Platform, Vm

SEED = 20261121


def layered(name: str, layers: int, width: int, shortest: float, longest: float) -> Workflow:
    """Layers of tasks, each of which waits for one to three of the layer before."""
    chance = random.Random(f"{SEED} {name}")
    tasks, parents = [], []
    for layer in range(layers):
        for place in range(width):
            tasks.append(Task(f"t{layer}_{place}", f"layer{layer}", chance.uniform(shortest, longest)))
            before = range((layer - 1) * width, layer * width)
            parents.append(tuple(sorted(chance.sample(before, min(width, chance.randint(1, 3))))) if layer else ())
    return Workflow(name, tuple(tasks), tuple(parents))


def chain(name: str, count: int, seconds: float) -> Workflow:
    """One task after the other, each on what the one before has left: nothing hides what starting one costs."""
    return Workflow(
        name,
        tuple(Task(f"t{n}", "link", seconds) for n in range(count)),
        tuple((n - 1,) if n else () for n in range(count)),
    )


def machines(count: int) -> Platform:
    """Machines of two speeds, in turn."""
    return Platform(
        tuple(Vm(f"vm-{n + 1}", speed=(1.0, 2.0)[n % 2], kind=("slow", "fast")[n % 2]) for n in range(count))
    )


def plain(count: int) -> Platform:
    return Platform(tuple(Vm(f"vm-{n + 1}") for n in range(count)))


PLANS = {
    "short-2": (layered("short", 20, 8, 0.1, 0.3), plain(2)),
    "short-4": (layered("short", 20, 8, 0.1, 0.3), plain(4)),
    "short-8": (layered("short", 20, 8, 0.1, 0.3), plain(8)),
    "mixed-4": (layered("mixed", 12, 8, 0.2, 2.0), machines(4)),
    "mixed-8": (layered("mixed", 12, 8, 0.2, 2.0), machines(8)),
    "chain-2": (chain("chain", 60, 0.1), plain(2)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("/tmp/tradewind-execution"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    heft = plugins.create("planner", "heft", {})
    for name, (flow, platform) in PLANS.items():
        schedule = heft.plan(flow, platform)
        write_plan(given.out / f"{name}.json", Plan(flow, platform, schedule, "heft"))
        print(f"{name}: {len(flow)} tasks on {len(platform.vms)} machines, planned {schedule.makespan:.3f} s")


if __name__ == "__main__":
    main()
