"""A prior that is learned from tables: ``python learned_prior.py --made work-made --out work/learned_prior.csv``.

The default searcher's hyper-priors are chosen by empirical Bayes: those under which the runs that a search has not seen
are most probable, given a few that it has (mean log predictive density of ln cost). For each family they are chosen on
all the others, by coordinates, from what stands in the code, and judged on that family: money until within 5 %, and the
lifetime bill of ``lifetime.py``. ``--report`` prints the tables of what the files hold; what was stopped goes on.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")

import lifetime
import numpy as np
import tables
from bench import Bench, number
from held_out import POSTERIOR, Choice, add_table_options, appended, chosen_tables, one, patched, rows_of, with_deadline
from scipy.special import logsumexp

from tradewind import plugins
from tradewind.problem import Proposal, Trial
from tradewind.searcher.default.posterior import PROCESS_KINDS
from tradewind.searcher.surrogate.trend import LOG_PRIORS
from tradewind.testing.problems import evaluate

STEPS: dict[str, tuple[float, ...]] = {
    "PRICE_SLOPE": (0.4, 0.25, 0.55, 0.7),
    "PRICE_SLOPE_SD": (0.3, 0.15, 0.5),
    "LEVEL_SD": (1.5, 1.0, 2.2),
    "OTHER_SLOPES_SD": (0.4, 0.2, 0.7, 1.1),
    "amplitude": (0.6, 0.4, 0.85, 1.2),
    "amplitude_sd": (0.3, 0.15, 0.6, 1.0),
    "length_sd": (0.7, 0.4, 1.1),
    "noise": (0.05, 0.02, 0.1),
    "noise_sd": (1.0, 0.5, 1.5),
    "lengths": (1.0, 0.6, 1.5, 2.2),
}
"""What is looked at of each hyper-prior; the first is what the code has. ``lengths`` is a factor of all three."""
SEEN = (2, 4, 8, 16)
"""Runs that a search has seen when it predicts the others."""
QUANTILES = (0.25, 0.5, 0.8)
DRAWS = 2
COLUMNS = ("theta", "family", "cases", "density")
JUDGED = ("prior", "family", "table", "quantile", "close", *(f"bill {runs}" for runs in lifetime.RUNS))

Theta = tuple[float, ...]
START: Theta = tuple(values[0] for values in STEPS.values())


def constants(theta: Theta) -> dict[str, Any]:
    """The constants of the searcher's module for these hyper-priors."""
    value = dict(zip(STEPS, theta, strict=True))
    factor = value.pop("lengths")
    found: dict[str, Any] = {f"{POSTERIOR}:{name}": value.pop(name) for name in tuple(value) if name.isupper()}
    found[f"{POSTERIOR}:LOG_PRIORS"] = replace(LOG_PRIORS, **value)
    kinds = tuple({**kind, "length": kind["length"] * factor} for kind in PROCESS_KINDS)
    found[f"{POSTERIOR}:PROCESS_KINDS"] = kinds
    return found


@dataclass(frozen=True)
class Case:
    """Runs that were seen, and the costs of others, under a deadline."""

    bench: Bench
    seen: tuple[Trial, ...]
    others: np.ndarray[Any, Any]
    costs: np.ndarray[Any, Any]

    def density(self) -> float:
        """Mean log predictive density of ln cost of the runs that were not seen."""
        with self.bench.as_seen(0) as problem:
            searcher: Any = plugins.create("searcher", "tradewind", {}, problem=problem, seed=0)
            for trial in self.seen:
                searcher.tell(trial)
            posterior = searcher._current_posterior()
            x = searcher._features[self.others]
            likely = []
            for weight, process in posterior.parts:
                mean, variance = process.predict(x)
                variance = variance + process.noise_variance
                likely.append(
                    math.log(weight)
                    - 0.5 * np.log(2 * math.pi * variance)
                    - 0.5 * (np.log(self.costs) - mean) ** 2 / variance
                )
        return float(logsumexp(likely, axis=0).mean())


def cases_of(found: Sequence[Mapping[str, Any]]) -> dict[str, list[Case]]:
    """By family."""
    cases = defaultdict(list)
    for table in found:
        for place, quantile in enumerate(QUANTILES):
            dated = with_deadline(table, quantile)
            if not lifetime.has_winner(dated):
                continue
            bench = Bench(dated, "second")
            problem, candidates = bench.problem, bench.problem.candidates
            for draw in range(DRAWS):
                seen = SEEN[(place * DRAWS + draw) % len(SEEN)]
                order = np.random.default_rng([number(table["name"]), place, draw]).permutation(len(bench))
                told = [
                    evaluate(problem, Proposal(candidates.configuration(int(i))), n) for n, i in enumerate(order[:seen])
                ]
                others, costs = [], []
                for i in order[seen : seen + 150]:
                    configuration = candidates.configuration(int(i))
                    if not math.isinf(bench.late(configuration)):
                        runtime = problem.truth(configuration, problem.resolver.resolve(configuration)).runtime
                        others.append(int(i))
                        costs.append(runtime * candidates.hourly[i] / 3600.0)
                if others:
                    cases[table["family"]].append(Case(bench, tuple(told), np.array(others), np.array(costs)))
    return dict(cases)


