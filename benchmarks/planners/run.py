"""Every planner on every cell, the proven optima of small cells, and HEFT's speed beside SAGA's.

    python benchmarks/planners/run.py quality [--seconds 2]
    python benchmarks/planners/run.py online
    python benchmarks/planners/run.py optima [--limit 20]
    python benchmarks/planners/run.py money [--seconds 2]
    python benchmarks/planners/run.py speed [--saga VENV/bin/python]

Each writes its part of work/results.jsonl anew; processor time is that of the planning process.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from prepare import machines, read

from tradewind import plugins
from tradewind.errors import NothingFeasibleError
from tradewind.problem import Billing
from tradewind.workflow.bounds import lower_bound
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.platform import Platform, Vm
from tradewind.workflow.schedule import check, figures
from tradewind.workflow.simulator.reference import simulate

HERE = Path(__file__).parent
PLANNERS = (
    "random", "roundrobin", "fcfs", "minmin", "sufferage", "mct", "maxmin", "cpop", "peft", "heft", "search",
)  # fmt: skip
OWN = ("FCFS", "ROUNDROBIN", "MINMIN", "MCT", "MAXMIN", "HEFT", "DHEFT")


def timed(name: str, given: dict[str, Any], flow: Workflow, platform: Platform) -> tuple[Any, Any, float]:
    planner = plugins.create("planner", name, given, seed=0)
    begin = time.process_time()
    plan = planner.plan(flow, platform)
    took = time.process_time() - begin
    check(flow, platform, plan)
    return planner, plan, took


def cells() -> Iterator[tuple[dict[str, Any], Workflow, Platform]]:
    for cell in json.loads((HERE / "work" / "cells.json").read_text()):
        yield cell, read(Path(cell["file"])), machines(cell["vcpu"])


def quality(seconds: float) -> Iterator[dict[str, Any]]:
    for cell, flow, platform in cells():
        begin = time.process_time()
        bound = lower_bound(flow, platform)
        row = {"kind": "quality", "graph": cell["graph"], "vcpu": cell["vcpu"], "tasks": len(flow)}
        yield {**row, "planner": "bound", "makespan": bound, "seconds": time.process_time() - begin}
        asked = [(name, name, {"seconds": seconds} if name == "search" else {}) for name in PLANNERS]
        asked += [(f"workflowsim {name}", "workflowsim", {"scheduler": name}) for name in OWN]
        for title, name, given in asked:
            _, plan, took = timed(name, given, flow, platform)
            yield {**row, "planner": title, "makespan": plan.makespan, "seconds": took}


def online() -> Iterator[dict[str, Any]]:
    """What the batch rules come to when they decide during the run, on graphs of up to 100 tasks."""
    for cell, flow, platform in cells():
        for name in ("minmin", "maxmin", "sufferage", "mct") if len(flow) <= 100 else ():
            planner = plugins.create("planner", name, {})
            begin = time.process_time()
            real = simulate(flow, platform, planner.director(flow, platform))
            took = time.process_time() - begin
            row = {"kind": "online", "graph": cell["graph"], "vcpu": cell["vcpu"], "planner": name}
            yield {**row, "makespan": real.makespan, "seconds": took}


def optima(limit: float) -> Iterator[dict[str, Any]]:
    for cell, flow, platform in cells():
        if not 20 <= len(flow) <= 60:
            continue
        planner, plan, took = timed("cp_sat", {"seconds": limit}, flow, platform)
        yield {
            "kind": "optima", "graph": cell["graph"], "vcpu": cell["vcpu"], "makespan": plan.makespan,
            "proven": planner.proven, "bound": planner.bound, "seconds": took,
        }  # fmt: skip


def rented(granularity: float) -> Platform:
    """Eight machines of each of four types: the faster, the dearer the second of the slowest one's work."""
    types = (("small", 1.0, 0.12), ("medium", 2.0, 0.3), ("large", 3.2, 0.6), ("huge", 5.0, 1.2))
    vms = (Vm(f"{kind}{i}", speed, 1, price, kind) for kind, speed, price in types for i in range(8))
    return Platform(tuple(vms), "shared", 20.0, billing=Billing(granularity_seconds=granularity))


