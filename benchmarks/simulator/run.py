"""Seconds of one simulation: Tradewind compiled and readable, SimPy, and SimGrid, on the same graphs in one run.

    python -m venv PEERS && PEERS/bin/pip install simpy
    apt-get install libsimgrid-dev g++
    python benchmarks/simulator/prepare.py --datasets ../shared/datasets --into SCRATCH
    python benchmarks/simulator/run.py --scratch SCRATCH --peers PEERS/bin/python --simgrid > results.json

Without ``--peers`` and ``--simgrid`` those are left out. Each figure is the least and the median of the repetitions.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tradewind.workflow import kernel_simulate
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.platform import Platform, Vm
from tradewind.workflow.schedule import Schedule
from tradewind.workflow.simulator.compiled import CompiledSimulator
from tradewind.workflow.simulator.reference import PriorityDirector, ScheduleDirector, simulate

HERE = Path(__file__).parent
GRAPHS = {"25": 25, "1000": 1000, "10000": 10_000}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--peers", help="a Python with simpy")
    parser.add_argument("--simgrid", action="store_true", help="compile and run the SimGrid peer")
    options = parser.parse_args()
    program = compiled_peer(options.scratch) if options.simgrid else None
    rows: list[dict[str, Any]] = []
    load = os.getloadavg()[0]
    for name in GRAPHS:
        graph = json.loads((options.scratch / f"{name}.json").read_text())
        rows += own(name, graph)
        if options.peers:
            rows.append({**simpy(options.peers, options.scratch / f"{name}.json", name), "graph": name})
        if program:
            rows.append({**simgrid(program, graph, options.scratch, name), "graph": name})
        for row in rows:
            if row["graph"] == name and abs(row["makespan"] / graph["makespan"] - 1) > 1e-6:
                sys.exit(f"{row['name']} comes to {row['makespan']} s on {name}, and not to {graph['makespan']} s")
    print(json.dumps({"rows": rows, "load": [load, os.getloadavg()[0]]}))


def own(name: str, graph: dict[str, Any]) -> list[dict[str, Any]]:
    """Tradewind's loops alone, the same with arrays made and results put together, and the readable simulator."""
    flow, platform, plan = inputs(graph)
    compiled = CompiledSimulator(flow, platform)
    keys, preference = np.zeros(len(flow), dtype=np.int64), np.array(graph["preference"], dtype=np.int64)
    vm, before, after = compiled.turns(plan)
    room, rest = (compiled._needs, compiled._sizes), (compiled._ready_at, compiled._files, compiled._delays)
    shared, queued = (*room, *rest), (*room, compiled._alike, *rest)
    times = {25: 2000, 1000: 1000, 10_000: 200}[len(flow)]
    few = {25: 50, 1000: 5, 10_000: 1}[len(flow)]
    loops: list[tuple[str, int, Callable[[], float]]] = [
        ("policy, kernel", times, lambda: float(
            kernel_simulate.run_queue(compiled._graph, compiled.seconds, keys, preference, *queued)[2].max())),
        ("plan, kernel", times, lambda: float(
            kernel_simulate.follow_plan(compiled._graph, compiled.seconds, vm, before, after, *shared)[1].max())),
        ("policy, kernel called from Python", times // 4, lambda: compiled.queue(keys, preference).makespan),
        ("plan, kernel called from Python", times // 4, lambda: compiled.follow(plan).makespan),
        ("policy, readable", few, lambda: simulate(
            flow, platform, PriorityDirector([0.0] * len(flow), preference.tolist())).makespan),
        ("plan, readable", few, lambda: simulate(flow, platform, ScheduleDirector(plan)).makespan),
    ]  # fmt: skip
    rows = []
    for what, repeats, run in loops:
        makespan, took = 0.0, []
        if repeats > 1:
            run()  # compiles
        for _ in range(repeats):
            begin = time.perf_counter()
            makespan = run()
            took.append(time.perf_counter() - begin)
        rows.append({"name": f"Tradewind, {what}", "graph": name, "makespan": makespan, **said(took)})
    return rows


def inputs(graph: dict[str, Any]) -> tuple[Workflow, Platform, Schedule]:
    """The graph, its machines and its plan."""
    tasks = tuple(Task(str(place), "task", runtime, (f"in{place}",)) for place, runtime in enumerate(graph["runtimes"]))
    sizes = {f"in{place}": size for place, size in enumerate(graph["sizes"])}
    flow = Workflow("graph", tasks, tuple(tuple(each) for each in graph["parents"]), sizes)
    vms = tuple(Vm(f"vm{place}", speed) for place, speed in enumerate(graph["speeds"]))
    platform = Platform(vms, "shared", 1000.0)
    vm, start = np.array(graph["vm"], dtype=np.int32), np.zeros(len(flow))
    for order in graph["order"].values():
        start[order] = np.arange(len(order))
    return flow, platform, Schedule(vm, start, start + 1)


def said(took: list[float]) -> dict[str, Any]:
    return {"least": min(took), "median": sorted(took)[len(took) // 2], "repetitions": len(took)}


def simpy(python: str, path: Path, name: str) -> dict[str, Any]:
    repeats = {"25": 50, "1000": 10, "10000": 3}[name]
    found = json.loads(
        subprocess.run(
            [python, str(HERE / "peer_simpy.py"), str(path), str(repeats)], capture_output=True, text=True, check=True
        ).stdout
    )
    return {"name": f"{found['name']}, policy", "makespan": found["makespan"], **said(found["seconds"])}


def compiled_peer(scratch: Path) -> Path:
    program = scratch / "peer_simgrid"
    subprocess.run(
        ["g++", "-std=c++17", "-O2", str(HERE / "peer_simgrid.cpp"), "-o", str(program), "-lsimgrid"], check=True
    )
    return program


def simgrid(program: Path, graph: dict[str, Any], scratch: Path, name: str) -> dict[str, Any]:
    """The plan as lines: hosts, work on each, and edges of the graph and of the machines' orders."""
    edges = {(parent, child) for child, parents in enumerate(graph["parents"]) for parent in parents}
    for order in graph["order"].values():
        edges |= set(itertools.pairwise(order))
    speeds = graph["speeds"]
    lines = [f"{len(graph['vm'])} {len(speeds)} {len(edges)}", " ".join(map(repr, speeds))]
    for vm, runtime, reading in zip(graph["vm"], graph["runtimes"], graph["reading"], strict=True):
        lines.append(f"{vm} {runtime + reading * speeds[vm]!r}")
    lines += [f"{parent} {child}" for parent, child in sorted(edges)]
    path = scratch / f"{name}.txt"
    path.write_text("\n".join(lines) + "\n")
    building, running, makespan = [], [], 0.0
    for _ in range({"25": 10, "1000": 5, "10000": 1}[name]):
        out = subprocess.run([str(program), str(path), "--log=root.thres:critical"], capture_output=True, text=True,
                             check=True).stdout.split()  # fmt: skip
        makespan = float(out[0])
        building.append(float(out[1]))
        running.append(float(out[2]))
    return {"name": "SimGrid, plan", "makespan": makespan, "building": min(building), **said(running)}


if __name__ == "__main__":
    main()
