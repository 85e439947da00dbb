"""Puts recommendations in the order that the runs of the same job with the same parameters show.

A model smooths over what was measured. Of configurations that were run with these very job parameters, their runs say
which is the best, by the ranking that a search and its report go by (`ConfigurationRanking`); the model says where the
others would stand.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tradewind.errors import ConfigurationError, NoOfferError
from tradewind.problem import COST, RUNTIME, Configuration, Problem, Trial, TrialState
from tradewind.problem.ranking import ConfigurationRanking, MeasuredRun
from tradewind.searcher.base import Recommendation


def measured_ranks(problem: Problem) -> dict[str, int]:
    """Ranks of the configurations that were run with the job's present parameters and were feasible, by their keys.

    Each run is judged by the present objective and constraints, at today's price.

    Args:
        problem: The problem, with the job's earlier studies.
    """
    own = problem.job.parameters
    trials = [
        trial
        for study in problem.past
        if study.name == problem.job.name
        and dict(study.values) == dict(own.values)
        and study.parameters.fidelity == own.fidelity
        for trial in study.trials
        if trial.state.informs and trial.proposal.fidelity >= 1.0
    ]
    known: dict[Configuration, tuple[str, float] | None] = {}
    measured = []
    for number, trial in enumerate(trials):
        if trial.configuration not in known:
            known[trial.configuration] = _key_and_price(problem, trial.configuration)
        found = known[trial.configuration]
        if found is not None and (one := _measured(problem, replace(trial, number=number), *found)) is not None:
            measured.append(one)
    ranking = ConfigurationRanking(measured, problem.objective, problem.constraints)
    return {ranking.runs[place][0].key: rank for rank, place in enumerate(ranking.order.tolist())}


def _key_and_price(problem: Problem, configuration: Configuration) -> tuple[str, float] | None:
    """Key of a configuration and its USD per hour today; None where the space or the offers do not have it any more."""
    try:
        checked = problem.space.check(configuration)
        offer = problem.resolver.resolve(checked)
    except (ConfigurationError, NoOfferError):
        return None
    return problem.key_of(offer, checked), offer.hourly


def _measured(problem: Problem, trial: Trial, key: str, hourly: float) -> MeasuredRun | None:
    """A run as the present problem judges it."""
    seen = trial.observation
    if seen is None:
        return None
    figures: Mapping[str, float] = seen.figures
    if not math.isclose(hourly, trial.offer.hourly, rel_tol=1e-9) and COST not in seen.metrics:
        figures = {**figures, COST: problem.terms.billing.cost(seen.runtime, hourly)}
    metric, ended = problem.objective.metric, trial.state == TrialState.SUCCEEDED
    value = figures.get(metric, math.nan) if ended or metric in (COST, RUNTIME) else math.nan
    if trial.state == TrialState.FAILED:
        value = math.nan
    return MeasuredRun(
        trial.number,
        key,
        problem.objective.loss(value),
        seen.runtime,
        ended and not problem.constraints.broken(seen.runtime, figures),
        seen.censored,
        tuple(figures.get(bound.metric, math.nan) for bound in problem.constraints.thresholds),
    )


def in_measured_order(
    found: Sequence[Recommendation], problem: Problem, ranks: Mapping[str, int]
) -> list[Recommendation]:
    """The same recommendations: the best that was run first, the others that were run in the order of their runs.

    Those that were never run keep their places behind it.

    Args:
        found: As a model has them, the best first.
        problem: The problem.
        ranks: What `measured_ranks` says.
    """
    rank_of = [ranks.get(key_of(problem, one)) for one in found]
    ran = iter(sorted((rank, place) for place, rank in enumerate(rank_of) if rank is not None))
    order = [place if rank is None else next(ran)[1] for place, rank in enumerate(rank_of)]
    if ranks:
        order.sort(key=lambda place: rank_of[place] != 0)
    return [found[place] for place in order]


def key_of(problem: Problem, one: Recommendation) -> str:
    """Key of the configuration of a recommendation."""
    return problem.key_of(problem.resolver.resolve(one.configuration), one.configuration)
