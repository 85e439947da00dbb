"""The policy in SimPy: one process a task, and one that places what is ready once an instant is over.

Reads a graph of ``prepare.py`` and prints the makespan and the seconds of each repetition as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import simpy

LATE = 2
"""A priority behind all that SimPy itself gives: what happens when an instant is over."""


def simulate(graph: dict, children: list[list[int]]) -> float:
    environment = simpy.Environment()
    speeds, runtimes, reading = graph["speeds"], graph["runtimes"], graph["reading"]
    rank = {vm: place for place, vm in enumerate(graph["preference"])}
    idle = sorted(range(len(speeds)), key=rank.get)
    left = [len(each) for each in graph["parents"]]
    ready, fresh = [], [task for task, count in enumerate(left) if not count]
    state = {"woken": False}

    def wake() -> None:
        if not state["woken"]:
            state["woken"] = True
            event = environment.event()
            event.callbacks.append(place)
            event._ok, event._value = True, None
            environment.schedule(event, priority=LATE)

    def place(_event: simpy.Event) -> None:
        state["woken"] = False
        ready.extend(sorted(fresh))
        fresh.clear()
        idle.sort(key=rank.get)
        count = min(len(ready), len(idle))
        for task, vm in zip(ready[:count], idle[:count], strict=True):
            environment.process(run(task, vm))
        del ready[:count], idle[:count]

    def run(task: int, vm: int):
        yield environment.timeout(runtimes[task] / speeds[vm] + reading[task])
        idle.append(vm)
        for child in children[task]:
            left[child] -= 1
            if not left[child]:
                fresh.append(child)
        wake()

    wake()
    environment.run()
    return environment.now


def main() -> None:
    graph = json.loads(Path(sys.argv[1]).read_text())
    children: list[list[int]] = [[] for _ in graph["parents"]]
    for child, parents in enumerate(graph["parents"]):
        for parent in parents:
            children[parent].append(child)
    took, makespan = [], 0.0
    for _ in range(int(sys.argv[2])):
        begin = time.perf_counter()
        makespan = simulate(graph, children)
        took.append(time.perf_counter() - begin)
    print(json.dumps({"name": f"SimPy {simpy.__version__}", "makespan": makespan, "seconds": took}))


if __name__ == "__main__":
    main()
