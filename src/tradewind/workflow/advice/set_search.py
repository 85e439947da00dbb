"""The study that looks for a workflow's machines: an ordinary search whose runs are plans."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from tradewind import plugins
from tradewind.engine.search_builder import build_search, compose_problem, new_study
from tradewind.engine.state_machine.stopping_rules import SearchProgress, StoppingRule
from tradewind.errors import NoOfferError, SpecError
from tradewind.problem import COST, RUNTIME, Offer, Problem, Proposal, Trial
from tradewind.problem.job_spec.spec import JobSpec, parse_mapping
from tradewind.searcher.base import Concludes, Explains, NothingLeft, Searcher, SearchState
from tradewind.store.base import Store
from tradewind.utils.units import format_duration, format_money
from tradewind.workflow.advice.offers import (
    MachineAssumptions,
    MachineSetBounds,
    fitting_power,
    probable_makespan,
    worth_trying,
)
from tradewind.workflow.advice.runner import simulate_planner
from tradewind.workflow.graph import Numbers, Workflow
from tradewind.workflow.job.preparation import make_planner
from tradewind.workflow.platform import describe_demand, gpus_for_tasks

_STAGE = "stage"
BEST, FRONT = "could be the best", "could be worth its money"
"""Reasons for which a set is tried."""

_CLOSE = 1e-9


class BoundSearcherSettings(plugins.Settings):
    """Settings of the search over sets of machines."""

    front: int = Field(15, ge=0, description="Sets to try beyond the best one, for the choice of time against money")


class BoundSearcher(Searcher, Concludes, Explains):
    """Tries the sets of machines that could be best by their bounds, and ends when no other can be better.

    Bounds of the time and cost of a set are known before any plan is made (`MachineSetBounds`). Once the best one found
    is no worse than the bound of every untried one, none of those can win, whoever plans (branch and bound, the sets
    being the leaves: Lawler and Wood, "Branch-and-bound methods", Operations Research 14(4), 1966). Of those that
    could, the ones come first that are expected to keep deadline and budget, the best expected objective first. A plan
    is expected to take ``(path**k + work**k) ** (1/k)`` seconds, between the bound and the sum of its two parts, with
    the k that fits best what was tried. Some more trials then go where something cheaper or quicker than all that was
    tried is possible.

    Args:
        settings: Settings of the search.
        problem: Its configurations are sets of machines; the objective is ``cost`` or ``runtime``.
        seed: Not used: nothing is left to chance.
        set_bounds: Bounds of the time and cost of sets.
    """

    name = "bounds"
    Settings = BoundSearcherSettings
    weighs_by_default = False
    settings: BoundSearcherSettings

    def __init__(
        self, *, settings: plugins.Settings, problem: Problem, seed: int = 0, set_bounds: MachineSetBounds
    ) -> None:
        super().__init__(settings=settings, problem=problem, seed=seed)
        self._set_bounds = set_bounds
        if problem.objective.metric not in (COST, RUNTIME) or problem.objective.goal != "minimise":
            raise SpecError("sets of machines are searched for the least cost or the least runtime")

    @cached_property
    def _least(self) -> tuple[Numbers, Numbers]:
        """Lower bounds of the seconds and USD of each candidate; infinite where it can never be of use."""
        candidates = self.problem.candidates
        offers = [candidates.offer(place) for place in range(len(candidates))]
        seconds = np.array(
            [math.inf if self._set_bounds.idle(offer) else self._set_bounds.makespan(offer) for offer in offers]
        )
        money = np.array([self._set_bounds.cost(offer) if least < math.inf else math.inf
                          for offer, least in zip(offers, seconds, strict=True)])  # fmt: skip
        return seconds, money

    @property
    def _least_objective(self) -> Numbers:
        seconds, money = self._least
        return money if self.problem.objective.metric == COST else seconds

    def _most_money(self) -> float:
        bounds = [t.at_most for t in self.problem.constraints.thresholds if t.metric == COST and t.at_most is not None]
        return min(bounds, default=math.inf)

    def hopeful(self, tried: Sequence[Trial], free: Any) -> Any:
        """Pick the candidates that could still be better than the best feasible trial.

        Args:
            tried: The trials that have ended.
            free: Places of candidates.
        """
        seconds, money = self._least
        deadline = self.problem.constraints.deadline
        possible = np.isfinite(seconds[free]) & (money[free] <= self._most_money() + _CLOSE)
        if deadline is not None:
            possible &= seconds[free] <= deadline + _CLOSE
        values = [t.observation.objective for t in tried if t.observation and t.observation.feasible]
        best = min((value for value in values if value is not None), default=math.inf)
        return free[possible & (self._least_objective[free] < best * (1.0 - _CLOSE))]

    def ask(self, state: SearchState, count: int = 1) -> list[Proposal] | NothingLeft:
        """The sets that could be best, then some of the front; see `Searcher.ask`."""
        candidates, free = self.open_candidates(state)
        tried = [*self.history, *state.pending]
        hopeful = self.hopeful(self.history, free)
        if len(hopeful):
            return [self._proposal(int(place), BEST) for place in self._by_expectation(hopeful)[:count]]
        if state.pending:
            return NothingLeft("the sets on their way decide what else could be best", final=False)
        shown = sum(trial.proposal.why.get(_STAGE) == FRONT for trial in tried)
        place = self._next_of_front(tried, free) if shown < self.settings.front else None
        if place is not None:
            return [self._proposal(place, FRONT)]
        return NothingLeft(f"no other of the {len(candidates)} sets can be better: their lower bounds say so")

    def _by_expectation(self, places: Any) -> Any:
        """Candidates, those first that are expected to keep the limits, and of them the best by expectation."""
        offers = [self.problem.candidates.offer(int(place)) for place in places]
        seconds = self._expected(offers, self._power())
        money = np.array(
            [self._set_bounds.cost_of(offer, float(each)) for offer, each in zip(offers, seconds, strict=True)]
        )
        deadline = self.problem.constraints.deadline
        over = np.maximum(seconds / (deadline or math.inf), money / self._most_money())
        by_money = self.problem.objective.metric == COST
        first, second = (money, seconds) if by_money else (seconds, money)
        return places[np.lexsort((second, first, np.maximum(over, 1.0)))]

    def _expected(self, offers: Sequence[Offer], power: float) -> Numbers:
        """Seconds that plans on the machines of some offers probably take."""
        return np.asarray(self._set_bounds.boot + probable_makespan(*self._parts(offers), power))

    def _parts(self, offers: Sequence[Offer]) -> tuple[Numbers, Numbers]:
        parts = np.array([self._set_bounds.parts(offer) for offer in offers]).reshape(-1, 2)
        return parts[:, 0], parts[:, 1]

    def _power(self) -> float:
        """The power that fits what was tried best."""
        seen = [(trial.offer, trial.observation.runtime) for trial in self.history if trial.observation is not None]
        seconds = np.array([runtime for _, runtime in seen])
        return fitting_power(*self._parts([offer for offer, _ in seen]), seconds, self._set_bounds.boot)

    def _next_of_front(self, tried: Sequence[Trial], free: Any) -> int | None:
        """The set farthest in time from all tried ones, of those that could be quicker or cheaper than each of them."""
        seconds, money = self._least
        seen = [(t.observation.runtime, t.observation.cost) for t in tried if t.observation is not None]
        found = free[np.isfinite(seconds[free])]
        for runtime, cost in seen:
            found = found[(seconds[found] < runtime * (1.0 - _CLOSE)) | (money[found] < cost * (1.0 - _CLOSE))]
        if not len(found):
            return None
        kept: list[int] = []
        cheapest = math.inf
        for place in found[np.lexsort((money[found], seconds[found]))]:
            if money[place] < cheapest:
                kept.append(int(place))
                cheapest = float(money[place])
        times = np.log([max(runtime, _CLOSE) for runtime, _ in seen] or [1.0])
        away = [float(np.abs(math.log(max(float(seconds[place]), _CLOSE)) - times).min()) for place in kept]
        return kept[int(np.argmax(away))]

    def _proposal(self, place: int, stage: str) -> Proposal:
        candidates = self.problem.candidates
        seconds, money = self._least
        why: dict[str, float | str] = {
            _STAGE: stage,
            "at_least": f"{format_duration(float(seconds[place]))} and {format_money(float(money[place]))}",
        }
        return Proposal(candidates.configuration(place), why=why)


BOUNDS = BoundSearcher.name
"""Name of the searcher that knows the workflow; others know only the trials."""


@dataclass(frozen=True)
class AdviceRequest:
    """A request for advice: a workflow, its limits, and settings of the search.

    Attributes:
        file: The workflow's file.
        flow: The workflow.
        terms: Assumptions that turn offers into machines.
        deadline: Seconds from the order of the machines to the end, or None.
        budget: USD that one execution may cost, or None. Looking for it costs nothing.
        max_vms: Machines of a set at most.
        planner: Planner of the search: a name, or ``{use: name, ...}``.
        searcher: ``bounds``, or the name of any searcher.
        mix: Kinds of machines in one set at most; 1 for sets of one type alone.
        trials: Sets of one type to try at most, and mixed sets as well.
        front: Number of sets to try for the choice of time against money, by the searcher ``bounds``.
        seconds: Processor time that the search may take.
        refine: Processor seconds that a better plan is looked for, for each of the best sets; 0 for none.
        seed: Seed of all random choices.
        lenient: Accept sizes and run times below zero.
        declared_edges: Keep the declared edges only.
        measured: Results of runs whose run times ``flow`` has, as the trials of sets of one type take them.
        catalogues: The user's settings for catalogues, by name.
    """

    file: Path
    flow: Workflow
    terms: MachineAssumptions
    deadline: float | None = None
    budget: float | None = None
    max_vms: int = 16
    planner: str | Mapping[str, Any] = "heft"
    searcher: str = BOUNDS
    mix: int = 2
    trials: int = 300
    front: int = 15
    seconds: float = 20.0
    refine: float = 1.0
    seed: int = 0
    lenient: bool = False
    declared_edges: bool = False
    measured: tuple[Path, ...] = ()
    catalogues: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def metric(self) -> str:
        """Metric to minimise: the cost, or the time where only money is limited."""
        return RUNTIME if self.deadline is None and self.budget is not None else COST


@dataclass(frozen=True)
class SetSearchResult:
    """A finished search over sets of machines.

    Attributes:
        study: Number of the study in the store; None where no type alone has room for every task: there is none then.
        name: Name of the study in the store.
        trials: The trials, in order.
        offers: The offers that were left to choose from, one node each.
        sets: Number of sets of machines that they make.
        why: Reason that the search ended.
        proven: True when no set that was not tried can be better, whoever plans.
        set_bounds: Bounds of the time and cost of sets.
        seconds: Processor time that the search took.
    """

    study: int | None
    name: str
    trials: tuple[Trial, ...]
    offers: tuple[Offer, ...]
    sets: int
    why: str
    proven: bool
    set_bounds: MachineSetBounds
    seconds: float


def search_sets(request: AdviceRequest, offers: Sequence[Offer], store: Store, data_folder: Path) -> SetSearchResult:
    """Search the sets of machines, as a study in the store.

    Args:
        request: The workflow with its limits and the settings of the search.
        offers: The machine types to choose from, one node each.
        store: Store that the study is kept in.
        data_folder: Folder in which the runner may keep data.

    Raises:
        NoOfferError: A task has room on no offer.
    """
    kept = worth_trying(offers, request.flow, request.terms)
    if not kept:
        _check_each_fits(request, offers)
        return SetSearchResult(None, "", (), (), 0, "", True, MachineSetBounds(request.flow, request.terms), 0.0)
    spec = _specification(request, kept)
    problem = _problem(spec, kept)
    set_bounds = MachineSetBounds(request.flow, request.terms)
    own = None
    if request.searcher == BOUNDS:
        settings = BoundSearcherSettings(front=request.front)
        own = BoundSearcher(settings=settings, problem=problem, seed=request.seed, set_bounds=set_bounds)
    # The first plan may wait for a compiler; that time is not the search's.
    smallest = min(kept, key=lambda offer: offer.vcpu)
    simulate_planner(
        request.flow,
        request.terms.platform(smallest, request.flow),
        make_planner(request.planner, request.seed, data_folder),
    )
    began = time.process_time()
    rules = [_in_time(request.seconds)]
    search = build_search(spec, new_study(spec), store, data_folder, problem=problem, searcher=own, rules=rules)
    stop = search.run()
    trials = tuple(search.trials[number] for number in sorted(search.trials))
    judge = own or BoundSearcher(settings=BoundSearcherSettings(), problem=problem, set_bounds=set_bounds)
    for trial in trials:
        judge.tell(trial)
    candidates = problem.candidates
    tried = {trial.configuration.key for trial in trials}
    free = [place for place in range(len(candidates)) if candidates.configuration(place).key not in tried]
    proven = not len(judge.hopeful(trials, np.array(free, dtype=np.intp)))
    took = time.process_time() - began
    study = search.study
    return SetSearchResult(
        study.id, study.name, trials, tuple(kept), len(candidates), stop.reason, proven, set_bounds, took
    )


def _check_each_fits(request: AdviceRequest, offers: Sequence[Offer]) -> None:
    """Raise unless every task has room on some offer."""
    for demand in request.flow.largest:
        if not any(request.terms.takes_one(offer, request.flow, demand) for offer in offers):
            task = next(t for t in request.flow.tasks if (t.cores, *t.amounts) == demand)
            needs = describe_demand(demand)
            wide = all(demand[0] > request.terms.some_room(offer, request.flow) for offer in offers)
            if demand[2] > max(map(gpus_for_tasks, offers), default=0):
                hint = "allow types with " + (f"{demand[2]} GPUs" if demand[2] > 1 else "a GPU")
                raise NoOfferError(f"no offer has room for task {task.id!r}, which takes {needs}", hint=hint)
            hint = "allow larger types" + (", or give --slots" if wide else "")
            raise NoOfferError(f"no offer has room for task {task.id!r}, which takes {needs}", hint=hint)


def _in_time(seconds: float) -> StoppingRule:
    """Ends a search by the processor time it took; the engine's own clock is the simulated one."""
    until = time.process_time() + seconds

    def late(progress: SearchProgress) -> str | None:
        return f"the search took its {format_duration(seconds)}" if time.process_time() > until else None

    return late


