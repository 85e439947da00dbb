"""What share of a cluster tenants get, whatever the sizes of their runs, beside what their weights say.

    python benchmarks/tenancy/shares.py --simulated          # all cells, in simulated time
    python benchmarks/tenancy/shares.py --simulated --possible --rules fair_share    # what is possible beside it
    python benchmarks/tenancy/shares.py --unequal            # runs of one tenant ten times as long as those of another
    python benchmarks/tenancy/shares.py --tenants 1000       # Jain's index and the time of a decision, simulated
    python benchmarks/tenancy/shares.py --tenants 1000 --takers 50    # of whom so many may preempt, and find nothing
    python benchmarks/tenancy/shares.py --real --cells 3     # the first cells on this machine, 90 s each

A cell is a cluster of 2 CPUs and 4 GiB on which each tenant always has work that waits: runs of 0.25 to 2 CPUs (or of
as large a part of the memory), weights, and a rule between tenants. Real shares are those of the time stamps that the
programs write themselves. A share is a tenant's part of what all have used, in percent of dominant shares; `worst` is
the largest distance from it in a window of ten mean run times, `used` the part of the cluster that was used at all.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np
from clairvoyant import reachable

from tradewind import plugins
from tradewind.engine.search_builder import study_document
from tradewind.problem.job_spec.spec import parse_spec
from tradewind.store.clusters.cluster_store import ClusterStore, JobRow, TenantRow
from tradewind.tenancy import events as ev
from tradewind.tenancy.allocator import AllocationPolicy, Allocator
from tradewind.tenancy.preemption.policy import PreemptionPolicy
from tradewind.tenancy.shared_cluster import SharedCluster, SharedClusterSettings
from tradewind.tenancy.simulator import ClusterSimulation, RecordedTrials, SimulatedJob, SimulatedRun, simulate

NODE = {"cpu": 2.0, "memory": 4.0}
VARIED = 0.2
"""Standard deviation of a run time, as a share of its mean."""

WARM = 5
"""Mean run times at the beginning that do not count."""


@dataclass(frozen=True)
class Cell:
    """Tenants, one of each size."""

    sizes: tuple[float, ...]
    weights: tuple[float, ...]
    heavy: str = "cpu"
    lengths: tuple[float, ...] = (1.0, 1.0, 1.0)

    def demand(self, number: int) -> dict[str, float]:
        """What a run of a tenant takes."""
        size = self.sizes[number]
        if self.heavy == "memory":
            return {"cpu": size / 4, "memory": 2 * size}
        return {"cpu": size, "memory": size / 4}

    @property
    def wanted(self) -> list[float]:
        """The shares that the weights say, in percent."""
        return [100 * weight / sum(self.weights) for weight in self.weights]


CELLS = (
    Cell((1, 0.5), (4, 1)),
    Cell((0.25, 2), (1, 1)),
    Cell((1, 1), (4, 1)),
    *(
        Cell(sizes, weights, heavy)
        for heavy in ("cpu", "memory")
        for weights in ((1, 1), (1, 4), (1, 2, 3))
        for sizes in (
            ((0.25, 0.5), (0.25, 1), (0.25, 2), (0.5, 1), (0.5, 2), (1, 2))
            if len(weights) == 2
            else ((0.25, 0.5, 1), (0.5, 1, 2), (0.25, 1, 2), (1, 0.5, 0.25))
        )
    ),
)
"""Those first of which dominant shares at each moment gave 48:48, 84:11 and 48:48."""

UNEQUAL = tuple(
    Cell(sizes, weights, lengths=lengths)
    for sizes in ((0.25, 0.25), (0.5, 0.5), (1, 1), (1, 0.5), (0.5, 2), (0.25, 2))
    for weights in ((1, 1), (1, 4))
    for lengths in ((1.0, 10.0), (10.0, 1.0))
)
"""Of which the runs of one tenant take ten times as long."""


def policy(fairness: str) -> AllocationPolicy:
    """The rule, and first come first served within a tenant."""
    return AllocationPolicy(plugins.create("fairness", fairness, {}), plugins.create("priority", "fifo", {}))


def lengths_of(cell: Cell, until: float) -> list[list[float]]:
    """Seconds of the runs of each tenant, more of them than have room in a time."""
    rng = np.random.default_rng(1)
    means = cell.lengths[: len(cell.sizes)]
    return [(mean * np.clip(rng.normal(1.0, VARIED, int(10 * until / mean)), 0.3, 2.0)).tolist() for mean in means]


def possible(cell: Cell, used: float) -> list[str]:
    """The worst windows of schedules that know all lengths: best for windows of ten, and for those of any length."""
    shares = [size / NODE["cpu"] for size in cell.sizes]
    out = []
    for only_windows in (True, False):
        runs = reachable(shares, cell.weights, lengths_of(cell, 203.0), 203.0, used, only_windows=only_windows)
        out.append(f"{figures(runs, len(cell.sizes), 1.0, 200.0)[1]:.1f}")
    return out


def simulated(cell: Cell, fairness: str, runs: int = 200) -> ClusterSimulation:
    """A cell in simulated time, as long as so many runs of the tenant whose runs are the longest."""
    until, jobs = (runs + 3) * max(cell.lengths), []
    for number, seconds in enumerate(lengths_of(cell, until)):
        trials = RecordedTrials([1.0] * len(seconds), seconds)
        jobs.append(SimulatedJob(f"t{number}", f"t{number}", trials, cell.demand(number), 9))
    tenants = [ev.TenantSet(f"t{number}", weight) for number, weight in enumerate(cell.weights)]
    return simulate({"n": NODE}, tenants, jobs, policy(fairness), until=until, record=True)


def figures(runs: Sequence[SimulatedRun], tenants: int, mean: float, end: float) -> tuple[list[float], float, float]:
    """The shares in percent, the worst window, and the part of the cluster that was used."""
    arrays = [
        np.array(each) for each in zip(*((r.began, r.ended, r.share, int(r.tenant[1:])) for r in runs), strict=True)
    ]
    began, ended, share, tenant = arrays

    def used(first: float, last: float) -> np.ndarray:
        each = np.clip(np.minimum(ended, last) - np.maximum(began, first), 0.0, None) * share / (last - first)
        return np.asarray(np.bincount(tenant.astype(int), each, minlength=tenants))

    def parts(first: float, last: float) -> np.ndarray:
        found = used(first, last)
        return np.asarray(100 * found / found.sum())

    whole = parts(WARM * mean, end)
    windows = [parts(first, first + 10 * mean) for first in np.arange(WARM * mean, end - 10 * mean, mean / 2)]
    worst = max((float(np.abs(each - whole).max()) for each in windows), default=float("nan"))
    return whole.tolist(), worst, float(used(WARM * mean, end).sum())


JOB = """\
name: t{number}
job:
  command: [sh, -c, 'exec {python} {program} $(date +%s.%N) {{{{ x }}}} {log} t{number} {seconds} {heavy} {memory}']
