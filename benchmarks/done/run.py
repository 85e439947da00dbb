"""The publication's protocol with several forms of DONE: ``python run.py [sequences] [DATASETS] [GROUP] [first seed]``.

Random job parameters in a loop; before each run the searcher gets the history of all earlier runs and proposes one
configuration, which is run and added. The first run takes place on a random configuration. Writes
``work/<group>.csv``, a line for each run from the eighth on.
"""

from __future__ import annotations

import csv
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from scenarios import Scenario, scenarios

from tradewind import plugins
from tradewind.problem import PastStudy
from tradewind.searcher.base import NothingLeft, SearchState
from tradewind.testing.problems import evaluate

HERE = Path(__file__).parent
FIRST, LAST = 8, 17
PUBLISHED: dict[str, Any] = {
    "target": "plain",
    "inputs": "configuration",
    "trend": 0,
    "speedup": 0,
    "sigma": 1.0,
    "penalty": 0.1 / 150,
    "noise": 0.1,
    "decay": 0,
    "spread": 0,
    "optimism": 0,
}
FIXED: dict[str, Any] = {"sigma": 0.4, "penalty": 0.01}
GROUPS: dict[str, dict[str, dict[str, Any]]] = {
    "main": {
        "random": {},
        "as published": PUBLISHED,
        "log time": {**PUBLISHED, "target": "log"},
        "and job parameters": {**PUBLISHED, **FIXED, "target": "log", "inputs": "both", "ignore": False},
        "done": {},
    },
    "choice": {
        "default": {},
        "m 30": {"terms": 30},
        "m 100": {"terms": 100},
        "m 1000": {"terms": 1000},
        **{f"σ {s}, λ {p}": {"sigma": s, "penalty": p} for s in (0.2, 0.4, 0.8) for p in (0.003, 0.03)},
        "S_max 5": {"most_runs": 5},
        "S_max 10": {"most_runs": 10},
        "P_max 0.3": {"reach": 0.3},
        "noise 0": {"noise": 0},
        "noise 0.1, constant": {"noise": 0.1, "decay": 0},
        "noise 0.3": {"noise": 0.3},
        "noise 1": {"noise": 1.0},
        "spread 0": {"spread": 0},
        "optimism 0": {"optimism": 0},
        "optimism 1": {"optimism": 1},
        "optimism 2": {"optimism": 2},
        "nothing ignored": {"ignore": False},
        "no speed-up expected": {"speedup": 0},
        "no law": {"law": False},
        "no lines": {"trend": 0},
        "plain time": {"target": "plain", "speedup": 0},
    },
    "law": {
        "done": {},
        "optimism 0": {"optimism": 0},
        "optimism 1": {"optimism": 1},
        "no law, optimism 0": {"law": False, "optimism": 0},
        "before": {"law": False, "optimism": 1},
    },
}
CHOSEN_ON = ("dynamic, time", "static + 2 unused, time", "c3o sgd, cost", "c3o sort, cost")
"""Scenarios of the group ``choice``: one of each kind, so that the others are not chosen on."""


@cache
def known(folder: str) -> dict[str, Scenario]:
    return scenarios(Path(folder))


def sequence(job: tuple[str, str, str, dict[str, Any], int]) -> list[dict[str, Any]]:
    """One sequence of runs with one form of the searcher."""
    folder, name, policy, settings, seed = job
    scenario = known(folder)[name]
    rng = np.random.default_rng([seed, 7])
    past: list[PastStudy] = []
    rows = []
    for run in range(1, LAST + 1):
        i = int(rng.integers(len(scenario.inputs)))
        bare = scenario.problem(i)
        problem = replace(bare, past=tuple(past))
        kind = "random" if policy == "random" else "done"
        started = time.perf_counter()
        searcher = plugins.create("searcher", kind, settings, problem=problem, seed=1000 * seed + run)
        answer = searcher.ask(SearchState())
        seconds = time.perf_counter() - started
        assert not isinstance(answer, NothingLeft)
        trial = evaluate(bare, answer[0], 1000 * seed + run)
        past.append(PastStudy(problem.job.name, problem.job.parameters, (trial,)))
        if run >= FIRST:
            value = bare.value(trial.configuration)
            assert value is not None
            least, most = scenario.extremes(i)
            rows.append(
                {
                    "scenario": name,
                    "policy": policy,
                    "seed": seed,
                    "run": run,
                    "excess": round(value / least - 1.0, 6),
                    "share_of_range": round((value - least) / (most - least), 6),
                    "ms": round(1000 * seconds, 1),
                }
            )
    return rows


def main() -> None:
    sequences = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    folder = sys.argv[2] if len(sys.argv) > 2 else str(HERE.parents[2] / "shared/datasets")
    group = sys.argv[3] if len(sys.argv) > 3 else "main"
    start = int(sys.argv[4]) if len(sys.argv) > 4 else 0
    names = [name for name in known(folder) if group != "choice" or name in CHOSEN_ON]
    if not any(name.startswith("c3o") for name in names):
        print("no recorded tables: give the folder of the datasets as second argument", file=sys.stderr)
    seeds = range(start, start + sequences)
    jobs = [(folder, n, p, s, seed) for n in names for p, s in GROUPS[group].items() for seed in seeds]
    with ProcessPoolExecutor(max_workers=2) as pool:
        rows = [row for part in pool.map(sequence, jobs, chunksize=4) for row in part]
    (HERE / "work").mkdir(exist_ok=True)
    with (HERE / f"work/{group}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    print(f"{len(jobs)} sequences")


if __name__ == "__main__":
    main()
