"""The publication's evaluation, replayed: ``python run.py [sequences]``; writes ``work/runs.csv``, a line for each run.

Random parameters in a loop. The first run takes place on a random cluster; before each further one the policy gets the
history of all earlier runs and names a cluster, which is looked up in ``recorded.csv`` and added to the history.
"""

from __future__ import annotations

import csv
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from jobs import HERE, Job, Point, cluster_of, load

from tradewind import plugins
from tradewind.problem import Configuration, PastStudy, Problem, Proposal, Trial
from tradewind.searcher.base import NothingLeft, Recommends, Searcher, SearchState

RUNS = 40
PUBLISHED = {
    "target": "plain",
    "inputs": "configuration",
    "trend": 0,
    "speedup": 0,
    "sigma": 1.0,
    "penalty": 0.1 / 150,
    "noise": 0.1,
    "decay": 0,
    "spread": 0,
    "optimism": 0,
}
"""Algorithm 1 with the defaults of DONE's code for what the publication leaves open, as in benchmarks/done."""

History = list[tuple[Point, Trial]]
Policy = Callable[[Job, Point, History, np.random.Generator, int], Proposal]


def searcher(kind: str, settings: dict[str, object], problem: Problem, past: History, seed: int) -> Searcher:
    studies = tuple(_study(problem, point, trial) for point, trial in past)
    made: Searcher = plugins.create("searcher", kind, settings, problem=replace(problem, past=studies), seed=seed)
    return made


def _study(problem: Problem, point: Point, trial: Trial) -> PastStudy:
    names = list(problem.job.parameters.values)
    parameters = replace(problem.job.parameters, values=dict(zip(names, map(float, point), strict=True)))
    return PastStudy(problem.job.name, parameters, (trial,), objective=problem.objective)


def proposed(job: Job, point: Point, past: History, rng: np.random.Generator, seed: int) -> Proposal:
    """What the service proposes: the best by DONE over all runs, without exploration."""
    made = searcher("done", {}, job.problems[point], past, seed)
    assert isinstance(made, Recommends)
    return Proposal(made.recommend(1)[0].configuration)


def asked(settings: dict[str, object]) -> Policy:
    """What DONE asks for next, with its exploration."""

    def policy(job: Job, point: Point, past: History, rng: np.random.Generator, seed: int) -> Proposal:
        answer = searcher("done", settings, job.problems[point], past, seed).ask(SearchState())
        assert not isinstance(answer, NothingLeft)
        return answer[0]

    return policy


def default(job: Job, point: Point, past: History, rng: np.random.Generator, seed: int) -> Proposal:
    """What the default searcher asks for next: runs with these parameters are its own, all others its past."""
    own = [trial for given, trial in past if given == point]
    made = searcher("tradewind", {}, job.problems[point], [p for p in past if p[0] != point], seed)
    for number, trial in enumerate(own):
        made.tell(replace(trial, number=number))
    answer = made.ask(SearchState(proposed=len(own)))
    if not isinstance(answer, NothingLeft):
        return answer[0]
    best = min(own, key=_objective)
    return Proposal(best.configuration)


def _objective(trial: Trial) -> float:
    assert trial.observation is not None
    assert trial.observation.objective is not None
    return trial.observation.objective


def drawn(job: Job, point: Point, past: History, rng: np.random.Generator, seed: int) -> Proposal:
    """Any cluster."""
    candidates = job.problems[point].candidates
    return Proposal(candidates.configuration(int(rng.integers(len(candidates)))))


def largest(job: Job, point: Point, past: History, rng: np.random.Generator, seed: int) -> Proposal:
    """What somebody takes who does not want to think about it."""
    nodes, threads = max(job.seconds[point])
    return Proposal(Configuration({"nodes": nodes, "instance": f"v{threads}"}))


POLICIES: dict[str, Policy] = {
    "random": drawn,
    "largest": largest,
    "as published": asked(PUBLISHED),
    "default searcher": default,
    "done, exploring": asked({}),
    "proposed": proposed,
}


@cache
def jobs() -> dict[str, Job]:
    """The recorded jobs, once in each process."""
    return load()


def sequence(task: tuple[str, str, int]) -> list[dict[str, object]]:
    """One sequence of runs."""
    name, policy, seed = task
    job = jobs()[name]
    inputs, world = np.random.default_rng([seed, 1]), np.random.default_rng([seed, 2])
    past: History = []
    rows: list[dict[str, object]] = []
    for number in range(1, RUNS + 1):
        point = job.points[int(inputs.integers(len(job.points)))]
        begun = time.process_time()
        choose = drawn if number == 1 and policy != "largest" else POLICIES[policy]
        # The first run is the same for all policies of a seed.
        rng = np.random.default_rng([seed, 3, number])
        answer = choose(job, point, past, rng, 1000 * seed + number)
        spent = time.process_time() - begun
        share, excess = job.excess(point, cluster_of(answer.configuration))
        past.append((point, job.run(point, answer, number, world)))
        rows.append(
            {
                "job": name,
                "policy": policy,
                "seed": seed,
                "run": number,
                "share": round(share, 6),
                "excess": round(excess, 6),
                "ms": round(1000 * spent, 1),
            }
        )
    return rows


def main() -> None:
    sequences = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    tasks = [(name, policy, seed) for name in jobs() for policy in POLICIES for seed in range(sequences)]
    (HERE / "work").mkdir(exist_ok=True)
    with (HERE / "work/runs.csv").open("w", newline="") as file, ProcessPoolExecutor(max_workers=2) as pool:
        writer: csv.DictWriter[str] | None = None
        for done, rows in enumerate(pool.map(sequence, tasks), 1):
            if writer is None:
                writer = csv.DictWriter(file, fieldnames=list(rows[0]))
                writer.writeheader()
            writer.writerows(rows)
            if done % 100 == 0:
                print(f"{done} of {len(tasks)} sequences", flush=True)


if __name__ == "__main__":
    main()
