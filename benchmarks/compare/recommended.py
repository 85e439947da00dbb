"""Does ``tradewind recommend`` keep what a search has found? ``python recommended.py --trials 12 --copies 0 1``.

After so many trials of `tradewind`, all with the same job parameters, `done` recommends from them. For each family: how
often the search's own best is within 5 % of the optimum, how often the recommendation is, and how often that is a worse
or a better one. ``--condition noise10`` for runs that vary.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, field, replace

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import tables
from bench import CLOSE, CONDITIONS, Bench, Record, search
from noise import copy_of

from tradewind import plugins
from tradewind.problem import PastStudy, Trial


@dataclass
class Kept(Record):
    """A record that keeps its trials and ends after so many.

    Attributes:
        most: Trials.
        history: All of them.
    """

    most: int = 12
    history: list[Trial] = field(default_factory=list)

    def add(self, trial: Trial) -> bool:
        """See `Record`."""
        super().add(trial)
        self.history.append(trial)
        return len(self.history) >= self.most


def both(bench: Bench, trials: int) -> tuple[float, float]:
    """Distance from the optimum of what the search holds, and of what is recommended from its trials."""
    with bench.as_seen(0) as problem:
        record = Kept(bench, most=trials)
        search(bench, plugins.create("searcher", "tradewind", {}, problem=problem, seed=0), abort=True, record=record)
        past = PastStudy(
            problem.job.name,
            problem.job.parameters,
            tuple(record.history),
            objective=problem.objective,
            constraints=problem.constraints,
            billing=problem.terms.billing,
        )
        done = plugins.create("searcher", "done", {}, problem=replace(problem, past=(past,)), seed=0)
        return record.steps[-1][1], bench.away[done.recommend(1)[0].configuration.key]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--copies", type=int, nargs="*", default=[0, 1], help="see noise.py")
    parser.add_argument("--condition", choices=tuple(CONDITIONS), default="second")
    parser.add_argument("--tables", default="tensorflow,cherrypick,scout,multicloud,flora,c3o")
    given = parser.parse_args()
    found: dict[str, list[tuple[float, float]]] = {}
    for copy in given.copies:
        for table in tables.load():
            if table["name"].startswith(tuple(given.tables.split(","))):
                pair = both(Bench(copy_of(table, copy), given.condition), given.trials)
                found.setdefault(table["family"], []).append(pair)
    found["all"] = [pair for pairs in found.values() for pair in pairs]
    print("| tables | searches | best within 5 % | recommended within 5 % | a worse one | a better one |")
    print("|---|---|---|---|---|---|")
    for family, pairs in found.items():
        own, told = np.array(pairs).T
        shares = [own <= CLOSE, told <= CLOSE, told > own + 1e-9, told < own - 1e-9]
        print(f"| {family} | {len(pairs)} | {' | '.join(f'{np.mean(share):.0%}' for share in shares)} |")


if __name__ == "__main__":
    main()
