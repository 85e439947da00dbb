"""Jobs with parameters whose time is known for every configuration: synthetic ones, and the recorded ones of C3O."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from tradewind.problem import Instance, JobParameters, Nodes, Objective, Offer, Ordinal, Parameter
from tradewind.testing.problems import KnownOutcome, KnownProblem, make_problem

Values = Mapping[str, float | str]
PRICES = {"c4.2xlarge": 0.398, "m4.2xlarge": 0.4, "r4.2xlarge": 0.532, "r4.xlarge": 0.266}
"""USD an hour on demand in us-east-1, November 2017."""


@dataclass(frozen=True)
class Scenario:
    """A job, the parameters that it may be given, and the problem that each of them makes.

    Attributes:
        name: Its name.
        inputs: The job parameters that are drawn from.
        make: The problem of some parameters; the noise of a run included.
        solved: Optimum and greatest value by input, once computed.
    """

    name: str
    inputs: Sequence[Values]
    make: Callable[[Values], KnownProblem]
    solved: dict[int, tuple[float, float]] = field(default_factory=dict)

    def problem(self, i: int) -> KnownProblem:
        """The problem of the i-th input."""
        problem = self.make(self.inputs[i])
        job = replace(problem.job, name=self.name, parameters=JobParameters(dict(self.inputs[i])))
        return replace(problem, job=job)

    def extremes(self, i: int) -> tuple[float, float]:
        """The least and the greatest objective of the i-th input."""
        if i not in self.solved:
            problem = self.problem(i)
            found = [problem.candidates.configuration(k) for k in range(len(problem.candidates))]
            values = [value for one in found if (value := problem.value(one)) is not None]
            self.solved[i] = min(values), max(values)
        return self.solved[i]


# ---------------------------------------------------------------------- synthetic


def dynamic(group: float, size: float, nodes: int, threads: int) -> float:
    """Seconds of a master that hands out groups of subtasks to the nodes as they ask."""
    groups = math.ceil(2048 / group)
    one = math.ceil(group / threads) * size * (1.0 + 0.06 * (threads - 1)) + 0.02 * threads
    master = groups * (0.03 + 0.01 * nodes)
    workers = math.ceil(groups / nodes) * (one + 0.05)
    return float(2.0 + 0.4 * nodes + max(master, workers))


def static(count: float, size: float, nodes: int, threads: int) -> float:
    """Seconds of subtasks that are dealt out evenly before the start."""
    rounds = math.ceil(math.ceil(count / nodes) / threads)
    exchange: float = 0.8 * nodes + 0.0004 * count * (nodes - 1) ** 0.5
    return 3.0 + rounds * size * (1.0 + 0.05 * (threads - 1)) + exchange + 0.3 * threads


def synthetic(
    name: str, *, metric: str = "runtime", levels: slice = slice(6), unused: bool = False, noise: float = 0.03
) -> Scenario:
    """The two programs of the publication in kind: 8 numbers of nodes, 8 of threads, and two job parameters.

    Args:
        name: ``dynamic`` or ``static``, and more.
        metric: The objective.
        levels: Which of six levels of each job parameter occur; each level is twice the one before.
        unused: Add two job parameters without any influence.
        noise: Standard deviation of the logarithm of a run's time.
    """
    law = dynamic if name.startswith("dynamic") else static
    first = [4.0, 8.0, 16.0, 32.0, 64.0, 128.0] if law is dynamic else [256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0]
    labels = ("group", "size") if law is dynamic else ("count", "size")
    sizes = [0.02, 0.04, 0.08, 0.16, 0.32, 0.64]
    inputs: list[Values] = [{labels[0]: a, labels[1]: b} for a in first[levels] for b in sizes[levels]]
    if unused:
        inputs = [{**one, "run": float(1 + 7 * i % 11), "label": "abc"[i % 3]} for i, one in enumerate(inputs)]
    offers = {"node": Offer("jinr", "node", vcpu=8, memory_gib=16, price_per_hour=0.2)}

    def make(given: Values) -> KnownProblem:
        a, b = float(given[labels[0]]), float(given[labels[1]])
        parameters: list[Parameter] = [
            Instance(name="instance", values=("node",), offers=offers),
            Nodes(name="nodes", values=tuple(range(1, 9))),
            Ordinal(name="threads", values=tuple(range(1, 9))),
        ]
        return make_problem(
            parameters,
            lambda c, _o: KnownOutcome(law(a, b, int(c["nodes"]), int(c["threads"]))),
            objective=Objective(metric),
            noise=noise,
        )

    return Scenario(name, inputs, make)


# ---------------------------------------------------------------------- recorded

PARAMETERS = {
    "grep": ("data_size_MB", "p_occurrence"),
    "kmeans": ("data_size_MB", "features", "observations", "k"),
    "pagerank": ("data_size_MB", "pages", "links", "convergence_criterion"),
    "sgd": ("data_size_MB", "features", "observations", "iterations"),
    "sort": ("data_size_MB", "line_length", "lines"),
}


def recorded(folder: Path, name: str, metric: str) -> Scenario:
    """One job of C3O: its inputs, each with the clusters that were measured for it (median of five runs)."""
    cells: dict[tuple[float, ...], dict[tuple[str, int], list[float]]] = defaultdict(lambda: defaultdict(list))
    machines: dict[str, tuple[float, float]] = {}
    with (folder / f"{name}.tsv").open(newline="") as file:
        for number, row in enumerate(csv.DictReader(file, delimiter="\t")):
            if name == "kmeans" and number < 5:
                row["data_size_MB"] = "16000"  # a slip that the authors corrected later
            nodes = int(row["instance_count"])
            machines[row["machine_type"]] = int(row["slots"]) / nodes, int(row["memory"]) / nodes / 1000
            key = tuple(float(row[p]) for p in PARAMETERS[name])
            cells[key][row["machine_type"], nodes].append(float(row["gross_runtime"]))
    offers = {m: Offer("aws", m, *machines[m], price_per_hour=PRICES[m]) for m in sorted(machines)}
    counts = tuple(sorted({n for measured in cells.values() for _, n in measured}))
    inputs: list[Values] = [dict(zip(PARAMETERS[name], key, strict=True)) for key in sorted(cells)]

    def make(given: Values) -> KnownProblem:
        measured = cells[tuple(float(given[p]) for p in PARAMETERS[name])]
        return make_problem(
            [Instance(name="instance", values=tuple(offers), offers=offers), Nodes(name="nodes", values=counts)],
            lambda c, _o: KnownOutcome(median(measured[str(c["instance"]), int(c["nodes"])])),
            objective=Objective(metric),
            sold=set(measured),
        )

    return Scenario(f"c3o {name}", inputs, make)


def scenarios(folder: Path) -> dict[str, Scenario]:
    """All of them by name and objective; the recorded ones only where the folder of the tables is there."""
    found = {}
    for law in ("dynamic", "static"):
        for metric, words in (("runtime", "time"), ("cost", "cost")):
            found[f"{law}, {words}"] = synthetic(law, metric=metric, levels=slice(2, 5))
        found[f"{law} + 2 unused, time"] = synthetic(f"{law} + 2 unused", levels=slice(2, 5), unused=True)
        found[f"{law} wide, time"] = synthetic(f"{law} wide")
    if (folder / "c3o").is_dir():
        for name in PARAMETERS:
            for metric in ("runtime", "cost"):
                words = "time" if metric == "runtime" else "cost"
                found[f"c3o {name}, {words}"] = recorded(folder / "c3o", name, metric)
    return found
