"""Bayesian optimisation with a Gaussian process on the logarithm of the cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Literal

import numpy as np
from pydantic import Field

from tradewind import plugins
from tradewind.errors import ConfigurationError, NoOfferError
from tradewind.problem import COST, Candidates, Configuration, Problem, Proposal
from tradewind.searcher.base import (
    ContinuousSpaces,
    Explains,
    LearnsFromAborted,
    NothingLeft,
    PricesAborts,
    ProposesMany,
    Searcher,
    SearchState,
)
from tradewind.searcher.beliefs import Beliefs, Caps, Outlook
from tradewind.searcher.starts import cheap_maximin
from tradewind.searcher.surrogate.features import FeatureMap
from tradewind.searcher.surrogate.gp import Array
from tradewind.units import format_money

_LISTED = 20_000
"""Combinations up to which every candidate is scored; larger spaces are scored on a pool."""

_REFERENCE = 512
"""Configurations that show the range of the features where the space is not listed."""

_NEIGHBOURS = 24
"""Changed copies of each of the best trials in a pool."""

_LEADERS = 8


class GpSettings(plugins.Settings):
    """How the Gaussian process chooses."""

    acquisition: Literal["ei_per_dollar", "ei"] = Field(
        default="ei_per_dollar",
        description="ei_per_dollar: expected improvement by expected spend; ei: expected improvement alone.",
    )
    starts: int = Field(default=4, ge=1, description="Cheap, spread-out trials before the model chooses.")
    starts_share: float = Field(
        default=0.75,
        gt=0,
        le=1,
        description="Share of the candidates, the cheapest by hour, that starts are chosen from.",
    )
    abort: bool = Field(default=True, description="Cut a run short once it can no longer win.")
    abort_slack: float = Field(
        default=1.3, ge=1, description="Cut it short at this multiple of the best so far, to learn a little more."
    )
    min_improvement: float | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="Stop when no candidate is expected to improve the best by this share (CherryPick: 0.1).",
    )
    min_trials: int = Field(default=6, ge=1, description="Trials before min_improvement or future_runs may stop.")
    pool: int = Field(default=2048, ge=16, description="Random candidates scored where the space is too large to list.")


class GpSearcher(Searcher, ProposesMany, ContinuousSpaces, LearnsFromAborted, Explains, PricesAborts):
    """Bayesian optimisation: a Gaussian process on the logarithm of the cost, and what a trial saves for its money.

    It follows CherryPick (Alipourfard et al., NSDI 2017) in modelling ln cost with a Matérn 5/2 kernel and reading the
    deadline off the same posterior. It differs in using the exact expected improvement under the deadline
    (`acquisition.expected_saving`), divided by the money that a run is expected to cost when it is cut short as soon
    as it cannot win (`acquisition.expected_spend`), in taking aborted runs as lower bounds (`fit_censored`), and in
    stopping, where the number of future runs N is known, when N times the expected saving of every candidate is below
    its expected spend (Xie et al., "Cost-aware stopping for Bayesian optimization", 2025).
    """

    Settings = GpSettings
    settings: GpSettings

    def __init__(self, *, settings: plugins.Settings, problem: Problem, seed: int = 0) -> None:
        super().__init__(settings=settings, problem=problem, seed=seed)
        self._fitted: tuple[tuple[int, ...], Beliefs] | None = None

    # ------------------------------------------------------------------ asking

    def ask(self, state: SearchState, count: int = 1) -> list[Proposal] | NothingLeft:
        """The candidates that promise most for their money."""
        field = self._field(state)
        if field is None:
            return self.nothing_left(state)
        candidates, free, features = field
        beliefs = self._beliefs()
        informed = sum(t.observation is not None for t in self.history) + len(state.pending)
        chosen: list[Proposal] = []
        if beliefs.time is None or informed < self.settings.starts:
            wanted = count if beliefs.time is None else min(count, self.settings.starts - informed)
            chosen = self._start(state, beliefs, wanted)
            if len(chosen) == count or beliefs.time is None:
                return chosen or self.nothing_left(state)
        pending = [row for t in state.pending if (row := self._map.of(t.configuration, t.offer)) is not None]
        for proposal in chosen:
            row = self._map.of(proposal.configuration, self.problem.resolver.resolve(proposal.configuration))
            pending += [] if row is None else [row]
            same = [i for i in free if candidates.configuration(int(i)) == proposal.configuration]
            free = free[~np.isin(free, same)]
        beliefs = beliefs.believing(np.array(pending))
        caps = self._caps(state)
        while len(chosen) < count and len(free):
            outlook = beliefs.judge(features[free], candidates.hourly[free], caps)
            if not chosen and (reason := self._enough(outlook, beliefs)):
                return NothingLeft(reason, final=not state.pending)
            place = self._pick(outlook)
            index = int(free[place])
            chosen.append(self._proposal(candidates.configuration(index), outlook, place, beliefs))
            free = np.delete(free, place)
            if len(chosen) < count:
                beliefs = beliefs.believing(features[[index]])
        return chosen or self.nothing_left(state)

    def _caps(self, state: SearchState) -> Caps:
        money = math.inf if state.money_left is None else state.money_left
        return Caps(self.settings.abort, self.settings.abort_slack, money)

    def _pick(self, outlook: Outlook) -> int:
        score = outlook.improvement
        if self.settings.acquisition == "ei_per_dollar":
            score = score / np.maximum(outlook.spend, 1e-12)
        if not np.any(score > 1e-200):
            return int(np.argmax(np.round(outlook.margin, 6)))
        # Rounded to 9 digits, so that equal candidates are taken in order whatever the last bit says.
        return int(np.argmax(np.round(score / score.max(), 9)))

    def _enough(self, outlook: Outlook, beliefs: Beliefs) -> str | None:
        """Why it is not worth going on, if so."""
        if beliefs.best is None or len(self.history) < max(self.settings.min_trials, self.settings.starts):
            return None
        share = self.settings.min_improvement
        most = float(outlook.improvement.max())
        if share is not None and most < share * abs(beliefs.best):
            gain = most / abs(beliefs.best)
            return f"no candidate is expected to improve the best by {share:.0%}: at most by {gain:.1%}"
        runs = self.problem.terms.future_runs
        if runs is not None and self.problem.objective.grows_with_time and self.problem.objective.metric == COST:
            worth = runs * outlook.improvement - outlook.spend
            if float(worth.max()) <= 0.0:
                at = int(np.argmax(worth))
                saving, spend = (
                    format_money(float(runs * outlook.improvement[at])),
                    format_money(float(outlook.spend[at])),
                )
                return f"no trial is worth its money: the best would save {saving} over {runs:g} runs and cost {spend}"
        return None

    # ------------------------------------------------------------------ proposals

    def _proposal(self, configuration: Configuration, outlook: Outlook, i: int, beliefs: Beliefs) -> Proposal:
        why: dict[str, float | str] = {
            "stage": "search" if beliefs.best is not None else "search for a feasible one",
            "expected_cost": float(outlook.cost[i]),
            "probability_feasible": float(outlook.feasible[i]),
            "expected_spend": float(outlook.spend[i]),
        }
        if beliefs.best is not None:
            name = "expected_saving" if self.problem.objective.metric == COST else "expected_improvement"
            why[name] = float(outlook.improvement[i])
        return self._capped(configuration, beliefs, why)

    def _capped(self, configuration: Configuration, beliefs: Beliefs, why: Mapping[str, float | str]) -> Proposal:
        if not self.settings.abort:
            return Proposal(configuration, why=why)
        seconds, money = self.problem.constraints.deadline, None
        if beliefs.best is not None and self.problem.objective.grows_with_time:
            limit = self.settings.abort_slack * beliefs.best
            if self.problem.objective.metric == COST:
                money = limit
            else:
                seconds = limit if seconds is None else min(seconds, limit)
        return Proposal(configuration, abort_cost=money, abort_time=seconds, why=why)

    def _start(self, state: SearchState, beliefs: Beliefs, count: int) -> list[Proposal]:
        """The next ones of the start design; behind its end, for want of any success, the rest of it."""
        reference, order = self._design
        taken = self.taken(state)
        payable = self.affordable(state, reference.hourly)
        found: list[Proposal] = []
        for i in order:
            if len(found) == count:
                break
            if payable[i] and reference.key(i) not in taken:
                found.append(self._capped(reference.configuration(i), beliefs, {"stage": "start"}))
        return found

    # ------------------------------------------------------------------ candidates

    @cached_property
    def _listed(self) -> bool:
        return self.problem.space.combinations <= _LISTED

    @cached_property
    def _reference(self) -> Candidates:
        """All candidates, or some of each kind."""
        if self._listed:
            return self.problem.candidates
        rng = np.random.default_rng([self.seed & 0xFFFFFFFF, 2])
        return self.problem.pool(self.problem.space.sample(rng, _REFERENCE))

    @cached_property
    def _map(self) -> FeatureMap:
        return FeatureMap(self.problem, self._reference)

    @cached_property
    def _features(self) -> Array:
        return self._map.of_candidates(self._reference)

    @cached_property
    def _design(self) -> tuple[Candidates, list[int]]:
        """Candidates and the order of their starts."""
        reference = self._reference
        rng = np.random.default_rng([self.seed & 0xFFFFFFFF, 1])
        first = cheap_maximin(self._features, reference.hourly, self.settings.starts, rng, self.settings.starts_share)
        chosen = set(first)
        rest = [int(i) for i in rng.permutation(len(reference)) if int(i) not in chosen]
        return reference, first + rest

    def _field(self, state: SearchState) -> tuple[Candidates, Array, Array] | None:
        """Candidates, the indices of those that may be proposed, and their features; None where there are none."""
        if self._listed:
            candidates, free = self.open_candidates(state)
            return (candidates, free, self._features) if len(free) else None
        pool = self.problem.pool(self._drawn(state))
        taken = self.taken(state)
        open_ones = [i for i in np.flatnonzero(self.affordable(state, pool.hourly)) if pool.key(int(i)) not in taken]
        if open_ones:
            return pool, np.array(open_ones), self._map.of_candidates(pool)
        if self.problem.space.enumerable:
            candidates, free = self.open_candidates(state)
            if len(free):
                return candidates, free, self._map.of_candidates(candidates)
        return None

    def _drawn(self, state: SearchState) -> list[Configuration]:
        """Random configurations, and changed copies of the best trials."""
        rng, space = self.rng(state), self.problem.space
        drawn = space.sample(rng, self.settings.pool)
        for leader in self._leaders():
            donors = [drawn[int(i)] for i in rng.integers(len(drawn), size=_NEIGHBOURS)] if drawn else []
            drawn += neighbours(self.problem, leader, donors, rng)
        return drawn

    def _leaders(self) -> list[Configuration]:
        objective = self.problem.objective
        ranked = sorted(
            (not t.observation.feasible, objective.loss(t.observation.objective), t.number, t.configuration)
            for t in self.history
            if t.observation is not None and not t.observation.censored
            if t.observation.objective is not None and math.isfinite(t.observation.objective)
        )
        return [configuration for *_, configuration in ranked[:_LEADERS]]

    # ------------------------------------------------------------------ beliefs

    def _beliefs(self) -> Beliefs:
        numbers = tuple(trial.number for trial in self.history)
        if self._fitted is None or self._fitted[0] != numbers:
            priced = self.problem.objective.metric == COST and bool((self._reference.hourly > 0).all())
            self._fitted = (numbers, Beliefs(self.problem, self._map, self.history, priced=priced))
        return self._fitted[1]

    def explain(self, configuration: Configuration) -> Mapping[str, float | str]:
        """Expected cost with its 90 % range, and the probability of being feasible."""
        beliefs = self._beliefs()
        offer = self.problem.resolver.resolve(configuration)
        row = self._map.of(configuration, offer)
        if beliefs.time is None or row is None:
            return {}
        outlook = beliefs.judge(row[None, :], np.array([offer.hourly]), Caps(False, 1.0, math.inf))
        return {
            "expected_cost": float(outlook.cost[0]),
            "cost_low": float(outlook.cost_low[0]),
            "cost_high": float(outlook.cost_high[0]),
            "probability_feasible": float(outlook.feasible[0]),
        }


def neighbours(
    problem: Problem, leader: Configuration, donors: Sequence[Configuration], rng: np.random.Generator
) -> list[Configuration]:
    """Copies of a configuration that take one or more parameters, or a step towards them, from others.

    Args:
        problem: The problem.
        leader: The configuration to stay near.
        donors: Where other values come from.
        rng: For which parameters, and how far.
    """
    space, found = problem.space, []
    for donor in donors:
        values = dict(leader)
        shared = [p for p in space.parameters if p.name in leader and p.name in donor]
        for parameter in [shared[int(i)] for i in rng.integers(len(shared), size=1 + int(rng.integers(2)))]:
            values[parameter.name] = donor[parameter.name]
            if parameter.levels is None:
                both = np.array([leader[parameter.name], donor[parameter.name]], dtype=object)
                near, far = parameter.features(both)[:, 0]
                step = float(rng.choice([0.02, 0.1, 0.5]))
                values[parameter.name] = float(parameter.draw(np.array([near + step * (far - near)]))[0])
        try:
            found.append(space.complete(values, {**donor, **leader}))
        except (ConfigurationError, NoOfferError, KeyError):
            continue
    return found
