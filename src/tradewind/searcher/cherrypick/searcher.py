"""The CherryPick searcher (Alipourfard et al., NSDI 2017)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from tradewind import plugins
from tradewind.problem import COST, Candidates, Configuration, Problem, Proposal
from tradewind.searcher.base import (
    ContinuousSpaces,
    Explains,
    LetsRunsEnd,
    NothingLeft,
    PricesAborts,
    ProposesMany,
    SearchState,
)
from tradewind.searcher.candidate_pool import CandidatePoolSearcher, Indices
from tradewind.searcher.cherrypick.encoding import ClusterEncoding
from tradewind.searcher.cherrypick.posterior import CherryPickPosterior, CherryPickPrediction, SliceSampling
from tradewind.searcher.surrogate.gp import Array
from tradewind.utils.units import format_money

_DESIGN = 64
"""Sobol points that are mapped to candidates; later starts, for want of any finished run, are drawn at random."""


class CherryPickSettings(plugins.Settings):
    """Settings of CherryPick's starts, samples and stop rule; the defaults are the paper's."""

    starts: int = Field(default=3, ge=1, description="Quasi-random trials before the model chooses.")
    stop: bool = Field(default=True, description="Stop by the rule below; false goes on until nothing is left.")
    stop_improvement: float = Field(
        default=0.1, ge=0, description="Stop when no candidate is expected to improve the best by this share."
    )
    stop_runs: int = Field(default=6, ge=1, description="Trials that must have ended before the rule may stop.")
    stop_unit: Literal["cost", "ln_cost"] = Field(
        default="cost",
        description="What the improvement is measured in: cost, as a share of the best, or ln_cost (its authors' code: "
        "ln_cost with 0.06).",
    )
    budget_confidence: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="Leave out candidates that the money left does not pay with this probability (OBOL: 0.99); without "
        "it the budget only ends the search.",
    )
    abort: bool = Field(
        default=False, description="Cut a run short at the deadline and at the best cost; the paper lets every run end."
    )
    samples: int = Field(default=10, ge=1, description="Samples of the model's hyper-parameters.")
    burn_in: int = Field(default=100, ge=0, description="Steps of slice sampling before a sample is taken.")
    pool: int = Field(default=2048, ge=16, description="Random candidates scored where the space is too large to list.")


class CherryPickSearcher(CandidatePoolSearcher, ProposesMany, ContinuousSpaces, Explains, PricesAborts, LetsRunsEnd):
    """CherryPick: a Gaussian process on the logarithm of the cost, expected improvement times P(deadline), a stop rule.

    Alipourfard, Liu, Chen, Venkataraman, Yu & Zhang, "CherryPick: Adaptively unearthing the best cloud configurations
    for big data analytics", NSDI 2017, sections 3 and 4: Matérn 5/2 kernel, hyper-parameters integrated out
    (`SampledProcess`), three quasi-random starts (scrambled Sobol points, each taken to the nearest candidate), and an
    end when no candidate is expected to improve the best by 10 % and at least 6 runs are done. Several at a time are
    proposed by the kriging believer, which the paper does not do.
    """

    Settings = CherryPickSettings
    settings: CherryPickSettings

    def __init__(self, *, settings: plugins.Settings, problem: Problem, seed: int = 0) -> None:
        super().__init__(settings=settings, problem=problem, seed=seed)
        self._fitted: tuple[tuple[int, ...], CherryPickPosterior] | None = None

    # ------------------------------------------------------------------ asking

    def ask(self, state: SearchState, count: int = 1) -> list[Proposal] | NothingLeft:
        """Propose the candidates of largest expected improvement times the probability of meeting the deadline."""
        field = self._field(state)
        if field is None:
            return self.nothing_left(state)
        candidates, free, features = field
        posterior = self._current_posterior()
        informed = len(self.history) + len(state.pending)
        chosen: list[Proposal] = []
        if posterior.bill is None or informed < self.settings.starts:
            wanted = count if posterior.bill is None else min(count, self.settings.starts - informed)
            chosen = self._start(state, posterior, wanted)
            if not chosen and posterior.bill is None:  # the design is used up, and every run of it failed
                why = {"stage": "start"}
                return [self._capped(candidates.configuration(int(i)), posterior, why) for i in free[:count]]
            if len(chosen) == count or posterior.bill is None:
                return chosen
        started = {self.problem.trial_key(proposal.configuration) for proposal in chosen}
        if started:
            free = np.array([i for i in free if candidates.key(int(i)) not in started], dtype=np.intp)
        posterior = posterior.fantasize(self._pending_rows(state, chosen))
        while len(chosen) < count and len(free):
            prediction = posterior.judge(features[free], candidates.hourly[free], state.money_left, abort=self.aborts)
            payable = self._payable(prediction)
            if not chosen and (reason := self._enough(state, prediction, payable, posterior)):
                return NothingLeft(reason, final=not state.pending)
            if not payable.any():
                break
            place = self._pick(prediction, payable)
            index = int(free[place])
            chosen.append(self._proposal(candidates.configuration(index), prediction, place, posterior))
            free = np.delete(free, place)
            if len(chosen) < count:
                posterior = posterior.fantasize(features[[index]])
        return chosen or self.nothing_left(state)

    def _pending_rows(self, state: SearchState, chosen: Sequence[Proposal]) -> Array:
        offers = [(t.configuration, t.offer) for t in state.pending]
        offers += [(p.configuration, self.problem.resolver.resolve(p.configuration)) for p in chosen]
        rows = [self._encoding.of(configuration, offer) for configuration, offer in offers]
        return np.array([row for row in rows if row is not None])

    def _payable(self, prediction: CherryPickPrediction) -> NDArray[np.bool_]:
        """Candidates that the money left pays with enough confidence, as a mask."""
        least = self.settings.budget_confidence
        mask: NDArray[np.bool_] = prediction.affords >= (0.0 if least is None else least)
        return mask

    @staticmethod
    def _pick(prediction: CherryPickPrediction, payable: NDArray[np.bool_]) -> int:
        score = np.where(payable, prediction.score, -1.0)
        if not score.max() > 1e-200:
            return int(np.argmax(np.where(payable, np.round(prediction.margin, 6), -np.inf)))
        # Rounded to 9 digits, so that equal candidates are taken in order whatever the last bit says.
        return int(np.argmax(np.round(score / score.max(), 9)))

    def _enough(
        self,
        state: SearchState,
        prediction: CherryPickPrediction,
        payable: NDArray[np.bool_],
        posterior: CherryPickPosterior,
    ) -> str | None:
        """The reason to stop, in words; None to go on."""
        if not payable.any():
            share = f"{self.settings.budget_confidence:.0%}"
            return (
                f"no untried configuration is paid by the {format_money(state.money_left)} left with {share} certainty"
            )
        if not self.settings.stop or posterior.best is None or len(self.history) < self.settings.stop_runs:
            return None
        logarithmic = self.settings.stop_unit == "ln_cost"
        most = float((prediction.score if logarithmic else prediction.share)[payable].max())
        if most >= self.settings.stop_improvement:
            return None
        limit = self.settings.stop_improvement
        figures = f"{most:.3g} in ln cost, below {limit:g}" if logarithmic else f"{most:.1%}, below {limit:.0%}"
        return f"CherryPick's stop rule: no candidate is expected to improve the best by more than {figures}"

    # ------------------------------------------------------------------ proposals

    def _proposal(
        self, configuration: Configuration, prediction: CherryPickPrediction, i: int, posterior: CherryPickPosterior
    ) -> Proposal:
        why: dict[str, float | str] = {
            "stage": "search" if posterior.best is not None else "search for a feasible one",
            "expected_cost": float(prediction.cost[i]),
            "probability_feasible": float(prediction.feasible[i]),
            "expected_spend": float(prediction.spend[i]),
        }
        if posterior.best is not None:
            name = "expected_saving" if self.problem.objective.metric == COST else "expected_improvement"
            why[name] = float(prediction.share[i]) * abs(posterior.best)
        return self._capped(configuration, posterior, why)

    def _capped(
        self, configuration: Configuration, posterior: CherryPickPosterior, why: Mapping[str, float | str]
    ) -> Proposal:
        seconds, money = self.problem.constraints.deadline, None
        if not self.aborts:
            return Proposal(configuration, why=why)
        if posterior.best is not None and posterior.best > 0 and self.problem.objective.grows_with_time:
            if self.problem.objective.metric == COST:
                money = posterior.best
            else:
                seconds = posterior.best if seconds is None else min(seconds, posterior.best)
        return Proposal(configuration, abort_cost=money, abort_time=seconds, why=why)

    def _start(self, state: SearchState, posterior: CherryPickPosterior, count: int) -> list[Proposal]:
        """Propose the next ones of the start design; behind its end, for want of any finished run, the rest of it."""
        reference = self._reference
        return [
            self._capped(reference.configuration(i), posterior, {"stage": "start"})
            for i in self._next_starts(self._order, state, count)
        ]

    # ------------------------------------------------------------------ candidates

    @cached_property
    def _encoding(self) -> ClusterEncoding:
        return ClusterEncoding(self.problem, self._reference)

    @cached_property
    def _features(self) -> Array:
        return self._encoding.of_candidates(self._reference)

    @cached_property
    def _order(self) -> list[int]:
        """Places of the reference in the order of starting."""
        wanted = max(_DESIGN, self.settings.starts)
        return self._start_order(lambda rng: nearest_to_sobol(self._features, wanted, rng))

    def _field(self, state: SearchState) -> tuple[Candidates, Indices, Array] | None:
        """Candidates, the indices of those that may be proposed, and their features; None where there are none."""
        field = self._open_field(state, lambda: self.problem.space.sample(self.rng(state), self.settings.pool))
        if field is None:
            return None
        candidates, free = field
        own = candidates is self._reference
        return candidates, free, self._features if own else self._encoding.of_candidates(candidates)

    # ------------------------------------------------------------------ posterior

    def _current_posterior(self) -> CherryPickPosterior:
        numbers = tuple(trial.number for trial in self.history)
        if self._fitted is None or self._fitted[0] != numbers:
            sampling = SliceSampling(self.seed, self.settings.samples, self.settings.burn_in)
            free = bool((self._reference.hourly <= 0).any())
            self._fitted = (
                numbers,
                CherryPickPosterior(self.problem, self._encoding, self.history, sampling, free=free),
            )
        return self._fitted[1]

    def explain(self, configuration: Configuration) -> Mapping[str, float | str]:
        """Expected cost with its 90 % range, and the probability of being feasible."""
        posterior = self._current_posterior()
        offer = self.problem.resolver.resolve(configuration)
        row = self._encoding.of(configuration, offer)
        if posterior.bill is None or row is None:
            return {}
        prediction = posterior.judge(row[None, :], np.array([offer.hourly]), None)
        return {
            "expected_cost": float(prediction.cost[0]),
            "cost_low": float(prediction.cost_low[0]),
            "cost_high": float(prediction.cost_high[0]),
            "probability_feasible": float(prediction.feasible[0]),
        }


def nearest_to_sobol(features: Array, count: int, rng: np.random.Generator) -> list[int]:
    """Take scrambled Sobol points one after another to the nearest row that is not taken yet.

    Args:
        features: Rows in the unit cube, shape (n, d).
        count: Number of points; fewer rows come back where there are fewer.
        rng: Draws the scrambling (Owen, J. Complexity 1998).

    Returns:
        Row numbers, in order.
    """
    from scipy.stats import qmc

    # A power of two of points: the sequence is balanced, and its beginning is the same whatever the power.
    engine = qmc.Sobol(features.shape[1], scramble=True, seed=rng)
    points = engine.random_base2(max(1, math.ceil(math.log2(count))))[:count]
    taken = np.zeros(len(features), dtype=bool)
    chosen = []
    for point in points[: len(features)]:
        # Rounded, so that ties are broken by order and not by the last bit of a sum.
        distance = np.round(((features - point) ** 2).sum(axis=1), 9)
        following = int(np.argmin(np.where(taken, np.inf, distance)))
        taken[following] = True
        chosen.append(following)
    return chosen
