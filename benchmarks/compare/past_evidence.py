"""Log evidence that the jobs of a past predict one another: ``python past_evidence.py --tables scout --copies 0 1``.

For each table and past, the summed log evidence a job (`tradewind.searcher.default.transfer`): of its runs as the other
jobs predict them, less that of a process without a past. The searcher leaves a past of three jobs and more alone where
it is -1 or less.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from past_copies import arguments, benches

from tradewind import plugins
from tradewind.problem import Problem
from tradewind.searcher.default import TradewindSearcher
from tradewind.searcher.default.posterior import price_trend
from tradewind.searcher.default.transfer import LEAST_RELATEDNESS, TransferPrior, past_jobs


def evidence(problem: Problem) -> float | None:
    """The summed log evidence of a problem's past, a job; None with fewer than three jobs."""
    searcher = plugins.create("searcher", "tradewind", {}, problem=problem, seed=0)
    assert isinstance(searcher, TradewindSearcher)
    features, rows = searcher._map, searcher._features
    jobs = past_jobs(problem, features, searcher._reference, rows, listed=searcher._listed)
    if not jobs:
        return None
    transfer_prior = TransferPrior(jobs, rows, np.log(searcher._reference.hourly))
    return transfer_prior.relatedness(price_trend(features.price_column, rows.shape[1], priced=False))


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
        below = f"at most 0: {sum(v <= 0 for v in some)}, left alone: {sum(v <= LEAST_RELATEDNESS for v in some)}"
        print(f"{family}, copy {copy}, {past}: {at}; {below}, of {len(some)}")


if __name__ == "__main__":
    main()