class Scores:
    """Mean densities of all hyper-priors that were looked at, by family; kept in a file.

    Args:
        cases: Cases by family.
        path: The file.
    """

    def __init__(self, cases: Mapping[str, Sequence[Case]], path: Path) -> None:
        self.cases, self.path = cases, path
        self._known: dict[tuple[Theta, str], float] = {}
        for row in rows_of(path):
            self._known[tuple(json.loads(row["theta"])), row["family"]] = float(row["density"])

    def of(self, theta: Theta, family: str) -> float:
        """Mean density of a family's cases."""
        if (theta, family) not in self._known:
            with patched(constants(theta)):
                density = float(np.mean([case.density() for case in self.cases[family]]))
            self._known[theta, family] = density
            with appended(self.path, COLUMNS) as write:
                write([[json.dumps(theta), family, len(self.cases[family]), f"{density:.6g}"]])
        return self._known[theta, family]

    def chosen(self, without: str) -> Theta:
        """The hyper-priors that are best for all families but one, by coordinates until no step is better."""
        others = [family for family in self.cases if family != without]

        def score(theta: Theta) -> float:
            return float(np.mean([self.of(theta, family) for family in others]))

        theta, moved = START, True
        while moved:
            moved = False
            for place, values in enumerate(STEPS.values()):
                tried = [(*theta[:place], value, *theta[place + 1 :]) for value in values]
                best = max(tried, key=score)
                if score(best) > score(theta) + 1e-3:
                    theta, moved = best, True
        return theta


def judge(prior: str, theta: Theta, table: Mapping[str, Any], path: Path) -> None:
    """Search a table under all deadlines with these hyper-priors, and write down what came out."""
    done = {(row["prior"], row["table"], row["quantile"]) for row in rows_of(path)}
    for quantile in QUANTILES:
        dated = with_deadline(table, quantile)
        if (prior, table["name"], f"{quantile:g}") in done or not lifetime.has_winner(dated):
            continue
        bench = Bench(dated, "second")
        close = one("tradewind", Choice("tradewind", {}, constants(theta)), bench, 0)[0]
        bills = []
        with patched(constants(theta)):
            for runs in lifetime.RUNS:
                record = lifetime.one("tradewind", {}, bench, 0, runs)
                bills.append(min(record.bill(runs, record.spent, record.steps[-1][1]), 100.0))
        with appended(path, JUDGED) as write:
            figures = [f"{figure:.5g}" for figure in (close, *bills)]
            write([[prior, table["family"], table["name"], f"{quantile:g}", *figures]])


def report(rows: Sequence[Mapping[str, str]]) -> None:
    """Print geometric means over each family's cases, and over families."""
    figures = JUDGED[4:]
    print("| family | cases | " + " | ".join(f"{name}: learned / shipped" for name in figures) + " |")
    print("|" + "---|" * (2 + len(figures)))
    ratios: dict[str, list[list[float]]] = defaultdict(list)
    for family in dict.fromkeys(row["family"] for row in rows):
        cells = []
        mine = [row for row in rows if row["family"] == family]
        both = [
            {row["prior"]: row for row in mine if (row["table"], row["quantile"]) == key}
            for key in dict.fromkeys((row["table"], row["quantile"]) for row in mine)
        ]
        both = [pair for pair in both if len(pair) == 2]
        for name in figures:
            learned, shipped = (
                np.mean([math.log(float(p[who][name])) for p in both]) for who in ("learned", "shipped")
            )
            ratios[name].append([float(learned), float(shipped)])
            cells.append(f"{math.exp(learned):.2f} / {math.exp(shipped):.2f}")
        print(f"| {family} | {len(both)} | " + " | ".join(cells) + " |")
    means = {name: np.exp(np.mean(ratios[name], axis=0)) for name in figures}
    print("| all | | " + " | ".join(f"{means[name][0]:.2f} / {means[name][1]:.2f}" for name in figures) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_table_options(parser)
    parser.add_argument("--out", type=Path, default=tables.HERE / "work/learned_prior.csv")
    parser.add_argument("--report", action="store_true", help="print the table of the file, and search nothing")
    given = parser.parse_args()
    judged = given.out.with_suffix(".judged.csv")
    if not given.report:
        found = list(chosen_tables(given))
        scores = Scores(cases_of(found), given.out)
        for family in scores.cases:
            theta = scores.chosen(without=family)
            print(f"without {family}: " + json.dumps(dict(zip(STEPS, theta, strict=True))), flush=True)
            for table in found:
                if table["family"] == family:
                    judge("shipped", START, table, judged)
                    judge("learned", theta, table, judged)
    report(rows_of(judged))


if __name__ == "__main__":
    main()
