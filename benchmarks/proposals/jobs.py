"""The jobs of the measurement: paper 5's two programs, four programs of our own, and two families of recorded runs."""

from __future__ import annotations

import csv
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.done.scenarios import PARAMETERS, Scenario, Values, recorded, synthetic

from tradewind.problem import Categorical, Configuration, Instance, Nodes, Objective, Offer, Ordinal, Parameter
from tradewind.testing.problems import KnownOutcome, KnownProblem, make_problem

Law = Callable[[Mapping[str, float | str], Configuration, Offer], float]
"""Seconds of a run."""

LOCAL = {"local.c1": Offer("local", "local.c1", vcpu=1, memory_gib=2.0, price_per_hour=0.045)}
SOLD = {f"m{n}": Offer("cloud", f"m{n}", vcpu=n, memory_gib=4.0 * n, price_per_hour=0.05 * n) for n in (1, 2, 4, 8, 16)}
NOISE = 0.03
"""Standard deviation of the logarithm of a run's time."""


def _job(name: str, inputs: Sequence[Values], space: list[Parameter], law: Law, metric: str = "runtime") -> Scenario:
    def make(given: Values) -> KnownProblem:
        return make_problem(
            space, lambda c, o: KnownOutcome(law(given, c, o)), objective=Objective(metric), noise=NOISE
        )

    return Scenario(name, inputs, make)


def _machines(offers: Mapping[str, Offer]) -> Instance:
    return Instance(name="instance", values=tuple(offers), offers=offers)


def _pairs(first: str, a: Sequence[float], second: str, b: Sequence[float]) -> list[Values]:
    return [{first: one, second: other} for one in a for other in b]


def stars() -> Scenario:
    """Work divided among workers, each of which costs a start: the best number grows with the root of the work."""

    def law(given: Values, chosen: Configuration, _: Offer) -> float:
        workers = float(chosen["workers"])
        return float(given["stars"]) * float(given["steps"]) / 1e6 / workers + 0.15 * workers

    workers = Ordinal(name="workers", values=(1, 2, 4, 8, 16, 32))
    inputs = _pairs("stars", (5000.0, 10000.0, 20000.0), "steps", (500.0, 1000.0, 2000.0))
    return _job("stars, time", inputs, [workers, _machines(LOCAL)], law)


def blocks() -> Scenario:
    """Matrix work in blocks: the best block grows with the matrix, and a wrong one costs a multiple."""

    def law(given: Values, chosen: Configuration, _: Offer) -> float:
        size, threads = math.sqrt(float(given["rows"]) * float(given["columns"])), float(chosen["threads"])
        wrong = math.log2(float(chosen["block"]) / (8.0 * math.sqrt(size / 100.0)))
        return (
            0.5 + math.pow(size / 500.0, 2.5) / math.pow(threads, 0.85) * (1.0 + 0.35 * wrong * wrong) + 0.1 * threads
        )

    space = [Ordinal(name="block", values=(8, 16, 32, 64, 128, 256)), Ordinal(name="threads", values=(1, 2, 4, 8))]
    levels = (500.0, 1000.0, 2000.0, 4000.0)
    return _job("blocks, time", _pairs("rows", levels, "columns", levels), [*space, _machines(LOCAL)], law)


def cluster() -> Scenario:
    """Passes over data on a cluster, slower where the data do not fit into its memory; the cost is wanted."""

    def law(given: Values, _: Configuration, offer: Offer) -> float:
        data, cores = float(given["gb"]), offer.vcpu * offer.nodes
        short = max(0.0, 1.5 * data / (offer.memory_gib * offer.nodes) - 1.0)
        work = 6.0 * data * float(given["passes"]) / math.pow(cores, 0.9) * (1.0 + 2.0 * short)
        return 20.0 + work + 0.8 * data * (offer.nodes - 1) / offer.nodes + 4.0 * offer.nodes

    inputs = _pairs("gb", (1.0, 4.0, 16.0, 64.0), "passes", (1.0, 3.0, 10.0, 30.0))
    return _job("cluster, cost", inputs, [_machines(SOLD), Nodes(name="nodes", values=(1, 2, 3, 4, 6, 8))], law, "cost")


def chains() -> Scenario:
    """Three methods with different starts and speeds: which is best changes with the input, by leaps."""
    methods = {"plain": (0.0, 1.0), "cached": (1.5, 0.55), "gpu": (6.0, 0.12)}

    def law(given: Values, chosen: Configuration, _: Offer) -> float:
        start, speed = methods[str(chosen["method"])]
        many = float(chosen["chains"])
        work = float(given["cities"]) * float(given["sweeps"]) / 4000.0
        return 0.3 + start + speed * work / math.pow(min(many, 8.0), 0.9) + 0.25 * many

    space = [Ordinal(name="chains", values=tuple(range(1, 13))), Categorical(name="method", values=tuple(methods))]
    inputs = _pairs("cities", (50.0, 200.0, 800.0), "sweeps", (10.0, 100.0, 1000.0))
    return _job("chains, time", inputs, [*space, _machines(LOCAL)], law)


def scale_out(folder: Path, metric: str) -> Scenario:
    """The six jobs of Bell on 4 to 60 nodes: the job's name is the only parameter (median of seven runs)."""
    tables: dict[str, dict[int, float]] = {}
    for path in sorted(folder.glob("*.csv")):
        cells: dict[int, list[float]] = defaultdict(list)
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                cells[int(row["Nodes"])].append(float(row["Runtime"]) / 1000.0)
        tables[path.stem] = {nodes: median(seconds) for nodes, seconds in cells.items()}
    counts = sorted(set.intersection(*(set(table) for table in tables.values())))
    offers = {"node": Offer("lab", "node", vcpu=8, memory_gib=16.0, price_per_hour=0.4)}

    def law(given: Values, chosen: Configuration, _: Offer) -> float:
        return tables[str(given["job"])][int(chosen["nodes"])]

    words = "time" if metric == "runtime" else "cost"
    inputs: list[Values] = [{"job": name} for name in tables]
    space: list[Parameter] = [_machines(offers), Nodes(name="nodes", values=tuple(counts))]
    return _job(f"bell, {words}", inputs, space, law, metric)


def jobs(folder: Path) -> dict[str, Scenario]:
    """All by name; the recorded ones only where the folder of the tables is there."""
    found = {f"paper 5, {law}": synthetic(law, levels=slice(2, 5)) for law in ("dynamic", "static")}
    found |= {one.name: one for one in (stars(), blocks(), cluster(), chains())}
    if (folder / "c3o").is_dir():
        for name in PARAMETERS:
            for metric, words in (("runtime", "time"), ("cost", "cost")):
                found[f"c3o {name}, {words}"] = recorded(folder / "c3o", name, metric)
    if (folder / "bell").is_dir():
        for metric in ("runtime", "cost"):
            made = scale_out(folder / "bell", metric)
            found[made.name] = made
    return {name: replace(one, name=name) for name, one in found.items()}
