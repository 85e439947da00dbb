"""Paper 4's tables 2 to 4 with real runs on real engines, beside what the simulator says of the same case.

    python benchmarks/tenancy/real.py --engine local --seeds 10     # or slurm, ray; needs prepare.py
    python benchmarks/tenancy/real.py --engine slurm --seeds 5 --minutes 7

Appends to work/real.csv; what is there is left out, so that it can be stopped and started again. A cell is a number of
searches, their parallelism, and a policy; in each seed all policies meet the same searches with the same luck:

- A run takes 4 CPUs and 2 GB and sleeps. Value and seconds are those of a configuration of ``nasbench201_cifar10``
  (convolutional networks), drawn without replacement, the seconds scaled to the mean of the engine (`SCALES`).
- A search ends at the value that 1 in 8 configurations reaches; its Core takes 1 CPU and 0.4 GB.
- Three nodes of 12 CPUs and 8 GB: eight or nine runs fit, as on paper 4's cluster. Ray has two nodes of 18 CPUs, and
  up to eight runs.
- ``dynamic`` is Algorithm 1 with m = 3 and k = 1, as searches here are shorter than the paper's, and offers again
  after a tenth of a run. ``drf``: each search is a tenant of its own. ``gain``: expected gain.

Time to target is from submission until the run that reached it had ended, as the cluster saw it.
"""

from __future__ import annotations

import argparse
import csv
import logging
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from ground import ENGINES, Ground, ground

from tradewind import plugins
from tradewind.engine.search_builder import study_document
from tradewind.problem import TrialState
from tradewind.problem.job_spec.spec import parse_spec
from tradewind.store.clusters.cluster_store import ClusterStore, JobRow
from tradewind.tenancy import events as ev
from tradewind.tenancy.allocator import AllocationPolicy
from tradewind.tenancy.shared_cluster import SharedCluster, SharedClusterSettings
from tradewind.tenancy.simulator import RecordedTrials, SimulatedJob, simulate

WORK = Path(__file__).parent / "work"


@dataclass(frozen=True)
class Scale:
    """How large everything is on an engine.

    Attributes:
        seconds: Of a run, in the mean; the slower an engine starts runs, the longer they are.
        nodes: How many there are.
        cpus: Of each node.
        core: CPUs of a Core.
    """

    seconds: float
    nodes: int = 3
    cpus: float = 12.0
    core: float = 1.0

    @property
    def cluster(self) -> dict[str, dict[str, float]]:
        """The nodes, as the allocator is told them."""
        return {f"agent{number}": {"cpu": self.cpus, "memory": 23.4375 / self.nodes} for number in range(self.nodes)}

    @property
    def of_core(self) -> dict[str, float]:
        """What a Core takes."""
        return {"cpu": self.core, "memory": 0.4}


SCALES = {"local": Scale(1.0), "slurm": Scale(1.0), "ray": Scale(1.0, 2, 18.0)}
RUN = {"cpu": 4.0, "memory": 2.0}
TABLE, ROWS, ONE_IN, LIMIT = "nasbench201_cifar10", 400, 8, 180.0
DYNAMIC = {"sample": 3, "multiple": 1.0}
FIELDS = (
    "engine", "jobs", "parallel", "policy", "seed", "mean", "last", "runs", "told_mean", "told_last", "told_runs",
    "busy",
)  # fmt: skip

JOB = """\
name: j{number}
job: {{command: [sh, -c, "sed -n {{{{ row }}}}p {file} | {{ read value seconds; sleep $seconds; echo loss $value; }}"]}}
space: {{row: 1..{rows}}}
{offers}
objective: {{minimise: loss}}
interpret: [{{use: regex, patterns: 'loss (?P<loss>[0-9.]+)'}}]
budget: {{trials: {rows}}}
searcher: exhaustive
stop: never
parallel: {parallel}
"""


@dataclass(frozen=True)
class Cell:
    """What is measured once for each seed."""

    jobs: int
    parallel: int
    policy: str


CELLS = (
    *(Cell(jobs, 4, policy) for jobs in (4, 3) for policy in ("fifo", "dynamic", "drf", "gain")),
    *(Cell(jobs, 4, policy) for jobs in (2, 1) for policy in ("fifo", "dynamic")),
    *(Cell(1, parallel, policy) for parallel in (1, 2, 8) for policy in ("fifo", "dynamic")),
    *(Cell(3, 1, policy) for policy in ("fifo", "dynamic")),
)
"""Those of table 4 first."""


