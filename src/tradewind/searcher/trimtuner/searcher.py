"""The TrimTuner searcher (Mendes et al., MASCOTS 2020).

First come all parts of a few configurations, then the smallest part of others (`InitialDesign`). Afterwards the run
with the most information for its money is chosen, and the recommended configuration is run as a whole now and then.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from tradewind import plugins
from tradewind.problem import COST, RUNTIME, Candidates, Configuration, Problem, Proposal, Trial, TrialState
from tradewind.searcher import acquisition
from tradewind.searcher.base import (
    ContinuousSpaces,
    Explains,
    LearnsFromAborted,
    LetsRunsEnd,
    NothingLeft,
    ProposesMany,
    SearchState,
    UsesFractions,
)
from tradewind.searcher.candidate_pool import CandidatePoolSearcher, cheap_maximin
from tradewind.searcher.surrogate.features import FeatureMap
from tradewind.searcher.surrogate.gp import Array
from tradewind.searcher.trimtuner.entropy_search import information_gain
from tradewind.searcher.trimtuner.fidelity_models import FidelityModels, FullInputPrediction

_POOL = 1024
_LEADERS = 6
_CHEAPER = 0.5
"""Share of the configurations, by price, that the first are drawn from: they show how parts relate to the whole."""

_SCORED = (6, 40)
"""At least and at most so many configurations are scored, whatever share of all they are."""

_REPRESENTATIVES = 40
_UNSURE = 4.0
"""Times as much money goes into parts before a configuration is run as a whole that may well be infeasible."""

_RESERVE = 1.25
"""Times the 95 % quantile of its cost that is kept for the last whole run: a model of parts is too sure of itself."""

_LITTLE = 1e-6
"""Added to the information gain, in nats, so that probability and price decide where nothing can be learned."""


@dataclass(frozen=True, slots=True)
class CandidateRows:
    """The candidates of one question, as rows of numbers.

    Attributes:
        candidates: The configurations.
        features: Features of the configurations, shape (n, d).
        open: Mask of those without an ended or pending whole run that the money left pays, shape (n,).
    """

    candidates: Candidates
    features: Array
    open: NDArray[np.bool_]


class MultiFidelitySearcher(CandidatePoolSearcher):
    """Looks at configurations as rows of numbers, on finite and continuous spaces, at any share of the input."""

    @cached_property
    def _map(self) -> FeatureMap:
        return FeatureMap(self.problem, self._reference)

    @cached_property
    def _features(self) -> Array:
        return self._map.of_candidates(self._reference)

    def _design(self, starts: int) -> tuple[Candidates, list[int]]:
        """Candidates, and the order in which they are started: cheap ones far apart, then the rest at random."""
        reference = self._reference
        return reference, self._start_order(
            lambda rng: cheap_maximin(self._features, reference.hourly, starts, rng, _CHEAPER)
        )

    def _field(self, state: SearchState) -> CandidateRows | None:
        """Candidates that may be proposed; None where a pool is empty."""
        if self._listed:
            candidates, free = self.open_candidates(state)
            open_ones = np.zeros(len(candidates), dtype=bool)
            open_ones[free] = True
            return CandidateRows(candidates, self._features, open_ones)
        if not len(self._reference):
            return None
        drawn = self._drawn(state) or [self._reference.configuration(i) for i in range(len(self._reference))]
        pool = self.problem.pool([*self._tried(), *drawn])
        free = self._open_of(pool, state)
        if not len(free):
            pool = self.problem.pool([*self._tried(), *self._open_elsewhere(state)])
            free = self._open_of(pool, state)
        if not len(pool):
            return None
        open_ones = np.zeros(len(pool), dtype=bool)
        open_ones[free] = True
        return CandidateRows(pool, self._map.of_candidates(pool), open_ones)

    def _open_elsewhere(self, state: SearchState) -> list[Configuration]:
        """Configurations for when no drawn one is open: of the whole space, or the reference if it cannot be listed."""
        if not self.problem.space.enumerable:
            return [self._reference.configuration(i) for i in range(len(self._reference))]
        candidates, free = self.open_candidates(state)
        rng = np.random.default_rng([self.seed & 0xFFFFFFFF, state.proposed, 4])
        return [candidates.configuration(int(i)) for i in rng.permutation(free)[:_POOL]]

    def _tried(self) -> list[Configuration]:
        """Configurations of the space that were run, on any share."""
        return [t.configuration for t in self.history if self._map.of(t.configuration, t.offer) is not None]

    def _drawn(self, state: SearchState) -> list[Configuration]:
        rng = np.random.default_rng([self.seed & 0xFFFFFFFF, state.proposed, 3])
        return self._with_neighbours(self.problem.space.sample(rng, _POOL), self._leaders(), rng)

    def _leaders(self) -> list[Configuration]:
        """The best configurations that were run, those on larger shares first."""
        objective = self.problem.objective
        ranked: list[tuple[bool, float, float, int, Trial]] = sorted(
            (not t.observation.feasible, -t.proposal.fidelity, objective.loss(t.observation.objective), t.number, t)
            for t in self.history
            if t.observation is not None and t.observation.objective is not None
            if not t.observation.censored and math.isfinite(t.observation.objective)
            if self._map.of(t.configuration, t.offer) is not None
        )
        return [t.configuration for *_, t in ranked[:_LEADERS]]


def payable_candidates(field: CandidateRows, whole: FullInputPrediction, state: SearchState) -> NDArray[np.bool_]:
    """The open configurations whose whole run the money left pays: for sure, else probably, else whatever it costs."""
    if state.money_left is not None:
        for cost in (whole.cost_high, whole.cost):
            enough: NDArray[np.bool_] = field.open & (cost <= state.money_left)
            if enough.any():
                return enough
    return field.open


def constrained_value(whole: FullInputPrediction) -> Array:
    """Constrained expected value: the expected value, from 0 for the worst to 1 for the best, times the probability.

    TrimTuner's constrained expected accuracy (section III-C), for objectives that are no share between 0 and 1.
    """
    low, high = float(whole.loss.min()), float(whole.loss.max())
    value = (high - whole.loss) / (high - low) if high > low else np.ones(len(whole.loss))
    result: Array = (value + 0.01) * whole.feasible
    return result


def stable_argmax(score: Array) -> int:
    """Place of the greatest, rounded to 9 digits of the range so that ties are broken by order."""
    known = np.isfinite(score)
    if not known.any():
        return int(np.argmax(known))
    low, high = float(score[known].min()), float(score[known].max())
    relative = (score - low) / (high - low) if high > low else np.zeros(len(score))
    return int(np.argmax(np.where(known, np.round(relative, 9), -np.inf)))


@dataclass(frozen=True, slots=True)
class InitialDesign:
    """The order in which configurations are first run in parts.

    Attributes:
        reference: Configurations that are started with.
        order: Places of the configurations, in the order of starting.
        starts: Number of configurations that are run on every share but the whole.
        fractions: All shares, the smallest first.
        beyond: The smallest share that is too much for a configuration, by its key (`infeasible_shares`).
    """

    reference: Candidates
    order: Sequence[int]
    starts: int
    fractions: Sequence[float]
    beyond: Mapping[str, float]

    @property
    def parts(self) -> tuple[float, ...]:
        """The shares below 1, the smallest first; 1 alone where none is given."""
        return tuple(share for share in self.fractions if share < 1.0) or (1.0,)

    @property
    def length(self) -> int:
        """Number of runs that are started with, whatever they show."""
        return self.starts * len(self.parts)

    def runs(self, taken: Collection[str], *, first: bool = True, others: bool = True) -> Iterator[Proposal]:
        """List the runs to start with.

        Args:
            taken: Keys of trials that are not to be proposed: the same run, or a whole one of the configuration.
            first: All parts of the first configurations, up to the one that is too much.
            others: The smallest part of each configuration, then the next one, up to whole runs.
        """
        plan = [(i, s) for i in self.order[: self.starts] for s in self.parts if s <= self._most(i)] if first else []
        yield from self._proposals(plan + [(i, s) for s in self.fractions for i in self.order if others], taken)

    def wholes(self, taken: Collection[str]) -> Iterator[Proposal]:
        """List whole runs, of those first that no part has shown to be too much."""
        yield from self._proposals([(i, 1.0) for i in sorted(self.order, key=lambda i: self._most(i) < 1.0)], taken)

    def _most(self, place: int) -> float:
        return self.beyond.get(self.reference.configuration(place).key, 1.0)

    def _proposals(self, plan: Sequence[tuple[int, float]], taken: Collection[str]) -> Iterator[Proposal]:
        given: set[str] = set()
        for i, share in plan:
            key = self.reference.key(i, share)
            whole = self.reference.key(i)
            if {key, whole} & given or key in taken or whole in taken:
                continue
            given.add(key)
            why: dict[str, float | str] = {"stage": "start", "fraction": share}
            yield Proposal(self.reference.configuration(i), fidelity=share, why=why)


def infeasible_shares(problem: Problem, history: Sequence[Trial]) -> dict[str, float]:
    """The smallest share that failed, or was too slow or too dear for the whole, by key of the configuration."""
    limits = problem.constraints
    most = [t for t in limits.thresholds if t.metric in (COST, RUNTIME) and t.at_most is not None]
    upper = replace(limits, thresholds=tuple(replace(t, at_least=None) for t in most))
    found: dict[str, float] = {}
    for trial in history:
        seen, share = trial.observation, trial.proposal.fidelity
        if seen is None:
            continue
        wrong = trial.state != TrialState.SUCCEEDED
        if wrong or upper.broken(seen.runtime, {COST: seen.cost, RUNTIME: seen.runtime}):
            key = trial.configuration.key
            found[key] = min(share, found.get(key, 1.0))
    return found


class TrimTunerSettings(plugins.Settings):
    """Settings of TrimTuner's parts of the input, models and scores."""

    fractions: tuple[float, ...] = Field(
        default=(1 / 60, 1 / 10, 1 / 4, 1 / 2, 1.0),
        description="Shares of the input that may be run; 1 is always among them.",
    )
    surrogate: Literal["gp", "trees"] = Field(
        default="gp", description="gp: a Gaussian process in configuration and share; trees: ten extra-trees."
    )
    starts: int = Field(default=1, ge=1, description="Configurations that are first run on every share but the whole.")
    scored: float = Field(
        default=0.1, gt=0, le=1, description="Share of the configurations whose information gain is computed."
    )
    confidence: float = Field(
        default=0.9, gt=0, lt=1, description="Probability of being feasible that a recommendation must have."
    )
    parts_per_whole: float = Field(
        default=1.0,
        ge=0,
        description="Money for parts per money for whole runs, from which on the recommended one is run as a whole.",
    )

    @field_validator("fractions")
    @classmethod
    def _sensible(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if not value or any(not 0 < share <= 1 for share in value):
            raise ValueError("each share of the input must be above 0 and at most 1")
        return tuple(sorted({*value, 1.0}))


class TrimTunerSearcher(
    MultiFidelitySearcher, ProposesMany, ContinuousSpaces, LearnsFromAborted, Explains, UsesFractions, LetsRunsEnd
):
    """Runs parts of the input where they tell most, for their money, about the best configuration on the whole.

    It follows TrimTuner (Mendes, Casimiro, Romano & Garlan, MASCOTS 2020): the acquisition is the expected fall of the
    entropy of the optimum on the whole input (equation 5), times the probability of being feasible, by the predicted
    cost of the run; only the tenth of the configurations with the highest constrained expected value are scored
    (section III-C). It starts with all parts of one configuration. The recommended configuration is the one with the
    best expected value among those that are feasible with 90 % probability. Since only a whole run counts as a result,
    the recommended one is run as a whole whenever the parts have cost as much as the whole runs, and before the money
    is gone.
    """

    Settings = TrimTunerSettings
    weighs_by_default = False
    settings: TrimTunerSettings

    def __init__(self, *, settings: plugins.Settings, problem: Problem, seed: int = 0) -> None:
        super().__init__(settings=settings, problem=problem, seed=seed)
        self._fitted: tuple[tuple[int, ...], FidelityModels] | None = None

    # ------------------------------------------------------------------ asking

    def ask(self, state: SearchState, count: int = 1) -> list[Proposal] | NothingLeft:
        """Propose the runs that tell most for their money, or the recommended one as a whole."""
        field = self._field(state)
        if field is None or not field.open.any():
            return self.nothing_left(state)
        models, start = self._models(), self._start()
        if not models.ready:
            # Where none of the design is open, of a space too large to list, what is open.
            others = replace(start, reference=field.candidates, order=np.flatnonzero(field.open).tolist())
            return self._blind(state, start, count) or self._blind(state, others, count) or self.nothing_left(state)
        taken = self.taken(state)
        chosen: list[Proposal] = []
        running = [t.proposal for t in state.pending]
        begun = len({t.key for t in (*self.history, *state.pending)})
        rng, left = self.rng(state), state
        while len(chosen) < count and field.open.any():
            proposal = self._first(left, field, models, start, taken, begun + len(chosen))
            if proposal is None:
                proposal = self._next(left, field, self._fantasize(models, running), running, taken, rng)
            if proposal is None:
                break
            taken.add(self.problem.trial_key(proposal.configuration, proposal.fidelity))
            if proposal.fidelity == 1.0:
                self._close(field, proposal.configuration)
            chosen.append(proposal)
            running.append(proposal)
            left = self._without(left, models, proposal)
        return chosen or self.nothing_left(state)

    def _without(self, state: SearchState, models: FidelityModels, proposal: Proposal) -> SearchState:
        """The budget that is left once a proposal is run."""
        trials = None if state.trials_left is None else state.trials_left - 1
        money = state.money_left
        if money is not None:
            money = max(0.0, money - self._spend(models, proposal))
        return replace(state, trials_left=trials, money_left=money)

    def _spend(self, models: FidelityModels, proposal: Proposal) -> float:
        """USD that a run is expected to cost."""
        offer = self.problem.resolver.resolve(proposal.configuration)
        row = self._map.of(proposal.configuration, offer)
        if row is None:
            return 0.0
        return float(models.spend(row[None, :], proposal.fidelity, np.array([offer.hourly]))[0])

    @staticmethod
    def _close(field: CandidateRows, configuration: Configuration) -> None:
        place = field.candidates.index(configuration)
        if place is not None:
            field.open[place] = False

    def _fantasize(self, models: FidelityModels, running: list[Proposal]) -> FidelityModels:
        rows, shares = [], []
        for proposal in running:
            if not self.sold(proposal.configuration):
                continue
            row = self._map.of(proposal.configuration, self.problem.resolver.resolve(proposal.configuration))
            if row is not None:
                rows.append(row)
                shares.append(proposal.fidelity)
        return models.fantasize(np.array(rows), np.array(shares))

    # ------------------------------------------------------------------ starting

    def _start(self) -> InitialDesign:
        reference, order = self._design(self.settings.starts)
        beyond = infeasible_shares(self.problem, self.history)
        return InitialDesign(reference, order, self.settings.starts, self.settings.fractions, beyond)

    def _blind(self, state: SearchState, start: InitialDesign, count: int) -> list[Proposal] | NothingLeft:
        """The first runs of all, while nothing is known of what a run takes.

        Where money is short, only smallest parts are run, whatever else that costs; the last trial is a whole run.
        """
        taken = self.taken(state)
        runs = start.runs(taken, first=state.money_left is None)
        if state.trials_left is not None and start.parts != (1.0,):
            if state.trials_left <= 1:
                if state.pending:
                    return NothingLeft("the last trial is a whole run, of what the parts on their way say", final=False)
                runs = start.wholes(taken)
            count = min(count, max(1, state.trials_left - 1))
        affordable = (p for p in runs if self._affords(state, p))
        return list(islice(affordable, count))

    def _affords(self, state: SearchState, proposal: Proposal) -> bool:
        hourly = self.problem.resolver.resolve(proposal.configuration).hourly
        return bool(self.affordable(state, np.array([hourly]))[0])

    def _first(
        self,
        state: SearchState,
        field: CandidateRows,
        models: FidelityModels,
        start: InitialDesign,
        taken: set[str],
        begun: int,
    ) -> Proposal | None:
        """The next run to start with; None when enough were, or no other run but a whole one is left to pay."""
        if state.trials_left is not None and state.trials_left <= 1:
            return None
        runs = start.runs(taken, others=begun < start.length)
        proposal = next((p for p in runs if self._affords(state, p)), None)
        if proposal is None or state.money_left is None:
            return proposal
        whole = self._judge(field, models)
        best = self._recommended(payable_candidates(field, whole, state), whole, models)
        # The first parts narrow what a whole run may cost: to keep its upper end for them would be to run none.
        needed = self._spend(models, proposal) + _RESERVE * float(whole.cost[best])
        return proposal if proposal.fidelity == 1.0 or needed <= state.money_left else None

    def _next(
        self,
        state: SearchState,
        field: CandidateRows,
        models: FidelityModels,
        running: list[Proposal],
        taken: set[str],
        rng: np.random.Generator,
    ) -> Proposal | None:
        """One proposal."""
        whole = self._judge(field, models)
        best = self._recommended(payable_candidates(field, whole, state), whole, models)
        if self._due(state, whole, best, running):
            return self._proposal(field, best, 1.0, whole, models, {"stage": "recommended, as a whole"})
        scored = self._scored(state, field, whole, models, taken, rng)
        if scored is None:
            return self._proposal(field, best, 1.0, whole, models, {"stage": "recommended, as a whole"})
        place, share, gain = scored
        proposal = self._proposal(field, place, share, whole, models, {"stage": "search", "information_gain": gain})
        if not self._leaves_enough(state, whole, best, models, proposal):
            return self._proposal(field, best, 1.0, whole, models, {"stage": "recommended, before the money is gone"})
        return proposal

    def _judge(self, field: CandidateRows, models: FidelityModels) -> FullInputPrediction:
        whole = models.judge(field.features, field.candidates.hourly)
        places = {}
        for whole_run in models.whole:
            place = field.candidates.index(whole_run.trial.configuration)
            if place is not None:
                places[place] = whole_run
        return models.settled(whole, places)

    # ------------------------------------------------------------------ whole runs

    def _recommended(self, free: NDArray[np.bool_], whole: FullInputPrediction, models: FidelityModels) -> int:
        """The open configuration to run as a whole.

        It is the recommended one where that has not been run as a whole; otherwise the one with the largest expected
        improvement times its probability of being feasible.

        Args:
            free: Mask of the configurations that may be run.
            whole: Predictions of all.
            models: Models, which know the best so far.
        """
        best = stable_argmax(np.where(whole.feasible >= self.settings.confidence, -whole.loss, -np.inf))
        if whole.feasible[best] >= self.settings.confidence and free[best]:
            return best
        if models.best is not None:
            gain = acquisition.expected_improvement(whole.loss, whole.sd, models.best) * whole.feasible
            if np.any(gain[free] > 1e-200):
                return stable_argmax(np.where(free, gain, -np.inf))
        likely = np.round(whole.feasible, 6)
        among = free & (likely >= min(self.settings.confidence, float(likely[free].max())))
        return stable_argmax(np.where(among, -whole.loss, -np.inf))

    def _due(self, state: SearchState, whole: FullInputPrediction, best: int, running: list[Proposal]) -> bool:
        """True when parts have cost as much as whole runs, the one in question included, or it is the last trial.

        Where no configuration is feasible with confidence, more is learned from parts first.
        """
        if state.trials_left is not None and state.trials_left <= 1:
            return True
        if any(proposal.fidelity == 1.0 for proposal in running):
            return False
        parts = sum(t.spent for t in self.history if t.proposal.fidelity < 1.0)
        full = sum(t.spent for t in self.history if t.proposal.fidelity == 1.0)
        patience = 1.0 if whole.feasible[best] >= self.settings.confidence else _UNSURE
        return parts >= patience * self.settings.parts_per_whole * (full + float(whole.cost[best]))

    def _leaves_enough(
        self, state: SearchState, whole: FullInputPrediction, best: int, models: FidelityModels, proposal: Proposal
    ) -> bool:
        """True when the money left pays the proposed run and then the recommended one as a whole."""
        if state.money_left is None or proposal.fidelity == 1.0:
            return True
        return self._spend(models, proposal) + _RESERVE * float(whole.cost_high[best]) <= state.money_left

    # ------------------------------------------------------------------ parts

    def _scored(
        self,
        state: SearchState,
        field: CandidateRows,
        whole: FullInputPrediction,
        models: FidelityModels,
        taken: set[str],
        rng: np.random.Generator,
    ) -> tuple[int, float, float] | None:
        """Place, share and information gain of the run that tells most for its money; None if there is none."""
        open_ones = np.flatnonzero(field.open)
        worth = constrained_value(whole)
        wanted = min(max(math.ceil(self.settings.scored * len(open_ones)), _SCORED[0]), _SCORED[1])
        leaders = open_ones[np.argsort(-np.round(worth[open_ones], 9), kind="stable")][:wanted]
        pairs = [
            (int(i), share)
            for i in leaders
            for share in self.settings.fractions
            if field.candidates.key(int(i), share) not in taken
        ]
        if not pairs:
            return None
        places, shares = np.array([i for i, _ in pairs]), np.array([s for _, s in pairs])
        targets = np.argsort(-np.round(worth, 9), kind="stable")[:_REPRESENTATIVES]
        hourly = field.candidates.hourly
        model, of_time, as_loss = models.target(hourly[targets])
        rows = models.rows(field.features[places], shares, of_time=of_time)
        aims = models.rows(field.features[targets], 1.0, of_time=of_time)
        gain = information_gain(model, aims, rows, as_loss, rng)
        money = math.inf if state.money_left is None else state.money_left
        spend = models.spend(field.features[places], shares, hourly[places], money)
        score = (gain + _LITTLE) * (whole.feasible[places] + _LITTLE) / np.maximum(spend, 1e-12)
        at = stable_argmax(score / max(float(score.max()), 1e-300))
        return pairs[at][0], pairs[at][1], float(gain[at])

    def _proposal(
        self,
        field: CandidateRows,
        place: int,
        share: float,
        whole: FullInputPrediction,
        models: FidelityModels,
        why: dict[str, float | str],
    ) -> Proposal:
        spend = models.spend(field.features[[place]], share, field.candidates.hourly[[place]])
        why |= {
            "fraction": share,
            "expected_cost": float(whole.cost[place]),
            "expected_spend": float(spend[0]),
            "probability_feasible": float(whole.feasible[place]),
        }
        if not models.from_time:
            aim = self.problem.objective
            why[f"expected_{aim.metric}"] = aim.loss(float(whole.loss[place]))
        return Proposal(field.candidates.configuration(place), fidelity=share, why=why)

    # ------------------------------------------------------------------ models

    def _models(self) -> FidelityModels:
        numbers = tuple(trial.number for trial in self.history)
        if self._fitted is None or self._fitted[0] != numbers:
            models = FidelityModels(
                self.problem,
                self._map,
                self.history,
                least=self.settings.fractions[0],
                kind=self.settings.surrogate,
                priced=bool((self._reference.hourly > 0).all()),
                seed=self.seed,
            )
            self._fitted = (numbers, models)
        return self._fitted[1]

    def explain(self, configuration: Configuration) -> Mapping[str, float | str]:
        """Expected cost and value of a whole run, and the probability that it is feasible."""
        models = self._models()
        offer = self.problem.resolver.resolve(configuration)
        row = self._map.of(configuration, offer)
        if not models.ready or row is None:
            return {}
        whole = models.judge(row[None, :], np.array([offer.hourly]))
        said: dict[str, float | str] = {
            "expected_cost": float(whole.cost[0]),
            "cost_high": float(whole.cost_high[0]),
            "probability_feasible": float(whole.feasible[0]),
        }
        if not models.from_time:
            said[f"expected_{self.problem.objective.metric}"] = self.problem.objective.loss(float(whole.loss[0]))
        return said

    def recommended(self) -> Configuration | None:
        """The configuration that is expected to be the best on the whole input, whether it was run so or not.

        It is the one with the best expected value among those whose probability of being feasible is at least
        ``confidence``; None as long as there is none.
        """
        field = self._field(SearchState(proposed=len(self.history)))
        if field is None or not (models := self._models()).ready:
            return None
        whole = self._judge(field, models)
        sure = whole.feasible >= self.settings.confidence
        return (
            field.candidates.configuration(stable_argmax(np.where(sure, -whole.loss, -np.inf))) if sure.any() else None
        )
