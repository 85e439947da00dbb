"""Problems whose truth is known, and a small loop that carries proposals out on them."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tradewind.errors import NoOfferError
from tradewind.problem import (
    COST,
    RUNTIME,
    Configuration,
    Instance,
    Nodes,
    Observation,
    Offer,
    Problem,
    Proposal,
    Space,
    Trial,
    TrialState,
    stable_hash,
)
from tradewind.searcher.base import NothingLeft, PricesAborts, Searcher, SearchState


@dataclass(frozen=True, slots=True)
class KnownOutcome:
    """What a full run of a configuration would do.

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
        searcher: The searcher; it is told every trial as it ends.
        problem: The problem.
        trials: How many at most.
        parallel: How many at the same time; the one that ends first is told first.
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
