"""Searchers whose trials go on from checkpoints, against random search: ``python continuing.py DATASETS [seeds]``.

Four searches at a time share the work, which is counted in whole runs: a trial that goes on does the rest only. Prints
a table each for ``mnist`` with its recorded errors after 1, 2, 4, 8 and 16 epochs, and for curves that end in the
recorded losses of ``hpo`` and cross on the way.
"""

from __future__ import annotations

import csv
import gzip
import math
import statistics
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from curves import mnist

from tradewind import plugins
from tradewind.problem import Configuration, Objective, Offer, Ordinal, Trial
from tradewind.searcher.base import Searcher
from tradewind.testing.problems import KnownOutcome, KnownProblem, drive, make_problem

PARALLEL = 4
WORK = (10, 20, 40)
"""Whole runs of which the work is spent."""

Curve = Callable[[tuple[float, ...], float], float]
"""The error, in %, of a configuration at a share of its training."""

SEARCHERS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "random": ("random", {}),
    "asha": ("asha", {"eta": 2, "rungs": 5}),
    "hyperband": ("hyperband", {"eta": 2, "rungs": 5, "rounds": 50}),
    "pbt": ("pbt", {"population": 20, "turns": 8}),
}
HPO = ("hpobench_australian", "hpobench_kc1", "hpobench_phoneme", "hpobench_segment")
HPO_NAMES = ("alpha", "batch_size", "depth", "learning_rate_init", "width")


def recorded(folder: Path, _seed: int) -> tuple[list[tuple[str, tuple[float, ...]]], Curve]:
    """The parameters of ``mnist`` and its curves, straight between what was recorded on a scale of doublings."""
    table = mnist(folder)
    rows = {row.chosen: ([math.log2(p[0]) for p in row.points], [100 * p[1] for p in row.points]) for row in table.rows}

    def curve(values: tuple[float, ...], share: float) -> float:
        return float(np.interp(math.log2(16 * share), *rows[values]))

    return _levels(("lr", "momentum", "batch", "decay"), list(rows)), curve


def made(folder: Path, seed: int, name: str) -> tuple[list[tuple[str, tuple[float, ...]]], Curve]:
    """The parameters of a table of ``hpo``, and curves that fall towards its losses at speeds of their own."""
    with gzip.open(folder / "hpo" / f"{name}.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))
    ends = {tuple(float(row[key]) for key in HPO_NAMES): 100 * (1 - float(row["val_acc_0"])) for row in rows}
    speeds = dict(zip(ends, np.random.default_rng(seed).uniform(4.0, 12.0, len(ends)), strict=True))

    def curve(values: tuple[float, ...], share: float) -> float:
        return ends[values] + 100 * math.exp(-speeds[values] * share)

    return _levels(HPO_NAMES, list(ends)), curve


def _levels(names: tuple[str, ...], rows: list[tuple[float, ...]]) -> list[tuple[str, tuple[float, ...]]]:
    return [(name, tuple(sorted(set(column)))) for name, column in zip(names, zip(*rows, strict=True), strict=True)]


def problem_of(levels: list[tuple[str, tuple[float, ...]]], curve: Curve) -> KnownProblem:
    """The problem: the least error at the end."""
    names = [name for name, _ in levels]

    def part(configuration: Configuration, _offer: Offer, share: float) -> KnownOutcome:
        error = curve(tuple(float(configuration[name]) for name in names), share)
        return KnownOutcome(1000.0 * share, metrics={"error": error})

    parameters = [Ordinal(name=name, values=values) for name, values in levels]
    problem = make_problem(parameters, lambda c, o: part(c, o, 1.0), objective=Objective("error"))
    return replace(problem, of_part=part)


def search(problem: KnownProblem, searcher: Searcher) -> list[float]:
    """The least error of a whole run by the time that the work of so many whole runs is spent; infinite without one."""
    spent, best = 0.0, [math.inf] * len(WORK)
    shares: dict[int, float] = {}

    def over(trial: Trial) -> bool:
        nonlocal spent
        share, origin = trial.proposal.fidelity, trial.proposal.origin
        shares[trial.number] = share
        spent += share - (0.0 if origin is None else shares[origin])
        if share == 1.0 and trial.observation is not None and trial.observation.objective is not None:
            found = trial.observation.objective
            best[:] = [min(b, found) if spent <= w + 1e-9 else b for b, w in zip(best, WORK, strict=True)]
        return spent >= max(WORK)

    drive(searcher, problem, 2000, PARALLEL, until=over)
    return best


def one(folder: Path, table: str, seed: int) -> dict[str, list[float]]:
    """All searchers with a seed on a table."""
    levels, curve = recorded(folder, seed) if table == "mnist" else made(folder, seed, table)
    found = {}
    for label, (name, settings) in SEARCHERS.items():
        problem = problem_of(levels, curve)
        found[label] = search(problem, plugins.create("searcher", name, settings, problem=problem, seed=seed))
    return found


def show(table: str, found: list[dict[str, list[float]]]) -> None:
    """Print the mean of the least error for each amount of work, and in how many orders it beats random search."""
    print(f"\n### {table}\n")
    print("| searcher | " + " | ".join(f"work of {work} runs" for work in WORK) + " |")
    print("|---|" + "---|" * len(WORK))
    for label in SEARCHERS:
        cells = []
        for at in range(len(WORK)):
            ends = [(each[label][at], each["random"][at]) for each in found]
            if any(math.isinf(mine) for mine, _ in ends):
                cells.append("none yet")
                continue
            mean = statistics.fmean(mine for mine, _ in ends)
            won, lost = (sum(sign * (mine - other) < 0 for mine, other in ends) for sign in (1, -1))
            cells.append(f"{mean:.2f}" + ("" if label == "random" else f"; better in {won}, worse in {lost}"))
        print(f"| {label} | " + " | ".join(cells) + " |")


def main() -> None:
    """Run all of it."""
    folder, seeds = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 30
    with ProcessPoolExecutor(2) as pool:
        for table in ("mnist", *HPO):
            show(table, list(pool.map(partial(one, folder, table), range(seeds))))


if __name__ == "__main__":
    main()
