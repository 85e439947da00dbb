"""Posterior of a Gaussian-process searcher after some trials, and its predictions of candidates."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tradewind.problem import COST, RUNTIME, Observation, Problem, Threshold, Trial, TrialState
from tradewind.searcher import acquisition, outcomes
from tradewind.searcher.outcomes import TIME_METRICS, SuccessModel, runtime_window
from tradewind.searcher.surrogate.censored import fit_censored
from tradewind.searcher.surrogate.features import FeatureMap
from tradewind.searcher.surrogate.gp import Array, GaussianProcess

_LEAST_SECONDS = 1e-6
_SPREAD = 0.7
"""Prior standard deviation of ln cost: runs differ by a factor of two."""


@dataclass(frozen=True, slots=True)
class CandidatePrediction:
    """Predictions of n candidates; every array has shape (n,).

    Attributes:
        cost: Median USD of a full run.
        cost_low: 5 % quantile of it.
        cost_high: 95 % quantile of it.
        runtime: Median seconds of a full run.
        feasible: Probability that it succeeds, in time and within every bound.
        improvement: Expected improvement on the best so far, in units of the objective; where there is no best yet,
            the probability of being feasible.
        spend: Expected USD that trying it costs.
        margin: Standard deviations by which the run is expected to end below its cap, for candidates whose
            improvement cannot be distinguished from zero.
    """

    cost: Array
    cost_low: Array
    cost_high: Array
    runtime: Array
    feasible: Array
    improvement: Array
    spend: Array
    margin: Array


@dataclass(frozen=True, slots=True)
class AbortCaps:
    """Limits at which runs are cut short.

    Attributes:
        abort: False when every run goes to its end.
        slack: A run is cut short at this multiple of the best so far.
        money: USD left, or infinite.
    """

    abort: bool
    slack: float
    money: float


def _mixed(weights: Sequence[float], predictions: Sequence[CandidatePrediction]) -> CandidatePrediction:
    """Predictions of a mixture: expectations and probabilities average, medians and quantiles in logarithms."""
    share = np.array(weights)[:, None] / sum(weights)

    def average(name: str) -> Array:
        values: Array = (share * np.array([getattr(one, name) for one in predictions])).sum(axis=0)
        # Shares add up to 1 but for the last bit, and a probability does not exceed it.
        return np.minimum(values, 1.0) if name == "feasible" else values

    def logarithmic(name: str) -> Array:
        values = np.log(np.maximum([getattr(one, name) for one in predictions], 1e-300))
        mean: Array = np.exp((share * values).sum(axis=0))
        return mean

    return CandidatePrediction(
        *(logarithmic(name) for name in ("cost", "cost_low", "cost_high", "runtime")),
        *(average(name) for name in ("feasible", "improvement", "spend", "margin")),
    )


class MetricModel:
    """A process on one metric: on its logarithm where all values are positive and it is to be small.

    Args:
        process: The process, fitted to the values or to their logarithms.
        log: True if fitted to logarithms.
    """

    def __init__(self, process: GaussianProcess, log: bool) -> None:
        self.process = process
        self.log = log

    @classmethod
    def fit(cls, x: Array, y: Array, *, may_log: bool) -> MetricModel:
        """Fit a process to a metric.

        Args:
            x: Features, shape (n, d).
            y: Values, shape (n,).
            may_log: True where the metric is to be small: logarithms are then modelled if all values are positive.
        """
        log = may_log and bool((y > 0).all())
        return cls(GaussianProcess().fit(x, np.log(y) if log else y), log)

    def fantasize(self, x: Array) -> MetricModel:
        """A copy that takes its own mean at ``x``, shape (m, d), for observed; see `GaussianProcess.fantasize`."""
        return MetricModel(self.process.fantasize(x), self.log)

    def improvement(self, x: Array, best: float) -> Array:
        """Expected improvement on ``best``, downwards, shape (m,), for features of shape (m, d)."""
        mean, variance = self.process.predict(x)
        if self.log:
            return acquisition.expected_saving(mean, np.sqrt(variance), best, np.inf)
        return acquisition.expected_improvement(mean, np.sqrt(variance), best)

    def chance(self, x: Array, at: float) -> Array:
        """Probability of being at most ``at``, shape (m,), for features of shape (m, d)."""
        mean, variance = self.process.predict(x)
        if self.log:
            return acquisition.probability_below(mean, np.sqrt(variance), at)
        return acquisition.probability_between(mean, np.sqrt(variance), -math.inf, at)

    def within(self, x: Array, threshold: Threshold) -> Array:
        """Probability of keeping a bound, shape (m,), for features of shape (m, d)."""
        mean, variance = self.process.predict(x)
        return outcomes.probability_within(mean, np.sqrt(variance), threshold, log=self.log)


class Posterior:
    """Models of time, objective, bounds and success, fitted to trials.

    One process models ``ln(price x time)``, the money of a run without set-up and minimum billing (``ln time`` where
    the runtime is the objective, or a price is zero). Deadline, cost, money left and bounds on cost and run time are
    read off its posterior.
    Aborted trials enter as lower bounds. Failed trials do not enter it; a process on success (+1) and failure (-1)
    says how likely a candidate is to fail.

    Args:
        problem: The tuning problem: objective, constraints and prices.
        features: Turns trials into rows of numbers.
        trials: Ended trials of full fidelity.
        priced: True to model price x time, False to model time.

    Attributes:
        label_noise: Standard deviation of a run's success, which is +1, or failure, -1, around what its configuration
            stands for: how readily the failure of one is taken for that of all like it.
    """

    label_noise = 0.05

    def __init__(self, problem: Problem, features: FeatureMap, trials: Sequence[Trial], *, priced: bool) -> None:
        self._problem = problem
        self._features = features
        self._priced = priced
        rows = [
            (row, trial, trial.observation)
            for trial in trials
            if trial.observation is not None
            and trial.proposal.fidelity == 1.0
            and (row := features.of(trial.configuration, trial.offer)) is not None
        ]
        self.parts = self._fit_time([r for r in rows if r[1].state != TrialState.FAILED])
        full = [(row, seen) for row, trial, seen in rows if trial.state == TrialState.SUCCEEDED]
        self.objective = self._fit_objective(full)
        others = [threshold for threshold in problem.constraints.thresholds if threshold.metric not in TIME_METRICS]
        self.bounds = [bound for threshold in others if (bound := self._fit_bound(full, threshold)) is not None]
        self.success = SuccessModel.fit([(row, trial.state) for row, trial, _ in rows], self.label_noise)
        self.best = outcomes.best_loss(problem, [trial for _, trial, _ in rows])
        self.aim: float | None = None

    @property
    def informed(self) -> bool:
        """True when there is a model of time."""
        return bool(self.parts)

    # ------------------------------------------------------------------ fitting

    def _fit_time(self, rows: Sequence[tuple[Array, Trial, Observation]]) -> list[tuple[float, GaussianProcess]]:
        known = [r for r in rows if math.isfinite(r[2].runtime) and (r[2].runtime > 0 or not r[2].censored)]
        if not known:
            return []
        seconds = np.array([max(seen.runtime, _LEAST_SECONDS) for _, _, seen in known])
        # At today's price: the time is what the machines have in common with a run now, not the bill.
        shift = self._shift(np.array([self._features.today(t.configuration, t.offer).hourly for _, t, _ in known]))
        censored = np.array([seen.censored for _, _, seen in known])
        return self._processes(np.array([row for row, _, _ in known]), np.log(seconds) + shift, censored)

    def _processes(self, x: Array, y: Array, censored: NDArray[np.bool_]) -> list[tuple[float, GaussianProcess]]:
        """Processes of ``ln(price x time)`` and the probability of each of being the right one."""
        return [(1.0, fit_censored(x, y, censored, spread=_SPREAD))]

    def _shift(self, hourly: Array) -> Array:
        """The amount added to ln seconds for the modelled figure, shape (n,)."""
        return np.log(hourly / 3600.0) if self._priced else np.zeros(len(hourly))

    @property
    def _from_time(self) -> bool:
        """True when the objective is read off the model of time."""
        return self._problem.objective.grows_with_time

    def _fit_objective(self, full: Sequence[tuple[Array, Observation]]) -> MetricModel | None:
        if self._from_time:
            return None
        aim = self._problem.objective
        return _scalar(outcomes.observed_losses(aim, full), may_log=aim.goal == "minimise")

    def _fit_bound(
        self, full: Sequence[tuple[Array, Observation]], threshold: Threshold
    ) -> tuple[Threshold, MetricModel] | None:
        known = outcomes.metric_values(threshold.metric, full)
        model = _scalar(known, may_log=outcomes.allows_logarithm(threshold))
        return None if model is None else (threshold.relaxed([value for _, value in known]), model)

    def fantasize(self, x: Array) -> Posterior:
        """A copy that takes its own expectations at pending trials, shape (n, features), for observed."""
        if not len(x):
            return self
        other = copy.copy(self)
        other.parts = [(weight, process.fantasize(x)) for weight, process in self.parts]
        other.objective = self.objective.fantasize(x) if self.objective else None
        other.bounds = [(t, model.fantasize(x)) for t, model in self.bounds]
        other.success = self.success.fantasize(x) if self.success else None
        return other

    # ------------------------------------------------------------------ judging

    def judge(self, x: Array, hourly: Array, caps: AbortCaps) -> CandidatePrediction:
        """Predict candidates.

        Args:
            x: Features, shape (n, features).
            hourly: USD per hour, shape (n,).
            caps: Limits at which runs are cut short.
        """
        price = hourly / 3600.0
        other = self._other_conditions(x)
        predictions = [self._prediction(x, price, caps, other, *process.predict(x)) for _, process in self.parts]
        return predictions[0] if len(predictions) == 1 else _mixed([weight for weight, _ in self.parts], predictions)

    def predict_run(self, x: Array, hourly: Array, caps: AbortCaps, target: float | None = None) -> tuple[Array, Array]:
        """Predict each candidate's chance to bring what is wanted, and its seconds, shape (n,) each.

        Args:
            x: Features, shape (n, features).
            hourly: USD per hour, shape (n,).
            caps: Limits at which runs are cut short.
            target: Loss to be reached; without it the best so far is to be improved, and where there is none, a
                feasible run is wanted.
        """
        price = hourly / 3600.0
        at = self.best if target is None else target
        brings = self._other_conditions(x)
        if at is not None and not self._from_time and self.objective is not None:
            brings = brings * self.objective.chance(x, at)
        setup = price * self._problem.terms.billing.setup_seconds
        affords = self._affords(price, setup, caps)
        low, high = runtime_window(self._problem, hourly)
        high = np.minimum(high, affords)
        if at is not None and self._from_time:
            high = np.minimum(high, self._seconds_for(at, price))
        stop = self._stop_seconds(price, setup, affords, caps)
        chances, seconds = np.zeros(len(x)), np.zeros(len(x))
        for weight, process in self.parts:
            mean, variance = process.predict(x)
            sd, mean = np.sqrt(variance), self._log_seconds(mean, price)
            within = acquisition.probability_below(mean, sd, np.maximum(high, 0.0))
            early = acquisition.probability_below(mean, sd, np.minimum(low, high)) if low.any() else 0.0
            chances = chances + weight * np.maximum(within - early, 0.0)
            seconds = seconds + weight * acquisition.expected_spend(mean, sd, stop)
        total = sum(weight for weight, _ in self.parts)
        return brings * chances / total, seconds / total

    @staticmethod
    def _affords(price: Array, setup: Array, caps: AbortCaps) -> Array:
        """The longest runs that the money left pays for, in seconds; below zero where set-up alone is too much."""
        with np.errstate(divide="ignore", invalid="ignore"):
            found: Array = np.where(price > 0, (caps.money - setup) / price, np.inf)
        return found

    def _seconds_for(self, loss: float, price: Array) -> Array:
        """The longest run that is as good as a loss, where the objective is read off the model of time."""
        if self._problem.objective.metric == RUNTIME:
            return np.full(len(price), loss)
        billing = self._problem.terms.billing
        setup, floor = price * billing.setup_seconds, price * billing.shortest_billed
        with np.errstate(divide="ignore", invalid="ignore"):
            longest = np.where(price > 0, (loss - setup) / price, np.inf if loss >= 0 else 0.0)
        found: Array = np.where(floor <= loss, longest, 0.0)
        return found

    def _log_seconds(self, mean: Array, price: Array) -> Array:
        """Ln seconds of the modelled figure."""
        with np.errstate(divide="ignore"):
            found: Array = mean - np.log(price) if self._priced else mean
        return found

    def _prediction(
        self, x: Array, price: Array, caps: AbortCaps, other: Array, mean: Array, variance: Array
    ) -> CandidatePrediction:
        """Predictions of one process of time."""
        billing = self._problem.terms.billing
        setup = price * billing.setup_seconds
        floor = price * billing.shortest_billed
        sd = np.sqrt(variance)
        seconds = self._log_seconds(mean, price)
        with np.errstate(divide="ignore"):
            money = mean if self._priced else mean + np.log(price)
        affords = self._affords(price, setup, caps)
        low, high = runtime_window(self._problem, price * 3600.0)
        limit = np.maximum(np.minimum(affords, high), 0.0)
        in_time = acquisition.probability_below(seconds, sd, limit)
        stop = self._stop_seconds(price, setup, affords, caps)
        with np.errstate(invalid="ignore"):
            spend = acquisition.expected_spend(money, sd, np.where(np.isinf(stop), np.inf, price * stop), setup, floor)
            margin = (np.log(np.maximum(limit, 1e-12)) - seconds) / sd

        def full(quantile: float) -> Array:
            return np.maximum(setup + np.exp(np.minimum(money + quantile * sd, 700.0)), floor)

        improvement = self._improvement(x, seconds, money, sd, price, limit, in_time, setup, floor)
        if low.any():
            low = np.minimum(low, limit)
            early = acquisition.probability_below(seconds, sd, low)
            in_time = in_time - early
            improvement = improvement - self._improvement(x, seconds, money, sd, price, low, early, setup, floor)
            improvement = np.maximum(improvement, 0.0)
        return CandidatePrediction(
            full(0.0),
            full(-1.645),
            full(1.645),
            np.exp(np.minimum(seconds, 700.0)),
            in_time * other,
            other * improvement,
            spend,
            margin,
        )

    def _other_conditions(self, x: Array) -> Array:
        chance = np.ones(len(x))
        for threshold, model in self.bounds:
            chance = chance * model.within(x, threshold)
        if self.success is not None:
            chance = chance * self.success.chance(x)
        return chance

    def _stop_seconds(self, price: Array, setup: Array, affords: Array, caps: AbortCaps) -> Array:
        """Seconds after which each run is cut short, shape (n,); infinite for never."""
        stop = np.maximum(affords, 0.0)
        if not caps.abort:
            return stop
        stop = np.minimum(stop, runtime_window(self._problem, price * 3600.0)[1])
        if self.best is not None and self._from_time:
            with np.errstate(divide="ignore", invalid="ignore"):
                wins = np.full(len(price), caps.slack * self.best)
                if self._problem.objective.metric == COST:
                    wins = np.where(price > 0, np.maximum(wins - setup, 0.0) / price, np.inf)
            stop = np.minimum(stop, wins)
        return stop

    def _improvement(
        self,
        x: Array,
        seconds: Array,
        money: Array,
        sd: Array,
        price: Array,
        limit: Array,
        in_time: Array,
        setup: Array,
        floor: Array,
    ) -> Array:
        best = self.aim if self.best is None else self.best
        if best is None:
            return in_time
        if self._from_time and self._problem.objective.metric == RUNTIME:
            return acquisition.expected_saving(seconds, sd, best, limit)
        if self._from_time:
            with np.errstate(invalid="ignore"):
                cap = np.where(np.isinf(limit), np.inf, price * limit)
            saving = acquisition.expected_saving(money, sd, best, cap, setup, floor)
            return np.where(price > 0, saving, best * in_time)
        return in_time * (self.objective.improvement(x, best) if self.objective is not None else 1.0)


def _scalar(known: Sequence[tuple[Array, float]], *, may_log: bool) -> MetricModel | None:
    """A process on a metric of some runs; None where none has it."""
    if not known:
        return None
    return MetricModel.fit(np.array([row for row, _ in known]), np.array([v for _, v in known]), may_log=may_log)
