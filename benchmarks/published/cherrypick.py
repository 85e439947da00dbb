"""CherryPick's published figures beside ours, on three of its five jobs.

python cherrypick.py run [DATASETS] [seeds]    # writes work/cherrypick.csv; about 5 minutes with 20 seeds
python cherrypick.py analyze                   # prints the tables of the README
"""

from __future__ import annotations

import csv
import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from tradewind import plugins
from tradewind.problem import Billing, Configuration, Instance, Nodes, Offer
from tradewind.testing.problems import KnownOutcome, KnownProblem, drive, make_problem

HERE = Path(__file__).parent
JOBS = ("spark", "terasort", "tpch")

POLICIES: dict[str, tuple[str, dict[str, Any]]] = {
    "cherrypick": ("cherrypick", {}),
    "cherrypick, its code's rule": ("cherrypick", {"starts": 2, "stop_unit": "ln_cost", "stop_improvement": 0.06}),
    "cherrypick, below 1 %": ("cherrypick", {"stop_improvement": 0.01}),
    "cherrypick, 10 runs": ("cherrypick", {"stop": False}),
    "random, 10 runs": ("random", {}),
}
RUNS = {"cherrypick, 10 runs": 10, "random, 10 runs": 10}


def table(folder: Path, job: str) -> tuple[dict[str, Offer], dict[tuple[str, int], float]]:
    """The machines of one job's table, and the seconds of each (machine, nodes)."""
    offers: dict[str, Offer] = {}
    seconds: dict[tuple[str, int], float] = {}
    with (folder / "lynceus/cherrypick" / f"CP_{job}.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            name = f"{row['vm_name']}/{row['disk_name']}-{row['disk_speed']}-{row['disk_count']}"
            facts = {
                "cpu_speed": row["vm_speed"],
                "disk_count": float(row["disk_count"]),
                "disk_speed": row["disk_speed"],
            }
            offers[name] = Offer(
                "table", name, float(row["cpu_count"]), float(row["ram"]), float(row["vm_cost"]), facts=facts
            )
            seconds.setdefault((name, int(row["num_machines"])), float(row["time"]))
    return offers, seconds


def build(folder: Path, job: str, deadline: bool) -> KnownProblem:
    offers, seconds = table(folder, job)

    def truth(configuration: Configuration, _offer: Offer) -> KnownOutcome:
        return KnownOutcome(seconds[str(configuration["instance"]), int(configuration["nodes"])])

    parameters = [
        Instance(name="instance", values=tuple(offers), offers=offers),
        Nodes(name="nodes", values=tuple(sorted({nodes for _, nodes in seconds}))),
    ]
    times = sorted(seconds.values())
    return make_problem(
        parameters,
        truth,
        sold=set(seconds),
        deadline=times[round(len(times) / 2)] if deadline else None,
        billing=Billing(granularity_seconds=0.01),
    )


def search(task: tuple[str, str, bool, int]) -> list[dict[str, Any]]:
    """One job and seed with all policies."""
    folder, job, deadline, seed = task
    problem = build(Path(folder), job, deadline)
    best = problem.optimum()
    assert best is not None
    rows = []
    for policy, (name, settings) in POLICIES.items():
        searcher = plugins.create("searcher", name, settings, problem=problem, seed=seed)
        trials = drive(searcher, problem, RUNS.get(policy, len(problem.candidates)))
        values = [t.observation.objective for t in trials if t.observation is not None and t.observation.feasible]
        found = min((v for v in values if v is not None), default=float("inf"))
        rows.append(
            {
                "job": job,
                "deadline": "median time" if deadline else "none",
                "policy": policy,
                "seed": seed,
                "runs": len(trials),
                "distance": found / best[1] - 1.0,
                "spent": sum(t.spent for t in trials) / best[1],
            }
        )
    return rows


def run(folder: Path, seeds: int) -> None:
    for job in JOBS:
        if not (folder / "lynceus/cherrypick" / f"CP_{job}.csv").exists():
            sys.exit(
                f"{folder / 'lynceus/cherrypick'} has no CP_{job}.csv: give the folder of the datasets as argument"
            )
    tasks = [(str(folder), job, deadline, seed) for job in JOBS for deadline in (False, True) for seed in range(seeds)]
    with ProcessPoolExecutor(max_workers=2) as pool:
        rows = [row for part in pool.map(search, tasks, chunksize=4) for row in part]
    (HERE / "work").mkdir(exist_ok=True)
    with (HERE / "work/cherrypick.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    print(f"{len(rows)} searches")


def interval(values: Sequence[float], percent: float) -> str:
    """A percentile with its 95 % interval, by resampling."""
    sample = np.array(values)
    rng = np.random.default_rng(1)
    draws = np.percentile(sample[rng.integers(len(sample), size=(2000, len(sample)))], percent, axis=1)
    low, high = np.percentile(draws, [2.5, 97.5])
    return f"{np.percentile(sample, percent):.0%} ({low:.0%}-{high:.0%})"


def analyze() -> None:
    path = HERE / "work/cherrypick.csv"
    if not path.exists():
        sys.exit("run `cherrypick.py run` first")
    cells: dict[tuple[str, str, str], list[dict[str, str]]] = defaultdict(list)
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            cells[row["deadline"], row["job"], row["policy"]].append(row)
    for deadline in ("none", "median time"):
        print(f"\ndeadline: {deadline}\n")
        print("| job | policy | exact optimum | median distance | p90 distance | runs: median, p90 | spent / optimum |")
        print("|---|---|---|---|---|---|---|")
        for (which, job, policy), rows in sorted(cells.items(), key=lambda c: (c[0][1], list(POLICIES).index(c[0][2]))):
            if which != deadline:
                continue
            distance = [float(row["distance"]) for row in rows]
            runs = [int(row["runs"]) for row in rows]
            exact = np.mean([d < 1e-9 for d in distance])
            spent = np.mean([float(row["spent"]) for row in rows])
            print(
                f"| {job} | {policy} | {exact:.0%} | {interval(distance, 50)} | {interval(distance, 90)} "
                f"| {np.median(runs):.0f}, {np.percentile(runs, 90):.0f} | {spent:.1f} |"
            )
    print(f"\n{len(rows)} seeds")


def main() -> None:
    arguments = sys.argv[1:]
    if arguments[:1] == ["run"]:
        folder = Path(arguments[1]) if len(arguments) > 1 else HERE.parents[2] / "shared/datasets"
        run(folder, int(arguments[2]) if len(arguments) > 2 else 20)
    elif arguments[:1] == ["analyze"]:
        analyze()
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
