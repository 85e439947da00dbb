"""Ready problems whose truth is known, and a small loop that carries proposals out on them.

They cost nothing and need no machines: a test asks a searcher (or the engine) for a proposal, `evaluate` turns it
into an ended trial, and `drive` does both in turn with the money counted::

    problem = table_problem(dollars=2.0)
    trials = drive(RandomSearcher(settings=RandomSearcher.Settings(), problem=problem), problem, 20)
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from tradewind.errors import NoOfferError
from tradewind.problem import (
    COST,
    RUNTIME,
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
    Observation,
    Offer,
    Ordinal,
    Parameter,
    Problem,
    Proposal,
    Space,
    StudyTerms,
    Threshold,
    Trial,
    TrialState,
    stable_hash,
)
from tradewind.searcher.base import NothingLeft, PricesAborts, Searcher, SearchState


@dataclass(frozen=True, slots=True)
class KnownOutcome:
    """Result that a full run of a configuration would have.

    Attributes:
        runtime: Seconds until it ends, well or not.
        failed: Why it fails, in words; empty where it succeeds.
        metrics: What its output says, besides time and money.
    """

    runtime: float
    failed: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)


Truth = Callable[[Configuration, Offer], KnownOutcome]
"""What really happens: a pure function."""

PartTruth = Callable[[Configuration, Offer, float], KnownOutcome]
"""What really happens on a share of the input."""

Scaling = Callable[[Configuration, Offer, float], float]
"""Seconds of a run on a share of the input: a pure function that equals the truth at 1."""


class KnownResolver:
    """A selector for tests: the offer of the space's instance parameter, times its nodes parameter.

    Args:
        space: The space; without an instance parameter every configuration runs on the same one offer.
        sold: The (instance, nodes) pairs that are sold; None means all.
        extra_nodes: Machines that every run needs besides the nodes that are chosen.
    """

    def __init__(self, space: Space, *, sold: set[tuple[str, int]] | None = None, extra_nodes: int = 0) -> None:
        self._instance = next((p for p in space.parameters if isinstance(p, Instance)), None)
        self._nodes = next((p for p in space.parameters if isinstance(p, Nodes)), None)
        self._sold = sold
        self._extra = extra_nodes

    @property
    def machine_parameters(self) -> tuple[str, ...]:
        """The names of the instance and the nodes parameter."""
        return tuple(p.name for p in (self._instance, self._nodes) if p is not None)

    def resolve(self, configuration: Configuration) -> Offer:
        """The offer of a configuration.

        Raises:
            NoOfferError: The pair of instance and nodes is not sold, or the instance is of another space.
        """
        nodes = 1 if self._nodes is None else int(configuration[self._nodes.name])
        if self._instance is None:
            return ONE_OFFER.times(nodes + self._extra)
        name = str(configuration[self._instance.name])
        if name not in self._instance.offers or (self._sold is not None and (name, nodes) not in self._sold):
            raise NoOfferError(f"{nodes} x {name} is not sold")
        return self._instance.offers[name].times(nodes + self._extra)


ONE_OFFER = Offer("test", "only", vcpu=4, memory_gib=16, price_per_hour=0.2)
"""The machine of ready problems whose space chooses none."""


@dataclass(frozen=True)
class KnownProblem(Problem):
    """A problem whose truth is known.

    Attributes:
        truth: What a full run of a configuration does.
        noise: Standard deviation of the logarithm of a run's time around the truth; 0 repeats exactly.
        scaling: How long a run on a share of the input takes; without it the same share of the whole run's time.
        of_part: All that a run on a share of the input below 1 does, where its metrics differ too; it goes before
            ``scaling``.
    """

    truth: Truth = lambda _configuration, _offer: KnownOutcome(60.0)
    noise: float = 0.0
    scaling: Scaling | None = None
    of_part: PartTruth | None = None

    def bill(self, configuration: Configuration) -> float:
        """USD that a full, noise-free run costs."""
        offer = self.resolver.resolve(configuration)
        return self.terms.billing.cost(self.truth(configuration, offer).runtime, offer.hourly)

    def value(self, configuration: Configuration) -> float | None:
        """The objective of a full, noise-free run; None where it fails or breaks a constraint."""
        trial = evaluate(replace(self, noise=0.0), Proposal(configuration))
        seen = trial.observation
        return seen.objective if seen is not None and seen.feasible else None

    def optimum(self) -> tuple[Configuration, float] | None:
        """The best feasible configuration and its objective, by trying all; None where nothing is feasible."""
        best: tuple[Configuration, float] | None = None
        for i in range(len(self.candidates)):
            configuration = self.candidates.configuration(i)
            value = self.value(configuration)
            if value is not None and (best is None or self.objective.better(value, best[1])):
                best = (configuration, value)
        return best


# ---------------------------------------------------------------------- carrying proposals out


def evaluate(
    problem: KnownProblem,
    proposal: Proposal,
    number: int = 0,
    *,
    money: float = math.inf,
    abort_at_deadline: bool = False,
) -> Trial:
    """Turn a proposal into an ended trial.

    Args:
        problem: The problem.
        proposal: What to run; its ``abort_cost`` and ``abort_time`` cut the run short.
        number: The trial's number.
        money: USD that the run may cost at most; it is cut short there.
        abort_at_deadline: Cut the run short at the problem's deadline as well.

    Returns:
        A trial that succeeded, failed, or was aborted with lower bounds as its observation.
    """
    configuration = proposal.configuration
    offer = problem.resolver.resolve(configuration)
    outcome = problem.truth(configuration, offer)
    scaled = outcome.runtime * proposal.fidelity
    if proposal.fidelity < 1.0 and problem.of_part is not None:
        outcome = problem.of_part(configuration, offer, proposal.fidelity)
        scaled = outcome.runtime
    elif problem.scaling is not None:
        scaled = problem.scaling(configuration, offer, proposal.fidelity)
    runtime = scaled * _noise(problem, configuration, number)
    billing = problem.terms.billing
    # The smallest bill is owed as soon as a run starts, so no cap is below what it pays for.
    least = max(billing.granularity_seconds, billing.minimum_seconds - billing.setup_seconds)
    caps = [math.inf if proposal.abort_time is None else max(least, proposal.abort_time)]
    allowance = min(money, math.inf if proposal.abort_cost is None else proposal.abort_cost)
    if math.isfinite(allowance):
        caps.append(max(least, billing.longest_run(allowance, offer.hourly)))
    if abort_at_deadline and problem.constraints.deadline is not None:
        caps.append(problem.constraints.deadline)
    aborted = runtime > min(caps)
    runtime = min([runtime, *caps])
    cost = billing.cost(runtime, offer.hourly)
    if aborted:
        state = TrialState.ABORTED
        value = {COST: cost, RUNTIME: runtime}.get(problem.objective.metric)
        seen = Observation(value, cost, runtime, False, censored=True, reason="its cap was reached")
    elif outcome.failed:
        state, seen = TrialState.FAILED, Observation(None, cost, runtime, False, reason=outcome.failed)
    else:
        metrics = {**outcome.metrics, COST: cost, RUNTIME: runtime}
        value = metrics.get(problem.objective.metric)
        if value is None or math.isnan(value):
            reason = f"the output has no metric {problem.objective.metric}"
            state, seen = TrialState.FAILED, Observation(None, cost, runtime, False, metrics=metrics, reason=reason)
        else:
            broken = problem.constraints.broken(runtime, metrics)
            state = TrialState.SUCCEEDED
            seen = Observation(value, cost, runtime, not broken, metrics=metrics, reason="; ".join(broken))
    key = problem.key_of(offer, configuration, proposal.fidelity)
    return Trial(number, proposal, offer, state, key, seen, spent=cost, attempts=1, started=0.0, ended=runtime)


def _noise(problem: KnownProblem, configuration: Configuration, number: int) -> float:
    if problem.noise <= 0:
        return 1.0
    seed = int(stable_hash([configuration.key, number]), 16)
    return math.exp(problem.noise * float(np.random.default_rng(seed).standard_normal()))


def pending(problem: Problem, proposal: Proposal, number: int = 0) -> Trial:
    """The trial of a proposal that has not ended."""
    offer = problem.resolver.resolve(proposal.configuration)
    key = problem.key_of(offer, proposal.configuration, proposal.fidelity)
    return Trial(number, proposal, offer, TrialState.RUNNING, key)


def drive(
    searcher: Searcher,
    problem: KnownProblem,
    trials: int,
    parallel: int = 1,
    *,
    abort: bool = False,
    until: Callable[[Trial], bool] | None = None,
) -> list[Trial]:
    """Ask, carry out and tell until nothing is left: a loop without engine, store or clock.

    The money of a run is set aside when it starts, and no run costs more than what is left then.

    Args:
        searcher: The searcher; its `tell` gets every trial as it ends.
        problem: The problem.
        trials: How many at most.
        parallel: How many at the same time; they reach `tell` in the order in which they end.
        abort: Cut runs short at the deadline and, unless the searcher sets caps itself, where they can no longer
            beat the best, as the engine does.
        until: Stops after the first ended trial for which it is true.

    Returns:
        The ended trials, in the order of their ending.
    """
    ended: list[Trial] = []
    running: list[tuple[float, int, Trial]] = []
    now, spent, proposed = 0.0, 0.0, 0
    limit = trials if problem.budget.trials is None else min(trials, problem.budget.trials)
    while True:
        free = min(parallel - len(running), limit - proposed)
        if free > 0:
            left = None if problem.budget.dollars is None else max(0.0, problem.budget.dollars - spent)
            waiting = [pending(problem, t.proposal, t.number) for _, _, t in sorted(running, key=lambda r: r[1])]
            answer = searcher.ask(SearchState(waiting, proposed, left, limit - proposed), free)
            if isinstance(answer, NothingLeft):
                if not running:
                    return ended
            else:
                for proposal in answer:
                    money = math.inf if problem.budget.dollars is None else max(0.0, problem.budget.dollars - spent)
                    if abort and not isinstance(searcher, PricesAborts):
                        proposal = _capped(problem, proposal, ended)
                    own = isinstance(searcher, PricesAborts) and proposal.abort_time is not None
                    trial = evaluate(problem, proposal, proposed, money=money, abort_at_deadline=abort and not own)
                    assert trial.observation is not None
                    spent += trial.spent
                    heapq.heappush(running, (now + trial.observation.runtime, proposed, trial))
                    proposed += 1
                continue
        if not running:
            return ended
        now, _, trial = heapq.heappop(running)
        searcher.tell(trial)
        ended.append(trial)
        if until is not None and until(trial):
            return ended


def _capped(problem: Problem, proposal: Proposal, ended: Sequence[Trial]) -> Proposal:
    """The proposal, cut short where it can no longer beat the best of the ended trials."""
    seen = [t.observation for t in ended if t.observation is not None and t.observation.feasible]
    best = min((s.objective for s in seen if s.objective is not None), default=None)
    if not problem.objective.grows_with_time or best is None:
        return proposal
    return (
        replace(proposal, abort_cost=best) if problem.objective.metric == COST else replace(proposal, abort_time=best)
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
