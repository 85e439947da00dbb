"""Seconds a proposal: OBOL, the Gaussian processes, and the peers in an environment of their own.

    python -m venv PEERS && PEERS/bin/pip install torch==2.13.0 botorch optuna
    python benchmarks/speed/run.py --peers PEERS/bin/python [--quick]

prints the tables of the README. Without ``--peers`` they are left out. Wall time is the least of some repetitions,
processor time that of all threads in the same one; a proposal is one ``ask`` after one more trial was told.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from tradewind import plugins
from tradewind.problem import Configuration, Offer, Ordinal
from tradewind.searcher.base import NothingLeft, Searcher, SearchState
from tradewind.testing.problems import KnownOutcome, KnownProblem, drive, make_problem

HERE = Path(__file__).parent
SHAPES = {
    100: (5, 5, 2, 2),
    384: (8, 4, 3, 2, 2),
    1000: (10, 10, 5, 2),
    3000: (10, 10, 5, 3, 2),
    10_000: (10, 10, 10, 5, 2),
}


def problem_of(size: int) -> KnownProblem:
    """A grid whose cost is a product of effects, over two orders of magnitude; half of it meets the deadline."""
    rng = np.random.default_rng(size)
    effects = [np.cumsum(rng.normal(0.0, 1.5 / math.sqrt(n), n)) for n in SHAPES[size]]

    def truth(configuration: Configuration, _offer: Offer) -> KnownOutcome:
        places = [int(configuration[f"p{i}"]) for i in range(len(effects))]
        mixed = math.sin(sum(places) * 0.7)
        return KnownOutcome(100.0 * math.exp(sum(e[j] for e, j in zip(effects, places, strict=True)) + 0.2 * mixed))

    parameters = [Ordinal(name=f"p{i}", values=tuple(range(n))) for i, n in enumerate(SHAPES[size])]
    problem = make_problem(parameters, truth)
    seconds = sorted(
        truth(problem.candidates.configuration(i), problem.candidates.offer(i)).runtime for i in range(size)
    )
    return make_problem(parameters, truth, deadline=seconds[size // 2])


def measure(
    problem: KnownProblem, name: str, settings: dict[str, Any], trials: int, count: int, repeats: int
) -> tuple[float, float, float]:
    """Least wall seconds of one `ask`, its processor seconds, and the wall seconds of the first call of all."""
    told = drive(make(problem, "random", {}), problem, trials)
    bills = [problem.bill(problem.candidates.configuration(i)) for i in range(0, len(problem.candidates), 7)]
    money = 8.0 * float(np.mean(bills))
    best, first = (math.inf, math.inf), math.nan
    for repeat in range(repeats + 1):
        searcher = make(problem, name, settings)
        for trial in told[:-1]:
            searcher.tell(trial)
        for warm in (True, False):
            wall, cpu = time.perf_counter(), time.process_time()
            answer = searcher.ask(SearchState(proposed=trials - warm, money_left=money), 1 if warm else count)
            spent = time.perf_counter() - wall, time.process_time() - cpu
            assert not isinstance(answer, NothingLeft)
            if warm:
                first = spent[0] if repeat == 0 else first
                searcher.tell(told[-1])
        best = min(best, spent)
    return *best, first


def make(problem: KnownProblem, name: str, settings: dict[str, Any]) -> Searcher:
    made = plugins.create("searcher", name, settings, problem=problem, seed=1)
    assert isinstance(made, Searcher)
    return made


def milliseconds(figures: tuple[float, float, float]) -> str:
    return f"{1000 * figures[0]:.0f} ({1000 * figures[1]:.0f})"


def tables(quick: bool) -> Iterator[str]:
    """Lines of markdown; wall milliseconds, and processor milliseconds in brackets."""
    repeats = 1 if quick else 5
    own = [name for name in ("gp", "tradewind") if name in plugins.names("searcher")]
    known = {size: problem_of(size) for size in (SHAPES if not quick else (100, 384))}
    first = measure(known[384], "obol", {"depth": 1}, 30, 1, 1)[2]
    yield f"obol's first call in this process: {first:.1f} s (compiles where nothing is cached).\n"
    depths = range(3 if quick else 6)
    yield "| candidates, n = 30 | " + " | ".join([f"obol, depth {d}" for d in depths] + own) + " |"
    yield "|---|" + "---|" * (len(depths) + len(own))
    for size, problem in known.items():
        cells = []
        for depth in depths:
            times = 1 if depth > 3 else repeats
            # 384 candidates and fewer are searched exactly; above 512, paths begin from the 200 best.
            slow = size * 3**depth > 400 * 3**5
            cells.append("" if slow else milliseconds(measure(problem, "obol", {"depth": depth}, 30, 1, times)))
        cells += [milliseconds(measure(problem, name, {}, 30, 1, repeats)) for name in own]
        yield f"| {size} | " + " | ".join(cells) + " |"
    columns = [("obol", {"depth": 0}), ("obol", {"depth": 2}), *((name, {}) for name in own)]
    titles = ["obol, depth 0", "obol, depth 2", *own]
    yield "\n| 384 candidates | " + " | ".join(titles) + " |"
    yield "|---|" + "---|" * len(titles)
    for trials in (10, 30, 50) if quick else (10, 30, 50, 100, 200):
        cells = [milliseconds(measure(known[384], n, s, trials, 1, repeats)) for n, s in columns]
        yield f"| n = {trials} | " + " | ".join(cells) + " |"
    for count in (2, 4) if quick else (2, 4, 8):
        cells = [milliseconds(measure(known[384], n, s, 30, count, repeats)) for n, s in columns]
        yield f"| n = 30, {count} proposals at once | " + " | ".join(cells) + " |"


def peers(python: str, quick: bool) -> Iterator[str]:
    """The peers on the same 384 candidates and 30 trials."""
    problem = problem_of(384)
    told = drive(make(problem, "random", {}), problem, 30)
    data = {
        "shape": SHAPES[384],
        "x": [[int(t.configuration[f"p{i}"]) for i in range(5)] for t in told],
        "cost": [t.spent for t in told],
        "seconds": [t.observation.runtime for t in told if t.observation is not None],
        "deadline": problem.constraints.deadline,
        "quick": quick,
    }
    done = subprocess.run(
        [python, HERE / "peers.py"], input=json.dumps(data), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    yield "\n| peer, 384 candidates, n = 30 | ms |"
    yield "|---|---|"
    for row in json.loads(done.stdout.splitlines()[-1]):
        yield f"| {row['name']} | {1000 * row['wall']:.0f} ({1000 * row['cpu']:.0f}) |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", help="a Python with torch, botorch and optuna")
    parser.add_argument("--quick", action="store_true", help="few sizes, one repetition")
    given = parser.parse_args()
    print(f"load of the machine at the start: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    for line in tables(given.quick):
        print(line, flush=True)
    if given.peers:
        for line in peers(given.peers, given.quick):
            print(line, flush=True)
    print(f"\nload of the machine at the end: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
