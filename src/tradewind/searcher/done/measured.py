"""Past runs as points for the present job parameters, each with its distance to the best configuration."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tradewind.problem import COST, RUNTIME, Problem
from tradewind.searcher.base import PastRunPoint
from tradewind.searcher.done.expansion import Array
from tradewind.searcher.done.model import CandidateInputs, DoneModel
from tradewind.searcher.done.run_history import PastRun

_MOST = 200
"""Newest runs that become points."""

_MOST_PLACES = 1_000
"""Configurations from which on distances are to the best and the worst of so many of them, evenly chosen."""


def measured_runs(model: DoneModel, problem: Problem, places: CandidateInputs) -> list[PastRunPoint]:
    """Return the runs that the model is fitted to and that came to their end, in the order in which they ended.

    Args:
        model: The model, with one of time.
        problem: The tuning problem: prices and objective.
        places: All configurations.
    """
    runs = [run for run in model.used if not run.seen.censored and not run.failed]
    runs = sorted(runs, key=lambda run: run.trial.ended or 0.0)[-_MOST:]
    if not runs:
        return []
    same = model.distance(runs) == 0.0
    took = np.exp([run.log_seconds for run in runs])
    seconds = np.where(same, took, model.moved_here(runs))
    hourly = np.array([run.trial.offer.hourly for run in runs])
    costs = problem.terms.billing.costs
    cost = np.array(costs(seconds, hourly))
    figures = {RUNTIME: took, COST: np.array(costs(took, hourly))}.get(problem.objective.metric)
    away = None if figures is None else _distances(model, problem, places, runs, figures)
    return [
        PastRunPoint(
            run.trial.configuration,
            run.trial.offer,
            float(seconds[i]),
            float(cost[i]),
            bool(same[i]),
            None if away is None else float(away[i]),
        )
        for i, run in enumerate(runs)
    ]


def _distances(
    model: DoneModel, problem: Problem, places: CandidateInputs, runs: list[PastRun], figures: Array
) -> Array:
    """Share of the way from the best to the worst configuration at which each run was, shape (n,)."""
    if len(places.rows) > _MOST_PLACES:
        places = places[np.linspace(0, len(places.rows) - 1, _MOST_PLACES).astype(np.intp)]
    ends: dict[Mapping[str, float | str] | tuple[tuple[str, float | str], ...], tuple[float, float]] = {}
    sign = -1.0 if problem.objective.goal == "maximise" else 1.0
    found = []
    for run, figure in zip(runs, figures, strict=True):
        if run.group not in ends:
            loss = model.seconds_like(run, places)
            if problem.objective.metric == COST:
                loss = np.array(problem.terms.billing.costs(loss, places.hourly))
            ends[run.group] = float((sign * loss).min()), float((sign * loss).max())
        best, worst = ends[run.group]
        found.append((sign * figure - best) / (worst - best) if worst > best else 0.0)
    shares: Array = np.clip(np.array(found), 0.0, 1.0)
    return shares
