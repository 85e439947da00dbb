"""Searches with and without scores of the machines: ``python run.py --copies 0 1 2``.

Appends to ``work/results.csv`` and leaves out what is there. It does not see that a searcher has changed: delete the
file then.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

HERE = Path(__file__).parent
COMPARE = HERE.parent / "compare"
sys.path.insert(0, str(COMPARE))

import tables  # noqa: E402
from bench import CONDITIONS, NEVER, Bench, Record, number, search  # noqa: E402
from noise import copy_of  # noqa: E402

from tradewind import plugins  # noqa: E402
from tradewind.problem import Trial  # noqa: E402

ARMS = ("without", "with", "shuffled", "shuffled-vcpu")
"""No scores; each type's own; those of all types dealt out anew among them; the same of scores per vCPU, so that larger
types keep larger scores."""

COLUMNS = ("searcher", "table", "condition", "copy", "seed", "arm", "close", "trials")


class Short(Record):
    """A record that ends with the first recommendation within 5 %."""

    def add(self, trial: Trial) -> bool:
        """See `Record`."""
        return super().add(trial) or self.close < NEVER


def dealt(table: Mapping[str, Any], known: Mapping[str, Any], arm: str, seed: int) -> dict[str, Any]:
    """The table with the scores of an arm.

    Args:
        table: A prepared table.
        known: Its entry in ``scores.json``.
        arm: One of `ARMS`.
        seed: Draws who gets whose score.
    """
    machines = {name: dict(facts) for name, facts in table["machines"].items()}
    if arm != "without":
        names = [name for name in machines if name in known["scores"]]
        scores = np.array([known["scores"][name] for name in names])
        vcpu = np.array([machines[name]["vcpu"] for name in names])
        order = np.arange(len(names))
        if arm != "with":
            order = np.random.default_rng([number(table["name"]), seed, 5]).permutation(len(names))
        scores = vcpu * (scores / vcpu)[order] if arm == "shuffled-vcpu" else scores[order]
        for name, score in zip(names, scores.tolist(), strict=True):
            machines[name][known["fact"]] = score
    return {**table, "machines": machines}


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searchers", nargs="*", default=["tradewind"])
    parser.add_argument("--tables", default="", help="what names start with: scout or tensorflow,cherrypick/tpch")
    parser.add_argument("--conditions", nargs="*", default=["second"], choices=tuple(CONDITIONS))
    parser.add_argument("--copies", type=int, nargs="*", default=[0], help="0 for the tables, others as in noise.py")
    parser.add_argument("--seeds", type=int, default=1, help="of noise, of a searcher with chance, and of shuffling")
    parser.add_argument("--arms", nargs="*", default=list(ARMS), choices=ARMS)
    return parser.parse_args()


def main() -> None:
    given = parsed()
    scores = json.loads((HERE / "work/scores.json").read_text())
    found = [
        table
        for table in tables.load(COMPARE / "work/tables.json")
        if table["name"] in scores and table["name"].startswith(tuple(given.tables.split(",")))
    ]
    path = HERE / "work/results.csv"
    done = set()
    if path.exists():
        with path.open(newline="") as file:
            done = {tuple(row[name] for name in COLUMNS[:6]) for row in csv.DictReader(file)}
    with path.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if not path.stat().st_size:
            writer.writerow(COLUMNS)
        for copy, seed, condition, table, searcher, arm in (
            (copy, seed, condition, table, searcher, arm)
            for copy in given.copies
            for seed in range(given.seeds)
            for condition in given.conditions
            for table in found
            for searcher in given.searchers
            for arm in given.arms
        ):
            # The seed of `tradewind` changes nothing: what differs is noise, and who gets whose score.
            chance = searcher != "tradewind" or CONDITIONS[condition][2] > 0 or arm.startswith("shuffled")
            key = (searcher, table["name"], condition, str(copy), str(seed), arm)
            if key in done or (seed and not chance):
                continue
            told = dealt(copy_of(table, copy), scores[table["name"]], arm, 100 * copy + seed)
            bench = Bench(told, condition)
            with bench.as_seen(seed) as problem:
                asks = plugins.create("searcher", searcher, {}, problem=problem, seed=seed)
                record, _ = search(bench, asks, abort=True, record=Short(bench))
            writer.writerow((*key, f"{record.close:.6g}", record.trials))
            file.flush()


if __name__ == "__main__":
    main()
