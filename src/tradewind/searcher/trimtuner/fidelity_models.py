"""Models of runs on parts of the input that predict runs on the whole."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from tradewind.problem import RUNTIME, Observation, Problem, Threshold, Trial, TrialState
from tradewind.searcher import acquisition, outcomes
from tradewind.searcher.outcomes import TIME_METRICS, SuccessModel, runtime_window
from tradewind.searcher.surrogate.censored import bound_sites
from tradewind.searcher.surrogate.features import FeatureMap
from tradewind.searcher.surrogate.gp import Array
from tradewind.searcher.trimtuner.extra_trees import ExtraTrees
from tradewind.searcher.trimtuner.fidelity_process import FidelityProcess

SurrogateKind = Literal["gp", "trees"]
Surrogate = FidelityProcess | ExtraTrees

_LEAST_SECONDS = 1e-6
_SPREAD = 0.7
"""Prior standard deviation of ln cost: runs differ by a factor of two."""
_MOST = 700.0


@dataclass(frozen=True, slots=True)
class FidelityObservation:
    """An ended trial as a row of numbers.

    Attributes:
        row: The configuration's features, shape (d,).
        share: Share of the input that was run.
        trial: The trial that it is.
        seen: Observation of the trial.
    """

    row: Array
    share: float
    trial: Trial
    seen: Observation


@dataclass(frozen=True, slots=True)
class FullInputPrediction:
    """Predictions of runs on the whole input; every array has shape (n,).

    Attributes:
        loss: Expected loss, in the units of the model (`FidelityModels.units`).
        sd: Standard deviation of the loss.
        feasible: Probability that such a run succeeds and keeps every constraint.
        cost: Median USD.
        cost_high: 95 % quantile of it.
    """

    loss: Array
    sd: Array
    feasible: Array
    cost: Array
    cost_high: Array


class FidelityModels:
    """Models of time, objective, bounds and success over configurations and shares of the input.

    One surrogate models ``ln(price · time / share)`` with the level ``ln s / ln s_min``: whatever does not shrink with
    the input shows in it. The objective and other bounded metrics have one each, with the level ``((1−s)/(1−s_min))²``
    (FABOLAS, Klein et al., AISTATS 2017, section 3.1). Cost and run time as objective or as bound are read off the
    model of time. Aborted trials enter it as lower bounds with the process, and as they are with trees.

    Args:
        problem: The tuning problem: objective, constraints and prices.
        features: Turns trials into rows of numbers.
        trials: Ended trials.
        least: The smallest share of the input that is run.
        kind: ``gp`` or ``trees``.
        priced: True to model price x time, False to model time.
        seed: Seed of the trees.
    """

    def __init__(
        self,
        problem: Problem,
        features: FeatureMap,
        trials: Sequence[Trial],
        *,
        least: float,
        kind: SurrogateKind,
        priced: bool,
        seed: int,
    ) -> None:
        self._problem, self._least, self._kind, self._priced, self._seed = problem, least, kind, priced, seed
        self._features = features
        observations = [
            FidelityObservation(row, trial.proposal.fidelity, trial, trial.observation)
            for trial in trials
            if trial.observation is not None and (row := features.of(trial.configuration, trial.offer)) is not None
        ]
        done = [t for t in observations if t.trial.state == TrialState.SUCCEEDED]
        self.time = self._fit_time([t for t in observations if t.trial.state != TrialState.FAILED])
        self.objective = None if self.from_time else self._fit_objective(done)
        others = [threshold for threshold in problem.constraints.thresholds if threshold.metric not in TIME_METRICS]
        self.bounds = [bound for threshold in others if (bound := self._fit_bound(done, threshold)) is not None]
        self.success = SuccessModel.fit([(t.row, t.trial.state) for t in observations])
        self.whole = [t for t in observations if t.share >= 1.0]
        best = outcomes.best_loss(problem, [t.trial for t in self.whole])
        self.best = None if best is None else self.units(problem.objective.loss(best))

    @property
    def ready(self) -> bool:
        """True once something is known of time, and of the objective."""
        return self.time is not None and (self.from_time or self.objective is not None)

    @property
    def from_time(self) -> bool:
        """True when the objective is read off the model of time."""
        return self._problem.objective.grows_with_time

    def units(self, value: float) -> float:
        """A value of the objective as the models see it: its loss, logarithmic where it is read off the time."""
        return math.log(max(value, 1e-12)) if self.from_time else self._problem.objective.loss(value)

    def _loss(self, observed: FidelityObservation) -> float | None:
        value = observed.seen.objective
        return None if value is None or not math.isfinite(value) else self.units(value)

    # ------------------------------------------------------------------ fitting

    def rows(self, x: Array, share: float | Array, *, of_time: bool) -> Array:
        """Features with the level that one of the models sees, shape (n, d + 1)."""
        s = np.broadcast_to(np.asarray(share, dtype=float), (len(x),))
        if self._least >= 1.0:
            level = np.zeros(len(x))
        elif of_time:
            level = np.log(s) / math.log(self._least)
        else:
            level = ((1.0 - s) / (1.0 - self._least)) ** 2
        return np.column_stack([x, level])

    def _stack(self, observations: Sequence[FidelityObservation], *, of_time: bool) -> Array:
        shares = np.array([t.share for t in observations])
        return self.rows(np.array([t.row for t in observations]), shares, of_time=of_time)

    def _fit(self, x: Array, y: Array, offset: int, spread: float | None = None) -> Surrogate:
        if self._kind == "trees":
            return ExtraTrees(x, y, seed=self._seed + offset)
        return FidelityProcess(spread=spread).fit(x, y)

    def _fit_time(self, observations: Sequence[FidelityObservation]) -> Surrogate | None:
        finite = [t for t in observations if math.isfinite(t.seen.runtime)]
        known = [t for t in finite if t.seen.runtime > 0 or not t.seen.censored]
        if not known:
            return None
        seconds = np.array([max(t.seen.runtime, _LEAST_SECONDS) for t in known])
        hourly = np.array([self._features.today(t.trial.configuration, t.trial.offer).hourly for t in known])
        share = np.array([t.share for t in known])
        y = np.log(seconds) + (np.log(hourly / 3600.0) if self._priced else 0.0) - np.log(share)
        x = self._stack(known, of_time=True)
        censored = np.array([t.seen.censored for t in known])
        if self._kind == "trees" or not censored.any() or (~censored).sum() < 2:
            return self._fit(x, y, 0, _SPREAD)
        process = FidelityProcess(spread=_SPREAD).fit(x[~censored], y[~censored])
        means, variances, useful = bound_sites(process, x, y, censored)
        extra = np.where(censored, np.maximum(variances - process.noise_variance, 0.0), 0.0)
        return process.given(x[useful], means[useful], extra[useful])

    def _fit_objective(self, done: Sequence[FidelityObservation]) -> Surrogate | None:
        known = [(t, loss) for t in done if (loss := self._loss(t)) is not None]
        if not known:
            return None
        x = self._stack([t for t, _ in known], of_time=False)
        return self._fit(x, np.array([loss for _, loss in known]), 1)

    def _fit_bound(
        self, done: Sequence[FidelityObservation], threshold: Threshold
    ) -> tuple[Threshold, Surrogate] | None:
        known = [t for t in done if math.isfinite(t.seen.metrics.get(threshold.metric, math.nan))]
        if not known:
            return None
        y = np.array([t.seen.metrics[threshold.metric] for t in known])
        return threshold.relaxed(y.tolist()), self._fit(self._stack(known, of_time=False), y, 2)

    def fantasize(self, x: Array, share: Array) -> FidelityModels:
        """A copy that takes its own expectations at pending trials, features of shape (n, d), for observed."""
        if not len(x):
            return self
        other = object.__new__(FidelityModels)
        other.__dict__.update(self.__dict__)
        time, rest = self.rows(x, share, of_time=True), self.rows(x, share, of_time=False)
        other.time = self.time.fantasize(time) if self.time else None
        other.objective = self.objective.fantasize(rest) if self.objective else None
        other.bounds = [(t, model.fantasize(rest)) for t, model in self.bounds]
        return other

    # ------------------------------------------------------------------ judging

    def money(self, x: Array, share: float | Array, hourly: Array) -> tuple[Array, Array, Array]:
        """Mean and standard deviation of ln of the variable USD of a run on a share of the input, and mean ln seconds.

        Args:
            x: Features, shape (n, d).
            share: Share of the input, one or one for each row.
            hourly: USD per hour, shape (n,).
        """
        assert self.time is not None
        mean, variance = self.time.predict(self.rows(x, share, of_time=True))
        mean = mean + np.log(share)
        with np.errstate(divide="ignore"):
            price = np.log(hourly / 3600.0)
        if self._priced:
            return mean, np.sqrt(variance), mean - price
        return mean + price, np.sqrt(variance), mean

    def spend(self, x: Array, share: float | Array, hourly: Array, money: float = math.inf) -> Array:
        """Expected USD of a run on a share of the input, with set-up and minimum billing, shape (n,)."""
        mean, sd, _ = self.money(x, share, hourly)
        setup, floor = self._fixed(hourly)
        return acquisition.expected_spend(mean, sd, np.maximum(money - setup, 0.0), setup, floor)

    def _fixed(self, hourly: Array) -> tuple[Array, Array]:
        billing, price = self._problem.terms.billing, hourly / 3600.0
        return price * billing.setup_seconds, price * billing.shortest_billed

    def judge(self, x: Array, hourly: Array) -> FullInputPrediction:
        """Predict runs on the whole input, features of shape (n, d) and USD per hour of shape (n,)."""
        money, sd, seconds = self.money(x, 1.0, hourly)
        setup, floor = self._fixed(hourly)
        cost = np.maximum(setup + np.exp(np.minimum(money, _MOST)), floor)
        high = np.maximum(setup + np.exp(np.minimum(money + 1.645 * sd, _MOST)), floor)
        low, limit = runtime_window(self._problem, hourly)
        chance = acquisition.probability_below(seconds, sd, limit)
        chance = chance - np.where(low > 0, acquisition.probability_below(seconds, sd, low), 0.0)
        rows = self.rows(x, 1.0, of_time=False)
        for threshold, model in self.bounds:
            mean, variance = model.predict(rows)
            chance = chance * outcomes.probability_within(mean, np.sqrt(variance), threshold, log=False)
        if self.success is not None:
            chance = chance * self.success.chance(x)
        loss, spread = self._objective(x, money, sd, seconds, hourly)
        return FullInputPrediction(loss, spread, np.clip(chance, 0.0, 1.0), cost, high)

    def _objective(self, x: Array, money: Array, sd: Array, seconds: Array, hourly: Array) -> tuple[Array, Array]:
        if not self.from_time:
            if self.objective is None:
                return np.zeros(len(x)), np.ones(len(x))
            mean, variance = self.objective.predict(self.rows(x, 1.0, of_time=False))
            return mean, np.sqrt(variance)
        if self._problem.objective.metric == RUNTIME:
            return seconds, sd
        loss = self.as_loss(money, hourly)
        # Where set-up or minimum billing outweighs the run, its uncertainty matters little: the slope of ln(a + e^m).
        with np.errstate(over="ignore"):
            slope = np.exp(np.minimum(np.where(np.isfinite(money), money, -_MOST) - loss, 0.0))
        return loss, np.maximum(sd * slope, 1e-9)

    def as_loss(self, variable: Array, hourly: Array) -> Array:
        """Turn ln of the variable USD, shape (..., n), into the loss on the whole input where cost is the objective."""
        setup, floor = self._fixed(hourly)
        loss: Array = np.log(np.maximum(np.maximum(setup + np.exp(np.minimum(variable, _MOST)), floor), 1e-12))
        return loss

    def target(self, hourly: Array) -> tuple[Surrogate, bool, Callable[[Array], Array]]:
        """The model of the objective, True if it is that of time, and the map from its figure to the loss on the whole.

        Args:
            hourly: USD per hour of the configurations that it will be asked about, shape (n,).
        """
        if not self.from_time:
            assert self.objective is not None
            return self.objective, False, lambda said: said
        assert self.time is not None
        with np.errstate(divide="ignore"):
            price = np.log(hourly / 3600.0)
        if self._problem.objective.metric == RUNTIME:
            return self.time, True, (lambda said: said - price) if self._priced else (lambda said: said)
        if self._priced:
            return self.time, True, lambda said: self.as_loss(said, hourly)
        return self.time, True, lambda said: self.as_loss(said + price, hourly)

    def settled(self, whole: FullInputPrediction, places: dict[int, FidelityObservation]) -> FullInputPrediction:
        """Replace predictions of whole runs by what was measured.

        Args:
            whole: Predictions of some candidates.
            places: The whole runs that ended, by their place among the candidates.
        """
        feasible = whole.feasible.copy()
        for place, whole_run in places.items():
            feasible[place] = float(whole_run.seen.feasible)
        return replace(whole, feasible=feasible)
