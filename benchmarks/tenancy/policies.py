"""Compares the orders of searches on a shared cluster, in simulated time.

    python benchmarks/tenancy/policies.py --seeds 40        # appends to work/policies.csv, what is there is left out

Each policy meets the same searches, with the same luck, in each seed:

- ``paper``: paper 4's cluster (3 nodes of 12 CPUs and 20 GB, Cores of 1 CPU and 1 GB, runs of 4 CPUs and 5 GB)
  and one to four equal random searches at parallelism 4, which end at the value that 1 in 50 configurations reaches.
- ``mixed``: 12 searches at once on that cluster: tables, random or TPE, targets (1 in 10 to 330) by chance.
- ``arriving``: 24 such searches that come one after the other, at a rate that keeps the cluster about full.
- ``mixed-other``, ``arriving-other``: the same with the tables of ``trimtuner`` and ``lynceus``, on which nothing was
  developed.
- ``mixed-all``, ``arriving-all``: the family by chance first (``hpo``, ``trimtuner`` or ``lynceus``), then one of its
  tables; a third of the searches each is random, TPE, and Tradewind's own ``gp``, whose model says of each run how
  likely it is to reach the target and how long it takes. Searches arrive as fast as the cluster carries out what they
  need in the mean.

``gain_1``, ``gain_3``, ``gain_10``: ``gain`` where the cluster has had so many searches like each before (same table,
searcher and target, other luck; of TPE and ``gp`` five at most, the others that were recorded), and knows how many
results they took and how long their runs were. ``gain_misled``: three each, but those of another search of the same
seed. ``gain_unasked``: leaves out what models say. ``gain_constant``: takes each of their chances for the mean of
all, 0.08, so that only whether there is a model counts. ``gain_seconds``: takes half of the seconds that they expect
of the next run, too. ``next_run``: goes by the chance of the next run alone, as the mean of a Beta prior that is
worth ten runs, and by its seconds. ``known``: knows the share of a search's configurations that reach its target, and
the mean seconds of a run, and goes by them. ``informed``: knows from many searches on the same table, of the same
kind and with the same target, how many runs they took (of TPE and ``gp`` the recorded ones, this one among them) and
how long these are, and goes by Gittins' index of that. ``clairvoyant`` knows how many seconds of runs each search
still needs. Nobody who cannot look into the future will reach the last, and nobody who has to learn from results
those before it.
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
from tradewind.tenancy.allocator import AllocationPolicy
from tradewind.tenancy.priority.base import Priority
from tradewind.tenancy.priority.expected_gain import GainPriority
from tradewind.tenancy.simulator import RecordedTrials, SimulatedJob, simulate
from tradewind.tenancy.views import JobView

HERE = Path(__file__).parent
WORK = HERE / "work"
NODES = {f"agent{i}": {"cpu": 12.0, "memory": 20.0} for i in range(3)}
OTHER = ("trimtuner", "lynceus")
FAMILIES = ("hpo", *OTHER)
CORE, RUN = {"cpu": 1.0, "memory": 1.0}, {"cpu": 4.0, "memory": 5.0}
POLICIES = (
    "fifo", "drf", "dynamic", "least_attained", "gain", "gain_1", "gain_3", "gain_10", "gain_misled", "gain_unasked",
    "gain_constant", "gain_seconds", "next_run", "known", "informed", "clairvoyant",
)  # fmt: skip
EARLIER = {"gain_1": 1, "gain_3": 3, "gain_10": 10, "gain_misled": 3}
GAINS = {"gain": {}, "gain_unasked": {"believed": 0.0}, "gain_constant": {}, "gain_seconds": {"foreseen": 0.5}}
INFORMED = ("mixed-all", "arriving-all", "mixed", "arriving", "mixed-other", "arriving-other")
MODELS = ("gain_unasked", "gain_constant", "gain_seconds", "next_run")
"""These differ from ``gain`` only where models say something."""
_MEAN_CHANCE = 0.08
SETTINGS = (
    "paper1", "paper2", "paper3", "paper4", "mixed", "arriving", "mixed-other", "arriving-other", "mixed-all",
    "arriving-all",
)  # fmt: skip
ONE_IN = (10, 33, 100, 330)
_MOST = 1500


@cache
def tables() -> dict[str, Any]:
    """Value and seconds of each configuration, by table."""
    return dict(np.load(WORK / "tables.npz"))


@cache
def searched() -> dict[str, Any]:
    """The rows that TPE visited, by table and seed."""
    return dict(np.load(WORK / "tpe.npz"))


@cache
def modelled() -> dict[str, Any]:
    """The rows that ``gp`` visited, and what its model said of each, by table and seed."""
    return dict(np.load(WORK / "modelled.npz"))


@dataclass(kw_only=True)
class Trials(RecordedTrials):
    """The trials of one search, in an order that does not depend on the policy."""

    target: float
    one_in: float
    mean: float
    kind: tuple[str, str, int]
    number: int

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


class InformedPriority(Priority):
    """Gittins' index of the runs that are left, by the runs that many searches like it took."""

    def __init__(self, kinds: dict[str, tuple[str, str, int]]) -> None:
        super().__init__(settings=Settings())
        self._kinds = kinds

    def key(self, job: JobView) -> tuple[float, ...]:
        """Seconds for each chance to be done."""
        runs = len(job.seconds) + job.running
        return (1.0 / _gittins(*self._kinds[job.job], runs if runs < 60 else runs // 10 * 10), float(job.running))


def _order(rng: np.random.Generator, table: str, kind: str, number: int) -> np.ndarray[Any, Any]:
    """The rows that a search visits, of all rows of a table; the recorded ones have a number."""
    if kind == "gp":
        rows, first = modelled()[f"{table}/rows"], modelled()[f"{table}/{number}"][:, 0].astype(int)
        # What was not visited within the recorded trials is drawn at random.
        return rows[np.concatenate([first, rng.permutation(np.setdiff1d(np.arange(len(rows)), first))])]
    order = rng.permutation(len(tables()[table][0]))[:_MOST]
    return np.concatenate([searched()[f"{table}/{number}"], order]) if kind == "tpe" else order


def _target(table: str, kind: str, one_in: int) -> float:
    values = tables()[table][0]
    return float(np.quantile(values[modelled()[f"{table}/rows"]] if kind == "gp" else values, 1 / one_in))


@cache
def _lengths(table: str, kind: str, one_in: int) -> tuple[np.ndarray[Any, Any], float]:
    """How many runs searches take, in order, and the mean seconds of a run."""
    (values, seconds), target = tables()[table], _target(table, kind, one_in)
    rng, runs, spent = np.random.default_rng(1), [], 0.0
    for number in range(200 if kind == "random" else 60):
        order = _order(rng, table, kind, number % 6)
        reached = np.flatnonzero(values[order] <= target)
        runs.append(int(reached[0]) + 1 if len(reached) else len(order))
        spent += float(seconds[order[: runs[-1]]].sum())
    return np.sort(runs), spent / sum(runs)


@cache
def _gittins(table: str, kind: str, one_in: int, done: int) -> float:
    """The largest chance to be over within some time, for each second until then or the end."""
    runs, mean = _lengths(table, kind, one_in)
    left = runs[runs > done] - done
    if not len(left):
        return 1.0 / mean
    some = np.arange(1, len(left) + 1)
    return float((some / (np.cumsum(left) + (len(left) - some) * left)).max() / mean)


def earlier_of(trials: Trials, count: int, rng: np.random.Generator) -> tuple[list[int], float]:
    """Results of so many searches like one, and the mean seconds of their runs."""
    table, kind, one_in = trials.kind
    (values, seconds), target = tables()[table], _target(table, kind, one_in)
    others = rng.permutation([number for number in range(6) if number != trials.number])
    runs, spent = [], 0.0
    for number in range(count) if kind == "random" else others[:count]:
        order = _order(rng, table, kind, int(number))
        reached = np.flatnonzero(values[order] <= target)
        runs.append(int(reached[0]) + 1 if len(reached) else len(order))
        spent += float(seconds[order[: runs[-1]]].sum())
    return runs, spent / sum(runs)


def remember(jobs: list[SimulatedJob], name: str, seed: int) -> None:
    """Give searches what a cluster knows of those that were like them, or, misled, like the next one."""
    for place, job in enumerate(jobs):
        like = jobs[(place + (name == "gain_misled")) % len(jobs)].trials
        assert isinstance(like, Trials)
        job.earlier, job.usual_seconds = earlier_of(like, EARLIER[name], np.random.default_rng([9, seed, place]))


class NextRunPriority(GainPriority):
    """The chance of the next run as a searcher's model has it, for each second of that run."""

    def key(self, job: JobView) -> tuple[float, ...]:
        """Where no model says anything, that of `GainPriority`."""
        if not job.seconds or job.chance is None or job.expected is None:
            return super().key(job)
        chance = 10.0 * job.chance / (10.0 + len(job.seconds) + job.running)
        return (0.0, job.expected * (job.share or 1.0) / max(chance, 1e-12))


def search(rng: np.random.Generator, name: str, *, table: str, tpe: bool, one_in: float, **more: Any) -> SimulatedJob:
    """A search on a table that ends at the value that one in so many configurations reach."""
    values, seconds = tables()[table]
    kind = "tpe" if tpe else "random"
    target = _target(table, kind, int(one_in))
    number = int(rng.integers(6)) if tpe else 0
    order = _order(rng, table, kind, number)
    found, of = (values[order].tolist(), seconds[order].tolist()), (table, kind, int(one_in))
    trials = Trials(*found, target=target, one_in=one_in, mean=float(np.mean(seconds)), kind=of, number=number)
    return SimulatedJob(name, more.pop("tenant", "all"), trials, RUN, parallel=4, target=target, core=CORE, **more)


def modelled_search(rng: np.random.Generator, name: str, *, table: str, one_in: int, **more: Any) -> SimulatedJob:
    """A search by ``gp`` among the rows of a table that it may choose from, with what its model says."""
    (values, seconds), number = tables()[table], int(rng.integers(6))
    found, order = modelled()[f"{table}/{number}"], _order(rng, table, "gp", number)
    said = zip(found[:, 2 + ONE_IN.index(one_in)].tolist(), found[:, 1].tolist(), strict=True)
    target = _target(table, "gp", one_in)
    trials = Trials(
        values[order].tolist(), seconds[order].tolist(), list(said), target=target, one_in=float(one_in),
        mean=float(np.mean(seconds[modelled()[f"{table}/rows"]])), kind=(table, "gp", one_in), number=number,
    )  # fmt: skip
    return SimulatedJob(name, more.pop("tenant", "all"), trials, RUN, parallel=4, target=target, core=CORE, **more)


def all_kinds(rng: np.random.Generator, arriving: bool, tenants: bool) -> list[SimulatedJob]:
    """Searches of all families and kinds, which come at once or one after the other."""
    found = []
    for number in range(24 if arriving else 12):
        family = FAMILIES[int(rng.integers(3))]
        names = sorted(n for n in tables() if (n.startswith(family) if family in OTHER else not n.startswith(OTHER)))
        table, kind, one_in = names[int(rng.integers(len(names)))], int(rng.integers(3)), int(rng.choice(ONE_IN))
        more = {"tenant": f"t{number}" if tenants else "all"}
        if kind == 2:
            found.append(modelled_search(rng, f"j{number}", table=table, one_in=one_in, **more))
        else:
            found.append(search(rng, f"j{number}", table=table, tpe=kind == 1, one_in=one_in, **more))
    if arriving:  # eight runs fit at a time, beside some Cores
        gap = float(np.mean([job.trials.needed for job in found])) / 8  # type: ignore[attr-defined]
        for job, moment in zip(found, np.cumsum(rng.exponential(gap, len(found))), strict=True):
            job.submitted = float(moment)
    return found


def jobs_of(setting: str, seed: int, tenants: bool) -> list[SimulatedJob]:
    """The searches of a setting; equal seeds give equal searches."""
    rng = np.random.default_rng([7, seed])
    if setting.endswith("-all"):
        return all_kinds(rng, setting.startswith("arriving"), tenants)
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
    if name in EARLIER:
        remember(jobs, name, seed)
    if name == "gain_constant":
        for each in trials.values():
            each.foreseen = [(chance and _MEAN_CHANCE, expected) for chance, expected in each.foreseen]
    if name == "clairvoyant":
        priority: Priority = ClairvoyantPriority({job: each.needed for job, each in trials.items()})
    elif name == "known":
        priority = KnownPriority({job: each.one_in * each.mean for job, each in trials.items()})
    elif name == "informed":
        priority = InformedPriority({job: each.kind for job, each in trials.items()})
    elif name == "next_run":
        priority = NextRunPriority(settings=GainPriority.Settings())
    else:
        part = "gain" if name in (*GAINS, *EARLIER) else "fifo" if name == "drf" else name
        priority = plugins.create("priority", part, GAINS.get(name, {}))
    policy = AllocationPolicy(plugins.create("fairness", "drf", {}), priority, core_reserve=0.75, offer_seconds=30.0)
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
                known = name == "informed" or name in EARLIER
                if (setting.endswith("-all") or name not in MODELS) and (setting in INFORMED or not known):
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
