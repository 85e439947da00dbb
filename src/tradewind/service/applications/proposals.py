"""Proposals of configurations for a form's values, from all past runs of the application."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tradewind.engine.recommendations import RecommendationSet, recommend_for_problem
from tradewind.engine.search_builder import build_problem
from tradewind.errors import ConfigurationError, FormError, NoHistoryError, NoOfferError
from tradewind.problem import Configuration, Constraints, Offer, PastStudy, Problem, Trial, Value
from tradewind.problem.configuration import stable_hash
from tradewind.reporting.proposal_words import MARKS, Compared, best_words, chance_words, difference_words
from tradewind.searcher.base import PredictedSpace, Recommendation
from tradewind.service.accounts.identity import Principal
from tradewind.service.applications.form_values import read_values
from tradewind.service.applications.validation import parameters_of, stored_application
from tradewind.utils.units import parse_duration

if TYPE_CHECKING:
    from tradewind.problem.job_spec.spec import JobSpec
    from tradewind.service.applications.application_service import ApplicationService
    from tradewind.service.applications.backends import BackendService
    from tradewind.service.settings import ServiceSettings
    from tradewind.store.service.applications import ApplicationRow, ApplicationStore, PastTrialRow


FormValues = tuple[tuple[str, float | str], ...]
"""Job parameters of a run, by name."""

MAX_PAST_RUNS = 2_000
"""Runs of an application that are kept at hand, the newest ones."""

_KEPT = 64
_PRICES_SECONDS = 600.0
"""Seconds for which the offers of a space are reused without asking the catalogues again."""


@dataclass
class _History:
    """Runs of an application, as far as they were read.

    Attributes:
        mark: The store's stamp of them when they were read.
        runs: Parameters, problem and trial, by study and number.
        grouped: The trials by parameters and problem, the same objects while nothing was added.
    """

    mark: tuple[int, float] = (0, 0.0)
    runs: OrderedDict[tuple[int, int], tuple[FormValues, str, Trial]] = field(default_factory=OrderedDict)
    grouped: Mapping[tuple[FormValues, str], tuple[Trial, ...]] | None = None


class PastRunCache:
    """Cache of past runs by application, and of the problems of their spaces.

    Args:
        store: The applications.
        data_folder: Folder with refreshed prices.
    """

    def __init__(self, store: ApplicationStore, data_folder: Path) -> None:
        self._store = store
        self._data_folder = data_folder
        self._lock = threading.Lock()
        self._histories: OrderedDict[Hashable, _History] = OrderedDict()
        self._problems: OrderedDict[str, tuple[float, Problem]] = OrderedDict()

    def problem(self, spec: JobSpec) -> Problem:
        """Return the problem of a specification; that of the same space is made once in ten minutes.

        Raises:
            NoOfferError: There is no offer for an instance parameter.
        """
        keys = ("space", "where", "offers", "catalogues", "select", "deploy", "objective")
        key = stable_hash([spec.name, {name: spec.model.get(name) for name in keys}, str(spec.budget)])
        now = time.monotonic()
        with self._lock:
            made, known = self._problems.get(key, (0.0, None))
        if known is None or now - made > _PRICES_SECONDS:
            known = build_problem(spec, self._data_folder)
            if known.space.enumerable:
                _ = known.candidates
            with self._lock:
                _keep(self._problems, key, (now, known))
        return known

    def past(self, row: ApplicationRow, spec: JobSpec, seen_by: str | None) -> tuple[PastStudy, ...]:
        """Return the runs of an application as studies that searchers learn from, one for each set of parameters.

        Args:
            row: The application; runs of its other versions count as far as they have the same fields.
            spec: The present specification.
            seen_by: Only runs of this tenant; None for those of all.
        """
        grouped = self._grouped(row, seen_by)
        own = spec.job.parameters
        return tuple(
            PastStudy(
                name=spec.name,
                parameters=type(own)({**own.values, **dict(given)}, own.fidelity),
                trials=trials,
                problem_key=key,
                objective=spec.objective,
                constraints=spec.constraints,
                billing=spec.billing,
            )
            for (given, key), trials in grouped.items()
        )

    def _grouped(self, row: ApplicationRow, seen_by: str | None) -> Mapping[tuple[FormValues, str], tuple[Trial, ...]]:
        key = (row.tenant, row.name, row.version, seen_by)
        mark = self._store.watermark(row.tenant, row.name, seen_by)
        with self._lock:
            history = self._histories.get(key) or _History()
            if history.grouped is not None and history.mark == mark:
                return history.grouped
            if mark[0] < history.mark[0]:  # requests were deleted: what they taught goes with them
                history = _History()
            since = history.mark[1]
        found = self._store.past(row.tenant, row.name, seen_by=seen_by, since=since, limit=MAX_PAST_RUNS)
        read = _reader(row)
        with self._lock:
            for past in found:
                if (given := read(past)) is not None:
                    place = (past.study_id, past.trial.number)
                    history.runs.pop(place, None)
                    history.runs[place] = (given, past.problem_key, past.trial)
            while len(history.runs) > MAX_PAST_RUNS:
                history.runs.popitem(last=False)
            grouped: dict[tuple[FormValues, str], list[Trial]] = {}
            for given, problem_key, trial in history.runs.values():
                grouped.setdefault((given, problem_key), []).append(trial)
            history.mark, history.grouped = mark, {each: tuple(trials) for each, trials in grouped.items()}
            _keep(self._histories, key, history)
            return history.grouped


def _reader(row: ApplicationRow) -> Any:
    """Make a reader of past requests' parameters by the fields of a version; it gives None for those with others."""
    known = stored_application(row)

    def read(past: PastTrialRow) -> FormValues | None:
        try:
            values = read_values(known.model.fields, past.parameters)
        except FormError:
            return None
        return tuple(sorted(parameters_of(known.model, values).items()))

    return read


