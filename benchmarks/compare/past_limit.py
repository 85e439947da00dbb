"""What the past of the other jobs allows: ``python past_limit.py --copies 0 1``.

No model at all: configurations are run in the order in which one earlier job of the suite ranks them (those that met
its deadline by their cost, then the others by their time), all of whose runs are known, and runs are cut where they can
no longer win. Told for each table, as money until within 5 % of the optimum and a geometric mean over tables:

- the optimum: who is told it, and runs it;
- best job: who is told **which** earlier job ranks this one's configurations best for this very figure;
- any job: a job at random (the mean of its logarithm over jobs);
- all jobs: the order of the mean logarithm of cost over all jobs, those late by as much as they are late.

A searcher is not told which job is the right one, and has seen 20 runs of each.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import tables
from bench import Bench, Pasts, search
from noise import copy_of
from past_copies import arguments, money

from tradewind.problem import Proposal, Trial
from tradewind.searcher.base import NothingLeft, SearchState

FAMILIES = "tensorflow,cherrypick,scout,multicloud,flora,c3o"


class Listed:
    """Asks for configurations in a given order."""

    def __init__(self, bench: Bench, keys: Sequence[str]) -> None:
        candidates = bench.problem.candidates
        found = {each.key: each for each in map(candidates.configuration, range(len(candidates)))}
        self._left = [found[key] for key in reversed(keys)]

    def ask(self, state: SearchState, count: int = 1) -> list[Proposal] | NothingLeft:
        return [Proposal(self._left.pop())] if self._left else NothingLeft("tried all")

    def tell(self, trial: Trial) -> None:
        pass


def known(bench: Bench) -> dict[str, tuple[float, float]]:
    """Ln cost and ln time beyond the deadline by key; a failure is as late as ten deadlines."""
    problem, found = bench.problem, {}
    deadline = problem.constraints.deadline or math.inf
    for configuration in map(problem.candidates.configuration, range(len(problem.candidates))):
        seconds = problem.truth(configuration, problem.resolver.resolve(configuration)).runtime
        late = math.log(seconds / deadline)
        failed = problem.value(configuration) is None and late <= 0
        found[configuration.key] = (math.log(problem.bill(configuration) / bench.best), 3.0 if failed else late)
    return found


def by_one(job: dict[str, tuple[float, float]], keys: Sequence[str]) -> list[str]:
    """Keys in the order of one earlier job; what it has no run of comes last."""
    unknown = (math.inf, 9.0)
    return sorted(keys, key=lambda k: (job.get(k, unknown)[1] > 0, job.get(k, unknown)[job.get(k, unknown)[1] > 0]))


def by_all(jobs: Sequence[dict[str, tuple[float, float]]], keys: Sequence[str]) -> list[str]:
    """Keys by mean ln cost, and a penalty of ten times the mean lateness."""

    def worth(key: str) -> float:
        seen = [job[key] for job in jobs if key in job]
        return float(np.mean([cost + 10.0 * max(0.0, late) for cost, late in seen])) if seen else math.inf

    return sorted(keys, key=worth)


def main() -> None:
    given = arguments(__doc__, [0], FAMILIES)
    logs: dict[str, dict[str, list[float]]] = {}
    for copy in given.copies:
        benches = [Bench(copy_of(table, copy), given.condition) for table in tables.load()]
        benches = [bench for bench in benches if bench.table["name"].startswith(tuple(given.tables.split(",")))]
        truth = {bench.table["name"]: known(bench) for bench in benches}
        for bench in benches:
            name, family = bench.table["name"], bench.table["family"]
            keys = list(truth[name])
            jobs = [
                truth[other.table["name"]]
                for other in benches
                if other.table["family"] == family and other.table["name"] != name
            ]

            def spent(order: Sequence[str], bench: Bench = bench) -> float:
                with bench.as_seen(given.seed):
                    return math.log(search(bench, Listed(bench, order), abort=True)[0].close)

            each = [spent(by_one(job, keys)) for job in jobs]
            figures = {
                "the optimum": math.log(bench.best / bench.mean),
                "best job": min(each),
                "any job": float(np.mean(each)),
                "all jobs": spent(by_all(jobs, keys)),
                "tradewind, cold": math.log(money(bench, Pasts([]), "cold", given.seed)),
            }
            for words, figure in figures.items():
                logs.setdefault(words, {}).setdefault(family, []).append(figure)
    for words, by in logs.items():
        every = [figure for figures in by.values() for figure in figures]
        share = [math.exp(np.mean(by[f]) - np.mean(logs["tradewind, cold"][f])) for f in by]
        total = (
            math.exp(np.mean(every)),
            math.exp(np.mean(every) - np.mean([x for figures in logs["tradewind, cold"].values() for x in figures])),
        )
        families = ", ".join(f"{family} {each:.2f}" for family, each in zip(by, share, strict=True))
        print(f"{words}: {total[0]:.2f} mean costs, {total[1]:.2f} of cold ({families}), {len(every)} tables")


if __name__ == "__main__":
    main()
