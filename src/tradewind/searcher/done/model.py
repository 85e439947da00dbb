"""DONE's model of some runs: time, other figures, and the job parameters that matter."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tradewind.problem import COST, RUNTIME, Candidates, Offer, Problem, Threshold
from tradewind.searcher import outcomes
from tradewind.searcher.done.expansion import Array, FourierExpansion
from tradewind.searcher.done.regression import (
    MOST_SELECTION_RUNS,
    PENALTIES,
    SIGMAS,
    ExpansionFamily,
    ModelAverage,
    ResponseModel,
    SavedFit,
    likely_shapes,
    mean_above_bound,
    prior_spread,
    student_probability_within,
)
from tradewind.searcher.done.run_history import (
    LOG_SPREAD,
    JobParameterMap,
    PastRun,
    ProfileMap,
    constant_parameter_spread,
    extrapolation_spreads,
    select_runs,
    shared_parameters,
    wanted_parameters,
)
from tradewind.searcher.done.settings import DoneSettings
from tradewind.searcher.outcomes import has_time_bounds, run_bill, runtime_window
from tradewind.searcher.surrogate.features import FeatureMap

_PRIOR = 2.0
"""Repetitions that outweigh the prior that half of what the model leaves over is a configuration's own."""
_DIGITS = 9


@dataclass(frozen=True, slots=True)
class MeasuredCorrection:
    """Draws the expectations of a model towards what its configurations really took.

    A smooth model of few runs leaves something over at each of them. One part of that is chance, the other belongs to
    the configuration and will be there again: the next run of it is then expected between the model and the mean of
    its runs, nearer to these the more there are (the area effects of Fay & Herriot, "Estimates of income for small
    places", Journal of the American Statistical Association 1979). Repeated runs show how the parts
    compare; until then they count as equal.

    Attributes:
        errors: By row, the mean of what the model leaves over of its runs, and how many there are.
        own: The share of it, as a variance, that belongs to the configuration.
    """

    errors: Mapping[bytes, tuple[float, int]]
    own: float

    @classmethod
    def of(cls, rows: Array, errors: Array) -> MeasuredCorrection:
        """Estimate the correction from runs with the present job parameters.

        Args:
            rows: Their configurations' features, shape (n, k), n at least 1.
            errors: Their figures less what the model expects of their configurations, shape (n,); NaN where a run has
                none.
        """
        known = np.isfinite(errors)
        rows, errors = rows[known], errors[known]
        cells: dict[bytes, list[float]] = {}
        for key, error in zip(_keys(rows), errors, strict=True):
            cells.setdefault(key, []).append(float(error))
        found = [np.array(one) for one in cells.values()]
        total = float((errors**2).mean())
        apart = sum(float(((one - one.mean()) ** 2).sum()) for one in found)
        chance = (_PRIOR * 0.5 * total + apart) / (_PRIOR + len(errors) - len(found))
        means = {key: (float(np.mean(one)), len(one)) for key, one in cells.items()}
        return cls(means, max(0.0, 1.0 - chance / total) if total > 0.0 else 0.0)

    def applied(self, rows: Array, mean: Array, scale: Array) -> tuple[Array, Array]:
        """Mean and scale of the distribution of a further run, with what was measured.

        Args:
            rows: Features of the configurations, shape (m, k).
            mean: Means by the model, shape (m,).
            scale: Scales by the model, shape (m,).
        """
        seen = [self.errors.get(key, (0.0, 0)) for key in _keys(rows)]
        count = np.array([many for _, many in seen], dtype=float)
        drawn = count * self.own / np.maximum(count * self.own + 1.0 - self.own, 1e-12)
        return mean + drawn * np.array([error for error, _ in seen]), scale * np.sqrt(1.0 - self.own * drawn)


def _keys(rows: Array) -> list[bytes]:
    # Zero is added so that there is no -0.0, whose bytes differ.
    return [row.tobytes() for row in np.round(rows, _DIGITS) + 0.0]


