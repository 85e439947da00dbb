"""Transfer from earlier jobs on the same machines: a prior for this job, and a test of how far jobs are related.

Where earlier jobs do not predict one another (`relatedness`), they will not predict this one either.
"""

from __future__ import annotations

import copy
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from tradewind.problem import Candidates, PastStudy, Problem, Trial
from tradewind.searcher.forecast import successful_seconds
from tradewind.searcher.surrogate.features import FeatureMap
from tradewind.searcher.surrogate.gp import Array, GaussianProcess, factorise
from tradewind.searcher.surrogate.matern import distances, matern
from tradewind.searcher.surrogate.trend import LinearTrend

LEAST_RELATED_JOBS = 3
"""Of fewer, each is predicted by one other at most: they say nothing of how alike jobs are."""

LEAST_RELATEDNESS = -1.0
"""Log evidence a job at which a past is left alone: e times likelier without it."""

_LEVEL_SD = 3.0
_MOST_COMPARED_RUNS = 60
_COMPARED_AMPLITUDES = (0.05, 0.1, 0.2, 0.4, 0.8)
_COMPARED_NOISES = (0.05, 0.15, 0.4, 1.0)

_LEAST_ROWS = 5
"""Different candidates of a past job that say anything about the others."""

_MOST_RUNS = 200
_MOST_JOBS = 16
_STEPS = 12
_AMPLITUDES = (0.1, 0.2, 0.4, 0.8)
_NOISES = (0.05, 0.15, 0.4)
_ALONE = 0.55
"""Trust in a single past job: nothing shows yet how alike jobs are."""

_ALONE_SCALES = (0.3, 0.1)
TRANSFER_WIDTHS: tuple[tuple[float, float], ...] = ((0.6, 1.0), (0.25, 2.0), (0.15, 4.0))
"""Prior of how much further a job is from the earlier ones than these from one another: probability, factor."""


@dataclass(frozen=True)
class PastJob:
    """Whole runs of an earlier job, seen as rows of this one's features.

    Attributes:
        x: Features, shape (n, d).
        y: ln seconds, shape (n,).
        share: Of the job's whole runs, those on machines of this problem.
    """

    x: Array
    y: Array
    share: float = 1.0


def past_jobs(
    problem: Problem, features: FeatureMap, reference: Candidates, rows: Array, *, listed: bool = True
) -> list[PastJob]:
    """The earlier jobs that ran on machines of this problem.

    A run of another program has other settings: it counts for the average of all candidates on its machines.

    Args:
        problem: The tuning problem, with its earlier studies.
        features: Turns trials into rows of numbers.
        reference: The candidates.
        rows: Their features, shape (n, d).
        listed: True where these are all candidates; a sample of a large space has not all of its machines.
    """
    together: dict[tuple[str, float, tuple[tuple[str, float | str], ...]], list[Trial]] = {}
    for study in problem.past:
        # Put last again, so that jobs are in the order of their latest studies.
        together[_identity(study)] = [*together.pop(_identity(study), []), *study.trials]
    by_offer = _rows_by_offer(reference, rows) if together else {}
    found = []
    for trials in together.values():
        whole = [
            (_row(trial, features, by_offer), math.log(seconds))
            for trial in trials
            if trial.proposal.fidelity == 1.0 and (seconds := successful_seconds(trial)) is not None
        ]
        known = [(row, y) for row, y in whole if row is not None]
        if len({row.tobytes() for row, _ in known}) >= _LEAST_ROWS:
            share = len(known) / len(whole) if listed else 1.0
            known = known[-_MOST_RUNS:]
            found.append(PastJob(np.array([row for row, _ in known]), np.array([y for _, y in known]), share))
    return found[-_MOST_JOBS:]


def _identity(study: PastStudy) -> tuple[str, float, tuple[tuple[str, float | str], ...]]:
    return study.name, study.parameters.fidelity, tuple(sorted(study.values.items()))


