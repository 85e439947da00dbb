"""Where the money of a search goes: ``python spending.py --tables multicloud,flora [--copies 0 1] [--runs]``.

Follows `tradewind` and the exhaustive search (cheapest by the hour first, with aborts) run by run until each holds a
configuration within 5 % of the optimum, and says for each family what they need (geometric mean over tables, in mean
costs of a configuration) and of what that consists: the first run up to the deadline and beyond it, later runs
that became the best, those that did not up to the point where they could not win any more and beyond it, and those
that failed. ``--runs`` prints the runs.
"""

from __future__ import annotations

import argparse
import math
import os
from dataclasses import dataclass, field
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import tables
from bench import CLOSE, NEVER, Bench, Record, search
from noise import copy_of
from run import POLICIES

from tradewind import plugins
from tradewind.problem import Trial, TrialState

KINDS = ("first, in time", "first, beyond", "became the best", "lost, could win", "lost, beyond", "failed")


@dataclass
class Traced(Record):
    """A record that keeps what each run was and cost until the recommendation is close.

    Attributes:
        runs: Kind of each run, the trial, and mean costs up to the point where it could not win any more and beyond.
    """

    runs: list[tuple[str, Trial, float, float]] = field(default_factory=list)
    _best: float = math.inf

    def add(self, trial: Trial) -> bool:
        """See `Record`."""
        runs, best = self.runs, self._best
        if self.close == NEVER:
            problem, mean = self.bench.problem, self.bench.mean
            billing, hourly = problem.terms.billing, trial.offer.hourly
            deadline = problem.constraints.deadline or math.inf
            wins = min(trial.spent, billing.cost(deadline, hourly), best) / mean
            seen = trial.observation
            won = seen is not None and seen.feasible and seen.objective is not None and seen.objective < best
            if not runs:
                runs.append(("first, in time", trial, wins, trial.spent / mean - wins))
            elif won:
                runs.append(("became the best", trial, trial.spent / mean, 0.0))
            elif trial.state == TrialState.FAILED:
                runs.append(("failed", trial, trial.spent / mean, 0.0))
            else:
                runs.append(("lost, could win", trial, wins, trial.spent / mean - wins))
            if won:
                self._best = trial.spent
        return super().add(trial) or self.close < NEVER

    def shares(self) -> dict[str, float]:
        """Mean costs spent by kind of run."""
        found = dict.fromkeys(KINDS, 0.0)
        for kind, _, money, beyond in self.runs:
            found[kind] += money
            if beyond:
                found[kind.split(",")[0] + ", beyond"] += beyond
        return found


def traced(bench: Bench, policy: str) -> Traced:
    """A search of a policy, followed."""
    chosen = POLICIES[policy]
    with bench.as_seen(0) as problem:
        searcher = plugins.create("searcher", chosen.searcher, chosen.settings, problem=problem, seed=0)
        record = Traced(bench)
        search(bench, searcher, abort=chosen.abort, record=record)
    return record


def told(record: Traced) -> None:
    """Print the runs of a search."""
    bench = record.bench
    hourly = np.sort(bench.problem.candidates.hourly)
    deadline = bench.problem.constraints.deadline or math.inf
    for i, (kind, trial, money, beyond) in enumerate(record.runs):
        seen = trial.observation
        away = bench.away[trial.configuration.key]
        seconds = math.nan if seen is None else seen.runtime / deadline
        place = int(np.searchsorted(hourly, trial.offer.hourly * (1 - 1e-9)))
        near = " close" if away <= CLOSE else ""
        sign = ">" if trial.state == TrialState.ABORTED else " "
        print(
            f"    {i + 1:3d} {kind:16s} price {place + 1:3d}. of {len(hourly)} ({trial.offer.hourly:.3f}/h)  "
            f"{sign}{seconds:5.2f} deadlines  {money:.3f} + {beyond:.3f}  away {away:.2f}{near}  {trial.offer.key}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default="multicloud,flora", help="what names start with")
    parser.add_argument("--billing", default="second")
    parser.add_argument("--copies", type=int, nargs="*", default=[0], help="numbers of the copies; 0 for the tables")
    parser.add_argument("--policies", default="exhaustive,tradewind", help="of run.py")
    parser.add_argument("--work", type=Path, default=tables.HERE / "work", help="folder of tables.json")
    parser.add_argument("--runs", action="store_true", help="print every run")
    given = parser.parse_args()
    spent: dict[tuple[str, str], list[float]] = {}
    parts: dict[tuple[str, str], list[dict[str, float]]] = {}
    for table in tables.load(given.work / "tables.json"):
        if not table["name"].startswith(tuple(given.tables.split(","))):
            continue
        for copy in given.copies:
            bench = Bench(copy_of(table, copy), given.billing)
            for policy in given.policies.split(","):
                record = traced(bench, policy)
                group = (table["family"], policy)
                spent.setdefault(group, []).append(record.close)
                parts.setdefault(group, []).append(record.shares())
                if given.runs:
                    print(f"{table['name']}, copy {copy}, {policy}: {record.close:.3f}")
                    told(record)
    print(f"{'family':12s} {'policy':12s} geometric mean |" + "".join(f" {kind:>16s}" for kind in KINDS))
    for (family, policy), costs in spent.items():
        found = parts[family, policy]
        mean = float(np.exp(np.mean(np.log(costs))))
        figures = [f"{np.mean([p[kind] for p in found]):16.3f}" for kind in KINDS]
        print(f"{family:12s} {policy:12s} {mean:14.3f} |" + " ".join(["", *figures]))


if __name__ == "__main__":
    main()
