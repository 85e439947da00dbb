"""Which configuration to use for what was typed into a form: from all past runs of the application."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tradewind.engine.assemble import build_problem
from tradewind.engine.recommend import advise_from
from tradewind.errors import ConfigurationError, NoHistoryError, NoOfferError
from tradewind.problem import Configuration, Constraints, Offer, PastStudy, Problem, Value
from tradewind.service.applications.checked import checked, parameters_of
from tradewind.service.applications.fields import read_values
from tradewind.service.people import Principal
from tradewind.units import parse_duration

if TYPE_CHECKING:
    from tradewind.problem.spec import Spec
    from tradewind.service.applications.functions import Applications
    from tradewind.service.backends import Backends
    from tradewind.store.applications import ApplicationRow

DEFAULT = "tradewind"
"""Who proposes where the application names nobody."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A configuration that is proposed.

    Attributes:
        configuration: The value of each parameter of the space.
        offer: The machines, with their price.
        runtime: Expected seconds; None where nothing is known.
        runtime_low: 5 % quantile of it.
        runtime_high: 95 % quantile of it.
        cost: Expected USD, this run.
        cost_low: 5 % quantile of it.
        cost_high: 95 % quantile of it.
        chance: That the run succeeds, in time and within every bound; None where nothing is known.
        reason: What it rests on, in a few words.
    """

    configuration: Mapping[str, Value]
    offer: Offer
    runtime: float | None = None
    runtime_low: float | None = None
    runtime_high: float | None = None
    cost: float | None = None
    cost_low: float | None = None
    cost_high: float | None = None
    chance: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Proposal:
    """What is proposed for what was typed into a form.

    Attributes:
        application: ``name@version``.
        backend: Where it would run.
        parameters: The job parameters that it is for.
        deadline: Seconds that the run may take, or None.
        candidates: The configurations, the best first; at least one.
        runs: Runs of the application that it rests on; 0 for the default of one that was never run.
        searcher: Who proposes; empty for the default.
        basis: What it rests on, one sentence each.
        advice: What the user may do about it, such as to start a search; empty where nothing is better.
        seconds: How long it took.
    """

    application: str
    backend: str
    parameters: Mapping[str, Value]
    deadline: float | None
    candidates: tuple[Candidate, ...]
    runs: int
    searcher: str = ""
    basis: tuple[str, ...] = ()
    advice: str = ""
    seconds: float = field(default=0.0, compare=False)


class Proposals:
    """Proposes configurations.

    Args:
        applications: The applications.
        backends: Where they run.
        data_folder: For refreshed prices.
    """

    def __init__(self, applications: Applications, backends: Backends, data_folder: Path) -> None:
        self._applications = applications
        self._backends = backends
        self._data_folder = data_folder

    def propose(
        self,
        who: Principal,
        application: str,
        parameters: Mapping[str, Any],
        *,
        backend: str = "",
        deadline: float | str | None = None,
        resources: Mapping[str, Any] | None = None,
        count: int = 5,
    ) -> Proposal:
        """Configurations for what was typed into a form, the best first, with what they are expected to take and cost.

        Where the application was never run it is the cheapest machine that it can run on, and says so.

        Args:
            who: Who asks.
            application: ``name`` or ``name@3``.
            parameters: What was typed, by field.
            backend: Where to run; without it the application's own.
            deadline: Time that the run may take, in seconds or as ``30m``; without it the application's own.
            resources: What a node must have at least; see `Applications.spec`.
            count: How many configurations at most.

        Raises:
            FormError: A field is wrong, missing or unknown.
            NotFoundError: There is no such application or backend.
            NoOfferError: The backend has nothing that the application can run on.
        """
        begun = time.perf_counter()
        row = self._applications.get(who, application)
        where = self._backends.choose(who, row, backend)
        spec = self._applications.spec(row, parameters, where, resources=resources)
        if deadline is not None:
            spec = replace(spec, constraints=Constraints(parse_duration(deadline), spec.constraints.thresholds))
        found = self._propose(who, row, spec, build_problem(spec, self._data_folder), count)
        return replace(found, application=row.reference, backend=where.name, seconds=time.perf_counter() - begun)

    def settle(
        self,
        who: Principal,
        row: ApplicationRow,
        spec: Spec,
        given: Mapping[str, Any] | None = None,
    ) -> Configuration:
        """The whole configuration of a run: what the user chose, and the best proposal with that for the rest.

        Args:
            who: Whose run it is.
            row: The application.
            spec: Its specification, as `Applications.spec` makes it.
            given: The value of some parameters of the space, or None.

        Raises:
            ConfigurationError: A value is not in the space.
            NoOfferError: The backend has nothing that goes with it.
        """
        problem = build_problem(spec, self._data_folder)
        chosen: dict[str, Value] = {}
        for name, value in (given or {}).items():
            if name not in problem.space:
                known = ", ".join(problem.space.names)
                raise ConfigurationError(f"there is no parameter {name!r} in the space", hint=f"known: {known}")
            chosen[name] = problem.space[name].coerce(value)
        everything = len(problem.candidates) if problem.space.enumerable else 50
        for candidate in self._propose(who, row, spec, problem, everything if chosen else 1).candidates:
            if all(candidate.configuration.get(name) == value for name, value in chosen.items()):
                return Configuration(candidate.configuration)
        return problem.space.check(chosen)

    def _propose(self, who: Principal, row: ApplicationRow, spec: Spec, problem: Problem, count: int) -> Proposal:
        proposal = Proposal("", "", dict(spec.job.parameters.values), spec.constraints.deadline, (), 0)
        past = self._past(who, row, spec)
        try:
            advice = advise_from(spec, replace(problem, past=past), count)
        except NoHistoryError as error:
            return _by_default(proposal, problem, count, error)
        candidates = tuple(
            Candidate(
                one.configuration,
                offer,
                one.runtime,
                one.runtime_low,
                one.runtime_high,
                one.cost,
                one.cost_low,
                one.cost_high,
                one.probability_feasible,
                one.reason,
            )
            for one, offer in zip(advice.recommendations, advice.offers, strict=True)
        )
        return replace(proposal, candidates=candidates, runs=advice.runs, searcher=advice.searcher, basis=advice.basis)

    def _past(self, who: Principal, row: ApplicationRow, spec: Spec) -> tuple[PastStudy, ...]:
        """The runs of the application as studies that searchers learn from, one for each set of job parameters."""
        known = checked(row)
        grouped: dict[tuple[Any, ...], list[Any]] = {}
        for past in self._applications.store.past(row.tenant, row.name, seen_by=who.tenant):
            try:
                values = parameters_of(known.model, read_values(known.model.fields, past.parameters))
            except ConfigurationError:
                continue
            grouped.setdefault((tuple(sorted(values.items())), past.problem_key), []).append(past.trial)
        return tuple(
            PastStudy(
                name=spec.name,
                parameters=replace(spec.job.parameters, values={**spec.job.parameters.values, **dict(values)}),
                trials=tuple(trials),
                problem_key=key,
                objective=spec.objective,
                constraints=spec.constraints,
                billing=spec.billing,
            )
            for (values, key), trials in grouped.items()
        )


def _by_default(proposal: Proposal, problem: Problem, count: int, why: NoHistoryError) -> Proposal:
    """The cheapest configurations that the application can run on."""
    candidates = problem.candidates if problem.space.enumerable else None
    if candidates is None or not len(candidates):
        raise NoOfferError("there is no configuration that this application can run on")
    order = candidates.hourly.argsort(kind="stable")[:count]
    reason = "the cheapest that the application can run on; nothing is known of how long it takes"
    return replace(
        proposal,
        candidates=tuple(
            Candidate(candidates.configuration(int(i)), candidates.offer(int(i)), reason=reason) for i in order
        ),
        basis=(why.message,),
        advice="a search with a budget finds the best one",
    )
