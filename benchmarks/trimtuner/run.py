"""Searches TrimTuner's table with every policy: ``python run.py [seeds [first seed [cnn.csv.gz]]]``."""

from __future__ import annotations

import csv
import gzip
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from tradewind import plugins
from tradewind.problem import Categorical, Configuration, Instance, Nodes, Objective, Offer, Ordinal, Threshold
from tradewind.testing.problems import KnownOutcome, KnownProblem, KnownResolver, drive, make_problem

HERE = Path(__file__).parent
TABLE = HERE.parents[2] / "shared/datasets/trimtuner/cnn.csv.gz"
LIMIT = 0.1
"""USD that a run on all data may cost."""
CLOSE = 0.95
WHOLE = 60_000
MACHINES = {"t2.small": (1, 2, 0.023), "t2.medium": (2, 4, 0.0464), "t2.xlarge": (4, 16, 0.1856)}
MACHINES["t2.2xlarge"] = (8, 32, 0.3712)
MASTER = 0.3712
SPEND = 2.5
"""USD after which a search is given up."""

POLICIES: dict[str, tuple[str, dict[str, Any]]] = {
    "random, all data": ("random", {}),
    "gp, all data (EIc per dollar)": ("gp", {"abort": False}),
    "EIc, all data": ("gp", {"abort": False, "acquisition": "ei"}),
    "trimtuner, all data only": ("trimtuner", {"fractions": [1.0]}),
    "trimtuner": ("trimtuner", {}),
    "trimtuner, trees": ("trimtuner", {"surrogate": "trees"}),
}

Row = dict[str, str]


class Cluster(KnownResolver):
    """Workers and one parameter server of the chosen type, and a t2.2xlarge beside them."""

    def resolve(self, configuration: Configuration) -> Offer:
        """The offer of all machines together, at the price of the table's README."""
        offer = super().resolve(configuration)
        return replace(offer, price_per_hour=(offer.nodes * offer.price_per_hour + MASTER) / offer.nodes)


def read(path: Path) -> dict[tuple[Any, ...], Row]:
    """The table by configuration and size of the training set."""
    with gzip.open(path, "rt", newline="") as file:
        return {(*_key(row), int(row["training_set_size"])): row for row in csv.DictReader(file)}


def _key(row: Row) -> tuple[Any, ...]:
    return (
        row["vm_flavor"],
        int(row["n_workers"]),
        float(row["learning_rate"]),
        int(row["batch_size"]),
        row["synchronism"],
    )


def build(table: dict[tuple[Any, ...], Row]) -> KnownProblem:
    """The search problem of the table."""
    offers = {n: Offer("table", n, vcpu, memory, price) for n, (vcpu, memory, price) in MACHINES.items()}

    def part(configuration: Configuration, _offer: Offer, share: float) -> KnownOutcome:
        names = ("instance", "workers", "rate", "batch", "mode")
        row = table[(*(configuration[name] for name in names), round(share * WHOLE))]
        return KnownOutcome(float(row["training_time"]), metrics={"accuracy": float(row["acc"])})

    keys = list(table)
    parameters = [
        Instance(name="instance", values=tuple(offers), offers=offers),
        Nodes(name="workers", values=tuple(sorted({k[1] for k in keys}))),
        Ordinal(name="rate", values=tuple(sorted({k[2] for k in keys}))),
        Ordinal(name="batch", values=tuple(sorted({k[3] for k in keys}))),
        Categorical(name="mode", values=tuple(sorted({k[4] for k in keys}))),
    ]
    problem = make_problem(
        parameters,
        lambda configuration, offer: part(configuration, offer, 1.0),
        objective=Objective("accuracy", "maximise"),
        thresholds=[Threshold("cost", at_most=LIMIT)],
        sold={(k[0], k[1]) for k in keys},
        extra_nodes=1,
    )
    resolver = Cluster(problem.space, sold={(k[0], k[1]) for k in keys}, extra_nodes=1)
    return replace(problem, resolver=resolver, of_part=part)


def checks(problem: KnownProblem) -> tuple[int, int, float]:
    """Feasible configurations, those of them within 5 % of the best, and the best accuracy."""
    every = [problem.value(problem.candidates.configuration(i)) for i in range(len(problem.candidates))]
    values = [value for value in every if value is not None]
    return len(values), sum(value >= CLOSE * max(values) for value in values), max(values)


def search(job: tuple[Path, str, int]) -> dict[str, Any]:
    """One policy and seed: money until the incumbent, and the recommended configuration, are close to the best."""
    path, policy, seed = job
    problem = build(read(path))
    best = checks(problem)[2]
    name, settings = POLICIES[policy]
    searcher = plugins.create("searcher", name, settings, problem=problem, seed=seed)
    spent, trials, recommended, incumbent, first = 0.0, 0, None, None, None

    def close(configuration: Configuration | None) -> bool:
        value = None if configuration is None else problem.value(configuration)
        return value is not None and value >= CLOSE * best

    def stop(trial: Any) -> bool:
        nonlocal spent, trials, recommended, incumbent, first
        spent += trial.spent
        trials += 1
        whole = trial.proposal.fidelity == 1.0 and trial.observation.feasible
        if whole and first is None:
            first = spent
        if incumbent is None and whole and close(trial.configuration):
            incumbent = spent
        if recommended is None:
            advice = searcher.recommended() if name == "trimtuner" else None
            if close(advice) or incumbent is not None:
                recommended = spent
        return spent >= SPEND or incumbent is not None

    began = time.perf_counter()
    drive(searcher, problem, 2000, until=stop)
    seconds = (time.perf_counter() - began) / max(1, trials)
    return {
        "policy": policy,
        "seed": seed,
        "recommended": recommended,
        "incumbent": incumbent,
        "first_feasible": first,
        "trials": trials,
        "seconds_per_trial": round(seconds, 3),
    }


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    path = Path(sys.argv[3]) if len(sys.argv) > 3 else TABLE
    if not path.exists():
        sys.exit(f"{path} is not there: give the path of TrimTuner's cnn.csv.gz as the third argument")
    feasible, near, best = checks(build(read(path)))
    print(f"{feasible} feasible, {near} within 5 % of the best accuracy, {best:.4f}")
    jobs = [(path, policy, seed) for policy in POLICIES for seed in range(first, first + seeds)]
    (HERE / "work").mkdir(exist_ok=True)
    with ProcessPoolExecutor(max_workers=2) as pool, (HERE / "work/results.csv").open("w", newline="") as file:
        writer: csv.DictWriter[str] | None = None
        for row in pool.map(search, jobs):
            if writer is None:
                writer = csv.DictWriter(file, fieldnames=list(row))
                writer.writeheader()
            writer.writerow(row)
            file.flush()


if __name__ == "__main__":
    main()
