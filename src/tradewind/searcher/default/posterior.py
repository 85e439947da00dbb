"""Posterior of the default searcher: processes around a price trend, and a run's worth before anything has worked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tradewind.problem import COST, Problem, Trial
from tradewind.searcher.default.transfer import TRANSFER_WIDTHS, TransferPrior, TransferProcess
from tradewind.searcher.outcomes import runtime_window
from tradewind.searcher.posterior import AbortCaps, Posterior
from tradewind.searcher.surrogate.censored import fit_censored
from tradewind.searcher.surrogate.features import FeatureMap
from tradewind.searcher.surrogate.gp import Array, GaussianProcess, log_evidence
from tradewind.searcher.surrogate.trend import LOG_PRIORS, LinearTrend, TrendProcess

PRICE_SLOPE = 0.4
"""Twice the price per hour is expected to cost 2^0.4 as much: it makes a run quicker, but seldom twice as quick."""
PRICE_SLOPE_SD = 0.3
LEVEL_SD = 1.5
"""The median candidate takes the deadline, give or take a factor of e^1.5."""
FIRST_LEVEL_SD = 0.5
"""The same for the first run where earlier jobs choose it: about where the deadline can just be kept."""
_LEADS = 0.5
_LEAST_SHARE = 0.02
PROCESS_KINDS: tuple[Mapping[str, float], ...] = ({"length": 0.5}, {"length": 1.2, "noise": 0.12}, {"length": 0.25})
"""Priors of the processes that are averaged: of middle length, smooth with some noise, and rough."""
SPEED_SLOPE = 0.6
"""Where scores say how quick machines are: twice the vCPUs, or vCPUs that are twice as quick, are expected to take
2^-0.6 of the time."""
SPEED_SLOPE_SD = 0.4
PRICE_SIGN = 0.2
"""And machines of the same vCPUs and scores that cost twice as much, for their memory or disks, 2^-0.2 of it."""
SPEED_TRUST, UNTESTED_TRUST = 0.5, 0.25
"""Probability, before the first run, that scores of machines say something of this job; the second where there are too
few types to show that the scores are theirs."""
OTHER_SLOPES_SD = 0.4
"""From one end of any other feature to the other, costs differ by a factor of about e^0.4."""


@dataclass(frozen=True, slots=True)
class _ProcessPrior:
    """One of the processes that are averaged, before the first run.

    Attributes:
        share: Probability of its trend.
        kind: Its own hyper-priors, one of `PROCESS_KINDS`.
        trend: Its linear part.
        level: Its prior mean in the middle of the features; None where there is no deadline to go by.
    """

    share: float
    kind: Mapping[str, float]
    trend: LinearTrend
    level: float | None

    def process(self, steps: int = 0) -> TrendProcess:
        """The process, which has seen nothing.

        Args:
            steps: See `GaussianProcess`.
        """
        priors = replace(LOG_PRIORS, **self.kind)
        if self.level is not None:
            priors = replace(priors, mean=LEVEL_SD)
        return TrendProcess(self.trend, priors, level=self.level, starts=1, steps=steps)


@dataclass(frozen=True, slots=True)
class PricedAbortCaps(AbortCaps):
    """Limits at which runs are cut short when finishing one is worth something.

    Attributes:
        beyond: Money for which a run may go on beyond the point where it cannot win any more, as a share of what a
            good run costs.
    """

    beyond: float = 0.25


class PricedPosterior(Posterior):
    """Processes around a trend, and two amounts that stand in for a best one until there is one.

    Three processes with different priors are weighed by how well they predicted the runs (Bayesian model averaging):
    few runs do not show how rough the costs are, and a single choice would be too sure of itself. Where earlier jobs
    predicted the runs better, theirs are averaged instead, of three widths: how far this job may be from them.

    Where the machines have scores, there are three more, which expect machines of a higher score to be quicker: they
    share the average with those that do not by the same rule, so that scores which mislead are dropped.

    Args:
        problem: The tuning problem: objective, constraints and prices.
        features: Turns trials into rows of numbers.
        trials: Ended trials.
        priced: True to model price x time, False to model time.
        reference: Features of the candidates, shape (n, d): all, or a sample of a large space.
        hourly: Their prices, shape (n,).
        transfer_prior: Prior from earlier jobs, or None.
        usual: The loss of the best so far where repeated runs showed that the least one is a lucky one; None to take
            the least.

    Attributes:
        good: What a good run costs (seconds, where the runtime is the objective): the best so far, or the least that
            is expected of any candidate. None where the objective does not grow with time.
        aim: What a first success is measured against: the median that is expected over all candidates. None once
            there is a success.
        learned: True where the processes are those of earlier jobs.
        guessed: True where runs have failed, none has shown a time, and the processes are still what they are before
            any run: which candidates are like those that failed is known all the same.
    """

    # It begins with the cheapest machines, which are the first to fail: that must not rule out all like them.
    label_noise = 0.35

    def __init__(
        self,
        problem: Problem,
        features: FeatureMap,
        trials: Sequence[Trial],
        *,
        priced: bool,
        reference: Array,
        hourly: Array,
        transfer_prior: TransferPrior | None = None,
        usual: float | None = None,
    ) -> None:
        self._transfer_prior = transfer_prior
        self.learned = self.guessed = False
        # The price of a free machine says nothing of how quick it is.
        says = features.price_column if bool((hourly > 0).all()) else None
        d = reference.shape[1]
        self._prices = price_slopes(features, reference.shape[1], priced=priced)
        money = np.log(np.maximum(hourly, 1e-12) / 3600.0) if priced else np.zeros(len(hourly))
        self._trend = price_trend(says, d, priced=priced)
        trends = [(1.0, self._trend)]
        if features.speed_column is not None:
            quicker = speed_trend(says, features.size_column, features.speed_column, d, priced=priced)
            trust = SPEED_TRUST if features.speed_tested else UNTESTED_TRUST
            trends = [(1.0 - trust, self._trend), (trust, quicker)]
        self._kinds = [
            _ProcessPrior(share, kind, trend, self._level_of(problem, trend, reference, money))
            for share, trend in trends
            for kind in PROCESS_KINDS
        ]
        self._learned_level: float | None = None
        if transfer_prior is not None:
            common = transfer_prior.at(reference)[0] + reference @ self._prices
            self._learned_level = self._expected_level(problem, common - money)
        super().__init__(problem, features, trials, priced=priced)
        if transfer_prior is not None and not self.parts and transfer_prior.trust > _LEADS:
            self.learned = True
            level, sd = self._learned_level, FIRST_LEVEL_SD
            if level is None:
                level, sd = transfer_prior.level + float((money - reference @ self._prices).mean()), LEVEL_SD
            self.parts = [(1.0, TransferProcess(transfer_prior, self._prices, level, sd))]
        if not self.parts and self.success is not None and self._kinds[0].level is not None:
            self.guessed = True
            self.parts = [(one.share / len(PROCESS_KINDS), one.process().unobserved(d)) for one in self._kinds]
        self.best = self.best if usual is None else usual
        self.good = self.best if problem.objective.grows_with_time else None
        if self.best is None and self.parts and problem.objective.grows_with_time:
            prediction = self.judge(reference, hourly, PricedAbortCaps(False, 1.0, math.inf))
            expected = prediction.cost if problem.objective.metric == COST else prediction.runtime
            self.good, self.aim = float(expected.min()), float(np.median(expected))

    def _processes(self, x: Array, y: Array, censored: NDArray[np.bool_]) -> list[tuple[float, GaussianProcess]]:
        own = [self._own(one, x, y, censored) for one in self._kinds]
        shares, average = _weighed(
            [
                math.log(one.share) + log_evidence(process, x, y, censored)
                for one, process in zip(self._kinds, own, strict=True)
            ]
        )
        average -= math.log(len(PROCESS_KINDS))
        if self._transfer_prior is not None:
            # The past is no partner in this mixture: processes that know little expect improvements everywhere, and
            # would take over all choices until they were nearly ruled out.
            transfer_prior = self._transfer_prior
            learned = [self._from_past(transfer_prior, width, x, y, censored) for _, width in TRANSFER_WIDTHS]
            likely = [
                math.log(before) + log_evidence(process, x, y, censored)
                for (before, _), process in zip(TRANSFER_WIDTHS, learned, strict=True)
            ]
            by_width, together = _weighed(likely)
            self.learned = math.log(transfer_prior.trust / (1.0 - transfer_prior.trust)) + together > average
            if self.learned:
                shares, own = by_width, learned
        return [(share, process) for share, process in zip(shares, own, strict=True) if share > _LEAST_SHARE]

    @staticmethod
    def _own(prior: _ProcessPrior, x: Array, y: Array, censored: NDArray[np.bool_]) -> GaussianProcess:
        """A process that knows nothing of earlier jobs."""
        return fit_censored(x, y, censored, make=lambda _starts, steps: prior.process(steps))

    def _from_past(
        self, transfer_prior: TransferPrior, width: float, x: Array, y: Array, censored: NDArray[np.bool_]
    ) -> GaussianProcess:
        """The process that earlier jobs make; see `TransferProcess`."""
        sd = LOG_PRIORS.mean if self._learned_level is None else LEVEL_SD

        def make(_starts: int, _steps: int) -> GaussianProcess:
            return TransferProcess(transfer_prior, self._prices, self._learned_level, sd, width)

        return fit_censored(x, y, censored, make=make)

    @classmethod
    def _level_of(cls, problem: Problem, trend: LinearTrend, reference: Array, money: Array) -> float | None:
        """The level of a trend; see `_expected_level`."""
        return cls._expected_level(problem, TrendProcess(trend).expected(reference) - money)

    @staticmethod
    def _expected_level(problem: Problem, times: Array) -> float | None:
        """The level at which the median candidate takes as long as the deadline.

        A deadline is set by somebody who thinks that it can be kept, and not by everything. Without that knowledge a
        first run that was cut short would leave costs open upwards without end.

        Args:
            problem: The tuning problem: its deadline counts.
            times: ln seconds of the candidates up to the level, shape (n,).
        """
        if problem.constraints.deadline is None:
            return None
        return math.log(problem.constraints.deadline) - float(np.median(times))

    def stop_seconds(self, hourly: Array, caps: AbortCaps) -> Array:
        """Seconds of execution after which runs are cut short, shape (n,); infinite for never.

        A run cannot win any more at ``min(deadline · price, best)``. It may go on from there for the money that a
        good run costs, times ``beyond``: that is about what the next observation would cost, and a finished run is a
        better one than a bound.

        Args:
            hourly: USD per hour, shape (n,).
            caps: Limits at which runs are cut short.
        """
        price = hourly / 3600.0
        setup = price * self._problem.terms.billing.setup_seconds
        return self._stop_seconds(price, setup, np.full(len(price), np.inf), caps)

    def _stop_seconds(self, price: Array, setup: Array, affords: Array, caps: AbortCaps) -> Array:
        stop: Array = np.maximum(affords, 0.0)
        if caps.abort:
            stop = np.minimum(stop, self._cut(price, setup, caps))
            # Nothing goes on beyond a bound on cost or run time: it is broken for good then.
            stop = np.minimum(stop, runtime_window(self._problem, price * 3600.0, deadline=False)[1])
        return stop

    def _cut(self, price: Array, setup: Array, caps: AbortCaps) -> Array:
        """Seconds after which runs have cost as much as they may, shape (n,)."""
        deadline = self._problem.constraints.deadline
        latest = np.full(len(price), math.inf if deadline is None else deadline)
        if not self._from_time:
            return latest
        more = caps.beyond * self.good if isinstance(caps, PricedAbortCaps) and self.good is not None else 0.0
        best = math.inf if self.best is None else self.best
        cut: Array
        if self._problem.objective.metric == COST:
            with np.errstate(divide="ignore", invalid="ignore"):
                money = np.minimum(setup + price * latest, best) + more
                cut = np.where(price > 0, np.maximum(money - setup, 0.0) / price, latest)
        else:
            cut = np.minimum(latest, best) + more
        return cut


def _weighed(evidence: Sequence[float]) -> tuple[list[float], float]:
    """Shares of processes by the logarithms of prior times evidence, and the logarithm of the sum of these."""
    top = max(evidence)
    weights = [math.exp(one - top) for one in evidence]
    total = sum(weights)
    return [weight / total for weight in weights], top + math.log(total)


def price_slopes(features: FeatureMap, d: int, *, priced: bool) -> Array:
    """Slopes along the features, shape (d,), of what is added to ln time for the modelled figure, up to a constant."""
    slopes = np.zeros(d)
    if priced and features.price_column is not None:
        column, span = features.price_column
        slopes[column] = span
    return slopes


def price_trend(prices: tuple[int, float] | None, d: int, *, priced: bool) -> LinearTrend:
    """The prior trend of ln(price x time), or of ln time.

    Args:
        prices: The feature that is linear in ln price per hour, and its unit (`FeatureMap.price_column`); None where
            prices say nothing.
        d: Number of features.
        priced: True for price x time.
    """
    column, span = prices or (None, 1.0)
    slope = PRICE_SLOPE if priced else PRICE_SLOPE - 1.0
    return LinearTrend.of_price(d, column, span, slope=slope, slope_sd=PRICE_SLOPE_SD, other_sd=OTHER_SLOPES_SD)


def speed_trend(
    prices: tuple[int, float] | None,
    sizes: tuple[int, float] | None,
    speeds: tuple[int, float],
    d: int,
    *,
    priced: bool,
) -> LinearTrend:
    """The prior trend of ln(price x time), or of ln time, where scores say how quick machines are.

    A price is a sign of how much a machine does. Where that is known, little of the sign is left, and a price is
    mostly what is paid.

    Args:
        prices: See `price_trend`.
        sizes: The same for ln vCPUs (`FeatureMap.size_column`).
        speeds: The same for ln speed of a vCPU (`FeatureMap.speed_column`).
        d: Number of features.
        priced: True for price x time.
    """
    trend = LinearTrend.of_price(d, None, 1.0, slope=0.0, slope_sd=0.0, other_sd=OTHER_SLOPES_SD)
    left = 0.0
    if prices is not None:
        left = PRICE_SIGN
        trend = trend.along(*prices, slope=float(priced) - left, slope_sd=PRICE_SLOPE_SD)
    if sizes is not None:
        trend = trend.along(*sizes, slope=left - SPEED_SLOPE, slope_sd=PRICE_SLOPE_SD)
    return trend.along(*speeds, slope=-SPEED_SLOPE, slope_sd=SPEED_SLOPE_SD)