def _rows_by_offer(reference: Candidates, rows: Array) -> Mapping[str, Array]:
    places: dict[str, list[int]] = defaultdict(list)
    for i in range(len(reference)):
        places[reference.offer(i).key].append(i)
    return {key: rows[found].mean(axis=0) for key, found in places.items()}


def _row(trial: Trial, features: FeatureMap, by_offer: Mapping[str, Array]) -> Array | None:
    if trial.offer.key not in by_offer:
        return None
    own = features.of(trial.configuration, trial.offer)
    return by_offer[trial.offer.key] if own is None else own


class TransferPrior:
    """The common pattern of earlier jobs, how they differ from it, and how far it is to be trusted.

    Each job's ln time is modelled over the features; what is common is the median over the jobs, so that one that is
    out of line does not move it. The jobs are then modelled once more around the median, so that jobs of few runs
    borrow from one another. Mean and covariance of the prior for a new job are the median and the jobs' deviations
    from it (empirical Bayes, as Wang et al., "Pre-trained Gaussian processes for Bayesian optimization", JMLR 2024);
    how large the rest is, is what predicts each job best from the others.

    Args:
        jobs: Earlier jobs, at least one.
        rows: Features of the candidates, shape (n, d).
        money: ln price per hour of the candidates, shape (n,).

    Attributes:
        level: Mean ln seconds over the candidates, of the median job.
    """

    def __init__(self, jobs: Sequence[PastJob], rows: Array, money: Array) -> None:
        self.jobs, self.rows, self._money = jobs, rows, money
        self._first = [GaussianProcess(starts=1, steps=_STEPS).fit(job.x, job.y) for job in jobs]
        self._levels = np.array([float(process.predict(rows)[0].mean()) for process in self._first])
        self._second: list[GaussianProcess] = []
        if len(jobs) > 2:
            self._second = [GaussianProcess(starts=1, steps=_STEPS).fit(j.x, j.y - self._rough(j.x)) for j in jobs]
        self._offsets = np.zeros(len(jobs))
        self._offsets = self._raw(rows).mean(axis=1)
        self.level = float(np.median(self._offsets))
        self._known: dict[bytes, tuple[float, Array]] = {}

    def _rough(self, x: Array) -> Array:
        middle: Array = np.median(
            [p.predict(x)[0] - level for p, level in zip(self._first, self._levels, strict=True)], axis=0
        )
        return middle

    def _raw(self, x: Array) -> Array:
        """Times of all jobs, as logarithms, at some rows, shape (jobs, n)."""
        if self._second:
            rough = self._rough(x)
            found = np.array([rough + process.predict(x)[0] for process in self._second])
        else:
            found = np.array([process.predict(x)[0] for process in self._first])
        raw: Array = found - self._offsets[:, None]
        return raw

    def at(self, x: Array) -> tuple[Array, Array]:
        """The common ln time, up to a constant, and the jobs' deviations from it.

        Args:
            x: Features, shape (n, d).

        Returns:
            Shapes (n,) and (n, jobs); the deviations are scaled so that their outer product is a covariance.
        """
        keys = [row.tobytes() for row in x]
        new = list({key: i for i, key in enumerate(keys) if key not in self._known}.values())
        if new:
            centre, away = median_and_deviations(self._raw(x[new]))
            self._known.update((keys[i], (float(c), a)) for i, c, a in zip(new, centre, away, strict=True))
        known = [self._known[key] for key in keys]
        return np.array([c for c, _ in known]), np.array([a for _, a in known])

    @cached_property
    def _table(self) -> Array:
        return self._raw(self.rows)

    @cached_property
    def trust(self) -> float:
        """Probability that the jobs' pattern helps: how often the other jobs rank one's costs better than prices do.

        Jobs that ran mostly on other machines than this one may are hardly of its kind: their share here is a factor.
        """
        share = float(np.mean([job.share for job in self.jobs]))
        if len(self.jobs) == 1:
            return _ALONE * share
        costs = self._table + self._money
        wins = sum(
            _agreement(np.median(np.delete(self._table, k, axis=0), axis=0) + self._money, costs[k])
            > _agreement(self._money, costs[k])
            for k in range(len(self.jobs))
        )
        return share * (wins + 1.0) / (len(self.jobs) + 2.0)

    def relatedness(self, trend: LinearTrend) -> float | None:
        """Log evidence a job that the jobs predict one another (`relatedness`); None where they are too few.

        Args:
            trend: Linear trend of ln seconds of a process without a past.
        """
        if len(self.jobs) < LEAST_RELATED_JOBS:
            return None
        seen = [
            np.array([process.predict(job.x)[0] for process in self._first]) - self._levels[:, None]
            for job in self.jobs
        ]
        return relatedness([(job.x, job.y) for job in self.jobs], seen, trend)

    @cached_property
    def scales(self) -> tuple[float, float]:
        """Standard deviations of what is peculiar to a job, smooth and not: amplitude and noise, in ln time."""
        if len(self.jobs) == 1:
            return _ALONE_SCALES
        best = [self._best_scales(k) for k in range(len(self.jobs))]
        return float(np.median([a for a, _ in best])), float(np.median([n for _, n in best]))

    def _best_scales(self, k: int) -> tuple[float, float]:
        """The scales under which the other jobs predict one best."""
        job = self.jobs[k]
        centre, away = median_and_deviations(np.delete(self._raw(job.x), k, axis=0))
        _, amplitude, noise = max(scale_evidence(job.x, job.y - centre, away, _AMPLITUDES, _NOISES))
        return amplitude, noise