def _keep(cache: OrderedDict[Any, Any], key: Hashable, value: Any) -> None:
    cache[key] = value
    cache.move_to_end(key)
    while len(cache) > _KEPT:
        cache.popitem(last=False)


FEW_RUNS = 8
"""Runs below which a proposal is a guess: the evaluation of paper 5 is near the optimum from the eighth."""

SEARCH_RUNS = 20
"""Runs that the price of a search is named for."""

_UNLIKELY = 0.5
_REFIT = 1.1
"""Growth of the history after which the model's scales are chosen anew."""

_SMALL = 50
"""Runs of a history below which they always are: it takes no time."""

_LOOKED_AT = 200
"""Proposals among which one with what the user chose is looked for."""


@dataclass(frozen=True, slots=True)
class ProposedConfiguration:
    """A configuration that is proposed.

    Attributes:
        configuration: The value of each parameter of the space.
        offer: The machines, with their price.
        runtime: Expected seconds; None where nothing is known, or next to nothing (`Recommendation.known`).
        runtime_low: 5 % quantile of it.
        runtime_high: 95 % quantile of it.
        cost: Expected USD, this run.
        cost_low: 5 % quantile of it.
        cost_high: 95 % quantile of it.
        objective: Expected value of what the application is to minimise or maximise; None where nothing is known.
        objective_low: 5 % quantile of it.
        objective_high: 95 % quantile of it.
        chance: That the run succeeds, in time and within every bound; None where nothing is known.
        reason: What it rests on, in a few words.
        trying: True where it comes first because a run of it is worth more to later ones than it may cost; the second
            is then the best known.
        marks: By what it stands out: ``try``, ``best``, ``cheapest``, ``fastest``; see
            `tradewind.reporting.proposal_words.MARKS`.
        difference: How it differs from the best known, in words.
        likelihood: How likely it is to keep deadline and bounds, in words; empty where nothing is doubtful.
    """

    configuration: Mapping[str, Value]
    offer: Offer
    runtime: float | None = None
    runtime_low: float | None = None
    runtime_high: float | None = None
    cost: float | None = None
    cost_low: float | None = None
    cost_high: float | None = None
    objective: float | None = None
    objective_low: float | None = None
    objective_high: float | None = None
    chance: float | None = None
    reason: str = ""
    trying: bool = False
    marks: tuple[str, ...] = ()
    difference: str = ""
    likelihood: str = ""

    @property
    def known(self) -> bool:
        """True where time and cost are known at all."""
        return self.runtime is not None