def luck(engine: str, seed: int, jobs: int) -> tuple[float, list[tuple[list[float], list[float]]]]:
    """The target, and values and seconds of the trials of each search, in the order in which it tries them."""
    values, seconds = np.load(WORK / "tables.npz")[TABLE]
    values, seconds = values / 100, seconds * (SCALES[engine].seconds / seconds.mean())
    rng = np.random.default_rng([4, seed])
    target = float(np.quantile(values, 1 / ONE_IN))
    orders = [rng.permutation(len(values))[:ROWS] for _ in range(jobs)]
    return target, [(values[order].round(6).tolist(), seconds[order].round(4).tolist()) for order in orders]


def policy_of(name: str, mean: float) -> AllocationPolicy:
    """The policy of a cell."""
    kind = "fifo" if name == "drf" else name
    priority = plugins.create("priority", kind, DYNAMIC if name == "dynamic" else {})
    return AllocationPolicy(plugins.create("fairness", "drf", {}), priority, offer_seconds=mean / 10)


def tenants_of(cell: Cell) -> list[str]:
    """Whose each search is."""
    return [f"t{number}" if cell.policy == "drf" else "all" for number in range(cell.jobs)]


def told(engine: str, cell: Cell, seed: int, more: float = 0.0) -> tuple[list[float], int]:
    """What the simulator says: seconds to target of each search, and how many runs are started in all.

    Args:
        engine: The engine.
        cell: The cell.
        seed: The seed.
        more: Seconds that each run takes longer than it sleeps.
    """
    target, all_ = luck(engine, seed, cell.jobs)
    all_ = [(values, [each + more for each in seconds]) for values, seconds in all_]
    scale = SCALES[engine]
    jobs = [
        SimulatedJob(
            f"j{n}",
            tenant,
            RecordedTrials(*trials),
            RUN,
            parallel=cell.parallel,
            target=target,
            core=scale.of_core,
            finishes=True,
        )
        for n, (tenant, trials) in enumerate(zip(tenants_of(cell), all_, strict=True))
    ]
    tenants = [ev.TenantSet(name) for name in dict.fromkeys(tenants_of(cell))]
    found = simulate(scale.cluster, tenants, jobs, policy_of(cell.policy, scale.seconds))
    assert all(outcome.reached for outcome in found.outcomes.values())
    return [outcome.done or 0.0 for outcome in found.outcomes.values()], found.starts


class Known:
    """Nodes that do not change."""

    def __init__(self, engine: str) -> None:
        self._nodes = SCALES[engine].cluster

    def nodes(self) -> Mapping[str, Mapping[str, float]]:
        """Capacity by node."""
        return self._nodes


def measured(here: Ground, cell: Cell, seed: int) -> tuple[list[float], int]:
    """The same with real runs."""
    target, all_ = luck(here.name, seed, cell.jobs)
    folder = Path(tempfile.mkdtemp(prefix="tw-real-"))
    (folder / "work").mkdir()
    url = f"sqlite:///{folder}/tradewind.db"
    rows: list[JobRow] = []
    began = 0.0
    with closing(ClusterStore(url)) as store:
        specs = []
        offers = _offers(here.name, folder)
        for number, (values, seconds) in enumerate(all_):
            file = folder / f"rows{number}"
            file.write_text("".join(f"{v} {s}\n" for v, s in zip(values, seconds, strict=True)))
            text = JOB.format(number=number, file=file, offers=offers, rows=ROWS, parallel=cell.parallel)
            specs.append(study_document(parse_spec(text, base=folder / "work")))

        def wanted() -> bool:
            """Submit everything once the cluster is there; then until all is over."""
            nonlocal began
            if not began:
                began = time.time()
                options = {"demand": RUN, "core_demand": SCALES[here.name].of_core, "target": target}
                for number, (tenant, spec) in enumerate(zip(tenants_of(cell), specs, strict=True)):
                    rows.append(store.submit(JobRow(0, tenant, f"j{number}", spec, options)))
            assert time.time() - began < LIMIT, f"{cell} of seed {seed} takes too long; its files: {folder}"
            return not cluster.empty()

        policy = policy_of(cell.policy, SCALES[here.name].seconds)
        # A namespace of its own: runs of another cell that are being cancelled are not this one's.
        runner = {**here.runner, **({"namespace": folder.name} if here.ray else {})}
        cluster = SharedCluster(SharedClusterSettings("default", url, folder, policy, {}, runner), Known(here.name))
        cluster.run(wanted)
        times, runs = [], 0
        with closing(plugins.create("store", "sql", {}, url=url)) as studies:
            for row in (store.job(each.id) for each in rows):
                assert row.state == "done", f"{cell} of seed {seed}: {row.state}, {row.reason}; its files: {folder}"
                trials = studies.trials(row.study_id)
                assert not [each for each in trials if each.state is TrialState.FAILED], folder
                hits = [each.ended for each in trials if each.observation and _hit(each.observation.objective, target)]
                times.append(min(hits) - began)
                runs += len(studies.runs(row.study_id))
    shutil.rmtree(folder, ignore_errors=True)
    return times, runs