def _agreement(a: Array, b: Array) -> float:
    """Kendall's rank correlation."""
    from scipy.stats import kendalltau

    value = float(kendalltau(np.round(a, 9), np.round(b, 9)).statistic)
    return 0.0 if math.isnan(value) else round(value, 9)


class TransferProcess(GaussianProcess):
    """A process whose prior mean and covariance come from earlier jobs; nothing of it is fitted to the present one.

    Args:
        transfer_prior: Prior from the earlier jobs.
        prices: ln price per hour by features, as slopes, shape (d,): zero to model ln time.
        level: Prior mean of the constant; None for the mean of what is observed.
        level_sd: Prior standard deviation of the constant.
        width: Factor by which this job may be further from the earlier ones than they are from one another.
    """

    def __init__(
        self, transfer_prior: TransferPrior, prices: Array, level: float | None, level_sd: float, width: float = 1.0
    ) -> None:
        super().__init__(starts=1)
        self.transfer_prior, self.prices, self.level, self.level_sd, self.width = (
            transfer_prior,
            prices,
            level,
            level_sd,
            width,
        )

    def fit(self, x: Array, y: Array, extra: Array | None = None, *, theta: Array | None = None) -> Self:
        """Condition on observations; see `GaussianProcess.fit`."""
        amplitude, noise = self.transfer_prior.scales
        length = math.log(0.5 * math.sqrt(x.shape[1]))
        self._theta = np.array([math.log(self.width * amplitude), math.log(noise), *[length] * x.shape[1]])
        bare = y - self._trend(x)
        self._shift = float(bare.mean()) if self.level is None else self.level
        self._set(x, bare - self._shift, np.zeros(len(y)) if extra is None else extra)
        return self

    def _trend(self, x: Array) -> Array:
        trend: Array = self.transfer_prior.at(x)[0] + x @ self.prices
        return trend

    def _fixed(self, a: Array, b: Array) -> Array:
        alike = self.transfer_prior.at(a)[1] @ self.transfer_prior.at(b)[1].T
        covariance: Array = self.level_sd**2 + self.width**2 * alike
        return covariance

    def _fixed_variance(self, x: Array) -> Array:
        away = self.transfer_prior.at(x)[1]
        variance: Array = self.level_sd**2 + self.width**2 * (away * away).sum(axis=1)
        return variance

    def predict(self, x: Array) -> tuple[Array, Array]:
        """Mean and variance, before any observation too; see `GaussianProcess.predict`."""
        if len(self._x):
            return super().predict(x)
        mean: Array = self._trend(x) + (self.level or 0.0)
        return mean, (self.width * self.transfer_prior.scales[0]) ** 2 + self._fixed_variance(x)

    def fantasize(self, x: Array) -> Self:
        """A copy that takes its own mean at ``x`` for observed; see `GaussianProcess.fantasize`."""
        if len(self._x) or not len(x):
            return super().fantasize(x)
        return copy.copy(self).fit(x, self.predict(x)[0])