space: {{x: 1..100000}}
offers: {{provider: local, vcpu: 1, limit: 1}}
objective: {{minimise: loss}}
interpret: [{{use: regex, patterns: 'loss (?P<loss>[0-9.]+)'}}]
budget: {{trials: 5000}}
searcher: random
stop: never
parallel: 9
"""

PROGRAM = """\
import json, random, sys, time
began, x, log, who, seconds, heavy, memory = sys.argv[1:]
until = time.monotonic() + float(seconds) * min(2.0, max(0.3, random.Random(x).gauss(1.0, 0.2)))
kept = bytearray(int(float(memory) * 2**29)) if heavy == "memory" else b""
while time.monotonic() < until:
    if heavy == "memory":
        time.sleep(0.02)
with open(log, "a") as file:
    file.write(json.dumps([who, float(began), time.time()]) + "\\n")
print("loss", 1.0)
"""


class TwoCpus:
    """One node, whatever this machine has."""

    def nodes(self) -> Mapping[str, Mapping[str, float]]:
        """Capacity by node."""
        return {"here": NODE}


def real(cell: Cell, fairness: str, seconds: float, minutes: float) -> tuple[list[SimulatedRun], float, float]:
    """A cell on this machine: its runs as their programs saw them, their mean seconds, and when it ended."""
    with tempfile.TemporaryDirectory(prefix="tw-shares-") as name:
        folder = Path(name)
        log, program, url = folder / "log", folder / "program.py", f"sqlite:///{folder}/tradewind.db"
        program.write_text(PROGRAM)
        with closing(ClusterStore(url)) as store:
            for number, weight in enumerate(cell.weights):
                store.set_tenant(TenantRow(f"t{number}", float(weight)))
                demand = cell.demand(number)
                text = JOB.format(
                    number=number, python=sys.executable, program=program, log=log, seconds=seconds,
                    heavy=cell.heavy, memory=demand["memory"],
                )  # fmt: skip
                spec = study_document(parse_spec(text, base=folder))
                store.submit(JobRow(0, f"t{number}", f"t{number}", spec, {"demand": demand}))
        until = time.monotonic() + 60 * minutes
        settings = SharedClusterSettings("default", url, folder, policy(fairness), {})
        SharedCluster(settings, TwoCpus()).run(lambda: time.monotonic() < until)
        rows = [json.loads(line) for line in log.read_text().splitlines()]
    first, last = min(row[1] for row in rows), max(row[2] for row in rows)
    shares = {
        f"t{n}": max(amount / NODE[kind] for kind, amount in cell.demand(n).items()) for n in range(len(cell.sizes))
    }
    runs = [SimulatedRun(who, began - first, ended - first, shares[who]) for who, began, ended in rows]
    mean = float(np.mean([run.ended - run.began for run in runs]))
    return runs, mean, last - first - 3 * mean  # what was cut off at the end has written nothing


def line(cell: Cell, fairness: str, found: tuple[list[float], float, float], more: Sequence[str] = ()) -> str:
    """A row of the table."""

    def percents(values: Sequence[float]) -> str:
        return " : ".join(f"{value:.1f}" for value in values)

    sizes, weights = (" / ".join(f"{each:g}" for each in values) for values in (cell.sizes, cell.weights))
    shares, worst, used = found
    off = max(abs(a - b) for a, b in zip(shares, cell.wanted, strict=True))
    cells = (sizes, weights, cell.heavy, fairness, percents(shares), f"{off:.1f}", f"{worst:.1f}", f"{used:.0%}", *more)
    return f"| {' | '.join(cells)} |"


@contextmanager
def thinking() -> Iterator[list[float]]:
    """Processor seconds of the allocator, and the runs that it starts, once the cluster is full."""
    handle_all, sums = Allocator.handle_all, [0.0, 0]

    def measured(self: Allocator, events: Sequence[ev.AllocatorEvent], now: float) -> list[ev.AllocatorInstruction]:
        began, before = time.process_time(), self.decisions
        out = handle_all(self, events, now)
        if now > 0:
            sums[0] += time.process_time() - began
            sums[1] += self.decisions - before
        return out

    with mock.patch.object(Allocator, "handle_all", measured):
        yield sums


def many(tenants: int, fairness: str, takers: int = 0) -> Iterator[str]:
    """Jain's index of weighted shares over windows of ten mean run times, and how long a decision takes."""
    rng, nodes = np.random.default_rng(2), max(4, tenants // 2)
    jobs = []
    for number in range(tenants):
        trials = RecordedTrials([1.0] * 300, rng.lognormal(-0.125, 0.5, 300).tolist())
        demand = {"cpu": float((1, 2, 4, 8)[number % 4]), "memory": 1.0}
        jobs.append(SimulatedJob(f"t{number}", f"t{number}", trials, demand, 24))
    weights = [1 + number % 3 for number in range(tenants)]
    how = PreemptionPolicy(2.0)
    them = [
        ev.TenantSet(f"t{number}", weight, preempt=how if takers and number % (tenants // takers) == 0 else None)
        for number, weight in enumerate(weights)
    ]
    there = {f"n{number}": {"cpu": 16.0, "memory": 64.0} for number in range(nodes)}
    with thinking() as sums:
        found = simulate(there, them, jobs, policy(fairness), until=16.0, record=True)
    for first in (3.0, 4.0, 5.0):
        used = found.used_between(first, first + 10.0)
        each = np.array([used[f"t{number}"] / weight for number, weight in enumerate(weights)])
        jain = each.sum() ** 2 / (tenants * (each**2).sum())
        yield f"| {fairness} | {first:g} to {first + 10:g} | {jain:.4f} | {sum(used.values()):.1%} |"
    yield f"{found.starts} runs started, {1000 * sums[0] / sums[1]:.3f} ms of processor time each once it was full"


def unequal(rules: Sequence[str]) -> Iterator[str]:
    """The table of cells with runs of unequal length: the worst window of ten times three lengths."""
    yield "| sizes | weights | lengths | rule | shares | off | window of 55 | of 100 | of 400 | used |"
    yield "|---|---|---|---|---|---:|---:|---:|---:|---:|"
    for cell in UNEQUAL:
        for fairness in rules:
            runs = simulated(cell, fairness, 120).runs
            found = [figures(runs, len(cell.sizes), mean, 1200.0) for mean in (5.5, 10.0, 40.0)]
            shares, _, used = found[1]
            off = max(abs(share - wanted) for share, wanted in zip(shares, cell.wanted, strict=True))
            words = [
                *(" / ".join(f"{each:g}" for each in values) for values in (cell.sizes, cell.weights, cell.lengths)),
                fairness,
                " : ".join(f"{share:.1f}" for share in shares),
                f"{off:.1f}",
                *(f"{worst:.1f}" for _, worst, _ in found),
                f"{used:.0%}",
            ]
            yield f"| {' | '.join(words)} |"


def main() -> None:
    """Print the tables of README.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulated", action="store_true")
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--possible", action="store_true", help="beside it what whoever knows all lengths can reach")
    parser.add_argument("--unequal", action="store_true", help="of unequal length, in simulated time")
    parser.add_argument("--tenants", type=int, help="so many, in simulated time")
    parser.add_argument("--takers", type=int, default=0, help="so many of them may preempt, and nothing can be taken")
    parser.add_argument("--rules", nargs="+", default=["drf", "fair_share"])
    parser.add_argument("--cells", type=int, default=len(CELLS), help="only the first ones")
    parser.add_argument("--from", dest="first", type=int, default=0, help="without so many at the beginning")
    parser.add_argument("--seconds", type=float, default=3.0, help="of a real run in the mean")
    parser.add_argument("--minutes", type=float, default=1.5, help="of a real cell")
    given = parser.parse_args()
    for fairness in given.rules if given.tenants else ():
        print(*many(given.tenants, fairness, given.takers), sep="\n", flush=True)
    if given.unequal:
        print(*unequal(given.rules), sep="\n", flush=True)
    if given.simulated or given.real:
        more = ["ten known", "all known"] if given.possible else []
        heads = ["sizes", "weights", "heavy on", "rule", "shares", "off", "worst", "used", *more]
        print(f"| {' | '.join(heads)} |", f"|{'---|' * 5}{'---:|' * (len(heads) - 5)}", sep="\n")
    for cell in CELLS[given.first : given.cells]:
        for fairness in given.rules:
            if given.simulated:
                found = figures(simulated(cell, fairness).runs, len(cell.sizes), 1.0, 200.0)
                more = possible(cell, found[2] - 0.01) if given.possible else []
                print(line(cell, fairness, found, more), flush=True)
            if given.real:
                runs, mean, end = real(cell, fairness, given.seconds, given.minutes)
                print(line(cell, f"{fairness}, real", figures(runs, len(cell.sizes), mean, end)), flush=True)


if __name__ == "__main__":
    main()
