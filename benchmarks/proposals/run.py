"""Paper 5's protocol with what the page proposes: ``python run.py [sequences] [DATASETS] [first seed]``.

Random job parameters in a loop. The first run takes place on the cheapest configuration, as the page proposes it to an
application that was never run; each further one takes the first proposal for all runs so far. Adds a line for each run
to ``work/runs.csv``; sequences that are there already are left out.
"""

from __future__ import annotations

import csv
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from jobs import Scenario, jobs

from tradewind import plugins
from tradewind.problem import Configuration, PastStudy, Problem, Proposal
from tradewind.searcher.base import Recommends
from tradewind.testing.problems import evaluate

HERE = Path(__file__).parent
RUNS = 15
POLICIES = ("default page", "explore off")
FIELDS = ("job", "policy", "seed", "run", "share", "excess", "trying")


@cache
def known(folder: str) -> dict[str, Scenario]:
    return jobs(Path(folder))


def proposed(policy: str, problem: Problem) -> tuple[Configuration, bool]:
    """The first proposal of the service (`ProposalService.propose`), and whether it is one to learn from."""
    if not problem.past:
        hourly = np.round(problem.candidates.hourly, 9)
        return problem.candidates.configuration(int(np.argsort(hourly, kind="stable")[0])), False
    searcher = plugins.create("searcher", "done", {}, problem=problem, seed=0)
    assert isinstance(searcher, Recommends)
    following = searcher.worth_trying() if policy == "default page" else None
    return (following or searcher.recommend(1)[0]).configuration, following is not None


def sequence(task: tuple[str, str, str, int]) -> list[dict[str, object]]:
    """One sequence of runs."""
    folder, name, policy, seed = task
    scenario = known(folder)[name]
    rng = np.random.default_rng([seed, 7])
    past: list[PastStudy] = []
    rows: list[dict[str, object]] = []
    for run in range(1, RUNS + 1):
        i = int(rng.integers(len(scenario.inputs)))
        bare = scenario.problem(i)
        configuration, trying = proposed(policy, replace(bare, past=tuple(past)))
        trial = evaluate(bare, Proposal(configuration), 1000 * seed + run)
        past.append(PastStudy(bare.job.name, bare.job.parameters, (trial,)))
        value, (least, most) = bare.value(configuration), scenario.extremes(i)
        assert value is not None
        figures = (round((value - least) / (most - least), 6), round(value / least - 1.0, 6), int(trying))
        rows.append(dict(zip(FIELDS, (name, policy, seed, run, *figures), strict=True)))
    return rows


def main() -> None:
    sequences = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    folder = sys.argv[2] if len(sys.argv) > 2 else str(HERE.parents[2] / "shared/datasets")
    start = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    target = HERE / "work/runs.csv"
    target.parent.mkdir(exist_ok=True)
    done: set[tuple[str, str, int]] = set()
    if target.exists():
        with target.open(newline="") as file:
            done = {(row["job"], row["policy"], int(row["seed"])) for row in csv.DictReader(file)}
    seeds = range(start, start + sequences)
    wanted = [(name, policy, seed) for policy in POLICIES for seed in seeds for name in known(folder)]
    tasks = [(folder, *one) for one in wanted if one not in done]
    with target.open("a", newline="") as file, ProcessPoolExecutor(max_workers=2) as pool:
        writer = csv.DictWriter(file, fieldnames=FIELDS)
        if not done:
            writer.writeheader()
        for rows in pool.map(sequence, tasks):
            writer.writerows(rows)
            file.flush()
    print(f"{len(tasks)} sequences")


if __name__ == "__main__":
    main()