def money(seconds: float) -> Iterator[dict[str, Any]]:
    """What plans for a deadline cost, on graphs of up to 100 tasks."""
    for file in sorted({cell["file"] for cell in json.loads((HERE / "work" / "cells.json").read_text())}):
        flow = read(Path(file))
        for granularity in (1.0, 60.0, 3600.0) if len(flow) <= 100 else ():
            platform = rented(granularity)
            _, heft, _ = timed("heft", {}, flow, platform)
            for factor in (1.2, 1.5, 2.0, 3.0, 5.0):
                row = {
                    "kind": "money",
                    "graph": Path(file).name.partition(".")[0],
                    "unit": granularity,
                    "factor": factor,
                }
                yield {**row, "planner": "heft", "cost": figures(flow, platform, heft, 0.0).cost, "seconds": 0.0}
                for name in ("ic_pcp", "cost_search"):
                    given = {
                        "deadline": heft.makespan * factor,
                        **({"seconds": seconds} if name == "cost_search" else {}),
                    }
                    begin = time.process_time()
                    try:
                        _, plan, took = timed(name, given, flow, platform)
                        yield {**row, "planner": name, "cost": figures(flow, platform, plan, 0.0).cost, "seconds": took}
                    except NothingFeasibleError:
                        yield {**row, "planner": name, "cost": None, "seconds": time.process_time() - begin}


def large(tasks: int) -> Workflow:
    """A made-up graph in which every task waits for up to three of the 200 before it."""
    chance = np.random.default_rng(1)
    parents = tuple(
        tuple(sorted({int(p) for p in chance.integers(max(0, i - 200), i, size=chance.integers(1, 4))})) if i else ()
        for i in range(tasks)
    )
    return Workflow(
        "made", tuple(Task(str(i), "t", float(t)) for i, t in enumerate(chance.gamma(2.0, 5.0, tasks))), parents
    )


def speed(saga: str | None) -> Iterator[dict[str, Any]]:
    for tasks, vcpu in ((100, 16), (1000, 16), (1000, 128), (10_000, 128)):
        flow, platform = large(tasks), Platform(machines(vcpu).vms)
        timed("heft", {}, flow, platform)
        best = min((timed("heft", {}, flow, platform) for _ in range(5)), key=lambda found: found[2])
        row = {"kind": "speed", "tasks": tasks, "vms": len(platform.vms)}
        yield {**row, "who": "tradewind", "makespan": best[1].makespan, "seconds": best[2]}
        if saga and tasks <= 1000:
            document = {
                "tasks": [[task.id, task.runtime] for task in flow.tasks],
                "edges": [[str(p), str(c)] for c, parents in enumerate(flow.parents) for p in parents],
                "nodes": [[vm.name, vm.speed] for vm in platform.vms],
            }
            done = subprocess.run(
                [saga, str(HERE / "saga_heft.py")],
                input=json.dumps(document),
                capture_output=True,
                text=True,
                check=True,
            )
            yield {**row, "who": "saga", **json.loads(done.stdout.splitlines()[-1])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=["quality", "online", "optima", "money", "speed"])
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--limit", type=float, default=20.0)
    parser.add_argument("--saga")
    given = parser.parse_args()
    rows = {
        "quality": lambda: quality(given.seconds),
        "online": online,
        "optima": lambda: optima(given.limit),
        "money": lambda: money(given.seconds),
        "speed": lambda: speed(given.saga),
    }
    with (HERE / "work" / f"{given.part}.jsonl").open("w") as out:
        for row in rows[given.part]():
            out.write(json.dumps(row) + "\n")
            out.flush()


if __name__ == "__main__":
    main()