@dataclass(frozen=True, slots=True)
class ConfigurationProposal:
    """A proposal of configurations for the values of a form.

    Attributes:
        application: ``name@version``.
        backend: Where it would run.
        parameters: The job parameters that it is for.
        deadline: Seconds that the run may take, or None.
        metric: What the application is to minimise or maximise: ``cost``, ``runtime`` or a metric of its own.
        goal: ``minimise`` or ``maximise``.
        candidates: The configurations, the best first; at least one. Of three or more, one is the cheapest and one the
            fastest, as far as they are known.
        runs: Runs of the application that it rests on; 0 for the default of one that was never run.
        searcher: Who proposes; empty for the default.
        basis: What it rests on, one sentence each.
        advice: What the user may do about it, such as to start a search; empty where nothing is better.
        search_cost: USD that a search of twenty runs is expected to cost in total; None where nothing is known.
        space: Predictions of all configurations; None where nobody asked, or nothing is known.
        seconds: How long it took.
    """

    application: str
    backend: str
    parameters: Mapping[str, Value]
    deadline: float | None
    metric: str
    goal: str
    candidates: tuple[ProposedConfiguration, ...]
    runs: int
    searcher: str = ""
    basis: tuple[str, ...] = ()
    advice: str = ""
    search_cost: float | None = None
    space: PredictedSpace | None = field(default=None, compare=False)
    seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class _Fit:
    """Hyperparameters chosen by a model before its weights.

    Attributes:
        runs: Number of runs when they were chosen.
        fitted: The hyperparameters; see `RecommendationSet.fitted`.
        space: The problem that it was last used with, without a past.
        learned: The job parameters and the trials that it was last used with.
    """

    runs: int = 0
    fitted: Mapping[str, Any] = field(default_factory=dict)
    space: Problem | None = None
    learned: object = None


_NO_FIT = _Fit()


