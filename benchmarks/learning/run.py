"""Runs everything in the same unseen worlds: ``python run.py [worlds] [episodes]``; writes ``work/results.csv``.

Weights are learned for each graph, machines and scenario anew ("trained") from ``episodes`` training seeds, and so is
the table of Q-learning, on the paper's machines only; the tests are other seeds.
"""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
from scenarios import SCENARIOS, TEST_SEEDS, TESTING, Case

from tradewind.workflow.learning import kernel
from tradewind.workflow.learning.adaptive import ONLINE_HEFT, AdaptivePolicy, AdaptiveWeights
from tradewind.workflow.learning.arrays import PreparedWorld
from tradewind.workflow.learning.evaluation import simulate_schedule
from tradewind.workflow.learning.learners import AdaptiveLearner, QLearner
from tradewind.workflow.planner.search import SearchPlanner

HERE = Path(__file__).parent
PAPER = "64 vCPU"
MACHINES = (PAPER, "12 alike", "cores")
LARGE = 500
"""Tasks of a graph for which nothing is trained here, to save time."""

case = cache(Case)
Way = Callable[[object, PreparedWorld], float]


@cache
def searched(name: str, machines: str):
    here = case(name, machines)
    turns = max(200, 100_000 // len(here.flow))
    return SearchPlanner(settings=SearchPlanner.Settings(turns=turns)).plan(here.flow, here.platform)


def ways(name: str, machines: str, scenario: str, episodes: int) -> dict[str, Way]:
    here = case(name, machines)
    arrays = here.arrays
    fastest = np.argsort(-here.platform.speeds, kind="stable")

    def policy(weights: AdaptiveWeights) -> Way:
        episode = AdaptivePolicy(here.flow, here.platform, weights, arrays).episode
        return lambda world, drawn: drawn.run(episode).finish.max()

    found: dict[str, Way] = {
        "HEFT, followed": lambda world, drawn: simulate_schedule(arrays, here.heft, drawn).makespan,
        "search, followed": lambda world, drawn: simulate_schedule(arrays, searched(name, machines), drawn).makespan,
        "MCT, online": lambda world, drawn: drawn.run(
            lambda given: kernel.by_key(given, np.zeros(0), fastest)
        ).finish.max(),
        "HEFT, online": policy(ONLINE_HEFT),
        "adaptive": policy(AdaptiveWeights()),
    }
    if len(here.flow) < LARGE:
        deviations = here.deviations(scenario)
        adaptive = AdaptiveLearner(here.flow, here.platform, AdaptiveLearner.Settings(**deviations))
        for _ in range(episodes):
            adaptive.step()
        found["adaptive, trained"] = policy(adaptive.weights)
        if machines == PAPER:
            table = QLearner(here.flow, here.platform, QLearner.Settings(**deviations))
            for _ in range(episodes):
                table.step()
            found["q_learning"] = lambda world, drawn: table.run(world).makespan
    return found


def main(worlds: int, episodes: int) -> None:
    (HERE / "work").mkdir(exist_ok=True)
    begun = time.perf_counter()
    with (HERE / "work" / "results.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(("scenario", "graph", "machines", "seed", "way", "makespan"))
        for scenario in SCENARIOS:
            for name in TESTING:
                for machines in MACHINES:
                    here = case(name, machines)
                    found = ways(name, machines, scenario, episodes)
                    for seed in range(TEST_SEEDS, TEST_SEEDS + (worlds if scenario != "known" else 1)):
                        world = here.world(scenario, seed)
                        drawn = here.arrays.prepared(world)
                        for way, run in found.items():
                            out.writerow((scenario, name, machines, seed, way, f"{run(world, drawn):.6f}"))
                file.flush()
            print(f"{scenario}: {time.perf_counter() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20, int(sys.argv[2]) if len(sys.argv) > 2 else 100)