@dataclass(frozen=True, slots=True)
class DonePrediction:
    """DONE's predictions of n configurations; every array has shape (n,).

    Attributes:
        seconds: Median runtime.
        seconds_low: 5 % quantile of it.
        seconds_high: 95 % quantile of it.
        cost: USD of a run of the median time.
        cost_low: 5 % quantile.
        cost_high: 95 % quantile.
        feasible: Probability that the run succeeds, in time and within every bound.
        loss: Loss of the objective: smaller is better.
    """

    seconds: Array
    seconds_low: Array
    seconds_high: Array
    cost: Array
    cost_low: Array
    cost_high: Array
    feasible: Array
    loss: Array


@dataclass(frozen=True)
class CandidateInputs:
    """Configurations as the model sees them.

    Attributes:
        rows: Features on [-1, 1], shape (n, k).
        hourly: USD per hour, shape (n,).
        power: Logarithm of the vCPUs of all nodes together, shape (n,).
    """

    rows: Array
    hourly: Array
    power: Array

    @classmethod
    def of(cls, candidates: Candidates, features: FeatureMap) -> CandidateInputs:
        """Take the inputs from candidates."""
        offers = [candidates.offer(i) for i in range(len(candidates))]
        return cls(2.0 * features.of_candidates(candidates) - 1.0, candidates.hourly, log_vcpus(offers))

    def __getitem__(self, which: NDArray[np.intp]) -> CandidateInputs:
        return CandidateInputs(self.rows[which], self.hourly[which], self.power[which])

    def with_one(self, other: CandidateInputs, i: int) -> CandidateInputs:
        """A copy with the i-th of others added."""
        both = zip((self.rows, self.hourly, self.power), (other.rows, other.hourly, other.power), strict=True)
        return CandidateInputs(*(np.concatenate([mine, more[[i]]]) for mine, more in both))

    def moved(self, by: Array) -> CandidateInputs:
        """A copy with every feature moved, for the exploration noise."""
        return CandidateInputs(self.rows + by, self.hourly, self.power)


def log_vcpus(offers: Sequence[Offer]) -> Array:
    """Logarithms of the vCPUs of all nodes together, shape (n,)."""
    found: Array = np.log(np.maximum([offer.vcpu * offer.nodes for offer in offers], 1e-9))
    return found


_FEWEST = 4
"""Runs below which no input is judged."""

_MOST = 5_000
"""Runs that are looked at, the newest ones: more take memory and change nothing."""

RANGE = 0.95
"""One-sided: with it on both sides a range holds 90 %."""