class ProposalService:
    """Proposes configurations.

    Args:
        applications: The applications.
        backends: The backends that applications run on.
        settings: The server's settings.
        data_folder: Folder with refreshed prices.
    """

    def __init__(
        self, applications: ApplicationService, backends: BackendService, settings: ServiceSettings, data_folder: Path
    ) -> None:
        self._applications = applications
        self._backends = backends
        self._settings = settings
        self._experience = PastRunCache(applications.store, data_folder)
        self._lock = threading.Lock()
        self._fits: OrderedDict[tuple[str, str, str | None, str], _Fit] = OrderedDict()

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
        whole: bool = False,
    ) -> ConfigurationProposal:
        """Propose configurations for the values of a form, the best first, with their predicted time and cost.

        Where the application was never run it is the cheapest machine that it can run on, and says so.

        Args:
            who: The user who asks.
            application: ``name`` or ``name@3``.
            parameters: Typed values, by field.
            backend: Name of the backend; without it the application's own.
            deadline: Time that the run may take, in seconds or as ``30m``; without it the application's own.
            resources: Least resources of a node; see `ApplicationService.spec`.
            count: Number of configurations at most.
            whole: Also predict all configurations, for charts.

        Raises:
            FormError: A field is wrong, missing or unknown.
            NotFoundError: There is no such application or backend.
            NoOfferError: The backend has nothing that the application can run on.
        """
        begun = time.perf_counter()
        row = self._applications.get(who, application)
        where = self._backends.choose(who, row, backend)
        spec = self._applications.spec(row, parameters, where, resources=resources)
        if deadline is not None and deadline != "":
            spec = replace(spec, constraints=Constraints(parse_duration(deadline), spec.constraints.thresholds))
        found = self._propose(who, row, spec, max(1, min(count, _LOOKED_AT)), whole=whole)
        return replace(found, backend=where.name, seconds=time.perf_counter() - begun)

    def settle(
        self, who: Principal, row: ApplicationRow, spec: JobSpec, given: Mapping[str, Any] | None = None
    ) -> Configuration:
        """Complete the configuration of a run: the user's choices, and the best proposal with those for the rest.

        Args:
            who: The user whose run it is.
            row: The application.
            spec: Its specification, as `ApplicationService.spec` makes it.
            given: The value of some parameters of the space, or None.

        Raises:
            ConfigurationError: A value is not in the space, or values do not go together.
            NoOfferError: The backend has nothing that the application can run on.
        """
        problem = self._experience.problem(spec)
        chosen: dict[str, Value] = {}
        for name, value in (given or {}).items():
            if name not in problem.space:
                known = ", ".join(problem.space.names)
                raise ConfigurationError(f"there is no parameter {name!r} in the space", hint=f"known: {known}")
            chosen[name] = problem.space[name].coerce(value)
        if chosen.keys() >= set(problem.space.names):
            return problem.space.check(chosen)
        if problem.space.enumerable and len(problem.candidates) == 1 and not chosen:
            return problem.candidates.configuration(0)
        proposed = self._propose(who, row, spec, _LOOKED_AT if chosen else 1).candidates
        for candidate in proposed:
            if all(candidate.configuration.get(name) == value for name, value in chosen.items()):
                return Configuration(candidate.configuration)
        return _cheapest_with(problem, chosen)

    def predict(
        self, who: Principal, row: ApplicationRow, spec: JobSpec, configuration: Mapping[str, Value]
    ) -> ProposedConfiguration | None:
        """Predict time and cost of a configuration; None where nothing is known, or it is far from the best ones.

        Args:
            who: The user whose run it is.
            row: The application.
            spec: Its specification, as `ApplicationService.spec` makes it.
            configuration: The value of every parameter of the space.
        """
        for candidate in self._propose(who, row, spec, _LOOKED_AT, explore=False).candidates:
            if candidate.runtime is not None and dict(candidate.configuration) == dict(configuration):
                return candidate
        return None

    def _propose(
        self,
        who: Principal,
        row: ApplicationRow,
        spec: JobSpec,
        count: int,
        *,
        explore: bool = True,
        whole: bool = False,
    ) -> ConfigurationProposal:
        given = dict(spec.job.parameters.values)
        metric, goal = spec.objective.metric, spec.objective.goal
        proposal = ConfigurationProposal(row.reference, "", given, spec.constraints.deadline, metric, goal, (), 0)
        every = row.shared and self._settings.shared_history
        seen_by = None if every else who.tenant
        space = self._experience.problem(spec)
        past = self._experience.past(row, spec, seen_by)
        problem = space.with_past(spec.job, spec.constraints, past)
        if not past:
            return _by_default(proposal, problem, count)
        key = (row.tenant, row.name, seen_by, " ".join(problem.space.names))
        runs = sum(len(study.trials) for study in past)
        learned = (given, [study.trials for study in past])
        with self._lock:
            known = self._fits.get(key, _NO_FIT)
        # The same past gives the same scales, so they are chosen once for it, whatever else is asked.
        same = known.space is space and known.learned == learned
        fresh = not same and (runs < _SMALL or runs > _REFIT * known.runs)
        try:
            explore = explore and self._settings.explore
            advice = recommend_for_problem(
                spec, problem, count, fitted=None if fresh else known.fitted, explore=explore, whole=whole
            )
        except NoHistoryError as error:
            return _by_default(proposal, problem, count, error.message)
        with self._lock:
            self._fits[key] = _Fit(runs if fresh else known.runs, advice.fitted, space, learned)
            while len(self._fits) > 256:
                self._fits.popitem(last=False)
        return _by_history(proposal, advice, problem, runs)


def _candidate(one: Recommendation, offer: Offer) -> ProposedConfiguration:
    found = ProposedConfiguration(dict(one.configuration), offer, chance=one.probability_feasible, reason=one.reason)
    if not one.known:
        return found
    return replace(
        found,
        runtime=one.runtime,
        runtime_low=one.runtime_low,
        runtime_high=one.runtime_high,
        cost=one.cost,
        cost_low=one.cost_low,
        cost_high=one.cost_high,
        objective=one.objective,
        objective_low=one.objective_low,
        objective_high=one.objective_high,
    )


def _by_history(
    proposal: ConfigurationProposal, advice: RecommendationSet, problem: Problem, runs: int
) -> ConfigurationProposal:
    found = zip(advice.recommendations, advice.offers, strict=True)
    candidates = _marked([_candidate(one, offer) for one, offer in found], advice, problem)
    costs = [one.cost for one in advice.recommendations if one.known]
    words = ""
    if candidates[0].chance is not None and candidates[0].chance < _UNLIKELY:
        words = "none is likely to keep deadline and bounds: allow more time, or let a search look for one"
    elif runs < FEW_RUNS:
        words = f"only {runs} {'run is' if runs == 1 else 'runs are'} known: a search with a budget would tell more"
    return replace(
        proposal,
        candidates=candidates,
        runs=runs,
        searcher=advice.searcher,
        basis=advice.basis,
        advice=words,
        search_cost=SEARCH_RUNS * float(np.median(costs)) if costs else None,
        space=advice.space,
    )


