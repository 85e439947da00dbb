"""Where the loss under noise lies: ``python noise.py --copies 1 --seeds 100-101 [--tables flora,scout] [--repeats 1]``.

Searches of ``tradewind`` on copies of the tables with other prices, deadlines and time scales, and for each search,
after so many mean costs, how often a configuration is truly within 10 % of the optimum that is recommended by

- the engine,
- the least cost that the searcher's model expects, among the tried ones that it expects to be in time (smoothed),
- somebody who knows the truth of all that was tried (oracle).

Last, in how many tables a configuration within 10 % of the optimum keeps a margin before the deadline: a recommendation
that must be in time cannot do better than that where times vary.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import tables
from bench import Bench, Record, number, search
from run import seeds_of

from tradewind import plugins
from tradewind.problem import Trial

SHARE = 0.1
BUDGETS = (4, 8, 12)
MARGINS = (0.01, 0.03, 0.05, 0.1)


def copy_of(table: Mapping[str, Any], copy: int) -> dict[str, Any]:
    """The table with other prices, another deadline and another scale of time; copy 0 is the table itself."""
    if not copy:
        return dict(table)
    rng = np.random.default_rng([number(table["name"]), copy, 77])
    machines = {
        name: {**facts, "price": facts["price"] * math.exp(0.25 * rng.standard_normal())}
        for name, facts in table["machines"].items()
    }
    seconds = sorted(row["seconds"] for row in table["rows"])
    ended = sorted(row["seconds"] for row in table["rows"] if not row["failed"])
    quantile = float(rng.uniform(0.25, 0.85))
    deadline = max(seconds[int(quantile * (len(seconds) - 1))], ended[min(2, len(ended) - 1)])
    scale = math.exp(rng.uniform(-1.5, 1.5))
    rows = [{**row, "seconds": row["seconds"] * scale} for row in table["rows"]]
    return {**table, "machines": machines, "rows": rows, "deadline": deadline * scale}


class Tried(Record):
    """A record that keeps its trials."""

    def add(self, trial: Trial) -> bool:
        """See `Record`; the search ends a little beyond the largest budget."""
        self.__dict__.setdefault("history", []).append((self.spent + trial.spent / self.bench.mean, trial))
        return super().add(trial) or self.spent > max(BUDGETS) + 1


def smoothed(bench: Bench, trials: Sequence[Trial]) -> float:
    """How far from the optimum what the model of the searcher prefers among the tried ones is."""
    searcher = plugins.create("searcher", "tradewind", {"repeats": 1}, problem=bench.problem, seed=0)
    for trial in trials:
        searcher.tell(trial)
    told = {t.configuration: searcher.explain(t.configuration) for t in trials if t.state.value == "succeeded"}
    known = [(said["expected_cost"], c) for c, said in told.items() if said and said["probability_feasible"] > 0.5]
    return bench.away[min(known, key=lambda pair: pair[0])[1].key] if known else math.inf


def margins(bench: Bench) -> list[bool]:
    """Whether a configuration close to the optimum is so long before the deadline, by `MARGINS`."""
    problem, candidates = bench.problem, bench.problem.candidates
    deadline = problem.constraints.deadline or math.inf
    close = [c for c in map(candidates.configuration, range(len(bench))) if bench.away[c.key] <= SHARE]
    least = min(problem.truth(c, problem.resolver.resolve(c)).runtime for c in close)
    return [least <= (1.0 - margin) * deadline for margin in MARGINS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--copies", type=int, nargs="*", default=[1], help="numbers of the copies; 0 for the tables")
    parser.add_argument("--seeds", type=seeds_of, default=range(100, 102))
    parser.add_argument("--tables", default="", help="what names start with")
    parser.add_argument("--condition", default="noise10")
    parser.add_argument("--repeats", type=int, default=5, help="of tradewind; 1 for no repetitions")
    given = parser.parse_args()
    found = [t for t in tables.load() if t["name"].startswith(tuple(given.tables.split(",")))]
    hits: dict[tuple[str, int], list[bool]] = {}
    kept, repeated = [], []
    for table in found:
        for copy in given.copies:
            bench = Bench(copy_of(table, copy), given.condition)
            kept.append(margins(bench))
            for seed in given.seeds:
                with bench.as_seen(seed) as problem:
                    settings = {"repeats": given.repeats}
                    searcher = plugins.create("searcher", "tradewind", settings, problem=problem, seed=seed)
                    record = Tried(bench)
                    search(bench, searcher, abort=True, record=record)
                    history: list[tuple[float, Trial]] = record.__dict__["history"]
                repeated.append(sum(trial.proposal.repeat for spent, trial in history if spent <= 8))
                for budget in BUDGETS:
                    tried = [trial for spent, trial in history if spent <= budget * (1 + 1e-9)]
                    ended = [t for t in tried if t.state.value == "succeeded"]
                    best = min((bench.away[t.configuration.key] for t in ended), default=math.inf)
                    hits.setdefault(("recommended", budget), []).append(record.dopt(budget) <= SHARE)
                    hits.setdefault(("smoothed", budget), []).append(smoothed(bench, tried) <= SHARE)
                    hits.setdefault(("oracle", budget), []).append(best <= SHARE)
    for (who, budget), flags in hits.items():
        print(f"{who} at {budget}: {np.mean(flags):.3f} of {len(flags)}")
    print(f"repetitions within 8 mean costs: {np.mean(repeated):.1f} a search")
    for margin, share in zip(MARGINS, np.mean(kept, axis=0), strict=True):
        print(f"tables with one within {SHARE:.0%} of the optimum {margin:.0%} before the deadline: {share:.2f}")


if __name__ == "__main__":
    main()
