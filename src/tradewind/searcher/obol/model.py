"""OBOL's model: trials as labels, and the bagged trees that are grown on them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tradewind.problem import RUNTIME, Offer, Problem, Threshold, Trial, TrialState
from tradewind.searcher.acquisition import probability_between
from tradewind.searcher.obol.arrays import Floats, Ints, LookaheadRules
from tradewind.searcher.obol.bagged_trees import BaggedTrees, CostTerms, TreePrediction
from tradewind.searcher.obol.binned_columns import BinnedColumns
from tradewind.searcher.obol.settings import ObolSettings
from tradewind.searcher.outcomes import (
    TIME_METRICS,
    best_loss,
    has_time_bounds,
    probability_within,
    run_bill,
    runtime_window,
)

_LEAST = 1e-9
"""Values below this count as this where they need a logarithm."""


@dataclass(frozen=True, slots=True)
class TreeRows:
    """Candidates, then trials: the rows that trees are asked about.

    Attributes:
        columns: Levels of the rows.
        hourly: USD per hour, shape (N,).
        machines: Number of their machines, shape (N,).
        trials: Ended trials of the whole input and the row of each.
        pending: Rows of trials that have not ended.
        latest: Number of the machines of the latest trial, -1 where there is none.
    """

    columns: BinnedColumns
    hourly: Floats
    machines: Ints
    trials: Sequence[tuple[int, Trial]]
    pending: Sequence[int]
    latest: int


class ObolModel:
    """Trials as labels, and the ensembles that are grown on them.

    The objective is modelled where it is the cost or the runtime; for any other metric, the cost is modelled for
    deadline and budget, and the metric besides. Failed trials enter neither: an ensemble on success and failure says
    how likely a candidate is to succeed, and one for each bound on a metric how likely the bound is to hold.

    Args:
        problem: The tuning problem: objective, constraints and prices.
        settings: Settings of the OBOL searcher.
        table: Candidates and trials as rows.
        seed: Any integer from 0.
        money: USD left, or infinite.
    """

    def __init__(self, problem: Problem, settings: ObolSettings, table: TreeRows, seed: int, money: float) -> None:
        self._problem, self._settings, self._table = problem, settings, table
        self._seed, self._money = seed, money
        self._timed = problem.objective.metric == RUNTIME and problem.objective.grows_with_time
        self._log = settings.target == "log_cost"
        seen = [
            (row, t, value)
            for row, t in table.trials
            if t.state != TrialState.FAILED and (value := self._figure(t)) is not None
        ]
        self._finished = [(row, value) for row, t, value in seen if t.state == TrialState.SUCCEEDED]
        self._cut = [(row, value) for row, t, value in seen if t.state == TrialState.ABORTED]
        self.best = self._best()
        self.chance = self._chance() if self.known else np.ones(len(table.hourly))
        self._rows = [row for row, _ in self._finished + self._cut]
        self._labels = np.concatenate([self._scaled([v for _, v in self._finished]), self._labels_of_cut()])
        self._worst = max((value for _, value in self._finished + self._cut), default=0.0)

    @property
    def known(self) -> bool:
        """True when there is a trial to grow a tree on."""
        return bool(self._finished or self._cut)

    def _figure(self, trial: Trial) -> float | None:
        """Runtime or cost, as modelled."""
        seen = trial.observation
        if seen is None or not math.isfinite(seen.cost + seen.runtime):
            return None
        return seen.runtime if self._timed else seen.cost

    def _scaled(self, values: Sequence[float]) -> Floats:
        numbers = np.array(values, dtype=float)
        return np.log(np.maximum(numbers, _LEAST)) if self._log else numbers

    def _best(self) -> float:
        best = best_loss(self._problem, [trial for _, trial in self._table.trials])
        return math.inf if best is None else best

    # ------------------------------------------------------------------ ensembles

    def _rules(self, depth: int, *, log: bool) -> LookaheadRules:
        s = self._settings
        return LookaheadRules(depth, s.gamma, _quantile(s.beta), s.agreement, log, self._money, self._table.latest)

    def _money_of(self, chance: Floats) -> CostTerms:
        """Deadline, bounds on cost and run time, and dollars of every row, for the ensemble on cost or runtime."""
        hourly, deadline, terms = self._table.hourly, self._problem.constraints.deadline, self._problem.terms.billing
        price = hourly / 3600.0
        if deadline is None:
            limit = np.full(len(hourly), np.inf)
        else:
            limit = np.full(len(hourly), deadline) if self._timed else price * terms.billed_seconds(deadline)
            # A bill is rounded to the nano-dollar.
            limit = limit if self._timed else limit * (1.0 + 1e-9) + 1e-9
        if has_time_bounds(self._problem):
            high = runtime_window(self._problem, hourly, deadline=False)[1]
            high = high if self._timed else run_bill(self._problem, hourly, high) * (1.0 + 1e-9) + 1e-9
            limit = np.minimum(limit, high)
        rate = price if self._timed else np.ones(len(hourly))
        fixed = price * terms.setup_seconds if self._timed else np.zeros(len(hourly))
        if self._log:
            limit = np.log(np.maximum(limit, _LEAST))
        return CostTerms(limit, chance, rate, fixed, price * self._settings.switch_seconds, self._table.machines)

    def ensemble(self, depth: int, fantasized: Sequence[int] = ()) -> BaggedTrees:
        """Grow the trees on cost or runtime.

        Args:
            depth: Number of runs that will be imagined.
            fantasized: Rows of pending runs, whose expectations are taken for observed.
        """
        rows, labels = self._rows, self._labels
        best = self.best if self._problem.objective.grows_with_time else math.inf
        made = self._grown(rows, labels, best, 0 if fantasized else depth)
        if not fantasized:
            return made
        expected = made.prediction(np.array(fantasized, dtype=np.int64)).mean
        return self._grown([*rows, *fantasized], np.concatenate([labels, expected]), best, depth)

    def _grown(self, rows: Sequence[int], labels: Floats, best: float, depth: int) -> BaggedTrees:
        money, rules = self._money_of(self.chance), self._rules(depth, log=self._log)
        worst, trees = max(self._worst, _LEAST) if self._log else self._worst, self._settings.trees
        return BaggedTrees(self._table.columns, money, rows, labels, best, worst, rules, trees, self._seed)

    def _plain(self, rows: Sequence[int], y: Sequence[float], best: float = math.inf) -> BaggedTrees:
        """Trees on any figure, without money or deadline."""
        zero, one = np.zeros(len(self._table.hourly)), np.ones(len(self._table.hourly))
        money = CostTerms(one * np.inf, one, zero, zero, zero, self._table.machines)
        rules, trees = self._rules(0, log=False), self._settings.trees
        return BaggedTrees(
            self._table.columns, money, rows, np.array(y, dtype=float), best, max(y), rules, trees, self._seed
        )

    def _every(self) -> Ints:
        return np.arange(len(self._table.hourly))

    # ------------------------------------------------------------------ runs that were cut short

    def _labels_of_cut(self) -> Floats:
        """Labels of aborted trials: predictions of the finished ones, given that they are above the bound (Lynceus)."""
        bounds = self._scaled([value for _, value in self._cut])
        if not self._cut or len(self._finished) < 2 or self._settings.aborted == "bound":
            return bounds
        rows, values = [row for row, _ in self._finished], [value for _, value in self._finished]
        self._worst = max(values)
        prediction = self._grown(rows, self._scaled(values), math.inf, 0).prediction(
            np.array([r for r, _ in self._cut])
        )
        return truncated_mean(prediction.mean, prediction.sd, bounds)

    # ------------------------------------------------------------------ everything but the deadline

    def _chance(self) -> Floats:
        """Probability that each row succeeds and keeps every bound on a metric."""
        chance = np.ones(len(self._table.hourly))
        ended = [
            (row, t.state == TrialState.SUCCEEDED) for row, t in self._table.trials if t.state != TrialState.ABORTED
        ]
        if not all(success for _, success in ended):
            share = self._plain([r for r, _ in ended], [float(s) for _, s in ended]).prediction(self._every()).mean
            # As if half a tree more spoke for either end: no candidate is written off by ten trees.
            chance *= (np.clip(share, 0.0, 1.0) * self._settings.trees + 0.5) / (self._settings.trees + 1.0)
        for threshold in self._problem.constraints.thresholds:
            chance *= self._holds(threshold)
        return chance

    def _holds(self, threshold: Threshold) -> Floats:
        if threshold.metric in TIME_METRICS:
            # Its upper end is a limit like the deadline's: runs are cut short there and never show a greater value.
            threshold = replace(threshold, at_most=None)
            if threshold.at_least is None:
                return np.ones(len(self._table.hourly))
        known = [
            (row, value)
            for row, t in self._table.trials
            if t.state == TrialState.SUCCEEDED and math.isfinite(value := _metric(t, threshold.metric))
        ]
        if not known:
            return np.ones(len(self._table.hourly))
        seen = self._plain([row for row, _ in known], [value for _, value in known]).prediction(self._every())
        return probability_within(seen.mean, seen.sd, threshold.relaxed([value for _, value in known]), log=False)

    # ------------------------------------------------------------------ other objectives

    def prediction(self, ensemble: BaggedTrees, free: Ints) -> TreePrediction:
        """Predict some rows, whatever the objective is; ``ensemble`` is the one on cost or runtime."""
        paid = ensemble.prediction(free)
        objective = self._problem.objective
        if objective.grows_with_time:
            return paid
        in_time = self.feasible(ensemble, free, paid)
        known = [
            (row, objective.loss(t.observation.objective))
            for row, t in self._table.trials
            if t.state == TrialState.SUCCEEDED and t.observation is not None
            if t.observation.objective is not None and math.isfinite(t.observation.objective)
        ]
        if not known:
            return TreePrediction(paid.mean, paid.sd, in_time, paid.spend, paid.dear, paid.target)
        metric = self._plain([row for row, _ in known], [loss for _, loss in known], self.best).prediction(free)
        return TreePrediction(
            metric.mean, metric.sd, metric.improvement * in_time, paid.spend, paid.dear, metric.target
        )

    def feasible(self, ensemble: BaggedTrees, free: Ints, paid: TreePrediction) -> Floats:
        """Probability that each row meets the deadline and everything else; ``paid`` is of the same ensemble."""
        return probability_between(paid.mean, paid.sd, -math.inf, ensemble.field.limit[free]) * self.chance[free]


def truncated_mean(mean: Floats, sd: Floats, bound: Floats) -> Floats:
    """Mean of a normal variable that is known to be above a bound.

    Args:
        mean: Means, shape (n,).
        sd: Standard deviations, shape (n,); where zero, the larger of mean and bound is returned.
        bound: Lower bounds, shape (n,).
    """
    from scipy.special import erfcx

    wide = np.maximum(sd, 1e-12 * np.maximum(1.0, np.abs(mean)))
    z = np.clip((bound - mean) / wide, -30.0, 1e9)
    # φ(z) / (1 − Φ(z)), without the underflow of either far above the mean.
    hazard = math.sqrt(2.0 / math.pi) / erfcx(z / math.sqrt(2.0))
    label: Floats = np.where(sd > 0.0, np.maximum(mean + wide * hazard, bound), np.maximum(mean, bound))
    return label


def machine_numbers(offers: Sequence[Offer]) -> Ints:
    """A number for each different choice of machines, shape (n,)."""
    known: dict[str, int] = {}
    return np.array([known.setdefault(offer.key, len(known)) for offer in offers], dtype=np.int64)


def _metric(trial: Trial, name: str) -> float:
    return math.nan if trial.observation is None else trial.observation.figures.get(name, math.nan)


def _quantile(beta: float) -> float:
    from scipy.special import ndtri

    return round(float(ndtri(beta)), 9)