def _marked(
    ranked: list[ProposedConfiguration], advice: RecommendationSet, problem: Problem
) -> tuple[ProposedConfiguration, ...]:
    """The candidates with one to learn from before, the cheapest and the fastest among them, and what each differs in.

    Args:
        ranked: The candidates, the best first.
        advice: What was recommended.
        problem: The problem, with deadline and bounds.
    """
    best, most = ranked[0], len(ranked)
    marks: dict[Configuration, list[str]] = {Configuration(best.configuration): ["best"]} if best.known else {}
    added = []
    for name, one in ({"try": advice.following} | dict(advice.extremes)).items():
        if one is None:
            continue
        marks.setdefault(one.configuration, []).append(name)
        added.append(_candidate(one, problem.resolver.resolve(one.configuration)))
    every = {Configuration(one.configuration): one for one in (*ranked, *added)}
    tried = advice.following.configuration if advice.following is not None else None
    # What stands out comes before what only comes next, where there is no room for all.
    kept = sorted(every, key=lambda one: (one != tried, one != best.configuration, one not in marks))[:most]
    order = [one for one in every if one in kept and one != tried]
    candidates = []
    for configuration in [*(one for one in every if one == tried and one in kept), *order]:
        named = marks.get(configuration, ())
        found = replace(every[configuration], marks=tuple(name for name in MARKS if name in named))
        if configuration == tried:
            found = replace(found, trying=True, reason=f"to learn from; {found.reason}")
        candidates.append(found)
    aim, deadline = problem.objective, problem.constraints.deadline
    measured = best.reason.startswith("run") and "with these job parameters" in best.reason
    return tuple(
        replace(
            one,
            difference=best_words(aim.metric, aim.goal, measured=measured)
            if "best" in one.marks
            else difference_words(_compared(one), _compared(best)),
            likelihood=chance_words(one.chance if one.known else None, deadline),
        )
        for one in candidates
    )


def _compared(one: ProposedConfiguration) -> Compared:
    return Compared(one.configuration, one.offer.hourly, one.runtime, one.cost)


def _by_default(proposal: ConfigurationProposal, problem: Problem, count: int, why: str = "") -> ConfigurationProposal:
    """Return the cheapest configurations that the application can run on."""
    reason = "the cheapest that the application can run on; nothing is known of how long it takes"
    found = _cheapest(problem, count)
    basis = why or f"nothing is known of {problem.job.name} yet: nobody has run it here"
    advice = "the first runs teach the next proposals; a search with a budget finds a good one sooner"
    cheap = [ProposedConfiguration(dict(one), problem.resolver.resolve(one)) for one in found]
    words = ["least price per hour", *(difference_words(_compared(one), _compared(cheap[0])) for one in cheap[1:])]
    found_words = zip(cheap, words, strict=True)
    candidates = tuple(
        replace(one, difference=text, reason="" if place else reason) for place, (one, text) in enumerate(found_words)
    )
    return replace(proposal, candidates=candidates, basis=(basis,), advice=advice)


def _cheapest(problem: Problem, count: int) -> list[Configuration]:
    """Return the configurations with the least price by the hour; some of them where they cannot be listed."""
    space = problem.space
    if space.enumerable:
        candidates = problem.candidates
    else:
        candidates = problem.pool(list(space.sample(np.random.default_rng(0), 256)))
    if not len(candidates):
        raise NoOfferError("there is no configuration that this application can run on")
    order = np.argsort(np.round(candidates.hourly, 9), kind="stable")[:count]
    return [candidates.configuration(int(i)) for i in order]


def _cheapest_with(problem: Problem, chosen: Mapping[str, Value]) -> Configuration:
    """Return the cheapest configuration with the given values."""
    for configuration in _cheapest(problem, 100_000):
        if all(configuration.get(name) == value for name, value in chosen.items()):
            return configuration
    return problem.space.check(chosen)
