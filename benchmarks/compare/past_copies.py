"""What a past saves on copies of the tables: ``python past_copies.py --tables cherrypick --copies 1 2 3``.

Searches of ``tradewind`` on copies with other prices, deadlines and time scales (see noise.py): the money
until within 5 % with a past as a share of what it takes without, a geometric mean over tables and copies.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Iterator

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import tables
from bench import CONDITIONS, Bench, Pasts, search
from noise import copy_of

from tradewind import plugins


def money(bench: Bench, pasts: Pasts, past: str, seed: int) -> float:
    """Mean costs until within 5 %."""
    with bench.as_seen(seed, pasts.of(bench, past, seed)) as problem:
        searcher = plugins.create("searcher", "tradewind", {}, problem=problem, seed=seed)
        return search(bench, searcher, abort=True)[0].close


def arguments(about: str | None, copies: list[int], names: str) -> argparse.Namespace:
    """Which tables, copies and pasts are wanted."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--copies", type=int, nargs="*", default=copies, help="numbers of the copies; 0 for the tables")
    parser.add_argument("--tables", default=names, help="what names start with")
    parser.add_argument("--pasts", nargs="*", default=["warm", "shuffled"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--condition", choices=tuple(CONDITIONS), default="second")
    return parser.parse_args()


def benches(given: argparse.Namespace) -> Iterator[tuple[int, Bench, Pasts]]:
    """The wanted tables of each copy, and the pasts of the copy."""
    for copy in given.copies:
        found = [copy_of(table, copy) for table in tables.load()]
        pasts = Pasts(found)
        for table in found:
            if table["name"].startswith(tuple(given.tables.split(","))):
                yield copy, Bench(table, given.condition), pasts


def main() -> None:
    given = arguments(__doc__, [1], "")
    logs: dict[str, list[float]] = {}
    for _, bench, pasts in benches(given):
        cold = money(bench, pasts, "cold", given.seed)
        for past in given.pasts:
            logs.setdefault(past, []).append(math.log(money(bench, pasts, past, given.seed) / cold))
    for past, values in logs.items():
        error = np.std(values) / math.sqrt(len(values))
        print(f"{past}: {math.exp(np.mean(values)):.2f} of cold, standard error {error:.0%}, {len(values)} tables")


if __name__ == "__main__":
    main()
