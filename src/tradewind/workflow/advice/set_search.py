"""The study that looks for a workflow's machines: an ordinary search whose runs are plans."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from tradewind import plugins
from tradewind.engine.search_builder import build_search, compose_problem, new_study
from tradewind.engine.state_machine.stopping_rules import SearchProgress, StoppingRule
from tradewind.errors import NoOfferError
from tradewind.problem import COST, RUNTIME, Offer, Problem
from tradewind.problem.job_spec.spec import JobSpec, parse_spec
from tradewind.problem.trial import Trial
from tradewind.store.base import Store
from tradewind.utils.units import count, format_duration, format_memory
from tradewind.workflow.advice.offers import MachineAssumptions, MachineSetBounds, worth_trying
from tradewind.workflow.advice.runner import make_planner, simulate_planner
from tradewind.workflow.advice.searcher import BoundSearcher, BoundSearcherSettings
from tradewind.workflow.graph import Workflow

BOUNDS = BoundSearcher.name
"""The searcher that knows the workflow; others know only what they are told."""


@dataclass(frozen=True)
class AdviceRequest:
    """What is asked for.

    Attributes:
        file: The workflow's file.
        flow: The workflow.
        terms: What makes machines of offers.
        deadline: Seconds from the order of the machines to the end, or None.
        budget: USD that one execution may cost, or None. Looking for it costs nothing.
        max_vms: Machines of a set at most.
        planner: Who plans during the search: a name, or ``{use: name, ...}``.
        searcher: ``bounds``, or the name of any searcher.
        mix: Kinds of machines in one set at most; 1 for sets of one type alone.
        trials: Sets of one type to try at most, and mixed sets as well.
        front: Sets to try for the choice of time against money, by the searcher ``bounds``.
        seconds: Processor time that the search may take.
        refine: Processor seconds that a better plan is looked for, for each of the best sets; 0 for none.
        seed: Of all chance.
        lenient: Accept sizes and run times below zero.
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
    catalogues: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def metric(self) -> str:
        """What is made small: the cost, or the time where only money is limited."""
        return RUNTIME if self.deadline is None and self.budget is not None else COST


@dataclass(frozen=True)
class SetSearchResult:
    """A finished search over sets of machines.

    Attributes:
        study: Number of the study in the store; None where no type alone has room for every task: there is none then.
        name: Its name there.
        trials: What was tried, in order.
        offers: The offers that were left to choose from, one node each.
        sets: How many sets of machines they make.
        why: Why the search ended.
        proven: True when no set that was not tried can be better, whoever plans.
        outlook: What sets must take and cost at least.
        seconds: Processor time that the search took.
    """

    study: int | None
    name: str
    trials: tuple[Trial, ...]
    offers: tuple[Offer, ...]
    sets: int
    why: str
    proven: bool
    outlook: MachineSetBounds
    seconds: float


def search_sets(wanted: AdviceRequest, offers: Sequence[Offer], store: Store, data_folder: Path) -> SetSearchResult:
    """Search the sets of machines, as a study in the store.

    Args:
        wanted: What is asked for.
        offers: What may be used, one node each.
        store: Where the study is kept.
        data_folder: For the runner.

    Raises:
        NoOfferError: A task has room on no offer.
    """
    kept = worth_trying(offers, wanted.flow, wanted.terms)
    if not kept:
        _see_that_each_fits(wanted, offers)
        return SetSearchResult(None, "", (), (), 0, "", True, MachineSetBounds(wanted.flow, wanted.terms), 0.0)
    spec = _specification(wanted, kept)
    problem = _problem(spec, kept)
    outlook = MachineSetBounds(wanted.flow, wanted.terms)
    own = None
    if wanted.searcher == BOUNDS:
        settings = BoundSearcherSettings(front=wanted.front)
        own = BoundSearcher(settings=settings, problem=problem, seed=wanted.seed, outlook=outlook)
    # The first plan may wait for a compiler; that time is not the search's.
    smallest = min(kept, key=lambda offer: offer.vcpu)
    simulate_planner(
        wanted.flow,
        wanted.terms.platform(smallest, wanted.flow),
        make_planner(wanted.planner, wanted.seed, data_folder),
    )
    began = time.process_time()
    rules = [_in_time(wanted.seconds)]
    search = build_search(spec, new_study(spec), store, data_folder, problem=problem, searcher=own, rules=rules)
    stop = search.run()
    trials = tuple(search.trials[number] for number in sorted(search.trials))
    judge = own or BoundSearcher(settings=BoundSearcherSettings(), problem=problem, outlook=outlook)
    for trial in trials:
        judge.tell(trial)
    candidates = problem.candidates
    tried = {trial.configuration.key for trial in trials}
    free = [place for place in range(len(candidates)) if candidates.configuration(place).key not in tried]
    proven = not len(judge.hopeful(trials, np.array(free, dtype=np.intp)))
    took = time.process_time() - began
    study = search.study
    return SetSearchResult(
        study.id, study.name, trials, tuple(kept), len(candidates), stop.reason, proven, outlook, took
    )


