"""Records searches of Tradewind's own ``gp`` on the tables, with what its model says of each run before it starts.

    python benchmarks/tenancy/modelled.py DATASETS     # after prepare.py; what is there is left out

Writes ``work/modelled.npz``. Of each table: the rows that can be chosen (all of a small one; of a large one, those
whose parameters have every second of their values, until they are at most 2,000). Of each search, one run at a time:
the rows in their order, the seconds that its model expected of each, the chance that it gave it to reach the value that
one in 10, 33, 100 and 330 configurations reaches, and to improve the best (not a number where it did not say).
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from prepare import SEEDS, WORK, _number, tables

from tradewind import plugins
from tradewind.problem import Categorical, Configuration, Objective, Offer, Ordinal, Parameter
from tradewind.searcher.base import NothingLeft, SearchState
from tradewind.testing.problems import KnownOutcome, KnownProblem, evaluate, make_problem

ONE_IN = (10, 33, 100, 330)
TRIALS, LARGEST = 100, 2000


def some_rows(found: Sequence[dict[str, str]], names: Sequence[str]) -> list[int]:
    """The rows that a search may choose from."""
    kept = list(range(len(found)))
    levels = {name: sorted({row[name] for row in found}, key=_place) for name in names}
    while len(kept) > LARGEST:
        wide = max(levels, key=lambda name: len(levels[name]))
        levels[wide] = levels[wide][::2]
        kept = [i for i in kept if found[i][wide] in levels[wide]]
    return kept


def _place(text: str) -> tuple[float, str]:
    return (float(text), "") if _number(text) else (0.0, text)


def problem_of(
    found: Sequence[dict[str, str]], names: Sequence[str], values: Sequence[float], seconds: Sequence[float]
) -> tuple[KnownProblem, dict[str, int]]:
    """The problem of a table that has only its rows for candidates, and each one's place by its key."""
    parameters: list[Parameter] = []
    numeric = {name: all(_number(row[name]) for row in found) for name in names}
    for name in names:
        levels = sorted({row[name] for row in found}, key=_place)
        kind = Ordinal if numeric[name] else Categorical
        parameters.append(kind(name=name, values=tuple(float(x) if numeric[name] else x for x in levels)))
    rows = [Configuration({n: float(row[n]) if numeric[n] else row[n] for n in names}) for row in found]
    places = {row.key: i for i, row in enumerate(rows)}

    def truth(configuration: Configuration, _offer: Offer) -> KnownOutcome:
        at = places[configuration.key]
        return KnownOutcome(seconds[at], metrics={"loss": values[at]})

    problem = make_problem(parameters, truth, objective=Objective("loss"))
    problem.__dict__["candidates"] = problem.pool(rows)
    return problem, places


def record(problem: KnownProblem, places: dict[str, int], targets: Sequence[float], seed: int) -> np.ndarray[Any, Any]:
    """One search: a row of its figures for each trial."""
    searcher = plugins.create("searcher", "gp", {}, problem=problem, seed=seed)
    out: list[list[float]] = []
    while len(out) < TRIALS:
        answer = searcher.ask(SearchState(proposed=len(out)))
        if isinstance(answer, NothingLeft):
            break
        proposal = answer[0]
        said = [searcher.predict_run(proposal.configuration, target) for target in (*targets, None)]
        chances = [np.nan if each is None else each.chance for each in said]
        expected = np.nan if said[0] is None else said[0].seconds
        out.append([places[proposal.configuration.key], expected, *chances])
        searcher.tell(evaluate(problem, proposal, len(out) - 1))
    return np.array(out)


def main() -> int:
    """Record what is not there yet, first seeds of everything first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", type=Path)
    given = parser.parse_args()
    path = WORK / "modelled.npz"
    out: dict[str, Any] = dict(np.load(path)) if path.exists() else {}
    known = list(tables(given.datasets))
    for seed in range(SEEDS):
        for name, found, names, values, seconds in known:
            if f"{name}/{seed}" in out:
                continue
            began = time.perf_counter()
            kept = some_rows(found, names)
            mine = [values[i] for i in kept]
            problem, places = problem_of([found[i] for i in kept], names, mine, [seconds[i] for i in kept])
            got = record(problem, places, [float(np.quantile(mine, 1 / each)) for each in ONE_IN], seed)
            out[f"{name}/rows"] = np.array(kept, dtype=np.int32)
            out[f"{name}/{seed}"] = got.astype(np.float32)
            print(
                f"{name}/{seed}: {len(kept)} rows, {len(got)} trials, {time.perf_counter() - began:.0f} s", flush=True
            )
            np.savez_compressed(path, **out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
