"""Bayesian optimisation with a Gaussian process on the logarithm of the cost."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from pydantic import Field

from tradewind.problem import COST, Candidates, Configuration, Proposal
from tradewind.searcher.base import SearchState
from tradewind.searcher.bayesian import BayesianSearcher, BayesianSettings
from tradewind.searcher.candidate_pool import cheap_maximin
from tradewind.searcher.posterior import AbortCaps, Posterior


class GpSettings(BayesianSettings):
    """Settings of the Gaussian-process searcher."""

    starts: int = Field(default=4, ge=1, description="Cheap, spread-out trials before the model chooses.")
    starts_share: float = Field(
        default=0.75,
        gt=0,
        le=1,
        description="Share of the candidates, the cheapest by hour, that starts are chosen from.",
    )
    abort_slack: float = Field(
        default=1.3, ge=1, description="Cut it short at this multiple of the best so far, to learn a little more."
    )


class GpSearcher(BayesianSearcher):
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

    def _fit(self) -> Posterior:
        return Posterior(self.problem, self._map, self.history, priced=self._priced)

    def _caps(self, state: SearchState) -> AbortCaps:
        money = math.inf if state.money_left is None else state.money_left
        return AbortCaps(self.aborts, self.settings.abort_slack, money)

    def _capped(self, configuration: Configuration, posterior: Posterior, why: Mapping[str, float | str]) -> Proposal:
        if not self.aborts:
            return Proposal(configuration, why=why)
        seconds, money = self.problem.constraints.deadline, None
        if posterior.best is not None and posterior.best > 0 and self.problem.objective.grows_with_time:
            limit = self.settings.abort_slack * posterior.best
            if self.problem.objective.metric == COST:
                money = limit
            else:
                seconds = limit if seconds is None else min(seconds, limit)
        return Proposal(configuration, abort_cost=money, abort_time=seconds, why=why)

    def _starts_of(self, reference: Candidates, rng: np.random.Generator) -> list[int]:
        return cheap_maximin(self._features, reference.hourly, self.settings.starts, rng, self.settings.starts_share)