def _specification(request: AdviceRequest, kept: Sequence[Offer]) -> JobSpec:
    """Write the study as a job specification, which is stored with the study."""
    terms = request.terms
    regions = sorted({offer.region for offer in kept} - {""})
    instance = {"provider": sorted({offer.provider for offer in kept}), "types": [o.instance_type for o in kept]}
    limits: dict[str, Any] = {}
    if request.deadline is not None:
        limits["deadline"] = request.deadline
    if request.budget is not None:
        limits["metrics"] = {COST: {"at_most": request.budget}}
    runner = {
        "use": "workflow",
        "speeds": dict(terms.speeds),
        **({"slots": terms.slots} if terms.slots is not None else {}),
        "boot": terms.boot_seconds,
        "storage": terms.storage,
        "bandwidth": terms.bandwidth,
        "latency": terms.latency,
        "bound": False,
        "seed": request.seed,
    }
    billing = terms.billing
    document = {
        "name": study_name(request.flow),
        "job": {
            "workflow": {
                "file": str(request.file.absolute()),
                "planner": request.planner if isinstance(request.planner, str) else dict(request.planner),
                "lenient": request.lenient,
                "declared_edges": request.declared_edges,
                **({"measured": [str(path.absolute()) for path in request.measured]} if request.measured else {}),
            }
        },
        "space": {
            "instance": {**instance, **({"region": regions} if regions else {}), "spot": "any"},
            "nodes": {"low": 1, "high": request.max_vms},
        },
        "catalogues": {name: dict(given) for name, given in request.catalogues.items()},
        "objective": {"minimise": request.metric},
        "constraints": limits,
        "budget": {"trials": request.trials},
        "deploy": {
            "runner": runner,
            "billing": {
                "setup": billing.setup_seconds,
                "minimum": billing.minimum_seconds,
                "granularity": billing.granularity_seconds,
            },
        },
        "searcher": "exhaustive" if request.searcher == BOUNDS else request.searcher,
        "seed": request.seed,
        "abort": False,  # a simulated run is over at once: its whole time is worth knowing
        "past": "none",
    }
    return parse_mapping(document, file="<advice>", base=Path.cwd())


def study_name(flow: Workflow) -> str:
    """The name of a workflow's studies of machines."""
    return "advise-" + (re.sub(r"[^A-Za-z0-9._-]+", "-", flow.name).strip("-") or "workflow")[:80]


def _problem(spec: JobSpec, kept: Sequence[Offer]) -> Problem:
    """Build the problem as `tradewind.engine.search_builder.build_problem` does, with offers chosen before."""
    space = spec.build_space({"instance": kept})
    return compose_problem(spec, space, plugins.create("selector", "exact", {}, offers=list(kept), space=space))
