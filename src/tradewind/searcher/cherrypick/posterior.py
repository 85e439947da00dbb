"""CherryPick's posterior after some trials: models of cost, objective, bounds and success."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tradewind.problem import COST, RUNTIME, Observation, Problem, Threshold, Trial, TrialState
from tradewind.searcher import acquisition, outcomes
from tradewind.searcher.cherrypick.encoding import ClusterEncoding
from tradewind.searcher.cherrypick.sampled_process import SampledProcess
from tradewind.searcher.outcomes import TIME_METRICS, SuccessModel, has_time_bounds, run_bill, runtime_window
from tradewind.searcher.surrogate.gp import Array

_LEAST = 1e-9
"""Dollars, dollars an hour and seconds below this count as this, so that they have a logarithm."""

_BEYOND = 0.5
"""Amount of ln cost by which an aborted run is put above its bound while no run has finished."""


@dataclass(frozen=True, slots=True)
class SliceSampling:
    """Settings of the slice sampling that integrates hyper-parameters out.

    Attributes:
        seed: Seed of the chains.
        samples: Number of samples of the hyper-parameters.
        burn_in: Steps of each chain before its sample.
    """

    seed: int
    samples: int
    burn_in: int


@dataclass(frozen=True, slots=True)
class CherryPickPrediction:
    """CherryPick's predictions of n candidates; every array has shape (n,).

    Attributes:
        cost: Median USD of a run.
        cost_low: 5 % quantile of it.
        cost_high: 95 % quantile of it.
        feasible: Probability that it succeeds, in time and within every bound.
        score: Expected improvement times that probability, averaged over the samples; the probability alone while
            nothing feasible is known. The improvement of a cost or a time is one of its logarithm.
        share: Expected improvement of the figure itself times the probability, as a share of the best.
        spend: Expected USD of a run.
        affords: Probability that the money left pays the run.
        margin: Standard deviations by which the candidate is expected below the best.
    """

    cost: Array
    cost_low: Array
    cost_high: Array
    feasible: Array
    score: Array
    share: Array
    spend: Array
    affords: Array
    margin: Array


@dataclass(frozen=True, slots=True)
class SampledMetricModel:
    """A process on one metric, or on its logarithm.

    Attributes:
        process: Process fitted to the values or to their logarithms.
        log: True for the logarithm.
    """

    process: SampledProcess
    log: bool

    def within(self, x: Array, threshold: Threshold) -> Array:
        """Probability of keeping a bound under each sample, shape (samples, n)."""
        mean, sd = self.process.predict(x)
        return outcomes.probability_within(mean, sd, threshold, log=self.log)


class CherryPickPosterior:
    """Models of cost, objective, bounds and success, fitted to trials.

    One process models the logarithm of the bill (of the time, where the runtime is the objective or machines are
    free); the deadline is read off the same posterior, since a run is in time exactly if its bill is at most that of
    a run that ends at the deadline; so are bounds on cost and run time. Another objective and each bound on another
    metric have a process of their own, and failures a classifier: the paper knows none of these.

    Args:
        problem: The tuning problem: objective, constraints and prices.
        encoding: Turns trials into rows of numbers.
        trials: Ended trials, by number.
        sampling: Settings of the slice sampling of hyper-parameters.
        free: True where some machines cost nothing.
    """

    def __init__(
        self,
        problem: Problem,
        encoding: ClusterEncoding,
        trials: Sequence[Trial],
        sampling: SliceSampling,
        *,
        free: bool,
    ) -> None:
        self._problem = problem
        self._priced = problem.objective.metric != RUNTIME and not free
        self._sampling, self._drawn, self._size = sampling, 0, len(trials)
        rows = list(_rows(encoding, trials))
        full = [(row, trial.observation) for row, trial in rows if trial.state == TrialState.SUCCEEDED]
        seen = [(row, observation) for row, observation in full if observation is not None]
        self.bill = self._fit_bill(rows)
        self.objective = None if problem.objective.grows_with_time else self._fit_objective(seen)
        others = [threshold for threshold in problem.constraints.thresholds if threshold.metric not in TIME_METRICS]
        self.bounds = [bound for threshold in others if (bound := self._fit_bound(seen, threshold)) is not None]
        self.success = SuccessModel.fit([(row, trial.state) for row, trial in rows])
        self.best = outcomes.best_loss(problem, [trial for _, trial in rows])

    # ------------------------------------------------------------------ fitting

    def _process(self, x: list[Array], y: list[float] | Array, *, log: bool = True) -> SampledProcess:
        """A process; its chains depend on the seed and on the number of trials, not on their order.

        The paper's priors are taken as those of ln C itself, as in the software that it used; other metrics are
        standardised.
        """
        self._drawn += 1
        sampling = self._sampling
        rng = np.random.default_rng([sampling.seed & 0xFFFFFFFF, 4, self._size, self._drawn])
        spread = 1.0 if log else None
        samples, burn_in = sampling.samples, sampling.burn_in
        return SampledProcess(np.array(x), np.array(y), rng, spread=spread, samples=samples, burn_in=burn_in)

    def _fit_bill(self, rows: Sequence[tuple[Array, Trial]]) -> SampledProcess | None:
        ended: list[tuple[Array, float]] = []
        cut: list[tuple[Array, float]] = []
        for row, trial in rows:
            seen = trial.observation
            if seen is None or trial.state == TrialState.FAILED:
                continue
            amount = seen.cost if self._priced else seen.runtime
            if math.isfinite(amount):
                (cut if seen.censored else ended).append((row, math.log(max(amount, _LEAST))))
        if not ended and not cut:
            return None
        x, y = [row for row, _ in ended], [value for _, value in ended]
        bounds = np.array([bound for _, bound in cut])
        if cut and ended:
            mean, sd = _mixture(*self._process(x, y).predict(np.array([row for row, _ in cut])))
            bounds = _truncated_mean(mean, sd, bounds)
        elif cut:
            bounds = bounds + _BEYOND
        return self._process(x + [row for row, _ in cut], [*y, *bounds])

    def _fit_objective(self, seen: Sequence[tuple[Array, Observation]]) -> SampledMetricModel | None:
        aim = self._problem.objective
        return self._figure(outcomes.observed_losses(aim, seen), may_log=aim.goal == "minimise")

    def _fit_bound(
        self, seen: Sequence[tuple[Array, Observation]], threshold: Threshold
    ) -> tuple[Threshold, SampledMetricModel] | None:
        known = outcomes.metric_values(threshold.metric, seen)
        figure = self._figure(known, may_log=outcomes.allows_logarithm(threshold))
        return None if figure is None else (threshold.relaxed([value for _, value in known]), figure)

    def _figure(self, known: Sequence[tuple[Array, float]], *, may_log: bool) -> SampledMetricModel | None:
        if not known:
            return None
        y = np.array([value for _, value in known])
        log = may_log and bool((y > 0).all())
        return SampledMetricModel(self._process([row for row, _ in known], np.log(y) if log else y, log=log), log)

    def fantasize(self, x: Array) -> CherryPickPosterior:
        """A copy that takes its own expectations at pending trials, shape (n, features), for observed."""
        if not len(x):
            return self
        other = object.__new__(CherryPickPosterior)
        other._problem, other._priced, other.best = self._problem, self._priced, self.best
        other.bill = self.bill and self.bill.fantasize(x)
        other.objective = self.objective and SampledMetricModel(self.objective.process.fantasize(x), self.objective.log)
        other.bounds = [(t, SampledMetricModel(f.process.fantasize(x), f.log)) for t, f in self.bounds]
        other.success = self.success and self.success.fantasize(x)
        return other

    # ------------------------------------------------------------------ judging

    def judge(self, x: Array, hourly: Array, money_left: float | None, *, abort: bool = False) -> CherryPickPrediction:
        """Predict candidates.

        Args:
            x: Features, shape (n, features).
            hourly: USD per hour, shape (n,).
            money_left: USD, or None for no limit.
            abort: True when runs end at the deadline and at the best cost.
        """
        assert self.bill is not None
        billing, deadline = self._problem.terms.billing, self._problem.constraints.deadline
        price = np.maximum(hourly / 3600.0, _LEAST)
        mean, sd = self.bill.predict(x)
        money = mean if self._priced else np.log(price * np.maximum(billing.setup_seconds + np.exp(mean), _LEAST))
        chance = self._in_time(mean, sd, price) * self._other_conditions(x)
        score, share, margin = self._improvement(x, mean, money, sd, chance)
        middle, spread = _mixture(money, sd)
        cap = np.full(len(x), np.inf)
        if abort and deadline is not None:
            cap = price * billing.billed_seconds(deadline)
        if abort and self.best is not None and self._problem.objective.metric == COST:
            cap = np.minimum(cap, self.best)
        if abort and has_time_bounds(self._problem):
            high = runtime_window(self._problem, hourly, deadline=False)[1]
            # What breaks a bound at once still owes the smallest bill.
            cap = np.minimum(cap, run_bill(self._problem, price * 3600.0, np.maximum(high, _LEAST)))
        affords = np.ones(len(x))
        if money_left is not None:
            affords = np.where(hourly > 0, acquisition.probability_below(money, sd, money_left).mean(axis=0), 1.0)
        return CherryPickPrediction(
            cost=np.exp(middle),
            cost_low=np.exp(middle - 1.645 * spread),
            cost_high=np.exp(np.minimum(middle + 1.645 * spread, 700.0)),
            feasible=chance.mean(axis=0),
            score=score,
            share=share,
            spend=acquisition.expected_spend(money, sd, cap).mean(axis=0),
            affords=affords,
            margin=margin,
        )

    def _in_time(self, mean: Array, sd: Array, price: Array) -> Array:
        """Probability of keeping the deadline and all bounds on cost and run time, shape (samples, n)."""
        billing, deadline = self._problem.terms.billing, self._problem.constraints.deadline
        chance = np.ones_like(mean)
        if deadline is not None:
            latest = price * billing.billed_seconds(deadline) if self._priced else deadline
            chance = acquisition.probability_below(mean, sd, latest)
        if has_time_bounds(self._problem):
            low, high = runtime_window(self._problem, price * 3600.0, deadline=False)
            if self._priced:
                low, high = (run_bill(self._problem, price * 3600.0, seconds) for seconds in (low, high))
            chance = np.minimum(chance, acquisition.probability_below(mean, sd, high))
            chance = np.maximum(chance - acquisition.probability_below(mean, sd, low), 0.0)
        return chance

    def _other_conditions(self, x: Array) -> Array:
        chance: Array = np.ones(len(x))
        for threshold, figure in self.bounds:
            chance = chance * figure.within(x, threshold)
        if self.success is not None:
            chance = chance * self.success.chance(x)
        return chance

    def _improvement(self, x: Array, time: Array, money: Array, sd: Array, chance: Array) -> tuple[Array, Array, Array]:
        """Score, share of the best, and margin."""
        metric = self._problem.objective.metric
        mean, log = {RUNTIME: (time, True), COST: (money, True)}.get(metric, (None, False))
        if not self._problem.objective.grows_with_time:
            mean = None
            if self.objective is not None:
                mean, sd = self.objective.process.predict(x)
                log = self.objective.log
        if mean is None or self.best is None:
            total = chance.mean(axis=0)
            return total, total, total
        best = math.log(max(self.best, _LEAST)) if log else self.best
        margin = ((best - mean) / sd).mean(axis=0)
        score = (acquisition.expected_improvement(mean, sd, best) * chance).mean(axis=0)
        if not log:
            return score, score / max(abs(best), _LEAST), margin
        saving = acquisition.expected_saving(mean, sd, max(self.best, _LEAST), np.inf) / max(self.best, _LEAST)
        return score, (saving * chance).mean(axis=0), margin


def _rows(encoding: ClusterEncoding, trials: Sequence[Trial]) -> Iterator[tuple[Array, Trial]]:
    for trial in trials:
        row = encoding.of(trial.configuration, trial.offer)
        if row is not None and trial.proposal.fidelity == 1.0:
            yield row, trial


def _mixture(mean: Array, sd: Array) -> tuple[Array, Array]:
    """Mean and standard deviation of an equal mixture of normals over the first axis."""
    middle: Array = mean.mean(axis=0)
    return middle, np.sqrt((sd * sd).mean(axis=0) + mean.var(axis=0))


def _truncated_mean(mean: Array, sd: Array, low: Array) -> Array:
    """The mean of a normal that is known to be above a bound, as Lynceus (ICDCS 2020) labels an aborted run."""
    from scipy.special import log_ndtr

    z = (low - mean) / sd
    hazard = np.exp(-0.5 * z * z - 0.5 * math.log(2.0 * math.pi) - log_ndtr(-z))
    result: Array = np.maximum(mean + sd * hazard, low)
    return result
