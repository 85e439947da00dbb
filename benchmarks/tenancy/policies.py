"""Compares the orders of searches on a shared cluster, in simulated time.

    python benchmarks/tenancy/policies.py --seeds 40        # appends to work/policies.csv, what is there is left out

Each policy meets the same searches, with the same luck, in each seed:

- ``paper``: paper 4's cluster (3 nodes of 12 CPUs and 20 GB, Cores of 1 CPU and 1 GB, runs of 4 CPUs and 5 GB)
  and one to four equal random searches at parallelism 4, which end at the value that 1 in 50 configurations reaches.
- ``mixed``: 12 searches at once on that cluster: tables, random or TPE, targets (1 in 10 to 330) by chance.
- ``arriving``: 24 such searches that come one after the other, at a rate that keeps the cluster about full.
- ``mixed-other``, ``arriving-other``: the same with the tables of ``trimtuner`` and ``lynceus``, on which nothing was
  developed.

``known``: knows the share of a search's configurations that reach its target, and the mean seconds of a run, and goes
by them; ``clairvoyant`` knows how many seconds of runs each search still needs. Nobody who cannot look into the future
will reach the second, and nobody who has to learn from results the first.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tradewind import plugins
from tradewind.plugins import Settings
from tradewind.tenancy import events as ev
from tradewind.tenancy.allocator import Policy
from tradewind.tenancy.priority.base import Priority
from tradewind.tenancy.simulator import Recorded, SimulatedJob, simulate
from tradewind.tenancy.views import JobView

HERE = Path(__file__).parent
WORK = HERE / "work"
NODES = {f"agent{i}": {"cpu": 12.0, "memory": 20.0} for i in range(3)}
OTHER = ("trimtuner", "lynceus")
CORE, RUN = {"cpu": 1.0, "memory": 1.0}, {"cpu": 4.0, "memory": 5.0}
POLICIES = ("fifo", "drf", "dynamic", "least_attained", "gain", "known", "clairvoyant")
SETTINGS = (
    "paper1", "paper2", "paper3", "paper4", "mixed", "arriving", "mixed-other", "arriving-other",
)  # fmt: skip
_MOST = 1500


@cache
def tables() -> dict[str, Any]:
    """Value and seconds of each configuration, by table."""
    return dict(np.load(WORK / "tables.npz"))


@cache
def searched() -> dict[str, Any]:
    """The rows that TPE visited, by table and seed."""
    return dict(np.load(WORK / "tpe.npz"))


@dataclass(kw_only=True)
class Trials(Recorded):
    """The trials of one search, in an order that does not depend on the policy."""

    target: float
    one_in: float
    mean: float

    @property
    def needed(self) -> float:
        """Seconds of runs until the target is reached."""
        place = next((i for i, value in enumerate(self.values) if value <= self.target), len(self.values) - 1)
        return sum(self.seconds[: place + 1])


class ClairvoyantPriority(Priority):
    """The search that needs least is first."""

    def __init__(self, needed: dict[str, float]) -> None:
        super().__init__(settings=Settings())
        self._needed = needed

    def key(self, job: JobView) -> tuple[float, ...]:
        """Seconds of runs that are left."""
        return (self._needed[job.job] - sum(job.seconds),)


class KnownPriority(Priority):
    """The search that needs least in the mean is first, by what is known of its table and its target."""

    def __init__(self, needed: dict[str, float]) -> None:
        super().__init__(settings=Settings())
        self._needed = needed

    def key(self, job: JobView) -> tuple[float, ...]:
        """Seconds of runs in the mean."""
        return (self._needed[job.job], float(job.running))


def search(rng: np.random.Generator, name: str, *, table: str, tpe: bool, one_in: float, **more: Any) -> SimulatedJob:
    """A search on a table that ends at the value that one in so many configurations reach."""
    values, seconds = tables()[table]
    target = float(np.quantile(values, 1 / one_in))
    if tpe:
        seed = int(rng.integers(6))
        first = searched()[f"{table}/{seed}"]
        # What TPE has not visited within its trials is drawn at random.
        order = np.concatenate([first, rng.permutation(len(values))[:_MOST]])
    else:
        order = rng.permutation(len(values))[:_MOST]
    found = values[order].tolist(), seconds[order].tolist()
    trials = Trials(*found, target=target, one_in=one_in, mean=float(np.mean(seconds)))
    return SimulatedJob(name, more.pop("tenant", "all"), trials, RUN, parallel=4, target=target, core=CORE, **more)


def jobs_of(setting: str, seed: int, tenants: bool) -> list[SimulatedJob]:
    """The searches of a setting; equal seeds give equal searches."""
    rng = np.random.default_rng([7, seed])
    names = sorted(name for name in tables() if name.startswith(OTHER) == setting.endswith("-other"))
    found = []
    if setting.startswith("paper"):
        table = names[seed % len(names)]
        for number in range(int(setting.removeprefix("paper"))):
            tenant = f"t{number}" if tenants else "all"
            found.append(search(rng, f"j{number}", table=table, tpe=False, one_in=50, tenant=tenant))
        return found
    kind = setting.removesuffix("-other")
    count = 12 if kind == "mixed" else 24
    moment = 0.0
    for number in range(count):
        table, tpe = names[int(rng.integers(len(names)))], bool(rng.random() < 0.5)
        one_in = float(rng.choice([10, 33, 100, 330]))
        if kind == "arriving":
            # A search takes about 60 runs; nine runs fit at a time.
            moment += float(rng.exponential(60 * float(np.mean(tables()[table][1])) / 9))
        tenant = f"t{number}" if tenants else "all"
        found.append(search(rng, f"j{number}", table=table, tpe=tpe, one_in=one_in, tenant=tenant, submitted=moment))
    return found


def one(setting: str, name: str, seed: int) -> dict[str, Any]:
    """One simulation: mean and 90 % quantile of the time from submission to target, in units of the setting's own."""
    jobs = jobs_of(setting, seed, tenants=name == "drf")
    trials: dict[str, Trials] = {job.job: job.trials for job in jobs}  # type: ignore[misc]
    if name == "clairvoyant":
        priority: Priority = ClairvoyantPriority({job: each.needed for job, each in trials.items()})
    elif name == "known":
        priority = KnownPriority({job: each.one_in * each.mean for job, each in trials.items()})
    else:
        priority = plugins.create("priority", {"drf": "fifo"}.get(name, name), {})
    policy = Policy(plugins.create("fairness", "drf", {}), priority, core_reserve=0.75, offer_seconds=30.0)
    tenants = [ev.TenantSet(tenant) for tenant in sorted({job.tenant for job in jobs})]
    found = simulate(NODES, tenants, jobs, policy)
    times = [found.outcomes[job.job].done - job.submitted for job in jobs]  # type: ignore[operator]
    assert all(outcome.reached for outcome in found.outcomes.values())
    return {
        "setting": setting, "policy": name, "seed": seed, "mean": float(np.mean(times)),
        "p90": float(np.quantile(times, 0.9)), "end": found.end, "runs": found.starts,
    }  # fmt: skip


def cells(seeds: int, settings: list[str], policies: list[str]) -> Iterable[tuple[str, str, int]]:
    """What is to be simulated, first seeds of everything first."""
    for seed in range(seeds):
        for setting in settings:
            for name in policies:
                yield setting, name, seed


def main() -> int:
    """Simulate what is not there yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--policies", nargs="+", choices=POLICIES, default=list(POLICIES))
    given = parser.parse_args()
    path = WORK / "policies.csv"
    done = set()
    if path.exists():
        with path.open() as file:
            done = {(row["setting"], row["policy"], int(row["seed"])) for row in csv.DictReader(file)}
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, ["setting", "policy", "seed", "mean", "p90", "end", "runs"])
        if not done:
            writer.writeheader()
        for cell in cells(given.seeds, given.settings, given.policies):
            if cell not in done:
                writer.writerow(one(*cell))
                file.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
