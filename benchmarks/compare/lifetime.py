"""The whole bill: ``python lifetime.py --seeds 3 --out work/lifetime.csv``.

What a user pays is the search and the runs that follow it. For each table and each number N of future runs one search
is made that knows N and stops by itself; its lifetime bill is (search + N x bill of what it chose) / (N x bill of the
optimum). Beside it stands the best moment to stop that very search, had it gone on to its budget, and the same for
cheapest first and for random. ``--report`` prints the table of what the file holds; a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import math
import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")

import numpy as np
import tables
from bench import Bench, Record, search
from held_out import QUANTILES, add_table_options, appended, chosen_tables, has_winner, rows_of, with_deadline

from tradewind import plugins
from tradewind.problem import Trial

RUNS = (10, 30, 100, 1000)
"""Numbers of future runs; 0 stands for a search that does not know it, and uses its whole budget."""
ASSUMED = 100
"""Runs that a job is taken to have which says nothing."""
SEARCHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "default": ("tradewind", {}),
    "random": ("random", {}),
    "cheapest first": ("exhaustive", {"order": "cheapest"}),
}
COLUMNS = ("searcher", "family", "table", "quantile", "seed", "known", "N", "trials", "spent", "bill", "best")


class Steps(Record):
    """Also the number of trials at each step; it goes on until the searcher or the money ends."""

    def add(self, trial: Trial) -> bool:
        super().add(trial)
        return False

    def bill(self, runs: int, spent: float, away: float) -> float:
        """Lifetime bill for so many runs, in bills of the optimum; without a choice it is infinite."""
        return (spent * self.bench.mean / self.bench.best + runs * (1.0 + away)) / runs

    def best_bill(self, runs: int) -> float:
        """The same at the best moment to stop."""
        return min(self.bill(runs, spent, away) for spent, away in self.steps)


def one(name: str, settings: Mapping[str, Any], bench: Bench, seed: int, runs: int) -> Steps:
    """Search with so many future runs known; 0 for unknown."""
    record = Steps(bench)
    with bench.as_seen(seed) as problem:
        before = problem.terms
        object.__setattr__(problem, "terms", replace(before, future_runs=runs or None))
        try:
            searcher: Any = plugins.create("searcher", name, settings, problem=problem, seed=seed)
            search(bench, searcher, abort=True, record=record)
        finally:
            object.__setattr__(problem, "terms", before)
    return record


def run(given: argparse.Namespace) -> None:
    """Search what is not in the file yet."""
    done = {tuple(row[c] for c in ("searcher", "table", "quantile", "seed")) for row in rows_of(given.out)}
    with appended(given.out, COLUMNS) as write:
        for table in chosen_tables(given):
            for quantile in [float(one) for one in given.quantiles.split(",")]:
                dated = with_deadline(table, quantile)
                if not has_winner(dated):
                    continue
                bench = Bench(dated, "second")
                for chosen in given.searchers:
                    for seed in range(given.seeds):
                        key = (table["name"], f"{quantile:g}", str(seed))
                        if (chosen, *key) not in done:
                            write(_rows(chosen, table["family"], key, bench, seed))


def _rows(chosen: str, family: str, key: tuple[str, str, str], bench: Bench, seed: int) -> list[list[Any]]:
    name, settings = SEARCHERS[chosen]
    records = {known: one(name, settings, bench, seed, known) for known in (0, *RUNS)}
    rows = []
    for runs in RUNS:
        for known in dict.fromkeys((runs, ASSUMED, 0)):
            record = records[known]
            bill = record.bill(runs, record.spent, record.steps[-1][1])
            figures = [f"{v:.5g}" for v in (record.spent, bill, records[0].best_bill(runs))]
            rows.append([chosen, family, *key, known, runs, record.trials, *figures])
    return rows


def report(rows: list[dict[str, str]]) -> None:
    """Print the geometric mean over families of the mean over their cases."""
    print("| searcher | " + " | ".join(f"N = {runs}: known, 100, whole, best moment" for runs in RUNS) + " |")
    print("|" + "---|" * (1 + len(RUNS)))
    for chosen in dict.fromkeys(row["searcher"] for row in rows):
        cells = []
        for runs in RUNS:
            mine = [row for row in rows if row["searcher"] == chosen and row["N"] == str(runs)]
            figures = [_mean(mine, known, "bill") for known in (runs, ASSUMED, 0)] + [_mean(mine, 0, "best")]
            cells.append(" ".join(f"{figure:.2f}" for figure in figures))
        print(f"| {chosen} | " + " | ".join(cells) + " |")
    families = sorted({row["family"] for row in rows})
    print("\n| family | cases | " + " | ".join(f"N = {runs}: known, best moment" for runs in RUNS) + " |")
    print("|" + "---|" * (2 + len(RUNS)))
    for family in families:
        mine = [row for row in rows if row["searcher"] == "default" and row["family"] == family]
        cells = []
        for runs in RUNS:
            own = [row for row in mine if row["N"] == str(runs)]
            cells.append(f"{_mean(own, runs, 'bill'):.2f} {_mean(own, 0, 'best'):.2f}")
        print(
            f"| {family} | {len({(row['table'], row['quantile'], row['seed']) for row in mine})} | "
            + " | ".join(cells)
            + " |"
        )


def _mean(rows: list[dict[str, str]], known: int, column: str) -> float:
    found: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row["known"] == str(known):
            found[row["family"]].append(math.log(min(float(row[column]), 100.0)))
    return math.exp(float(np.mean([np.mean(values) for values in found.values()])))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--searchers", default="default,random,cheapest first")
    add_table_options(parser)
    parser.add_argument("--quantiles", default=",".join(f"{q:g}" for q in QUANTILES))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path, default=tables.HERE / "work/lifetime.csv")
    parser.add_argument("--report", action="store_true", help="print the table of the file, and search nothing")
    given = parser.parse_args()
    given.searchers = given.searchers.split(",")
    if not given.report:
        run(given)
    report(rows_of(given.out))


if __name__ == "__main__":
    main()
