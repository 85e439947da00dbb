"""The common frame of searchers that model time and money with processes and weigh savings against spending."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tradewind import plugins
from tradewind.problem import COST, Candidates, Configuration, Problem, Proposal
from tradewind.problem.offer import NANO
from tradewind.searcher import outcomes
from tradewind.searcher.base import (
    ContinuousSpaces,
    Explains,
    LearnsFromAborted,
    NothingLeft,
    PredictsRuns,
    PricesAborts,
    ProposesMany,
    RunPrediction,
    SearchState,
    WeighsFutureRuns,
)
from tradewind.searcher.candidate_pool import CandidatePoolSearcher, Indices
from tradewind.searcher.posterior import AbortCaps, CandidatePrediction, Posterior
from tradewind.searcher.stopping import NOT_CHEAPER, ends_by_money, why_stop
from tradewind.searcher.surrogate.features import FeatureMap
from tradewind.searcher.surrogate.gp import Array
from tradewind.utils.units import format_bill, format_duration

_IMPROVING_TRIALS = 6
"""Trials before a least improvement may end a search; CherryPick has so many."""

_PAYING_TRIALS = 3
"""Trials before the money rule may. It weighs by itself how little is known: a later start costs a tenth of the bill
of 10 runs, and did not pay on any table (benchmarks/compare/lifetime.py)."""


class BayesianSettings(plugins.Settings):
    """Settings that all Bayesian searchers have."""

    acquisition: Literal["ei_per_dollar", "ei"] = Field(
        default="ei_per_dollar",
        description="ei_per_dollar: expected improvement by expected spend; ei: expected improvement alone.",
    )
    starts: int = Field(default=1, ge=1, description="Trials before the model chooses.")
    abort: bool = Field(default=True, description="Cut a run short once it can no longer win.")
    min_improvement: float | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="Stop when no candidate is expected to improve the best by this share (CherryPick: 0.1).",
    )
    min_trials: int | None = Field(
        default=None,
        ge=1,
        description="Trials before the search may stop; without it 3 where future_runs decides, and 6 otherwise.",
    )
    pool: int = Field(default=2048, ge=16, description="Random candidates scored where the space is too large to list.")


class BayesianSearcher(
    CandidatePoolSearcher,
    ProposesMany,
    ContinuousSpaces,
    LearnsFromAborted,
    Explains,
    PricesAborts,
    PredictsRuns,
    WeighsFutureRuns,
):
    """Asks for what saves most for its money, by a model of time and money that is fitted to all trials.

    A subclass says what the model is (`_fit`), where runs are cut short (`_caps`, `_capped`) and what comes before the
    model knows anything (`_starts_of`).
    """

    settings: BayesianSettings

    def __init__(self, *, settings: plugins.Settings, problem: Problem, seed: int = 0) -> None:
        super().__init__(settings=settings, problem=problem, seed=seed)
        self._fitted: tuple[tuple[int, ...], Posterior] | None = None

    @abstractmethod
    def _fit(self) -> Posterior:
        """Fit the models to the trials so far."""

    @abstractmethod
    def _caps(self, state: SearchState) -> AbortCaps:
        """The caps at which runs are cut short, for the model."""

    @abstractmethod
    def _capped(self, configuration: Configuration, posterior: Posterior, why: Mapping[str, float | str]) -> Proposal:
        """Propose a configuration with the caps of its run."""

    @abstractmethod
    def _starts_of(self, reference: Candidates, rng: np.random.Generator) -> list[int]:
        """Choose the first candidates of those given, in order."""

    def _starts_needed(self, posterior: Posterior) -> int:
        """Number of trials before the model chooses."""
        return self.settings.starts

    # ------------------------------------------------------------------ asking

    def ask(self, state: SearchState, count: int = 1) -> list[Proposal] | NothingLeft:
        """Propose the candidates that promise most for their money."""
        field = self._field(state)
        if field is None:
            return self.nothing_left(state)
        candidates, free, features = field
        free = free[self._may_win(candidates.hourly[free])]
        if not len(free):
            return NothingLeft(self._none_can_win(), final=not state.pending)
        posterior = self._current_posterior()
        informed = sum(t.observation is not None for t in self.history) + len(state.pending)
        chosen: list[Proposal] = []
        if not posterior.informed or informed < self._starts_needed(posterior):
            wanted = count if not posterior.informed else min(count, self._starts_needed(posterior) - informed)
            chosen = self._start(state, posterior, wanted)
            if not chosen and not posterior.informed:
                # None of the start design is open, of a space too large to list: the cheapest of what is.
                cheap = free[np.argsort(candidates.hourly[free], kind="stable")][:count]
                return [self._capped(candidates.configuration(int(i)), posterior, {"stage": "start"}) for i in cheap]
            if len(chosen) == count or not posterior.informed:
                return chosen
        pending = [row for t in state.pending if (row := self._map.of(t.configuration, t.offer)) is not None]
        for proposal in chosen:
            row = self._map.of(proposal.configuration, self.problem.resolver.resolve(proposal.configuration))
            pending += [] if row is None else [row]
            same = [i for i in free if candidates.configuration(int(i)) == proposal.configuration]
            free = free[~np.isin(free, same)]
        posterior = posterior.fantasize(np.array(pending))
        caps = self._caps(state)
        while len(chosen) < count and len(free):
            prediction = posterior.judge(features[free], candidates.hourly[free], caps)
            if not chosen and (reason := self._enough(prediction, posterior)):
                return NothingLeft(reason, final=not state.pending)
            place = self._pick(prediction)
            index = int(free[place])
            chosen.append(self._proposal(candidates.configuration(index), prediction, place, posterior))
            free = np.delete(free, place)
            if len(chosen) < count:
                posterior = posterior.fantasize(features[[index]])
        return chosen or self.nothing_left(state)

    @property
    def _cheapest(self) -> float:
        """USD of the best feasible run where cost alone is minimised; infinite otherwise, and before there is one."""
        objective = self.problem.objective
        if objective.metric != COST or objective.goal != "minimise" or objective.also:
            return math.inf
        best = outcomes.best_loss(self.problem, self.history)
        return math.inf if best is None else best

    def _may_win(self, hourly: Array) -> NDArray[np.bool_]:
        """Mask the runs that could be cheaper than the best: set-up and the smallest bill are owed in any case.

        Without this, money that is left would be spent on configurations that have lost before they begin.
        """
        # Bills are rounded to the nano-dollar: one that differs by less is the same one.
        # What is free is looked at beside others that are: it costs nothing to know them all.
        return np.asarray((self.smallest_bill(hourly) < self._cheapest - 1.0 / NANO) | (hourly == 0))

    def _none_can_win(self) -> str:
        """Explain that nothing that is left can be cheaper than the best."""
        words = f"{NOT_CHEAPER}, {format_bill(self._cheapest)}: the smallest bill"
        unit = self.problem.terms.billing.shortest_billed
        return f"{words} of each, for {format_duration(unit)}, is at least that (deploy.billing says what is billed)"

    def _pick(self, prediction: CandidatePrediction) -> int:
        score = prediction.improvement
        if self.settings.acquisition == "ei_per_dollar":
            score = score / np.maximum(prediction.spend, 1e-12)
        if not np.any(score > 1e-200):
            return int(np.argmax(np.round(prediction.margin, 6)))
        # Rounded to 9 digits, so that equal candidates are taken in order whatever the last bit says.
        return int(np.argmax(np.round(score / score.max(), 9)))

    def _enough(self, prediction: CandidatePrediction, posterior: Posterior) -> str | None:
        """The reason to stop, in words; None to go on."""
        if posterior.best is None or not self._may_stop:
            return None
        share = self.settings.min_improvement
        return why_stop(self.problem, prediction.improvement, prediction.spend, posterior.best, share)

    @property
    def _may_stop(self) -> bool:
        """True after the trials that the rules wait for that end the search."""
        least = self.settings.min_trials
        if least is None:
            terms = self.problem.terms
            shares = self.settings.min_improvement is not None or terms.least_improvement is not None
            least = _PAYING_TRIALS if ends_by_money(self.problem) and not shares else _IMPROVING_TRIALS
        return len(self.history) >= max(least, self.settings.starts)

    # ------------------------------------------------------------------ proposals

    def _proposal(
        self, configuration: Configuration, prediction: CandidatePrediction, i: int, posterior: Posterior
    ) -> Proposal:
        why: dict[str, float | str] = {
            "stage": "search" if posterior.best is not None else "search for a feasible one",
            "expected_cost": float(prediction.cost[i]),
            "probability_feasible": float(prediction.feasible[i]),
            "expected_spend": float(prediction.spend[i]),
        }
        if posterior.best is not None:
            name = "expected_saving" if self.problem.objective.metric == COST else "expected_improvement"
            why[name] = float(prediction.improvement[i])
        return self._capped(configuration, posterior, why)

    def _start(self, state: SearchState, posterior: Posterior, count: int) -> list[Proposal]:
        """Propose the next ones of the start design; behind its end, for want of any success, the rest of it."""
        reference = self._reference
        return [
            self._capped(reference.configuration(i), posterior, {"stage": "start"})
            for i in self._next_starts(self._order, state, count)
            if self._may_win(reference.hourly[[i]])[0]
        ]

    # ------------------------------------------------------------------ candidates

    @cached_property
    def _map(self) -> FeatureMap:
        return FeatureMap(self.problem, self._reference)

    @cached_property
    def _features(self) -> Array:
        return self._map.of_candidates(self._reference)

    @cached_property
    def _order(self) -> list[int]:
        """Places of the reference in the order of starting."""
        return self._start_order(lambda rng: self._starts_of(self._reference, rng))

    def _field(self, state: SearchState) -> tuple[Candidates, Indices, Array] | None:
        """Candidates, the indices of those that may be proposed, and their features; None where there are none."""
        field = self._open_field(state, lambda: self._drawn(state))
        if field is None:
            return None
        candidates, free = field
        own = candidates is self._reference
        return candidates, free, self._features if own else self._map.of_candidates(candidates)

    def _drawn(self, state: SearchState) -> list[Configuration]:
        """Random configurations, and changed copies of the best trials."""
        rng = self.rng(state)
        return self._with_neighbours(self.problem.space.sample(rng, self.settings.pool), self._leaders(), rng)

    # ------------------------------------------------------------------ posterior

    def _current_posterior(self) -> Posterior:
        numbers = tuple(trial.number for trial in self.history)
        if self._fitted is None or self._fitted[0] != numbers:
            self._fitted = (numbers, self._fit())
        return self._fitted[1]

    @cached_property
    def _priced(self) -> bool:
        """True when ln(price x time) is modelled, False for ln time."""
        return self.problem.objective.metric == COST and bool((self._reference.hourly > 0).all())

    def predict_run(self, configuration: Configuration, target: float | None = None) -> RunPrediction | None:
        """Predict a full run by the models of time, objective and success; pending runs do not count."""
        posterior = self._current_posterior()
        offer = self.problem.resolver.resolve(configuration)
        row = self._map.of(configuration, offer)
        if not posterior.informed or row is None:
            return None
        hourly = np.array([offer.hourly])
        chance, seconds = posterior.predict_run(row[None, :], hourly, self._caps(SearchState()), target)
        return RunPrediction(float(chance[0]), float(seconds[0]))

    def explain(self, configuration: Configuration) -> Mapping[str, float | str]:
        """Expected cost with its 90 % range, and the probability of being feasible."""
        posterior = self._current_posterior()
        offer = self.problem.resolver.resolve(configuration)
        row = self._map.of(configuration, offer)
        if not posterior.informed or row is None:
            return {}
        prediction = posterior.judge(row[None, :], np.array([offer.hourly]), AbortCaps(False, 1.0, math.inf))
        return {
            "expected_cost": float(prediction.cost[0]),
            "cost_low": float(prediction.cost_low[0]),
            "cost_high": float(prediction.cost_high[0]),
            "probability_feasible": float(prediction.feasible[0]),
        }
