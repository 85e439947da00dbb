"""The publication's protocol with several forms of DONE: ``python run.py [sequences] [DATASETS] [group]``.

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
FIRST, LAST = 8, 20
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
GROUPS: dict[str, dict[str, dict[str, Any]]] = {
    "main": {
        "random": {},
        "as published": PUBLISHED,
        "published, noise falls": {**PUBLISHED, "noise": 0.3, "decay": 1},
        "log time": {**PUBLISHED, "noise": 0.3, "decay": 1, "target": "log"},
        "and job parameters": {"noise": 0.3, "trend": 0, "speedup": 0, "sigma": 0.5, "penalty": 0.01, "ignore": False},
        "and lines": {"sigma": 0.5, "penalty": 0.01, "ignore": False},
        "done": {},
    },
    "noise": {
        f"noise {noise}, decay {decay}": {"noise": noise, "decay": decay}
        for noise, decay in ((0, 1), (0.1, 0), (0.1, 1), (0.3, 1), (0.6, 1), (1, 1), (1, 2), (0.3, 0.5), (2, 2))
    },
    "sigma": {f"sigma {s}, penalty {p}": {"sigma": s, "penalty": p} for s in (0.1, 0.3, 1) for p in (1e-3, 1e-2, 1e-1)},
    "terms": {f"m {m}": {"terms": m} for m in (30, 100, 300, 1000)},
    "runs": {f"S_max {n}, P_max {p}": {"most_runs": n, "reach": p} for n, p in ((5, 1), (10, 1), (200, 1), (200, 0.3))},
    "x": {
        "spread 0": {"spread": 0, "optimism": 0},
        "spread 4": {"spread": 4, "optimism": 0},
        "spread 7": {"spread": 7, "optimism": 0},
        "opt 1": {"spread": 0, "optimism": 1, "decay": 0, "noise": 0},
        "sp 4 opt 1": {"spread": 4, "optimism": 1, "decay": 0, "noise": 0},
        "sp 7 opt 1": {"spread": 7, "optimism": 1, "decay": 0, "noise": 0},
        "sp 7 opt .5": {"spread": 7, "optimism": 0.5, "decay": 0, "noise": 0},
        "sp 7 opt 2/n.5": {"spread": 7, "optimism": 2, "decay": 0.5, "noise": 0},
    },
    "parts": {
        "done": {},
        "nothing ignored": {"ignore": False},
        "no speed-up expected": {"speedup": 0},
        "speed-up 1": {"speedup": 1},
        "no lines": {"trend": 0},
        "steep lines": {"trend": 3},
        "plain time": {"target": "plain", "speedup": 0},
    },
}


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
    names = [name for name in known(folder) if len(sys.argv) < 5 or sys.argv[4] in name]
    if not any(name.startswith("c3o") for name in names):
        print("no recorded tables: give the folder of the datasets as second argument", file=sys.stderr)
    jobs = [(folder, n, p, s, seed) for n in names for p, s in GROUPS[group].items() for seed in range(sequences)]
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
