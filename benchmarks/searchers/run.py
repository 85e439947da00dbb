"""Searches every prepared table with every policy: ``python run.py [seeds]``; writes ``work/results.csv``."""

from __future__ import annotations

import csv
import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from tradewind import plugins
from tradewind.problem import Billing, Categorical, Configuration, Instance, Nodes, Offer, Trial
from tradewind.testing.problems import KnownProblem, Outcome, drive, make_problem

HERE = Path(__file__).parent
CAP = 20.0
"""Mean costs of a configuration that a search may spend."""
NEVER = 25.0
CLOSE = 1.05

POLICIES: dict[str, tuple[str, dict[str, Any], bool]] = {
    "random, no abort": ("random", {}, False),
    "random": ("random", {}, True),
    "exhaustive, cheapest first": ("exhaustive", {"order": "cheapest"}, True),
    "coordinate_descent": ("coordinate_descent", {}, True),
    "gp, no abort": ("gp", {"abort": False}, False),
    "gp": ("gp", {}, True),
}
BILLINGS = {
    "per second": Billing(granularity_seconds=0.01),
    "60 s minimum": Billing(minimum_seconds=60.0, granularity_seconds=0.01),
    "120 s paid set-up": Billing(setup_seconds=120.0, granularity_seconds=0.01),
}


def build(table: dict[str, Any], billing: Billing) -> KnownProblem:
    known = {"vcpu", "memory", "price"}
    offers = {
        name: Offer(
            "table", name, m["vcpu"], m["memory"], m["price"], facts={k: v for k, v in m.items() if k not in known}
        )
        for name, m in table["machines"].items()
    }
    names = list(table["rows"][0]["settings"])
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in table["rows"]:
        # A configuration that was measured twice keeps its first row.
        found.setdefault((row["instance"], row["nodes"], *(row["settings"][n] for n in names)), row)

    def truth(configuration: Configuration, _offer: Offer) -> Outcome:
        row = found[
            (str(configuration["instance"]), int(configuration["nodes"]), *(str(configuration[n]) for n in names))
        ]
        return Outcome(row["seconds"], failed="did not complete" if row["failed"] else "")

    parameters = [
        Instance(name="instance", values=tuple(offers), offers=offers),
        Nodes(name="nodes", values=tuple(sorted({row["nodes"] for row in table["rows"]}))),
        *(Categorical(name=n, values=tuple(sorted({row["settings"][n] for row in table["rows"]}))) for n in names),
    ]
    sold = {(row["instance"], row["nodes"]) for row in table["rows"]}
    return make_problem(
        parameters, truth, deadline=table["deadline"], billing=billing, sold=sold, extra_nodes=table["extra_nodes"]
    )


def search(job: tuple[dict[str, Any], str, int]) -> list[dict[str, Any]]:
    """One table, billing and seed with all policies."""
    table, billing, seed = job
    problem = build(table, BILLINGS[billing])
    everything = [problem.candidates.configuration(i) for i in range(len(problem.candidates))]
    mean = sum(problem.bill(c) for c in everything) / len(everything)
    best = problem.optimum()
    assert best is not None
    rows = []
    for policy, (name, settings, abort) in POLICIES.items():
        if name == "exhaustive" and seed > 0:
            continue
        searcher = plugins.create("searcher", name, settings, problem=problem, seed=seed)
        started = time.perf_counter()
        object.__setattr__(problem, "budget", type(problem.budget)(dollars=CAP * mean))

        def close(trial: Trial) -> bool:
            seen = trial.observation
            return bool(seen and seen.feasible and seen.objective and seen.objective <= CLOSE * best[1])

        trials = drive(searcher, problem, len(everything), abort=abort, until=close)
        money = sum(trial.spent for trial in trials) / mean if trials and close(trials[-1]) else NEVER
        step = (time.perf_counter() - started) / max(1, len(trials))
        rows.append(
            {
                "table": table["name"],
                "billing": billing,
                "policy": policy,
                "seed": seed,
                "money": round(money, 4),
                "trials": len(trials),
                "ms_per_trial": round(1000 * step, 2),
            }
        )
    return rows


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    path = HERE / "work/tables.json"
    if not path.exists():
        sys.exit("run prepare.py first")
    tables = json.loads(path.read_text())
    jobs = [(table, billing, seed) for table in tables for billing in BILLINGS for seed in range(seeds)]
    with ProcessPoolExecutor(max_workers=2) as pool:
        rows = [row for part in pool.map(search, jobs) for row in part]
    with (HERE / "work/results.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    print(f"{len(rows)} searches")


if __name__ == "__main__":
    main()
