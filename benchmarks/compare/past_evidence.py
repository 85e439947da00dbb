"""How well the jobs of a past foresee one another: ``python past_evidence.py --tables scout,c3o --copies 0 1``.

For each table and past, the summed log evidence a job: of its runs as the other jobs foresee them (their median and
their deviations from it, as in `Lessons`, but with processes that have not seen the job), less that of a process
without a past, the better of a flat one and one with the trend of prices. A past that teaches something should be
above zero, one whose times were dealt out at random below.
"""

from __future__ import annotations

import math
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from past_copies import arguments, benches

from tradewind import plugins
from tradewind.problem import Problem
from tradewind.searcher.default import TradewindSearcher
from tradewind.searcher.default.beliefs import trend_of
from tradewind.searcher.default.past import past_jobs
from tradewind.searcher.surrogate.gp import Array, GaussianProcess, likelihood
from tradewind.searcher.surrogate.matern import distances, matern

LEVEL_SD = 3.0
AMPLITUDES = (0.05, 0.1, 0.2, 0.4, 0.8)
NOISES = (0.05, 0.15, 0.4, 1.0)
STEPS = 12


def best(x: Array, rest: Array, fixed: Array) -> float:
    """Log evidence of what is left over, without its constant, under the amplitude and noise that suit it best."""
    length = 0.5 * math.sqrt(x.shape[1])
    polynomial, decay = matern(distances(x / length, x / length))
    level = fixed + LEVEL_SD**2
    return max(
        -likelihood(level + a**2 * polynomial * decay + (n**2 + 1e-8) * np.eye(len(rest)), rest - rest.mean())[0]
        for a in AMPLITUDES
        for n in NOISES
    )


def evidence(problem: Problem) -> float | None:
    """The summed log evidence of a problem's past, a job; None with fewer than three jobs."""
    searcher = plugins.create("searcher", "tradewind", {}, problem=problem, seed=0)
    assert isinstance(searcher, TradewindSearcher)
    features, rows = searcher._map, searcher._features
    jobs = past_jobs(problem, features, searcher._reference, rows)
    if len(jobs) < 3:
        return None
    trend = trend_of(features.price_column, rows.shape[1], priced=False)
    processes = [GaussianProcess(starts=1, steps=STEPS).fit(job.x, job.y) for job in jobs]
    levels = np.array([float(process.predict(rows)[0].mean()) for process in processes])
    total = 0.0
    for k, job in enumerate(jobs):
        seen = np.array([process.predict(job.x)[0] for process in processes]) - levels[:, None]
        others = np.delete(seen, k, axis=0)
        centre = np.median(others, axis=0)
        away = (others - centre).T / math.sqrt(len(others) - 1)
        middle = job.x - 0.5
        slopes = middle * trend.sd
        flat = best(job.x, job.y, np.zeros((len(job.x), len(job.x))))
        alone = max(flat, best(job.x, job.y - middle @ trend.mean, slopes @ slopes.T))
        total += best(job.x, job.y - centre, away @ away.T) - alone
    return total / len(jobs)


def main() -> None:
    given = arguments(__doc__, [0], "scout,multicloud,c3o,flora")
    values: dict[tuple[str, int, str], list[float]] = {}
    for copy, bench, pasts in benches(given):
        for past in given.pasts:
            with bench.as_seen(given.seed, pasts.of(bench, past, given.seed)) as problem:
                value = evidence(problem)
            if value is not None:
                values.setdefault((bench.table["family"], copy, past), []).append(value)
    for (family, copy, past), some in values.items():
        at = f"least {min(some):.2f}, median {np.median(some):.2f}, most {max(some):.2f}"
        below = f"at most 0: {sum(v <= 0 for v in some)}, at most -1: {sum(v <= -1 for v in some)}"
        print(f"{family}, copy {copy}, {past}: {at}; {below}, of {len(some)}")


if __name__ == "__main__":
    main()
