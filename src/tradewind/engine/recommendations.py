"""Recommends configurations for a job from what the store knows, without running anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tradewind import plugins
from tradewind.engine.measured_runs import in_measured_order, key_of, measured_ranks
from tradewind.engine.past_studies import load_past_studies
from tradewind.engine.search_builder import build_problem
from tradewind.errors import InputError, NoHistoryError
from tradewind.problem import Offer, PastStudy, Problem, Value
from tradewind.problem.offer import interruptions_note
from tradewind.searcher.base import LearnsFromPast, PredictedSpace, Recommendation, Recommends, Searcher
from tradewind.store.base import Store

if TYPE_CHECKING:
    from tradewind.problem.job_spec.spec import JobSpec

DEFAULT_RECOMMENDER = "done"
"""Who recommends where the job's own searcher cannot."""


@dataclass(frozen=True, slots=True)
class RecommendationSet:
    """A recommendation with its reasons.

    Attributes:
        searcher: Who recommends.
        parameters: The job parameters that it is for.
        recommendations: The configurations, the best first; at least one.
        offers: The machines of each.
        basis: What they rest on, one sentence each.
        runs: Runs of this job, with any parameters, that the store has.
        fitted: What the searcher's model chose before its weights; see `Recommends.fitted`.
        following: The configuration that is worth a run to learn from; None where none is, or nobody asked.
        extremes: The ``cheapest`` and the ``fastest`` that are likely to be feasible, as far as they are known.
        space: Predictions of all configurations; None where nobody asked.
    """

    searcher: str
    parameters: Mapping[str, Value]
    recommendations: tuple[Recommendation, ...]
    offers: tuple[Offer, ...]
    basis: tuple[str, ...]
    runs: int
    fitted: Mapping[str, Any] = field(default_factory=dict)
    following: Recommendation | None = None
    extremes: Mapping[str, Recommendation] = field(default_factory=dict)
    space: PredictedSpace | None = None


def recommend_configurations(
    spec: JobSpec, store: Store, data_folder: Path, count: int, searcher: str | None = None
) -> RecommendationSet:
    """The best configurations for a job with its present parameters.

    Args:
        spec: The specification.
        store: Where earlier runs are.
        data_folder: For refreshed prices.
        count: How many configurations at most.
        searcher: Who recommends; without it the job's own searcher where it can, otherwise `DEFAULT_RECOMMENDER`.

    Raises:
        NoHistoryError: No run of the job can be answered from.
        InputError: The searcher that was asked for cannot recommend.
    """
    name = _who(spec, searcher)
    problem = replace(build_problem(spec, data_folder), past=_history(spec, store, name))
    return recommend_for_problem(spec, problem, count, name, explore=True)


def recommend_for_problem(
    spec: JobSpec,
    problem: Problem,
    count: int,
    searcher: str | None = None,
    *,
    fitted: Mapping[str, Any] | None = None,
    explore: bool = False,
    whole: bool = False,
) -> RecommendationSet:
    """As `recommend_configurations`, from the past that a problem has.

    Args:
        spec: The specification.
        problem: Its problem, with the earlier studies.
        count: How many configurations at most.
        searcher: Who recommends; without it the job's own searcher where it can, otherwise `DEFAULT_RECOMMENDER`.
        fitted: Of an earlier advice on the same job: the answer then comes sooner.
        explore: Also say what is worth a run to learn from.
        whole: Also predict all configurations, for a chart.

    Raises:
        NoHistoryError: No run of the job can be answered from.
        InputError: The searcher that was asked for cannot recommend.
    """
    name = _who(spec, searcher)
    runs = sum(len(study.trials) for study in problem.past if study.name == spec.name)
    if not runs:
        hint = f"tradewind tune {spec.file} makes some"
        raise NoHistoryError(f"nothing is known of {spec.name} yet: the store has no run of it", hint=hint)
    made = _make(spec, problem, name)
    assert isinstance(made, Recommends)
    if fitted:
        made.refit(fitted)
    found, words = _in_order(made, problem, count)
    following = made.worth_trying() if explore else None
    basis = (*(words if following is None else ()), *made.basis())  # two advices on what to try would be one too many
    if not found:
        why = f": {basis[0]}" if basis else ""
        hint = f"tradewind tune {spec.file} makes one"
        what = f"the only run of {spec.name} cannot" if runs == 1 else f"none of the {runs:,} runs of {spec.name} can"
        raise NoHistoryError(f"{what} be answered from{why}", hint=hint)
    offers = tuple(problem.resolver.resolve(one.configuration) for one in found)
    basis += (note,) if (note := interruptions_note(offers)) else ()
    given = dict(spec.job.parameters.values)
    space = made.predicted_space() if whole else None
    extremes = made.extremes()
    return RecommendationSet(name, given, tuple(found), offers, basis, runs, made.fitted(), following, extremes, space)


_EVERY = 1_000_000
"""Configurations that a searcher is asked for where the best that was run is not among the first."""


def _in_order(made: Recommends, problem: Problem, count: int) -> tuple[list[Recommendation], tuple[str, ...]]:
    """The recommendations as the runs with the present parameters order them, and a sentence where that says more.

    What was never run comes after the best that was: a search, its report and a recommendation name the same.
    """
    ranks, found = measured_ranks(problem), made.recommend(count)
    if not ranks or not found:
        return found, ()
    if not any(ranks.get(key_of(problem, one)) == 0 for one in found):
        found = made.recommend(_EVERY)
    ordered = in_measured_order(found, problem, ranks)[:count]
    if ordered[0] == found[0] or key_of(problem, found[0]) in ranks:
        return ordered, ()
    words = f"with these parameters {found[0].configuration} was never run, and may be better: a run would tell"
    return ordered, (words,)


def recommenders() -> Sequence[str]:
    """The names of the searchers that can recommend."""
    return [name for name, part in plugins.load_all("searcher").items() if issubclass(part, Recommends)]


def _who(spec: JobSpec, wanted: str | None) -> str:
    name = wanted or spec.searcher.name
    if issubclass(plugins.load("searcher", name), Recommends):
        return name
    if wanted is not None:
        raise InputError(
            f"the searcher {wanted!r} cannot recommend without a search", hint=f"one of {', '.join(recommenders())}"
        )
    return DEFAULT_RECOMMENDER


def _history(spec: JobSpec, store: Store, name: str) -> tuple[PastStudy, ...]:
    """All of this job's studies; those of other jobs for another searcher than the default, where the job allows it."""
    own = load_past_studies(replace(spec, past="all"), None, store, same_job=True)
    if name == DEFAULT_RECOMMENDER or not issubclass(plugins.load("searcher", name), LearnsFromPast):
        return own
    return (*(study for study in load_past_studies(spec, None, store) if study.name != spec.name), *own)


def _make(spec: JobSpec, problem: Problem, name: str) -> Searcher:
    """The searcher, with the job's settings for it if it is the job's own."""
    settings = spec.searcher.settings if name == spec.searcher.name else {}
    made: Searcher = plugins.create("searcher", name, settings, problem=problem, seed=spec.seed)
    return made
