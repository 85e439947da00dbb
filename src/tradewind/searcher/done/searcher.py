"""DONE: the configuration for given job parameters, from the history of all earlier runs of the job."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tradewind import plugins
from tradewind.errors import ConfigurationError, NoOfferError
from tradewind.problem import COST, RUNTIME, Candidates, Configuration, Float, Offer, Problem, Proposal, Trial
from tradewind.problem.configuration import plain_number
from tradewind.searcher.base import (
    WIDEST_RANGE,
    ContinuousSpaces,
    Explains,
    LearnsFromPast,
    LetsRunsEnd,
    NothingLeft,
    PredictedSpace,
    ProposesMany,
    Recommendation,
    Recommends,
    SearchState,
)
from tradewind.searcher.candidate_pool import CandidatePoolSearcher, Indices, neighbours
from tradewind.searcher.done.expansion import Array
from tradewind.searcher.done.exploration import net_gain
from tradewind.searcher.done.measured import measured_runs
from tradewind.searcher.done.model import RANGE, CandidateInputs, DoneModel, DonePrediction, log_vcpus
from tradewind.searcher.done.regression import SavedFit
from tradewind.searcher.done.run_history import FRACTION, PastRun, earlier_runs, own_runs
from tradewind.searcher.done.settings import DoneSettings
from tradewind.searcher.surrogate.features import FeatureMap
from tradewind.utils.units import count

_STARTS = 6
"""Good points that the descents begin at, in a space that is too large to evaluate all of it."""

_STEPS = 10
"""Steps of one descent, as in the published implementation."""

_RAN = 500
"""Newest runs whose configurations are looked at again."""

_NEIGHBOURS = 48
"""Changed copies of each good point."""

_APART = "apart from what does not matter"

_MOST_RISK = 10.0
"""ln of how much dearer a configuration may count for what is not known of it."""

_POOL = 1024
"""Random configurations that the search for a minimum begins with where the space is not listed."""

_BLOCK = 32
"""Own runs after which the model is fitted anew; those in between are taken in one by one where it is quicker."""

_TOGETHER = 1.0
"""The least optimism, unless it is none, while other runs are on their way."""


@dataclass(frozen=True)
class Outlook:
    """Predictions of n configurations by one model, and their order.

    Attributes:
        model: The model, drawn towards what was measured.
        candidates: Candidates, some of which may be chosen.
        free: Which of them may be, shape (n,).
        places: Their inputs.
        prediction: Predictions.
        billed: The same with money as it will be charged.
        wanted: Median, 5 % and 95 % quantile of an objective that is a metric, or None.
        order: Their places by preference.
        risk: Mean by median of time and money, shape (n,).
    """

    model: DoneModel
    candidates: Candidates
    free: Indices
    places: CandidateInputs
    prediction: DonePrediction
    billed: DonePrediction
    wanted: tuple[Array, Array, Array] | None
    order: Indices
    risk: Array

    @property
    def known(self) -> NDArray[np.bool_]:
        """Mask of those of which time and objective are known at all: see `Recommendation.known`."""
        ranges = [(self.prediction.seconds_low, self.prediction.seconds_high)]
        if self.wanted is not None and bool((self.wanted[1] > 0).all()):
            ranges.append(self.wanted[1:])
        found: NDArray[np.bool_] = np.logical_and.reduce([high <= WIDEST_RANGE * low for low, high in ranges])
        return found

    def recommendation(self, i: int) -> Recommendation:
        """Recommend one of them."""
        configuration, offer = (
            self.candidates.configuration(int(self.free[i])),
            self.candidates.offer(int(self.free[i])),
        )
        prediction, billed = self.prediction, self.billed
        return Recommendation(
            configuration=configuration,
            cost=float(billed.cost[i]),
            cost_low=float(billed.cost_low[i]),
            cost_high=float(billed.cost_high[i]),
            runtime=float(prediction.seconds[i]),
            runtime_low=float(prediction.seconds_low[i]),
            runtime_high=float(prediction.seconds_high[i]),
            probability_feasible=float(prediction.feasible[i]),
            reason=recommendation_reason(self.model, offer, configuration),
            **_objective(self.wanted, i),
        )


class DoneSearcher(
    CandidatePoolSearcher, ProposesMany, ContinuousSpaces, Explains, LearnsFromPast, Recommends, LetsRunsEnd
):
    """DONE: the best configuration for these job parameters, by a random Fourier expansion over all earlier runs.

    The method is DONE (Bliek, Verstraete, Verhaegen & Wahls, "Online optimization with costly and noisy measurements
    using random Fourier expansions", IEEE TNNLS 2016) as Kuchumov applies it to clusters ("Virtual cluster dynamic
    scaling methods", St Petersburg 2018, Algorithm 1): one history serves all parameters of a job. Runs with the
    present parameters come first, then the others by distance; the expansion is fitted to them, evaluated on the
    whole space, and its minimum, moved by a noise that falls with the number of runs, comes next.

    It goes beyond the publication in modelling the logarithm of the time over job parameters and configuration
    together, with straight lines beside the cosines; in leaving out job parameters that do not matter; in minimising
    any objective under a deadline; and in using profiles. Each of these is a setting.
    """

    Settings = DoneSettings
    settings: DoneSettings

    def __init__(self, *, settings: plugins.Settings, problem: Problem, seed: int = 0) -> None:
        super().__init__(settings=settings, problem=problem, seed=seed)
        self._known: SavedFit | None = None
        self._made: tuple[tuple[int, ...], DoneModel] | None = None
        self._base: tuple[tuple[int, ...], tuple[int, ...], DoneModel] | None = None
        self._seen: tuple[DoneModel, Outlook | None] | None = None

    # ------------------------------------------------------------------ asking

    def ask(self, state: SearchState, count: int = 1) -> list[Proposal] | NothingLeft:
        """Propose the minimum of the expansion, moved by noise; random configurations while there is no run."""
        if not len(self._reference):
            return self.nothing_left(state)
        rng = self.rng(state)
        model = self._model()
        candidates, free = self._field(state, model, rng)
        if not len(free):
            return self.nothing_left(state)
        places = self._places if self._listed else CandidateInputs.of(candidates, self._map)
        running = self._running(state, places)
        chosen: list[Proposal] = []
        while len(chosen) < count and len(free):
            place = self._next(model, places[free], running, rng)
            index = int(free[place])
            chosen.append(Proposal(candidates.configuration(index), why=self._why(model, places[free[[place]]])))
            running = running.with_one(places, index)
            free = np.delete(free, place)
        return chosen

    def _running(self, state: SearchState, like: CandidateInputs) -> CandidateInputs:
        """Inputs of the pending trials."""
        found = [(self._map.of(trial.configuration, trial.offer), trial.offer) for trial in state.pending]
        known = [(2.0 * row - 1.0, offer) for row, offer in found if row is not None]
        rows = np.array([row for row, _ in known]).reshape(len(known), like.rows.shape[1])
        offers = [offer for _, offer in known]
        return CandidateInputs(rows, np.array([offer.hourly for offer in offers]), log_vcpus(offers))

    def _next(
        self, model: DoneModel, open_ones: CandidateInputs, running: CandidateInputs, rng: np.random.Generator
    ) -> int:
        """The place of the next configuration: spread over the space first, then the minimum of the expansion."""
        known = np.vstack([*(one.row for one in model.used), running.rows])
        if len(known) < self.settings.spread and (model.time is not None or len(running.rows)):
            return self._farthest(known, open_ones)
        if model.time is None:
            return int(rng.permutation(len(open_ones.rows))[0])
        optimism = self.settings.optimism
        # The best guess is being tried already: what another run at the same time may teach counts for more.
        if optimism > 0 and len(running.rows):
            optimism = max(optimism, _TOGETHER)
        return self._minimum(model.fantasize(running), open_ones, optimism, rng)

    def _minimum(self, model: DoneModel, open_ones: CandidateInputs, optimism: float, rng: np.random.Generator) -> int:
        """``argmin f̂(y + ζ) + ξ`` over the open configurations, to the nearest of them (Algorithm 1)."""
        spread = self._noise(model)
        width = open_ones.rows.shape[1]
        before, after = rng.standard_normal((2, width)) * spread
        best = rank_candidates(model.judge(open_ones.moved(before), optimism), self.settings.confidence)[0]
        if spread < 1e-6 or not width:
            return int(best)
        away = ((open_ones.rows - (open_ones.rows[best] + after)) ** 2).sum(axis=1)
        away[best] -= 1e-9  # of equally near ones, itself
        return int(np.argmin(np.round(away, 9)))

    @staticmethod
    def _farthest(known: Array, open_ones: CandidateInputs) -> int:
        """The configuration that is farthest from all that were run or are on their way, whatever for."""
        away = ((open_ones.rows[:, None, :] - known[None, :, :]) ** 2).sum(axis=2).min(axis=1)
        return int(np.argmax(np.round(away, 9)))

    def _noise(self, model: DoneModel) -> float:
        """Standard deviation of the exploration noise; it falls with the runs that the model is made of."""
        return float(self.settings.noise / max(1, len(model.used)) ** self.settings.decay)

    def _why(self, model: DoneModel, place: CandidateInputs) -> Mapping[str, float | str]:
        if model.time is None:
            return {"stage": "no run to learn from", "runs": 0.0}
        prediction = self._billed(model.judge(place), place)
        return {
            "stage": "search",
            "expected_cost": float(prediction.cost[0]),
            "expected_runtime": float(prediction.seconds[0]),
            "probability_feasible": float(prediction.feasible[0]),
            "runs": float(len(model.used)),
            "noise": self._noise(model),
        }

    # ------------------------------------------------------------------ recommending

    def recommend(self, count: int) -> list[Recommendation]:
        """Rank the configurations by expected objective, those likely to be feasible first; no noise."""
        outlook = self._outlook()
        return [] if outlook is None else [outlook.recommendation(int(i)) for i in outlook.order[:count]]

    def worth_trying(self) -> Recommendation | None:
        """Recommend what to run to learn: few ones far apart first, then what `net_gain` says is worth its price.

        Only what is likely to be feasible: nobody learns where the deadline is at stake.
        """
        outlook = self._outlook()
        if outlook is None:
            return None
        best = int(outlook.order[0])
        likely = np.flatnonzero(outlook.prediction.feasible >= self.settings.confidence)
        if not len(likely):
            return None
        known = np.unique(np.round([run.row for run in outlook.model.used], 9), axis=0)
        if len(known) < self.settings.spread:
            chosen = int(likely[self._farthest(known, outlook.places[likely])])
        else:
            model = outlook.model
            doubt = model.doubt(outlook.places, best)
            # The model was tested on what was run. Of anything else it may be too sure, and would never find out.
            new = ~(np.round(outlook.places.rows, 9)[:, None, :] == known[None, :, :]).all(axis=2).any(axis=1)
            doubt = np.where(new, np.hypot(doubt, model.prior_doubt / math.sqrt(len(known))), doubt)
            gain = net_gain(model.improvement(outlook.billed.loss, best), doubt)
            chosen = int(likely[np.argmax(np.round(gain[likely], 9))])
            if gain[chosen] <= gain[best] + 1e-9:
                return None
        return None if chosen == best else outlook.recommendation(chosen)

    def extremes(self) -> Mapping[str, Recommendation]:
        """Recommend the cheapest and the fastest of what is likely to be feasible and known at all.

        As in `recommend`, of two that look alike the surer one.
        """
        outlook = self._outlook()
        if outlook is None:
            return {}
        likely = outlook.order[(outlook.prediction.feasible >= self.settings.confidence)[outlook.order]]
        likely = likely[outlook.known[likely]]
        figures = {"cheapest": outlook.billed.cost, "fastest": outlook.prediction.seconds}
        # Rounded, so that of equal ones the first by preference is taken.
        found = {
            name: likely[_least(one[likely] * outlook.risk[likely])] for name, one in figures.items() if len(likely)
        }
        return {name: outlook.recommendation(int(i)) for name, i in found.items()}

    def predicted_space(self) -> PredictedSpace | None:
        """Predict all configurations, with the runs that the model rests on."""
        outlook = self._outlook()
        if outlook is None:
            return None
        time, bill = outlook.prediction, outlook.billed
        rank = np.empty(len(outlook.order), dtype=np.intp)
        rank[outlook.order] = np.arange(len(rank))
        return PredictedSpace(
            [outlook.candidates.configuration(int(i)) for i in outlook.free],
            [outlook.candidates.offer(int(i)) for i in outlook.free],
            np.stack([time.seconds, time.seconds_low, time.seconds_high], axis=1),
            np.stack([bill.cost, bill.cost_low, bill.cost_high], axis=1),
            rank,
            outlook.known,
            measured_runs(outlook.model, self.problem, outlook.places),
        )

    def _outlook(self) -> Outlook | None:
        """Predictions of all configurations; None where nothing is known, or none may be chosen."""
        model = self._model() if len(self._reference) else None
        if model is None or model.time is None:
            return None
        if self._seen is None or self._seen[0] is not model:
            self._seen = (model, self._make_outlook(model, model.time.freedom))
        return self._seen[1]

    def _make_outlook(self, model: DoneModel, freedom: float) -> Outlook | None:
        candidates, free = self._field(SearchState(), model, self.rng(SearchState()), all_of_them=True)
        if not len(free):
            return None
        places = (self._places if self._listed else CandidateInputs.of(candidates, self._map))[free]
        corrected = model.corrected()
        prediction = corrected.judge(places)
        billed = self._billed(prediction, places)
        risk = self._risk(prediction, freedom)
        order = rank_candidates(
            replace(billed, loss=billed.loss * risk), self.settings.confidence, prediction.loss * risk
        )
        return Outlook(
            corrected, candidates, free, places, prediction, billed, corrected.objective(places), order, risk
        )

    def _risk(self, prediction: DonePrediction, freedom: float) -> Array:
        """Mean by median of an objective that grows with time, up to a factor, shape (n,).

        Of two that look alike the surer one is to be taken: a median alone would recommend what nobody has run and may
        cost anything before what is known to be hardly dearer. Of a log-normal figure it is exp(σ²/2); a plain one is
        its own mean.

        Args:
            prediction: Predictions of the configurations.
            freedom: Degrees of freedom of the time's distribution.
        """
        from scipy.special import stdtrit

        if not self.problem.objective.grows_with_time or self.settings.target != "log":
            return np.ones(len(prediction.seconds))
        width = np.log(prediction.seconds_high) - np.log(prediction.seconds_low)
        half = 0.5 * (width / (2.0 * float(stdtrit(freedom, RANGE)))) ** 2
        found: Array = np.exp(np.minimum(half - half.min(), _MOST_RISK))
        return found

    def _billed(self, prediction: DonePrediction, places: CandidateInputs) -> DonePrediction:
        """A copy with money as it will be charged, in whole billing units, which the model does without."""
        costs, times = (
            self.problem.terms.billing.costs,
            (prediction.seconds, prediction.seconds_low, prediction.seconds_high),
        )
        cost, low, high = (np.array(costs(seconds, places.hourly)) for seconds in times)
        aim = self.problem.objective
        loss = prediction.loss if aim.metric != COST else cost if aim.goal == "minimise" else -cost
        return replace(prediction, cost=cost, cost_low=low, cost_high=high, loss=loss)

    def fitted(self) -> Mapping[str, Any]:
        """Scale, penalty, and which job parameters and metrics matter."""
        saved_fit = self._model().saved_fit
        return {} if saved_fit is None else saved_fit.to_json()

    def refit(self, document: Mapping[str, Any]) -> None:
        """Take over what `fitted` gave instead of choosing it by evidence, which takes most of the time of a fit."""
        self._known = SavedFit.from_json(document)
        self._made = self._base = self._seen = None

    def basis(self) -> list[str]:
        """List the runs that the recommendations rest on, and the job parameters and profiles that count."""
        return model_basis(self._model(), self._history[1], self.problem)

    def explain(self, configuration: Configuration) -> Mapping[str, float | str]:
        """Expected cost and runtime with the cost's 90 % range, and the probability of being feasible."""
        model = self._model()
        pool = self.problem.pool([configuration])
        row = None if not len(pool) else self._map.of(configuration, pool.offer(0))
        if model.time is None or row is None:
            return {}
        places = CandidateInputs.of(pool, self._map)
        prediction = self._billed(model.corrected().judge(places), places)
        return {
            "expected_cost": float(prediction.cost[0]),
            "cost_low": float(prediction.cost_low[0]),
            "cost_high": float(prediction.cost_high[0]),
            "expected_runtime": float(prediction.seconds[0]),
            "probability_feasible": float(prediction.feasible[0]),
        }

    # ------------------------------------------------------------------ the model

    @cached_property
    def _history(self) -> tuple[list[PastRun], int]:
        """The runs of earlier studies, and how many could not be used."""
        return earlier_runs(self.problem, self._map)

    def _model(self) -> DoneModel:
        """The model of all trials so far.

        Every `_BLOCK` own runs it is fitted anew. In between, a model that is solved over its columns takes them in one
        by one, which costs the same however many there are; which way it is done depends on the trials alone.
        """
        trials = self.history
        numbers = tuple(trial.number for trial in trials)
        if self._made is None or self._made[0] != numbers:
            self._made = (numbers, self._grown(trials, numbers) or self._fitted(trials))
        return self._made[1]

    def _grown(self, trials: list[Trial], numbers: tuple[int, ...]) -> DoneModel | None:
        """The model of the whole blocks with the trials since then taken in, or None where that cannot be done."""
        base = len(trials) - len(trials) % _BLOCK
        if self._base is None or self._base[0] != numbers[:base] or self._base[1] != numbers[: len(self._base[1])]:
            self._base = (numbers[:base], numbers[:base], self._fitted(trials[:base]))
        learned, model = self._base[1:]
        if base == len(trials) or not model.grows:
            return model if base == len(trials) else None
        for run in own_runs(self.problem, trials[len(learned) :], self._map):
            if not model.learn(run):
                self._base = None
                return None
        self._base = (numbers[:base], numbers, model)
        return model

    def _fitted(self, trials: list[Trial]) -> DoneModel:
        own = own_runs(self.problem, trials, self._map)
        widths = self._map.log_widths
        return DoneModel(self.problem, self.settings, self._history[0], own, self.seed, widths, self._known)

    # ------------------------------------------------------------------ candidates

    @cached_property
    def _map(self) -> FeatureMap:
        return FeatureMap(self.problem, self._reference)

    @cached_property
    def _places(self) -> CandidateInputs:
        return CandidateInputs.of(self._reference, self._map)

    def _field(
        self, state: SearchState, model: DoneModel, rng: np.random.Generator, *, all_of_them: bool = False
    ) -> tuple[Candidates, Indices]:
        """Candidates, and the indices of those that may be chosen."""
        if self._listed:
            if all_of_them:
                return self.problem.candidates, np.arange(len(self.problem.candidates))
            return self.open_candidates(state)
        drawn = explore_candidates(self.problem, model, self._map, rng, _POOL)
        pool = self.problem.pool(drawn) if drawn else self._reference
        if all_of_them:
            return pool, np.arange(len(pool))
        free = self._open_of(pool, state)
        if not len(free) and self.problem.space.enumerable:
            return self.open_candidates(state)
        return pool, free


def _least(figures: Array) -> int:
    return int(np.argmin(np.round(figures / max(float(figures.min()), 1e-300), 6)))


def _objective(wanted: tuple[Array, Array, Array] | None, i: int) -> dict[str, float]:
    names = ("objective", "objective_low", "objective_high")
    return {} if wanted is None else {name: float(values[i]) for name, values in zip(names, wanted, strict=True)}


def rank_candidates(prediction: DonePrediction, confidence: float, finer: Array | None = None) -> Indices:
    """Places by preference: what is likely to be feasible by its objective, then the rest by its chance, and its time.

    Where a deadline is out of reach for all, the quickest come nearest: of chances of less than a percent the largest
    is only that of what is known least.

    Args:
        prediction: Predictions of the candidates.
        confidence: The probability from which a place is likely to be feasible.
        finer: The objective before it was rounded, which decides between equal ones.
    """
    likely = prediction.feasible >= confidence
    loss = np.where(np.isfinite(prediction.loss), prediction.loss, math.inf)
    scale = float(np.max(np.abs(loss[np.isfinite(loss)]), initial=1e-300))
    # Rounded, so that equal ones are taken in order whatever the last bit says.
    first = np.where(likely, np.round(loss / scale, 9), 0.0)
    second = np.where(likely, 0.0, -np.round(prediction.feasible, 2))
    third = np.where(likely, 0.0, np.round(np.log(np.maximum(prediction.seconds, 1e-9)), 9))
    last = np.round((loss if finer is None else np.where(np.isfinite(finer), finer, math.inf)) / scale, 9)
    found: Indices = np.lexsort((last, third, second, first, ~likely))
    return found


def explore_candidates(
    problem: Problem, model: DoneModel, features: FeatureMap, rng: np.random.Generator, count: int
) -> list[Configuration]:
    """Candidates of a large space: random ones, those that were run, and better ones found from the best of all.

    Around each of the best, copies with one or two parameters changed are added; real-valued parameters then follow
    the derivative of the expansion for a few steps of L-BFGS (Byrd, Lu, Nocedal & Zhu, SIAM J. Scientific Computing
    1995), as in DONE.

    Args:
        problem: The tuning problem: its space is searched.
        model: The fitted expansion; without a model of time only random configurations come back.
        features: Turns configurations into rows of numbers.
        rng: Draws the random configurations.
        count: Number of random configurations.
    """
    drawn = problem.space.sample(rng, count)
    if model.time is None or not drawn:
        return drawn
    # What is known best is what was run: in a space of this size, chance would hardly come upon it again.
    drawn += [one for run in model.runs[-_RAN:] if (one := _checked(problem, run.trial.configuration)) is not None]
    near: list[Configuration] = []
    for leader in _best(problem, model, features, drawn):
        donors = [drawn[int(i)] for i in rng.integers(len(drawn), size=_NEIGHBOURS)]
        near += neighbours(problem, leader, donors, rng)
    drawn += near
    if any(isinstance(p, Float) and p.levels is None for p in problem.space.parameters):
        drawn += [_descended(problem, model, features, leader) for leader in _best(problem, model, features, drawn)]
    return drawn


def _checked(problem: Problem, configuration: Configuration) -> Configuration | None:
    """A configuration of an earlier study as this space writes it; None where it does not allow it."""
    try:
        return problem.space.check(configuration)
    except ConfigurationError:
        return None


def _best(
    problem: Problem, model: DoneModel, features: FeatureMap, drawn: Sequence[Configuration]
) -> list[Configuration]:
    pool = problem.pool(drawn)
    loss = model.judge(CandidateInputs.of(pool, features)).loss
    order = np.argsort(np.round(loss / max(float(np.abs(loss).max()), 1e-300), 9), kind="stable")
    return [pool.configuration(int(i)) for i in order[:_STARTS]]


def _descended(problem: Problem, model: DoneModel, features: FeatureMap, start: Configuration) -> Configuration:
    """The configuration at which a descent along the real-valued parameters ends; the start where it leads nowhere."""
    from scipy.optimize import minimize

    names = [p.name for p in problem.space.parameters if isinstance(p, Float) and p.levels is None and p.name in start]
    row = _row(problem, features, start)
    if row is None or not names:
        return start
    at = np.array([_unit(problem, name, start) for name in names])
    # A real-valued parameter's feature is linear in its place on its scale, so two places give its column.
    steps = []
    for name, place in zip(names, at, strict=True):
        other = 0.0 if place > 0.5 else 1.0
        far = _row(problem, features, _moved(problem, start, {name: other}))
        steps.append(np.zeros_like(row) if far is None else (far - row) / (other - place))
    directions = np.array(steps)

    power = float(log_vcpus([problem.resolver.resolve(start)])[0])

    def surface(unit: Array) -> tuple[float, Array]:
        value, slope = model.surface(row + (unit - at) @ directions, power)
        return value, directions @ slope

    found = minimize(
        surface, at, jac=True, method="L-BFGS-B", bounds=[(0.0, 1.0)] * len(at), options={"maxiter": _STEPS}
    )
    # Rounded, so that neither the last bit of a sum nor the way there makes another configuration.
    unit = np.round(found.x, 4)
    return _moved(problem, start, dict(zip(names, map(float, unit), strict=True)))


def _unit(problem: Problem, name: str, configuration: Configuration) -> float:
    return float(problem.space[name].features(np.array([configuration[name]], dtype=float))[0, 0])


def _moved(problem: Problem, start: Configuration, places: dict[str, float]) -> Configuration:
    """A configuration with some real-valued parameters at other places of their scales, or itself if not allowed."""
    values = {name: float(problem.space[name].draw(np.array([place]))[0]) for name, place in places.items()}
    try:
        return problem.space.complete({**start, **values}, start)
    except (ConfigurationError, KeyError):
        return start


def _row(problem: Problem, features: FeatureMap, configuration: Configuration) -> Array | None:
    try:
        row = features.of(configuration, problem.resolver.resolve(configuration))
    except NoOfferError:
        return None
    return None if row is None else 2.0 * row - 1.0


def model_basis(model: DoneModel, left_out: int, problem: Problem) -> list[str]:
    """Sentences on the runs, job parameters and profiles that the model rests on.

    Args:
        model: The fitted model.
        left_out: Number of earlier runs that could not be used.
        problem: The tuning problem: job parameters and objective.
    """
    lines = []
    if model.time is None and model.runs:
        return [f"of {count(len(model.runs), 'run')}, none came to its end"]
    if model.used:
        away = model.distance(model.used)
        same, like = sum(run.given(model.wanted) for run in model.used), int((away == 0.0).sum())
        line = f"{count(len(model.used), 'run')} of {problem.job.name}, {same} of them with these job parameters"
        lines.append(line if like <= same else f"{line}, {like} with these {_APART}")
        nearest = model.used[int(away.argmin())].parameters
        if (
            any(nearest[name] != value for name, value in model.wanted.items() if name not in model.unknown)
            and not like
        ):
            lines.append(f"the nearest runs had {_values(nearest)}")
    for name in model.unknown:
        had = f"{name}={plain_number(model.shared[name])}"
        lines.append(f"all runs had {had}: how the time depends on it is not known")
    lines += [_beyond(name, model) for name in model.outside]
    aim = problem.objective.metric
    if model.time is not None and aim not in (COST, RUNTIME, *model.figures):
        lines.append(f"no run says its {aim} yet: the quickest come first")
    if model.time is not None:
        bounded = dict.fromkeys(threshold.metric for threshold in problem.constraints.thresholds)
        unknown = [metric for metric in bounded if metric not in (COST, RUNTIME, *model.figures)]
        lines += [f"no run says its {metric} yet: its bound is not judged" for metric in unknown]
    varying = [name for name in model.parameters.groups if name not in model.dropped and name not in model.shared]
    helping = [name for name in model.profiles.names if name not in model.dropped]
    if model.ignored and not helping:
        lines.append(f"found not to matter: {', '.join(model.ignored)}")
    if model.doubtful and not helping:
        lines.append(f"likely not to matter: {', '.join(model.doubtful)}")
    if varying:
        lines.append(f"found to matter: {', '.join(varying)}")
    if helping:
        lines.append(f"{', '.join(helping)} of earlier runs tells more than the names")
    if left_out:
        lines.append(f"{count(left_out, 'run')} left out: of another space, or without one of these job parameters")
    return lines


def recommendation_reason(model: DoneModel, offer: Offer, configuration: Configuration) -> str:
    """The runs that are known of one configuration, in a few words.

    Args:
        model: The fitted model.
        offer: Machines of the configuration.
        configuration: Values by parameter.
    """
    mine = [run for run in model.runs if run.trial.configuration == configuration and run.trial.offer.key == offer.key]
    if not mine:
        return "never run; by what others took"
    same, like = sum(run.given(model.wanted) for run in mine), int((model.distance(mine) == 0.0).sum())
    if same:
        return f"run {same}x with these job parameters"
    if like:
        return f"run {like}x with these job parameters {_APART}"
    return f"run {len(mine)}x with other job parameters"


def _beyond(name: str, model: DoneModel) -> str:
    """Words for a wanted value that no run was near."""
    wanted = model.wanted[name]
    if isinstance(wanted, str):
        return f"no run with {name}={wanted} came to its end: how the time depends on it is not known"
    values = sorted({float(run.parameters[name]) for run in model.telling})
    ran = f"{plain_number(values[0])} to {plain_number(values[-1])}"
    return f"{name}={plain_number(wanted)} is outside of what was run, {ran}: how the time goes on there is a guess"


def _values(parameters: Mapping[str, float | str]) -> str:
    shown = {name: value for name, value in parameters.items() if name != FRACTION or value != 1.0}
    return ", ".join(f"{name}={plain_number(value)}" for name, value in shown.items())