def relatedness(runs: Sequence[tuple[Array, Array]], seen: Sequence[Array], trend: LinearTrend) -> float:
    """Log evidence by which earlier jobs make the runs of one another likelier than prices alone do.

    Each job's runs are predicted by the others, as a new job's would be (`TransferPrior`): by the median of the others,
    their deviations from it, and what is peculiar to a job. Against that stands the better of a flat process and one
    with the trend of prices. All have the amplitude and the noise that suit them best.

    Args:
        runs: Features, shape (n, d), and ln seconds, shape (n,), of each job's runs; at least two jobs.
        seen: Predictions of all jobs at each job's features, by processes fitted to one job alone, as logarithms
            around each job's own level, shapes (jobs, n).
        trend: Linear trend of ln seconds along the features.

    Returns:
        Log evidence a job: above zero where jobs are alike, below where what one shows says nothing of the others.
    """
    total = 0.0
    for k, (x, y) in enumerate(runs):
        some = np.unique(np.linspace(0, len(x) - 1, min(len(x), _MOST_COMPARED_RUNS)).astype(int))
        rows, times = x[some], y[some]
        centre, away = median_and_deviations(np.delete(seen[k][:, some], k, axis=0))
        middle = rows - 0.5
        slopes = middle * trend.sd
        flat, trended, predicted_evidence = (
            max(scale_evidence(rows, rest, spread, _COMPARED_AMPLITUDES, _COMPARED_NOISES))[0]
            for rest, spread in (
                (times, np.zeros((len(rows), 1))),
                (times - middle @ trend.mean, slopes),
                (times - centre, away),
            )
        )
        total += predicted_evidence - max(flat, trended)
    return total / len(runs)


def median_and_deviations(table: Array) -> tuple[Array, Array]:
    """Median over jobs of a (jobs, n) table, and the scaled deviations from it, shape (n, jobs)."""
    centre = np.median(table, axis=0)
    away = (table - centre).T / math.sqrt(max(1, len(table) - 1))
    return centre, away


def scale_evidence(
    x: Array, rest: Array, spread: Array, amplitudes: Sequence[float], noises: Sequence[float]
) -> list[tuple[float, float, float]]:
    """Log evidence of what is left over of a job's runs, without its constant, under each amplitude and noise.

    Args:
        x: Features of the runs, shape (n, d).
        rest: ln seconds less what is expected of them, shape (n,), up to a level.
        spread: Columns whose outer product is a further covariance of the runs, shape (n, k).
        amplitudes: Standard deviations of a smooth rest to try.
        noises: Standard deviations of a rest that is not smooth to try.

    Returns:
        Evidence, amplitude and noise of each pair.
    """
    length = 0.5 * math.sqrt(x.shape[1])
    polynomial, decay = matern(distances(x / length, x / length))
    fixed, shape = spread @ spread.T + _LEVEL_SD**2, polynomial * decay
    rest = rest - rest.mean()
    found = []
    for amplitude in amplitudes:
        for noise in noises:
            root, inverse = factorise(fixed + amplitude**2 * shape + (noise**2 + 1e-8) * np.eye(len(rest)))
            z = inverse @ rest
            found.append((round(-0.5 * float(z @ z) - float(np.log(np.diag(root)).sum()), 6), amplitude, noise))
    return found