def _offers(engine: str, folder: Path) -> str:
    """Lines of the job: what a run takes, as the engine is told it; this machine has no 4 CPUs and need not know."""
    if engine == "local":
        return "offers: {provider: local, vcpu: 1, memory: 2}"
    (folder / "offers.csv").write_text("API Name,Provider,CPU,Memory,Category,Price\nslice,rack,4,2,general,0.01\n")
    return f"offers: {{provider: rack, types: slice}}\ncatalogues: {{csv: {{path: {folder}/offers.csv}}}}"


def _hit(value: float | None, target: float) -> bool:
    return value is not None and value <= target


def one(here: Ground, cell: Cell, seed: int) -> dict[str, Any]:
    """A row of the file of results."""
    expected, starts = told(here.name, cell, seed)
    psutil.cpu_percent()
    times, runs = measured(here, cell, seed)
    return {
        "engine": here.name, "jobs": cell.jobs, "parallel": cell.parallel, "policy": cell.policy, "seed": seed,
        "mean": round(float(np.mean(times)), 4), "last": round(max(times), 4), "runs": runs,
        "told_mean": round(float(np.mean(expected)), 4), "told_last": round(max(expected), 4), "told_runs": starts,
        "busy": psutil.cpu_percent(),
    }  # fmt: skip


def check(here: Ground) -> None:
    """See that the engine has the CPUs that the allocator and the simulator are told."""
    if here.name != "local":
        with tempfile.TemporaryDirectory() as scratch:
            has = [node["cpu"] for node in here.nodes(Path(scratch)).values()]
        scale = SCALES[here.name]
        assert has == [scale.cpus] * scale.nodes, has


def main() -> int:
    """Measure what is not there yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=ENGINES, required=True)
    parser.add_argument("--seeds", type=int, default=10, help="so many")
    parser.add_argument("--first", type=int, default=0, help="the first one, where several processes share them")
    parser.add_argument("--cells", type=int, default=len(CELLS), help="only the first ones, those of table 4")
    parser.add_argument("--policies", default="fifo,dynamic,drf,gain", help="only these")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing later than that")
    parser.add_argument("--results", type=Path, default=WORK / "real.csv")
    given = parser.parse_args()
    until = time.monotonic() + 60 * given.minutes
    cells = [cell for cell in CELLS[: given.cells] if cell.policy in given.policies.split(",")]
    done: set[tuple[str, ...]] = set()
    if given.results.exists():
        with given.results.open() as file:
            done = {tuple(row[name] for name in FIELDS[:5]) for row in csv.DictReader(file)}
    logging.getLogger("tradewind").setLevel(logging.ERROR)
    scale = SCALES[given.engine]
    with ground(given.engine, int(scale.nodes * scale.cpus)) as here, given.results.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        if not file.tell():
            writer.writeheader()
        check(here)
        one(here, Cell(1, 2, "fifo"), 1000)  # imports, and the engine's own first time
        for seed in range(given.first, given.first + given.seeds):
            for cell in cells:
                if (given.engine, str(cell.jobs), str(cell.parallel), cell.policy, str(seed)) in done:
                    continue
                if time.monotonic() > until:
                    return 0
                row = one(here, cell, seed)
                writer.writerow(row)
                file.flush()
                print(*row.values(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
