"""Shares on clusters drawn by chance: how far tenants are from their weights, over all of the time and at any moment.

    python benchmarks/tenancy/random_clusters.py --until 60     # some minutes
    python benchmarks/tenancy/random_clusters.py --from 43 --until 44

Each has 1 to 3 nodes of 2 CPUs and 2 to 4 tenants that always have work that waits: weights of 1 to 5, runs of any size
and of 1 to 10 in the mean, simulated for 80 times the longest mean. `off` is the largest distance from the weights in
points; `lag` is the most by which a tenant has fallen behind its share of what all used, from its best moment to its
worst, in what the cluster does in the longest run; `used` is the part of the cluster that was used.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from shares import policy

from tradewind.tenancy import events as ev
from tradewind.tenancy.simulator import RecordedTrials, SimulatedJob, SimulatedRun, simulate


@dataclass(frozen=True)
class Drawn:
    """A cluster and what became of its shares."""

    number: int
    nodes: int
    sizes: list[float]
    weights: list[float]
    means: list[float]
    shares: list[float]
    off: float
    lag: float
    used: float

    @property
    def line(self) -> str:
        """A row of the table."""
        lists = (self.sizes, self.weights, self.means, self.shares)
        texts = [" / ".join(f"{each:.3g}" for each in values) for values in lists]
        cells = (self.number, self.nodes, *texts, f"{self.off:.1f}", f"{self.lag:.2f}", f"{self.used:.0%}")
        return f"| {' | '.join(map(str, cells))} |"


def lag_of(runs: Sequence[SimulatedRun], wanted: Sequence[float], begin: float, end: float) -> tuple[float, float]:
    """The largest lag in the longest run, and the part of the cluster that was used."""
    began, ended, share = (np.array([getattr(run, name) for run in runs]) for name in ("began", "ended", "share"))
    whose = np.array([int(run.tenant[1:]) for run in runs])
    moments = np.unique(np.concatenate([began, ended]))
    moments = moments[(moments >= begin) & (moments <= end)]
    used = np.zeros((len(wanted), len(moments)))
    for first, last, part, tenant in zip(began, ended, share, whose, strict=True):
        used[tenant] += np.clip(np.minimum(last, moments) - first, 0.0, None) * part
    whole = used.sum(axis=0)
    behind = used - np.array(wanted)[:, None] * whole
    lag = float(np.ptp(behind, axis=1).max() / (ended - began).max())
    return lag, float((whole[-1] - whole[0]) / (moments[-1] - moments[0]))


def drawn(number: int, fairness: str) -> Drawn:
    """The cluster of a number."""
    rng = np.random.default_rng(number)
    count, nodes = int(rng.integers(2, 5)), int(rng.integers(1, 4))
    sizes = [
        float(rng.choice([0.25, 0.5, 1, 2])) if rng.random() < 0.5 else float(rng.uniform(0.1, 2)) for _ in range(count)
    ]
    weights = [float(rng.integers(1, 6)) for _ in range(count)]
    means = [float(np.exp(rng.uniform(0, np.log(10)))) for _ in range(count)]
    until, jobs = 80 * max(means), []
    for place, (size, mean) in enumerate(zip(sizes, means, strict=True)):
        trials = int(3 * until / mean * 2 * nodes / size) + 50
        seconds = (mean * np.clip(rng.normal(1, 0.25, trials), 0.3, 2)).tolist()
        jobs.append(SimulatedJob(f"t{place}", f"t{place}", RecordedTrials([1.0] * trials, seconds), {"cpu": size}, 60))
    tenants = [ev.TenantSet(f"t{place}", weight) for place, weight in enumerate(weights)]
    there = {f"n{place}": {"cpu": 2.0} for place in range(nodes)}
    runs = simulate(there, tenants, jobs, policy(fairness), until=until, record=True).runs
    wanted = [weight / sum(weights) for weight in weights]
    lag, used = lag_of(runs, wanted, until / 10, until - 2 * max(means))
    total = np.zeros(count)
    for run in runs:
        if run.began > until / 10:
            total[int(run.tenant[1:])] += (run.ended - run.began) * run.share
    shares = (100 * total / total.sum()).tolist()
    off = max(abs(share - 100 * due) for share, due in zip(shares, wanted, strict=True))
    return Drawn(number, nodes, sizes, weights, means, shares, off, lag, used)


def main() -> None:
    """Print the clusters that are farthest from their weights, and what all are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="first", type=int, default=0, help="number of the first cluster")
    parser.add_argument("--until", type=int, default=60, help="number of the last cluster, which is left out")
    parser.add_argument("--rule", default="fair_share")
    parser.add_argument("--shown", type=int, default=5, help="so many, those with the largest lag")
    given = parser.parse_args()
    found = sorted(
        (drawn(number, given.rule) for number in range(given.first, given.until)), key=lambda each: -each.lag
    )
    print("| number | nodes | sizes | weights | mean run times | shares | off | lag | used |\n|" + "---|" * 9)
    print(*(each.line for each in found[: given.shown]), sep="\n")
    for name in ("off", "lag", "used"):
        values = np.array([getattr(each, name) for each in found])
        parts = ", ".join(f"{np.quantile(values, part):.2f}" for part in (0.5, 0.9, 1.0))
        print(f"{name}: mean {values.mean():.3f}; median, nine tenths and largest {parts}")


if __name__ == "__main__":
    main()
