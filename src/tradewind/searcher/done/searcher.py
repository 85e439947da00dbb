"""DONE: the configuration for given job parameters, from the history of all earlier runs of the job."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from tradewind import plugins
from tradewind.problem import COST, Candidates, Configuration, Problem, Proposal, Trial
from tradewind.searcher.base import (
    ContinuousSpaces,
    Explains,
    LearnsFromPast,
    NothingLeft,
    ProposesMany,
    Recommendation,
    Recommends,
    SearchState,
)
from tradewind.searcher.candidate_pool import CandidatePoolSearcher, Indices
from tradewind.searcher.done import words
from tradewind.searcher.done.descent import explore_candidates
from tradewind.searcher.done.expansion import Array
from tradewind.searcher.done.model import RANGE, DoneModel
from tradewind.searcher.done.places import CandidateInputs, DonePrediction, log_vcpus
from tradewind.searcher.done.remembered import SavedFit
from tradewind.searcher.done.run_history import InformingRun, earlier_runs, own_runs
from tradewind.searcher.done.settings import DoneSettings
from tradewind.searcher.surrogate.features import FeatureMap

_MOST_RISK = 10.0
"""ln of how much dearer a configuration may count for what is not known of it."""
_POOL = 1024
"""Random configurations that the search for a minimum begins with where the space is not listed."""

_BLOCK = 32
"""Own runs after which the model is fitted anew; those in between are taken in one by one where it is quicker."""

_TOGETHER = 1.0
"""The least optimism, unless it is none, while other runs are on their way."""


class DoneSearcher(CandidatePoolSearcher, ProposesMany, ContinuousSpaces, Explains, LearnsFromPast, Recommends):
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

    # ------------------------------------------------------------------ asking

    def ask(self, state: SearchState, count: int = 1) -> list[Proposal] | NothingLeft:
        """The minimum of the expansion, moved by noise; random configurations while there is no run."""
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
        """The trials on their way, as others are seen."""
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
        """The configurations with the least expected objective, those likely to be feasible first; no noise."""
        if not len(self._reference):
            return []
        model = self._model()
        if model.time is None:
            return []
        candidates, free = self._field(SearchState(), model, self.rng(SearchState()), all_of_them=True)
        if not len(free):
            return []
        places = (self._places if self._listed else CandidateInputs.of(candidates, self._map))[free]
        corrected = model.corrected()
        prediction = corrected.judge(places)
        billed = self._billed(prediction, places)
        risk = self._risk(prediction, model.time.freedom)
        order = rank_candidates(
            replace(billed, loss=billed.loss * risk), self.settings.confidence, prediction.loss * risk
        )[:count]
        wanted = corrected.objective(places)
        return [
            Recommendation(
                configuration=candidates.configuration(int(free[i])),
                cost=float(billed.cost[i]),
                cost_low=float(billed.cost_low[i]),
                cost_high=float(billed.cost_high[i]),
                runtime=float(prediction.seconds[i]),
                runtime_low=float(prediction.seconds_low[i]),
                runtime_high=float(prediction.seconds_high[i]),
                probability_feasible=float(prediction.feasible[i]),
                reason=words.recommendation_reason(
                    model, candidates.offer(int(free[i])), candidates.configuration(int(free[i]))
                ),
                **_objective(wanted, int(i)),
            )
            for i in order
        ]

    def _risk(self, prediction: DonePrediction, freedom: float) -> Array:
        """Mean by median of an objective that grows with time, up to a factor, shape (n,).

        Of two that look alike the surer one is to be taken: a median alone would recommend what nobody has run and may
        cost anything before what is known to be hardly dearer. Of a log-normal figure it is exp(σ²/2); a plain one is
        its own mean.

        Args:
            outlook: What is expected.
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
        """The same with money as it will be charged, in whole billing units, which the model does without."""
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
        """Take these over instead of choosing them by evidence, which takes most of the time of a fit."""
        self._known = SavedFit.from_json(document)
        self._made = self._base = None

    def basis(self) -> list[str]:
        """How many runs it rests on, which were nearest, which job parameters and profiles count."""
        return words.model_basis(self._model(), self._history[1], self.problem)

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
    def _history(self) -> tuple[list[InformingRun], int]:
        """The runs of earlier studies, and how many could not be used."""
        return earlier_runs(self.problem, self._map)

    def _model(self) -> DoneModel:
        """The model of all that was told.

        Every `_BLOCK` own runs it is fitted anew. In between, a model that is solved over its columns takes them in one
        by one, which costs the same however many there are; which way it is done depends on the trials told alone.
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
        return DoneModel(self.problem, self.settings, self._history[0], own, self.seed, self._known)

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


def _objective(wanted: tuple[Array, Array, Array] | None, i: int) -> dict[str, float]:
    names = ("objective", "objective_low", "objective_high")
    return {} if wanted is None else {name: float(values[i]) for name, values in zip(names, wanted, strict=True)}


def rank_candidates(prediction: DonePrediction, confidence: float, finer: Array | None = None) -> Indices:
    """Places by preference: what is likely to be feasible by its objective, then the rest by its chance, and its time.

    Where a deadline is out of reach for all, the quickest come nearest: of chances of less than a percent the largest
    is only that of what is known least.

    Args:
        outlook: What is expected of each.
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