def _see_that_each_fits(wanted: AdviceRequest, offers: Sequence[Offer]) -> None:
    """See that every task has room on some offer."""
    for cores, memory in wanted.flow.largest:
        if not any(wanted.terms.takes_one(offer, wanted.flow, cores, memory) for offer in offers):
            task = next(t for t in wanted.flow.tasks if (t.cores, t.memory_bytes or 0) == (cores, memory))
            needs = count(cores, "core") + (f" and {format_memory(memory)} of memory" if memory else "")
            wide = all(cores > wanted.terms.some_room(offer, wanted.flow) for offer in offers)
            hint = "allow larger types" + (", or give --slots" if wide else "")
            raise NoOfferError(f"no offer has room for task {task.id!r}, which takes {needs}", hint=hint)


def _in_time(seconds: float) -> StoppingRule:
    """Ends a search by the processor time it took; the engine's own clock is the simulated one."""
    until = time.process_time() + seconds

    def late(progress: SearchProgress) -> str | None:
        return f"the search took its {format_duration(seconds)}" if time.process_time() > until else None

    return late


def _specification(wanted: AdviceRequest, kept: Sequence[Offer]) -> JobSpec:
    """The study as a job YAML would say it; it is stored with the study."""
    terms = wanted.terms
    regions = sorted({offer.region for offer in kept} - {""})
    instance = {"provider": sorted({offer.provider for offer in kept}), "types": [o.instance_type for o in kept]}
    limits: dict[str, Any] = {}
    if wanted.deadline is not None:
        limits["deadline"] = wanted.deadline
    if wanted.budget is not None:
        limits["metrics"] = {COST: {"at_most": wanted.budget}}
    runner = {
        "use": "workflow",
        "file": str(wanted.file.absolute()),
        "planner": wanted.planner if isinstance(wanted.planner, str) else dict(wanted.planner),
        "speeds": dict(terms.speeds),
        **({"slots": terms.slots} if terms.slots is not None else {}),
        "boot": terms.boot_seconds,
        "storage": terms.storage,
        "bandwidth": terms.bandwidth,
        "latency": terms.latency,
        "lenient": wanted.lenient,
        "bound": False,
        "seed": wanted.seed,
    }
    billing = terms.billing
    document = {
        "name": study_name(wanted.flow),
        "job": {"command": ["tradewind", "workflow", "simulate", wanted.file.name]},
        "space": {
            "instance": {**instance, **({"region": regions} if regions else {}), "spot": "any"},
            "nodes": {"low": 1, "high": wanted.max_vms},
        },
        "catalogues": {name: dict(given) for name, given in wanted.catalogues.items()},
        "objective": {"minimise": wanted.metric},
        "constraints": limits,
        "budget": {"trials": wanted.trials},
        "deploy": {
            "runner": runner,
            "billing": {
                "setup": billing.setup_seconds,
                "minimum": billing.minimum_seconds,
                "granularity": billing.granularity_seconds,
            },
        },
        "searcher": "exhaustive" if wanted.searcher == BOUNDS else wanted.searcher,
        "seed": wanted.seed,
        "abort": False,  # a simulated run is over at once: its whole time is worth knowing
        "past": "none",
    }
    return parse_spec(yaml.safe_dump(document, sort_keys=False), file="<advice>", base=Path.cwd())


def study_name(flow: Workflow) -> str:
    """The name of a workflow's studies of machines."""
    return "advise-" + (re.sub(r"[^A-Za-z0-9._-]+", "-", flow.name).strip("-") or "workflow")[:80]


def _problem(spec: JobSpec, kept: Sequence[Offer]) -> Problem:
    """As `tradewind.engine.search_builder.build_problem`, with offers that were chosen before."""
    space = spec.build_space({"instance": kept})
    return compose_problem(spec, space, plugins.create("selector", "exact", {}, offers=list(kept), space=space))