class DoneModel:
    """The expansions fitted to earlier and own runs.

    Args:
        problem: The tuning problem: objective, constraints, job parameters and prices.
        settings: Settings of the DONE searcher.
        earlier: Runs of earlier studies.
        own: Runs of this study, in the order of their numbers.
        seed: Seed of the frequencies and phases.
        log_widths: Half the range of the logarithm of each of the configuration's features, shape (k,).
        known: Scale, penalty and inputs, where they are chosen already; otherwise they are chosen by evidence.
    """

    def __init__(
        self,
        problem: Problem,
        settings: DoneSettings,
        earlier: Sequence[PastRun],
        own: Sequence[PastRun],
        seed: int,
        log_widths: Array,
        known: SavedFit | None = None,
    ) -> None:
        self._known = known
        self._problem = problem
        self._settings = settings
        self._seed = seed
        self._log_widths = log_widths
        self.wanted = wanted_parameters(problem)
        runs = [run for run in (*earlier, *own) if math.isfinite(run.log_seconds)][-_MOST:]
        timed = [run for run in runs if not run.seen.censored and not run.failed]
        both = self._both = settings.inputs == "both"
        self.parameters = JobParameterMap(self.wanted, runs)
        self.profiles = ProfileMap(timed if both and settings.profile else [])
        self._unknown = 0.0
        self._logarithmic = settings.target == "log"
        self._lawful = both and settings.law and self._logarithmic and settings.trend > 0
        self._width = runs[0].row.size if runs else 0
        self.dropped: frozenset[str] = frozenset()
        self.ignored: tuple[str, ...] = ()
        self.doubtful: tuple[str, ...] = ()  # the likeliest fit leaves them out, and others that count use them
        self.shared: dict[str, float | str] = {}
        self.runs = runs
        self.telling = timed or runs
        self.outside = extrapolation_spreads(self.wanted, self.telling) if both else {}
        self.time: ModelAverage | None = None
        self.success: ResponseModel | None = None
        self.bounds: list[Threshold] = []
        self.figures: dict[str, tuple[ResponseModel, bool]] = {}
        self._measured: dict[str, MeasuredCorrection] = {}
        self.used: list[PastRun] = []
        if not runs:
            return
        same = shared_parameters(self.wanted, self.telling)
        self.shared = {name: same[name] for name in self.parameters.groups if name in same}
        self._unknown = (
            math.hypot(constant_parameter_spread(self.wanted, self.shared), *self.outside.values()) if both else 0.0
        )
        # Of what never varied nobody can say that it does not matter.
        self._varied = tuple(name for name in self.parameters.groups if name not in self.shared)
        self._sets = self._judge(timed)
        self.dropped = self._sets[0]
        distances = self.distance(runs)
        keys = [run.trial.key for run in runs]
        # A distance is at most 1 by its scale, and 1 as the reach is to mean all.
        reach = settings.reach if settings.reach < 1 else math.inf
        places = select_runs(distances, keys, settings.most_runs, reach, merge=not both)
        self.used = [runs[i] for i in places]
        self._fit()
        fits: list[frozenset[str]] = [] if self.time is None else [shape.dropped for shape in self.time.shapes]
        out = [name for name in self.parameters.groups if name in self.dropped]
        self.ignored = tuple(name for name in out if all(name in fit for fit in fits))
        self.doubtful = tuple(name for name in out if name not in self.ignored)

    # ------------------------------------------------------------------ inputs

    def _family(self, spread: float, *, log: bool, of_time: bool = False) -> ExpansionFamily:
        """The expansions over configuration, job parameters and profiles; of the time with laws."""
        settings, both = self._settings, self._both
        rng = np.random.default_rng([self._seed & 0xFFFFFFFF, 11])
        drawn = FourierExpansion.draw(
            rng, settings.terms, self._width + both * (self.parameters.width + self.profiles.width)
        )
        expansion = replace(drawn, trend=settings.trend, widths=self._slope_widths() if both and log else None)
        groups = {}
        if both:
            first = self._width
            groups = {name: [first + i for i in places] for name, places in self.parameters.groups.items()}
            first += self.parameters.width
            groups |= {name: [first + i] for i, name in enumerate(self.profiles.names)}
        return ExpansionFamily(
            expansion,
            groups,
            SIGMAS if settings.sigma is None else (settings.sigma,),
            PENALTIES if settings.penalty is None else (settings.penalty,),
            spread,
            settings.speedup if of_time and self._lawful else None,
            self._width,
        )

    def _slope_widths(self) -> Array:
        """Factors by which each input's line may be steeper than usual, shape (d,).

        A figure that grows or falls with any power of a number, as likely as not with the first or none, has a
        logarithm with a slope of the number's own (see `constant_parameter_spread`). On [-1, 1] that is half the range
        of its logarithm, which is more than is usual where the number varies more than fourfold.
        """
        halves = [self._log_widths, self.parameters.log_widths, np.zeros(self.profiles.width)]
        return np.maximum(1.0, np.concatenate(halves) / LOG_SPREAD)

    def _inputs(self, runs: Sequence[PastRun]) -> Array:
        rows = np.array([run.row for run in runs])
        if not self._both:
            return rows
        given = self.parameters.rows([run.parameters for run in runs])
        power = log_vcpus([run.trial.offer for run in runs])[:, None] if self._lawful else np.zeros((len(runs), 0))
        return np.hstack([rows, given, self.profiles.of_runs(runs), power])

    def _here(self, rows: Array, power: Array) -> Array:
        """Inputs of configurations with the present job parameters.

        A parameter that never varied stands at what all runs had: what another value does goes into the deviation.

        Args:
            rows: Their features on [-1, 1], shape (n, k).
            power: Logarithms of their vCPUs, shape (n,).
        """
        if self._settings.inputs == "configuration":
            return rows
        wanted = {**self.wanted, **self.shared}
        given = np.hstack([self.parameters.rows([wanted])[0], self.profiles.of(self.wanted)])
        both = [rows, np.broadcast_to(given, (len(rows), len(given)))]
        return np.hstack([*both, power[:, None]] if self._lawful else both)

    def distance(self, runs: Sequence[PastRun]) -> Array:
        """Distance of each run's relevant job parameters from the present ones: 0 the same, 1 the farthest."""
        # Where profiles stand for parameters, no parameter can be said not to matter.
        gone = self.dropped if set(self.profiles.names) <= self.dropped else frozenset()
        kept = [i for name, places in self.parameters.groups.items() if name not in gone for i in places]
        if not kept:
            return np.zeros(len(runs))
        away = self.parameters.rows([run.parameters for run in runs]) - self.parameters.rows([self.wanted])
        found: Array = np.sqrt((away[:, kept] ** 2).mean(axis=1)) / 2.0
        return found / max(1.0, float(found.max(initial=0.0)))  # what is wanted may lie beyond the scale

    def moved_here(self, runs: Sequence[PastRun]) -> Array:
        """Seconds that runs would have taken with the present job parameters, by what the model leaves over of them."""
        assert self.time is not None
        power = log_vcpus([run.trial.offer for run in runs])
        rows = np.array([run.row for run in runs])
        left = self._target(runs) - self.time.mean(self._inputs(runs))
        places = CandidateInputs(rows, np.zeros(len(runs)), power)
        return self._seconds(self.time.mean(self._here(rows, power)) + left, places)

    def seconds_like(self, run: PastRun, places: CandidateInputs) -> Array:
        """Median seconds of configurations with the job parameters of a run, shape (n,)."""
        assert self.time is not None
        z = np.tile(self._inputs([run]), (len(places.rows), 1))
        z[:, : self._width] = places.rows
        if self._lawful:
            z[:, -1] = places.power
        return self._seconds(self.time.mean(z), places)

    # ------------------------------------------------------------------ fitting

    def _target(self, runs: Sequence[PastRun]) -> Array:
        """The modelled figure of runs: the logarithm of the time without what is expected of more vCPUs."""
        seconds = np.array([run.log_seconds for run in runs])
        if not self._logarithmic:
            return np.asarray(np.exp(seconds))
        return seconds + self._settings.speedup * log_vcpus([run.trial.offer for run in runs])

    def _judge(self, timed: Sequence[PastRun]) -> list[frozenset[str]]:
        """Sets of inputs that may not matter, the likeliest first; profiles have to show that they do."""
        profiles = frozenset(self.profiles.names)
        if self._settings.inputs == "configuration":
            return [frozenset()]
        if self._known is not None:
            return [self._known.without(self._varied, profiles)]
        if len(timed) < _FEWEST:
            return [profiles]
        newest = timed[-MOST_SELECTION_RUNS:]
        z, y = self._inputs(newest), self._target(newest)
        y = y - y.mean()
        family = self._family(prior_spread(y, log=self._logarithmic), log=self._logarithmic, of_time=True)
        start = family.choose(z, y, profiles)
        tries = [family.choose(z, y, profiles - {name}) for name in self.profiles.names]
        # A profile may say better what a parameter's name stands for: it comes first, the parameter may go then.
        seen = [start, *tries]
        if self._settings.ignore:
            same = shared_parameters(self.wanted, newest)
            names = tuple(name for name in family.groups if name not in same)
            seen += family.eliminate(z, y, names, max(seen, key=lambda shape: shape.evidence))
        return [shape.dropped for shape in likely_shapes(seen)[: None if self._settings.average else 1]]

    def _fit(self) -> None:
        exact = [run for run in self.used if not run.seen.censored and not run.failed]
        bounds = [run for run in self.used if run.seen.censored]
        base = exact or bounds
        if base:
            z, y = self._inputs(base), self._target(base)
            family = self._family(prior_spread(y, log=self._logarithmic), log=self._logarithmic, of_time=True)
            shapes = (
                self._known.shapes(self._varied, self.profiles.names, laws=self._lawful)
                if self._known
                else [shape for dropped in self._sets for shape in family.judged(z, y - y.mean(), dropped)]
            )
            shapes = likely_shapes(shapes)[: None if self._settings.average else 1]
            self.time = ModelAverage(family, shapes, z, y)
            if exact and bounds:
                late = self._inputs(bounds)
                # One step of the iteration of Schmee & Hahn.
                more = mean_above_bound(*self.time.prediction(late), self._target(bounds))
                self.time = ModelAverage(family, shapes, np.vstack([z, late]), np.concatenate([y, more]))
        for name in self._named():
            self._fit_figure(name, exact)
        ended = [run for run in self.used if not run.seen.censored]
        if any(run.failed for run in ended):
            labels = np.array([-1.0 if run.failed else 1.0 for run in ended])
            family = self._family(1.0, log=False)
            z = self._inputs(ended)
            self.success = ResponseModel(family, family.choose(z, labels - labels.mean()), z, labels)

    def _named(self) -> list[str]:
        """The metrics that objective and bounds are about, besides time and money."""
        wanted = [self._problem.objective.metric, *(t.metric for t in self._problem.constraints.thresholds)]
        return [name for name in dict.fromkeys(wanted) if name not in (COST, RUNTIME)]

    def _fit_figure(self, name: str, exact: Sequence[PastRun]) -> None:
        known = [(run, run.metric(name)) for run in exact]
        known = [(run, value) for run, value in known if math.isfinite(value)]
        if not known:
            return
        z, values = self._inputs([run for run, _ in known]), np.array([value for _, value in known])
        bounds = [bound for bound in self._problem.constraints.thresholds if bound.metric == name]
        self.bounds += [bound.relaxed(values.tolist()) for bound in bounds]
        log = bool((values > 0).all()) and all(outcomes.allows_logarithm(bound) for bound in bounds)
        values = np.log(values) if log else values
        family = self._family(prior_spread(values, log=log), log=log)
        self.figures[name] = (ResponseModel(family, family.choose(z, values - values.mean()), z, values), log)

    @property
    def unknown(self) -> tuple[str, ...]:
        """The job parameters that never varied, and are wanted to be something else than they were."""
        return tuple(name for name, value in self.shared.items() if value != self.wanted[name])

    @property
    def saved_fit(self) -> SavedFit | None:
        """Hyper-parameters chosen before the weights; None where there was nothing to choose on."""
        return None if self.time is None else SavedFit.of(self.time.shapes, self.profiles.names)

    @property
    def grows(self) -> bool:
        """True when `learn` can take in a run that came to its end, which is where it is quicker than fitting anew."""
        fixed = self.time is None or self._named() or self.success is not None or self.unknown or self.outside
        return self.time is not None and self.time.grows and not fixed

    def learn(self, run: PastRun) -> bool:
        """Take in one more run of this study without fitting anew; False where that cannot be done."""
        if self.time is None or not self.grows or run.seen.censored or run.failed or not math.isfinite(run.log_seconds):
            return False
        self.time.learn(self._inputs([run])[0], float(self._target([run])[0]))
        self.runs.append(run)
        self.used.append(run)
        return True

    def fantasize(self, places: CandidateInputs) -> DoneModel:
        """A copy that takes what it expects of configurations on their way for observed; only where `time` is there."""
        assert self.time is not None
        if not len(places.rows):
            return self
        other, z = copy.copy(self), self._here(places.rows, places.power)
        other.time = self.time.fantasize(z)
        other.figures = {name: (response.fantasize(z), log) for name, (response, log) in self.figures.items()}
        other.success = None if self.success is None else self.success.fantasize(z)
        return other

    def corrected(self) -> DoneModel:
        """A copy that is drawn towards what was measured at the present job parameters; see `MeasuredCorrection`."""
        other, exact = copy.copy(self), [run for run in self.used if not run.seen.censored and not run.failed]
        here = [run for run, away in zip(exact, self.distance(exact), strict=True) if away == 0.0] if exact else []
        if self.time is None or not here:
            return other
        rows = np.array([run.row for run in here])
        z = self._here(rows, log_vcpus([run.trial.offer for run in here]))
        left = {RUNTIME: self._target(here) - self.time.mean(z)}
        for name, (response, log) in self.figures.items():
            values = np.array([run.metric(name) for run in here])
            left[name] = (np.log(values) if log else values) - response.mean(z)
        other._measured = {name: MeasuredCorrection.of(rows, e) for name, e in left.items() if np.isfinite(e).any()}
        return other

    # ------------------------------------------------------------------ expecting

    def surface(self, row: Array, power: float) -> tuple[float, Array]:
        """The figure to be minimised at one configuration, and its derivative by the configuration's features.

        Where money is wanted it is the time: the machines are the same within one descent.

        Args:
            row: The configuration's features on [-1, 1], shape (k,).
            power: Logarithm of its vCPUs.
        """
        assert self.time is not None
        aim = self._problem.objective
        response = self.figures[aim.metric][0] if aim.metric in self.figures else self.time
        sign = -1.0 if aim.goal == "maximise" and aim.metric in self.figures else 1.0
        z = self._here(row[None, :], np.array([power]))
        return sign * float(response.mean(z)[0]), sign * response.slope(z[0])[: len(row)]

    def judge(self, places: CandidateInputs, optimism: float = 0.0) -> DonePrediction:
        """Predict configurations with the present job parameters; only where `time` is there.

        Args:
            places: The configurations.
            optimism: Standard deviations by which every time is taken to be shorter.
        """
        from scipy.special import stdtr, stdtrit

        assert self.time is not None
        z, freedom = self._here(places.rows, places.power), self.time.freedom
        own = self.time.prediction(z)
        mean, sd = self._expected(RUNTIME, self.time, z, own)
        mean = mean - optimism * own[1] if optimism else mean
        far = float(stdtrit(freedom, RANGE)) * sd
        seconds, low, high = (self._seconds(mean + shift, places) for shift in (0.0, -far, far))

        def before(limit: Array) -> Array:
            if self._logarithmic:
                limit = np.log(np.maximum(limit, 1e-9)) + self._settings.speedup * places.power
            return np.asarray(stdtr(freedom, (limit - mean) / sd))

        chance = np.ones(len(z))
        if self._problem.constraints.deadline is not None or has_time_bounds(self._problem):
            earliest, latest = runtime_window(self._problem, places.hourly)
            chance = before(latest)
            if earliest.any():
                chance = np.maximum(chance - before(earliest), 0.0)
        cost, cheap, dear = (run_bill(self._problem, places.hourly, t) for t in (seconds, low, high))
        return DonePrediction(
            seconds, low, high, cost, cheap, dear, chance * self._others(z), self._loss(z, seconds, cost)
        )

    def _expected(
        self, name: str, response: ResponseModel | ModelAverage, z: Array, own: tuple[Array, Array] | None = None
    ) -> tuple[Array, Array]:
        """Mean of a figure, and the scale of its distribution.

        Args:
            name: The figure.
            response: Its model.
            z: Inputs, shape (n, d).
            own: What the model predicts there, where that is known already.
        """
        mean, sd = self._widened(response, *(own or response.prediction(z)))
        return self._measured[name].applied(z[:, : self._width], mean, sd) if name in self._measured else (mean, sd)

    def _widened(self, response: ResponseModel | ModelAverage, mean: Array, sd: Array) -> tuple[Array, Array]:
        """A prediction with the unknown effect of values that job parameters never had."""
        return mean, np.hypot(sd, self._unknown * response.spread / LOG_SPREAD) if self._unknown else sd

    def _seconds(self, figure: Array, places: CandidateInputs) -> Array:
        if not self._logarithmic:
            return np.maximum(figure, 1e-6)
        return np.exp(np.clip(figure - self._settings.speedup * places.power, -50.0, 50.0))

    def _loss(self, z: Array, seconds: Array, money: Array) -> Array:
        aim = self._problem.objective
        if aim.metric == COST:
            value = money
        elif aim.metric == RUNTIME:
            value = seconds
        elif aim.metric in self.figures:
            value = self._quantiles(aim.metric, z)[0]
        else:
            return seconds  # nothing is known of the metric yet
        return value if aim.goal == "minimise" else -value

    def doubt(self, places: CandidateInputs, best: int) -> Array:
        """Standard deviation of how much better than one of them each configuration is, shape (n,).

        It is in the units of the objective where that is a metric on a plain scale, otherwise in logarithms.

        Args:
            places: The configurations.
            best: Which of them the others are compared with.
        """
        assert self.time is not None
        aim, z = self._problem.objective.metric, self._here(places.rows, places.power)
        if aim in self.figures:
            return np.sqrt(self.figures[aim][0].difference(z, best)[1])
        found: Array = np.sqrt(self.time.difference_variance(z, best))
        return found if self._logarithmic else found / max(float(self.time.mean(z)[best]), 1e-9)

    @property
    def prior_doubt(self) -> float:
        """Standard deviation that `doubt` began with, before any run."""
        aim = self._problem.objective.metric
        assert self.time is not None
        if aim in self.figures:
            return self.figures[aim][0].spread
        return LOG_SPREAD

    def improvement(self, loss: Array, best: int) -> Array:
        """Expected improvement of each over one of them, in the units of `doubt`, shape (n,).

        Args:
            loss: Expected losses of the objective.
            best: Which of them the others are compared with.
        """
        figure = self.figures.get(self._problem.objective.metric)
        if figure is not None and not figure[1]:
            return np.asarray(loss[best] - loss)
        sign = np.sign(loss[best])
        return np.asarray(sign * (np.log(np.maximum(abs(loss[best]), 1e-300)) - np.log(np.maximum(abs(loss), 1e-300))))

    def objective(self, places: CandidateInputs) -> tuple[Array, Array, Array] | None:
        """Median, 5 % and 95 % quantile of an objective that is a metric; None for time, money and the unknown."""
        metric = self._problem.objective.metric
        return self._quantiles(metric, self._here(places.rows, places.power)) if metric in self.figures else None

    def _quantiles(self, metric: str, z: Array) -> tuple[Array, Array, Array]:
        from scipy.special import stdtrit

        response, log = self.figures[metric]
        mean, sd = self._expected(metric, response, z)
        far = float(stdtrit(response.freedom, RANGE)) * sd
        found: list[Array] = [mean, mean - far, mean + far]
        middle, low, high = (np.exp(np.clip(v, -700.0, 700.0)) if log else v for v in found)
        return middle, low, high

    def _others(self, z: Array) -> Array:
        """Probability of no failure and of keeping every bound on a metric."""
        from scipy.special import stdtr

        chance = np.ones(len(z))
        for bound in self.bounds:
            response, log = self.figures[bound.metric]
            chance = chance * student_probability_within(
                bound, *self._expected(bound.metric, response, z), response.freedom, log=log
            )
        if self.success is not None:
            mean, sd = self._widened(self.success, *self.success.prediction(z))
            chance = chance * stdtr(self.success.freedom, mean / sd)
        return chance
