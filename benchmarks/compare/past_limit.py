"""What the past of the other jobs allows: ``python past_limit.py --copies 0 1``.

No model at all: configurations are run in the order in which one earlier job of the suite ranks them (those that met
its deadline by their cost, then the others by their time), all of whose runs are known, and runs are cut where they can
no longer win. Told for each table, as money until within 5 % of the optimum and a geometric mean over tables:

- the optimum: who is told it, and runs it;
- best job: who is told **which** earlier job ranks this one's configurations best for this very figure;
- any job: a job at random (the mean of its logarithm over jobs);
- all jobs: the order of the mean logarithm of cost over all jobs, those late by as much as they are late;
- cover: an order in which what is near the best of most earlier jobs comes first, for its money, then what is so for
  most of the jobs that are left (greedy min-sum set cover, Feige, Lovász & Tetali, "Approximating min sum set cover",
  Algorithmica 2004).

A searcher is not told which job is the right one, and has seen 20 runs of each.
"""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import tables
from bench import CLOSE, Bench, Pasts, search
from noise import copy_of
from past_copies import arguments, money

from tradewind.problem import Configuration, Proposal, Trial
from tradewind.searcher.base import NothingLeft, SearchState

Known = Mapping[str, tuple[float, float]]
COLD = "tradewind, cold"
FAMILIES = "tensorflow,cherrypick,scout,multicloud,flora,c3o"


MOST_LATE = 3.0
"""ln seconds beyond the deadline that a failure counts as."""


class Listed:
    """Asks for configurations in a given order."""

    def __init__(self, order: Sequence[Configuration]) -> None:
        self._left = iter(order)

    def ask(self, state: SearchState, count: int = 1) -> list[Proposal] | NothingLeft:
        following = next(self._left, None)
        return NothingLeft("tried all") if following is None else [Proposal(following)]

    def tell(self, trial: Trial) -> None:
        pass


def configurations(bench: Bench) -> list[Configuration]:
    """All that can be bought."""
    candidates = bench.problem.candidates
    return [candidates.configuration(i) for i in range(len(candidates))]


def known(bench: Bench) -> Known:
    """Ln cost, up to a constant, and ln seconds beyond the deadline by key."""
    return {
        each.key: (math.log(bench.problem.bill(each) / bench.best), min(bench.late(each), MOST_LATE))
        for each in configurations(bench)
    }


def by_one(job: Known, key: str) -> tuple[bool, float]:
    """What one earlier job orders by; what it has no run of comes last."""
    cost, late = job.get(key, (math.inf, math.inf))
    return late > 0, late if late > 0 else cost


def by_all(jobs: Sequence[Known], key: str) -> float:
    """What all jobs order by: mean ln cost, and a penalty of ten times the mean lateness."""
    seen = [job[key] for job in jobs if key in job]
    return float(np.mean([cost + 10.0 * max(0.0, late) for cost, late in seen])) if seen else math.inf


def covering(jobs: Sequence[Known], keys: Sequence[str]) -> list[str]:
    """The order in which most earlier jobs soon have a configuration within 5 % of their best."""
    near = np.array([[job.get(key, (math.inf, 0.0)) for key in keys] for job in jobs])
    hits = (near[:, :, 0] <= math.log(1.0 + CLOSE)) & (near[:, :, 1] <= 0.0)
    cut = near[:, :, 0] - np.maximum(near[:, :, 1], 0.0)  # ln cost of a run that ends at the deadline
    seen = np.isfinite(cut)
    mean = np.where(seen, cut, 0.0).sum(axis=0) / np.maximum(seen.sum(axis=0), 1)
    cost = np.exp(np.where(seen.any(axis=0), mean, mean.mean()))
    order: list[str] = []
    left, rest = np.ones(len(jobs), dtype=bool), list(range(len(keys)))
    while rest:
        worth = (hits[left][:, rest].sum(axis=0) + 1e-6) / cost[rest]
        chosen = rest.pop(int(np.argmax(worth)))
        left &= ~hits[:, chosen]
        order.append(keys[chosen])
    return order


def figures(bench: Bench, jobs: Sequence[Known], seed: int) -> dict[str, float]:
    """ln mean costs until within 5 %, by who searches."""
    every = configurations(bench)

    def spent(worth: Callable[[str], Any]) -> float:
        with bench.as_seen(seed):
            order = sorted(every, key=lambda each: worth(each.key))
            return math.log(search(bench, Listed(order), abort=True)[0].close)

    each = [spent(partial(by_one, job)) for job in jobs]
    return {
        "the optimum": math.log(bench.best / bench.mean),
        "best job": min(each),
        "any job": float(np.mean(each)),
        "all jobs": spent(partial(by_all, jobs)),
        "cover": spent(covering(jobs, [each.key for each in every]).index),
        COLD: math.log(money(bench, Pasts([]), "cold", seed)),
    }


def main() -> None:
    given = arguments(__doc__, [0], FAMILIES)
    logs: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for copy in given.copies:
        every = [Bench(copy_of(table, copy), given.condition) for table in tables.load()]
        for bench in every:
            name, family = bench.table["name"], bench.table["family"]
            if name.startswith(tuple(given.tables.split(","))):
                others = [other for other in every if other.table["family"] == family and other is not bench]
                for words, figure in figures(bench, [known(other) for other in others], given.seed).items():
                    logs[words][family].append(figure)

    def mean(words: str) -> float:
        return float(np.mean([figure for found in logs[words].values() for figure in found]))

    for words, by in logs.items():
        share = {family: math.exp(np.mean(found) - np.mean(logs[COLD][family])) for family, found in by.items()}
        families = ", ".join(f"{family} {each:.2f}" for family, each in share.items())
        total = f"{math.exp(mean(words)):.2f} mean costs, {math.exp(mean(words) - mean(COLD)):.2f} of cold"
        print(f"{words}: {total} ({families}), {sum(map(len, by.values()))} tables")


if __name__ == "__main__":
    main()
