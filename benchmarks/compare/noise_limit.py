"""What telling good configurations from lucky ones allows under 10 % noise: ``python noise_limit.py --copies 0 1``.

No search at all: somebody who knows which configurations are contenders (those that cost up to 30 % more than the
optimum, and take up to 22 % longer than the deadline allows) runs each of them once, and then again and again the less
often run one of the two that are most likely to be right, up to ten times each, until so many mean costs are spent. The
costs are only seen through times that vary by 10 %. He recommends what is most likely to be in time and within 10 % of
the best, by the posterior of independent configurations (flat prior, spread known). Printed: how often it truly is.

A searcher has to find the contenders as well, and does not know the spread: it will hardly do better.
"""

from __future__ import annotations

import argparse
import math
from typing import Any

import numpy as np
import tables
from bench import NOISE, Bench
from noise import copy_of

FAMILIES = ("multicloud", "scout", "flora", "cherrypick", "tensorflow", "c3o")
SHARE, RIVALS, LATE = 0.1, 1.3, 0.2
MOST, DRAWS = 10, 300


def contenders(bench: Bench) -> tuple[Any, Any, Any]:
    """Cost in mean costs, ln seconds beyond the deadline, and whether it is right, of each contender."""
    problem, candidates = bench.problem, bench.problem.candidates
    found = []
    for configuration in map(candidates.configuration, range(len(candidates))):
        cost, late = problem.bill(configuration), bench.late(configuration)
        if cost <= RIVALS * bench.best and late <= LATE:
            found.append((cost / bench.mean, late, bench.away[configuration.key] <= SHARE))
    cost, late, right = zip(*found, strict=True)
    return np.array(cost), np.array(late), np.array(right)


def identified(bench: Bench, money: float, rng: np.random.Generator, times: int) -> float:
    """How often he is right."""
    cost, late, right = contenders(bench)
    hits = 0
    for _ in range(times):
        runs, total, left = np.ones(len(cost)), late + NOISE * rng.standard_normal(len(cost)), money - cost.sum()
        while True:
            sd = NOISE / np.sqrt(runs)
            beyond = total / runs + sd * rng.standard_normal((DRAWS, len(cost)))
            price = np.where(beyond <= 0, np.log(cost) + beyond - late, np.inf)
            chance = ((price <= price.min(axis=1, keepdims=True) + math.log(1 + SHARE)) & (beyond <= 0)).mean(axis=0)
            again = [i for i in np.argsort(-chance, kind="stable")[:2] if runs[i] < MOST and cost[i] <= left]
            if not again:
                break
            i = min(again, key=lambda i: runs[i])
            total[i] += late[i] + NOISE * rng.standard_normal()
            runs[i], left = runs[i] + 1, left - cost[i]
        hits += bool(right[int(np.argmax(chance))])
    return hits / times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--copies", type=int, nargs="*", default=[0], help="numbers of the copies; 0 for the tables")
    parser.add_argument("--money", type=float, nargs="*", default=[6.0, 18.0], help="mean costs for it")
    parser.add_argument("--times", type=int, default=60, help="for each table")
    given = parser.parse_args()
    found = [table for table in tables.load() if table["name"].startswith(FAMILIES)]
    for copy in given.copies:
        for money in given.money:
            rng = np.random.default_rng([copy, 5])
            share = [identified(Bench(copy_of(table, copy), "second"), money, rng, given.times) for table in found]
            by = {
                each: [s for s, t in zip(share, found, strict=True) if t["name"].startswith(each)] for each in FAMILIES
            }
            words = ", ".join(f"{each} {np.mean(shares):.0%}" for each, shares in by.items())
            print(
                f"copy {copy}, {money:g} mean costs: {np.mean(share):.1%} of {len(share)} tables ({words})", flush=True
            )


if __name__ == "__main__":
    main()
