"""The two programs as jobs whose time is known for every cluster: what ``prepare.py`` has measured."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import median

import numpy as np

from tradewind.problem import (
    Instance,
    JobParameters,
    Nodes,
    Objective,
    Observation,
    Offer,
    Problem,
    Proposal,
    Trial,
    TrialState,
)
from tradewind.testing.problems import KnownOutcome, make_problem

HERE = Path(__file__).parent
LABELS = {"dynamic": ("group", "size"), "static": ("subtasks", "size")}
PRICE = 0.05
"""USD per vCPU and hour."""

Point = tuple[int, int]
Cluster = tuple[int, int]
"""Nodes, and threads of each."""


@dataclass(frozen=True)
class Job:
    """A program with its two parameters, and its seconds on every cluster.

    Attributes:
        name: ``dynamic`` or ``static``.
        metric: ``runtime``, as in the publication, or ``cost``.
        seconds: The measured times by parameters and cluster, one for each pass.
    """

    name: str
    metric: str
    seconds: Mapping[Point, Mapping[Cluster, Sequence[float]]]

    @cached_property
    def points(self) -> list[Point]:
        """The parameters that it was measured with."""
        return sorted(self.seconds)

    @cached_property
    def problems(self) -> dict[Point, Problem]:
        """The problem of each."""
        return {point: self._problem(point) for point in self.points}

    def _problem(self, point: Point) -> Problem:
        clusters = next(iter(self.seconds.values()))
        threads = sorted({t for _, t in clusters})
        offers = {f"v{t}": Offer("lab", f"v{t}", vcpu=t, memory_gib=2.0 * t, price_per_hour=PRICE * t) for t in threads}
        space = [
            Nodes(name="nodes", values=tuple(sorted({n for n, _ in clusters}))),
            Instance(name="instance", values=tuple(offers), offers=offers),
        ]
        problem = make_problem(space, lambda _c, _o: KnownOutcome(1.0), objective=Objective(self.metric))
        parameters = JobParameters(dict(zip(LABELS[self.name], map(float, point), strict=True)))
        return replace(problem, job=replace(problem.job, name=self.name, parameters=parameters))

    def value(self, point: Point, cluster: Cluster) -> float:
        """The objective of a run: by the median of the passes."""
        return self._objective(cluster, median(self.seconds[point][cluster]))

    def _objective(self, cluster: Cluster, seconds: float) -> float:
        nodes, threads = cluster
        return seconds if self.metric == "runtime" else seconds / 3600.0 * nodes * threads * PRICE

    def excess(self, point: Point, cluster: Cluster) -> tuple[float, float]:
        """How far a cluster is from the best one: as a share of the range from best to worst, and of the best."""
        values = [self.value(point, each) for each in self.seconds[point]]
        own, least, most = self.value(point, cluster), min(values), max(values)
        return (own - least) / (most - least), own / least - 1.0

    def run(self, point: Point, proposal: Proposal, number: int, rng: np.random.Generator) -> Trial:
        """What is recorded of a run: one of the measured times."""
        problem = self.problems[point]
        cluster = cluster_of(proposal.configuration)
        took = float(rng.choice(self.seconds[point][cluster]))
        offer = problem.resolver.resolve(proposal.configuration)
        cost = self._objective(cluster, took) if self.metric == "cost" else took / 3600.0 * offer.hourly
        seen = Observation(self._objective(cluster, took), cost, took, feasible=True)
        key = problem.trial_key(proposal.configuration)
        trial = Trial(number, proposal, offer, TrialState.SUCCEEDED, key)
        return replace(trial, observation=seen, spent=cost, ended=float(number))


def cluster_of(configuration: Mapping[str, object]) -> Cluster:
    """Nodes and threads of a configuration."""
    return int(str(configuration["nodes"])), int(str(configuration["instance"]).removeprefix("v"))


def load(path: Path = HERE / "recorded.csv") -> dict[str, Job]:
    """All jobs, by name and objective."""
    found: dict[str, dict[Point, dict[Cluster, list[float]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            point, cluster = (int(row["first"]), int(row["second"])), (int(row["nodes"]), int(row["threads"]))
            found[row["program"]][point][cluster].append(float(row["seconds"]))
    return {
        f"{name}, {words}": Job(name, metric, seconds)
        for name, seconds in found.items()
        for metric, words in (("runtime", "time"), ("cost", "cost"))
    }
