"""Ready problems whose truth is known, and a small loop that carries proposals out on them.

They cost nothing and need no machines: a test asks a searcher (or the engine) for a proposal, `evaluate` turns it
into an ended trial, and `drive` does both in turn with the money counted::

    problem = table_problem(dollars=2.0)
    trials = drive(RandomSearcher(settings=RandomSearcher.Settings(), problem=problem), problem, 20)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tradewind.problem import (
    Billing,
    Budget,
    Categorical,
    Configuration,
    Constraints,
    Expression,
    Float,
    Instance,
    Integer,
    Job,
    Nodes,
    Objective,
    Offer,
    Ordinal,
    Parameter,
    Space,
    StudyTerms,
    Threshold,
)
from tradewind.testing.known import (
    ONE_OFFER,
    KnownOutcome,
    KnownProblem,
    KnownResolver,
    Scaling,
    Truth,
    drive,
    evaluate,
    pending,
)

__all__ = [
    "ONE_OFFER",
    "KnownOutcome",
    "KnownProblem",
    "KnownResolver",
    "Scaling",
    "Truth",
    "conditional_problem",
    "continuous_problem",
    "drive",
    "evaluate",
    "flat_problem",
    "huge_problem",
    "infeasible_problem",
    "machine_parameters",
    "make_problem",
    "offers",
    "pending",
    "table_problem",
    "tiny_problem",
    "training_problem",
]


def make_problem(
    parameters: Sequence[Parameter],
    truth: Truth,
    *,
    where: Sequence[str] = (),
    objective: Objective | None = None,
    deadline: float | None = None,
    thresholds: Sequence[Threshold] = (),
    dollars: float | None = None,
    trials: int | None = None,
    billing: Billing | None = None,
    future_runs: float | None = None,
    noise: float = 0.0,
    sold: set[tuple[str, int]] | None = None,
    extra_nodes: int = 0,
    scaling: Scaling | None = None,
) -> KnownProblem:
    """A problem of any parameters and any truth.

    Args:
        parameters: Of the space.
        truth: What a full run of a configuration does.
        where: Constraints of the space, as expressions.
        objective: What is wanted; the least cost without it.
        deadline: Seconds that a run may take.
        thresholds: Bounds on metrics.
        dollars: Budget in USD.
        trials: Budget in trials.
        billing: How time becomes money; by the second without it.
        future_runs: How often the result will be used.
        noise: Standard deviation of the logarithm of a run's time.
        sold: See `KnownResolver`.
        extra_nodes: See `KnownResolver`.
        scaling: See `KnownProblem`.
    """
    space = Space(parameters, [Expression(text) for text in where])
    return KnownProblem(
        job=Job("ready", ("true",), workdir=Path("/")),
        space=space,
        objective=objective or Objective(),
        constraints=Constraints(deadline, tuple(thresholds)),
        budget=Budget(dollars=dollars, trials=trials),
        resolver=KnownResolver(space, sold=sold, extra_nodes=extra_nodes),
        terms=StudyTerms(billing=billing or Billing(granularity_seconds=0.001), future_runs=future_runs),
        truth=truth,
        noise=noise,
        scaling=scaling,
    )


_SIZES = {"large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16}
_FAMILIES = {"c": ("compute", 2.0, 0.0425), "m": ("general", 4.0, 0.048), "r": ("memory", 8.0, 0.063)}
_SPEED = {"compute": 1.25, "general": 1.05, "memory": 1.0}


def offers(types: int = 9) -> dict[str, Offer]:
    """Offers of one machine each, by instance type: compute, general and memory families in growing sizes.

    Args:
        types: How many; at most 12.
    """
    found = {}
    for size, cores in _SIZES.items():
        for letter, (category, memory, price) in _FAMILIES.items():
            name = f"{letter}9.{size}"
            found[name] = Offer(
                "test", name, cores, cores * memory, round(price * cores, 6), category=category, family=f"{letter}9"
            )
    return dict(list(found.items())[:types])


def machine_parameters(types: int = 9, nodes: Sequence[int] = (1, 2, 4, 8, 16)) -> list[Parameter]:
    """An instance and a nodes parameter."""
    sold = offers(types)
    return [Instance(name="instance", values=tuple(sold), offers=sold), Nodes(name="nodes", values=tuple(nodes))]


def _data_parallel(cliff: str) -> Truth:
    """The truth of `table_problem`."""

    def truth(configuration: Configuration, offer: Offer) -> KnownOutcome:
        cores = offer.vcpu * offer.nodes
        codec = str(configuration["codec"])
        work = 20_000.0 * {"none": 1.0, "lz4": 1.06, "zstd": 1.2}[codec]
        traffic = {"none": 2.2, "lz4": 1.0, "zstd": 0.7}[codec]
        share = math.log2(float(configuration["partitions"]) / (2.0 * cores))
        seconds = 20.0 + work / _SPEED[offer.category] * (0.012 + 0.988 / cores) * (1.0 + 0.05 * share * share)
        seconds += traffic * 14.0 * (offer.nodes - 1) ** 0.7
        needed = {"none": 28.0, "lz4": 20.0, "zstd": 14.0}[codec] / offer.nodes
        if needed > 0.9 * offer.memory_gib and cliff != "none":
            if cliff == "fail":
                return KnownOutcome(0.3 * seconds, failed="out of memory")
            seconds *= 4.0
        return KnownOutcome(seconds, metrics={"throughput": 1e5 / seconds})

    return truth


def table_problem(
    *,
    types: int = 9,
    nodes: Sequence[int] = (1, 2, 4, 8, 16),
    cliff: str = "fail",
    deadline: float | None = 1800.0,
    dollars: float | None = None,
    objective: Objective | None = None,
    thresholds: Sequence[Threshold] = (),
    billing: Billing | None = None,
    future_runs: float | None = None,
    noise: float = 0.0,
) -> KnownProblem:
    """A data-parallel job: instance types x nodes x two settings of the application, 405 configurations.

    The time follows Amdahl's law plus a cost of communication; partitions should match the cores, and a node whose
    share of the data does not fit into its memory fails or is four times slower. The metric ``throughput`` is the
    inverse of the time.

    Args:
        types: Instance types, at most 12.
        nodes: Numbers of machines.
        cliff: What too little memory does: ``fail``, ``slow`` or ``none``.
        deadline: Seconds; None for no deadline.
        dollars: Budget in USD.
        objective: What is wanted; the least cost without it.
        thresholds: Bounds on metrics.
        billing: How time becomes money.
        future_runs: How often the result will be used.
        noise: Standard deviation of the logarithm of a run's time.
    """
    parameters = [
        *machine_parameters(types, nodes),
        Ordinal(name="partitions", values=(16, 64, 256)),
        Categorical(name="codec", values=("none", "lz4", "zstd")),
    ]
    return make_problem(
        parameters,
        _data_parallel(cliff),
        objective=objective,
        deadline=deadline,
        thresholds=thresholds,
        dollars=dollars,
        billing=billing,
        future_runs=future_runs,
        noise=noise,
    )


def continuous_problem(*, deadline: float | None = None, dollars: float | None = None) -> KnownProblem:
    """Two real settings, one of them on a log scale, and a number of workers; the best is at 0.01, 0.3, 6."""

    def truth(configuration: Configuration, _offer: Offer) -> KnownOutcome:
        step, share = float(configuration["step"]), float(configuration["share"])
        bowl = (math.log10(step) + 2.0) ** 2 + 4.0 * (share - 0.3) ** 2 + (float(configuration["workers"]) / 6 - 1) ** 2
        return KnownOutcome(100.0 * (1.0 + bowl), metrics={"loss": bowl - 1.0})

    parameters: list[Parameter] = [
        Float(name="step", low=1e-4, high=1.0, log=True),
        Float(name="share", low=0.0, high=1.0),
        Integer(name="workers", low=1, high=16),
    ]
    return make_problem(parameters, truth, deadline=deadline, dollars=dollars)


def conditional_problem(*, types: int = 4, cores: int = 8, dollars: float | None = None) -> KnownProblem:
    """A finite space with a parameter that exists only for one value of another, and constraints: 52 allowed.

    Args:
        types: Instance types, at most 12.
        cores: The most cores that a configuration may have; with 2 types and 4 cores 18 are allowed.
        dollars: Budget in USD.
    """

    def truth(configuration: Configuration, offer: Offer) -> KnownOutcome:
        level = float(configuration["level"]) if "level" in configuration else 0.0
        work = {"none": 900.0, "gzip": 700.0 + 25.0 * (level - 4.0) ** 2, "lz4": 760.0}[str(configuration["codec"])]
        return KnownOutcome(30.0 + work / (offer.vcpu * offer.nodes) ** 0.8)

    parameters: list[Parameter] = [
        *machine_parameters(types, (1, 2, 4)),
        Categorical(name="codec", values=("none", "gzip", "lz4")),
        Ordinal(name="level", values=(1, 4, 9), when=Expression("codec == 'gzip'")),
    ]
    where = [f"instance.vcpu * nodes <= {cores}", f"codec != 'none' or nodes < {cores // 2}"]
    return make_problem(parameters, truth, where=where, deadline=600.0, dollars=dollars)


def tiny_problem() -> KnownProblem:
    """One configuration."""
    return make_problem(machine_parameters(1, (1,)), lambda _c, _o: KnownOutcome(60.0))


def flat_problem(levels: int = 4) -> KnownProblem:
    """24 configurations that all cost the same, or six for each of so many levels of the first parameter."""
    parameters: list[Parameter] = [
        Ordinal(name="a", values=tuple(range(1, levels + 1))),
        Categorical(name="b", values=("x", "y", "z")),
        Categorical(name="c", values=(False, True)),
    ]
    return make_problem(parameters, lambda _c, _o: KnownOutcome(60.0))


def infeasible_problem(types: int = 3) -> KnownProblem:
    """Nothing meets the deadline, and a third of the configurations fail: nine for each instance type."""

    def truth(configuration: Configuration, offer: Offer) -> KnownOutcome:
        failed = "exit code 1" if configuration["mode"] == "broken" else ""
        return KnownOutcome(500.0 / offer.nodes**0.5, failed=failed)

    parameters: list[Parameter] = [
        *machine_parameters(types, (1, 2, 4)),
        Categorical(name="mode", values=("fast", "safe", "broken")),
    ]
    return make_problem(parameters, truth, deadline=60.0)


def huge_problem(*, dollars: float | None = None) -> KnownProblem:
    """A million combinations: ten levels of six settings."""
    best = (3, 7, 1, 5, 8, 2)

    def truth(configuration: Configuration, _offer: Offer) -> KnownOutcome:
        away = sum((float(configuration[f"p{i}"]) - b) ** 2 for i, b in enumerate(best))
        return KnownOutcome(50.0 + 5.0 * away)

    parameters: list[Parameter] = [Integer(name=f"p{i}", low=0, high=9) for i in range(len(best))]
    return make_problem(parameters, truth, dollars=dollars)


def training_problem(
    *,
    goal: str = "accuracy",
    limit: float | None = 0.1,
    dollars: float | None = None,
    billing: Billing | None = None,
) -> KnownProblem:
    """The training of a model, 288 configurations, of which parts of the data tell something.

    The accuracy depends on the learning rate and the batch, grows with the share of the data, and falls where many
    machines train asynchronously. A part of the data takes that share of the time, and five seconds besides.

    Args:
        goal: ``accuracy`` to make it large, ``cost`` for the least cost of a run with an accuracy of at least 0.9.
        limit: USD that a run may cost, where accuracy is the goal; None for no limit.
        dollars: Budget in USD.
        billing: How time becomes money.
    """

    def part(configuration: Configuration, offer: Offer, share: float) -> KnownOutcome:
        rate, batch = float(configuration["rate"]), float(configuration["batch"])
        loose = configuration["mode"] == "async"
        away = 0.10 * abs(math.log10(rate) + 2.5) + 0.02 * abs(math.log2(batch / 64))
        accuracy = 0.97 - away - (0.01 * offer.nodes if loose else 0.0) - 0.12 * (1.0 - share) ** 2 * (1.0 + away)
        work = 40_000.0 * (0.02 + 0.98 / (offer.vcpu * offer.nodes) ** (1.0 if loose else 0.8)) * (1.0 + 8.0 / batch)
        return KnownOutcome(5.0 + share * work / 8.0, metrics={"accuracy": accuracy})

    aim, bound = Objective("accuracy", "maximise"), Threshold("cost", at_most=limit)
    thresholds = [] if limit is None else [bound]
    if goal == "cost":
        aim, thresholds = Objective(), [Threshold("accuracy", at_least=0.9)]
    parameters: list[Parameter] = [
        *machine_parameters(4, (1, 2, 4)),
        Ordinal(name="rate", values=(1e-4, 1e-3, 1e-2, 1e-1)),
        Ordinal(name="batch", values=(16, 64, 256)),
        Categorical(name="mode", values=("sync", "async")),
    ]
    problem = make_problem(
        parameters,
        lambda configuration, offer: part(configuration, offer, 1.0),
        objective=aim,
        thresholds=thresholds,
        dollars=dollars,
        billing=billing,
    )
    return replace(problem, of_part=part)
