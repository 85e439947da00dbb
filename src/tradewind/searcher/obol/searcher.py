"""OBOL: bagged random trees, constrained expected improvement for its money, and lookahead."""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tradewind.problem import COST, Candidates, Configuration, Proposal, Trial, TrialState
from tradewind.searcher.base import (
    ContinuousSpaces,
    Explains,
    LearnsFromAborted,
    LetsRunsEnd,
    NothingLeft,
    PricesAborts,
    ProposesMany,
    SearchState,
)
from tradewind.searcher.candidate_pool import CandidatePoolSearcher
from tradewind.searcher.obol.arrays import Floats, Ints
from tradewind.searcher.obol.bagged_trees import TreePrediction
from tradewind.searcher.obol.binned_columns import BinnedColumns, LevelFeatureMap, make_feature_map
from tradewind.searcher.obol.model import ObolModel, TreeRows, machine_numbers
from tradewind.searcher.obol.settings import ObolSettings
from tradewind.searcher.surrogate.features import FeatureMap
from tradewind.utils.dependencies import install_command
from tradewind.utils.units import format_money

_HYPERCUBES = 20
"""Latin hypercubes of which the one with the largest least distance is taken."""

_TINY = 1e-12

_log = logging.getLogger("tradewind.searcher.obol")


@dataclass(frozen=True, slots=True)
class LookaheadChoice:
    """The candidate that one step of the lookahead chose.

    Attributes:
        place: Place of the candidate among the free ones.
        utility: Utility of the path that begins with it.
        prediction: Predictions of the free ones.
        feasible: Probability that it is feasible.
        switch: USD of its spend that are for changing to its machines.
    """

    place: int
    utility: float
    prediction: TreePrediction
    feasible: float
    switch: float


class ObolSearcher(
    CandidatePoolSearcher, ProposesMany, ContinuousSpaces, LearnsFromAborted, Explains, PricesAborts, LetsRunsEnd
):
    """OBOL: bagged random trees, and the path of runs that promises most for its money within the budget.

    It is the algorithm of Casimiro, Didona, Romano, Rodrigues and Zwaenepoel, "Reduzindo o Custo de Explorar
    Configurações para Execução de Aplicações na Nuvem" (algorithms 1 to 4), with the options that its successor
    Lynceus (ICDCS 2020) adds. Behind each candidate that the money left pays for with probability ``beta``, ``depth``
    further runs are imagined, with three values for what each may cost; the candidate whose path has the largest sum
    of constrained expected improvements for its cost comes next.
    """

    Settings = ObolSettings
    settings: ObolSettings

    # ------------------------------------------------------------------ asking

    def ask(self, state: SearchState, count: int = 1) -> list[Proposal] | NothingLeft:
        """Propose the starts, then the first runs of the paths that promise most for their money."""
        if not len(self._reference):
            return self.nothing_left(state)
        whole = [t for t in self.history if t.proposal.fidelity == 1.0]
        informed = sum(t.observation is not None for t in whole) + len(state.pending)
        known = any(self._teaches(t) for t in whole)
        chosen: list[Proposal] = []
        if not known or informed < self._starts:
            chosen = self._start(state, count if not known else min(count, self._starts - informed))
            if len(chosen) == count or (chosen and not known):
                return chosen
        field = self._open_field(state, lambda: self._drawn(state))
        if field is None:
            return chosen or self.nothing_left(state)
        candidates, free = field
        if not known:  # none of the design is open, of a space too large to list
            some = self.rng(state).choice(free, size=min(count, len(free)), replace=False)
            return [self._capped(candidates.configuration(int(i)), math.inf, {"stage": "start"}) for i in some]
        table, fantasized = self._table(candidates, state), []
        money = math.inf if state.money_left is None else state.money_left
        for proposal in chosen:
            index = candidates.index(proposal.configuration)
            if index is not None:
                fantasized.append(index)
                free = free[free != index]
        while len(chosen) < count and len(free):
            model = ObolModel(self.problem, self.settings, table, self._tree_seed, money)
            choice = self._decide(model, [*table.pending, *fantasized], free, money)
            if choice is None or self._marginal(choice):
                return chosen or self._enough(state, choice)
            index = int(free[choice.place])
            chosen.append(self._proposal(candidates.configuration(index), choice, model.best))
            money -= float(choice.prediction.spend[choice.place])
            fantasized.append(index)
            free = np.delete(free, choice.place)
        return chosen or self.nothing_left(state)

    def _teaches(self, trial: Trial) -> bool:
        """True when trees can be grown on a trial."""
        seen = trial.observation
        if seen is None or trial.state == TrialState.FAILED or not math.isfinite(seen.cost + seen.runtime):
            return False
        return self._map.of(trial.configuration, trial.offer) is not None

    def _decide(self, model: ObolModel, fantasized: list[int], free: Ints, money: float) -> LookaheadChoice | None:
        """Algorithm 2 of OBOL; None where the money pays for no candidate with the probability asked for."""
        depth = self.settings.depth if self.problem.objective.grows_with_time else 0
        if depth:
            _advise()
        ensemble = model.ensemble(depth, fantasized)
        prediction = model.prediction(ensemble, free)
        feasible = model.feasible(ensemble, free, ensemble.prediction(free))

        def switch(place: int) -> float:
            row, field = int(free[place]), ensemble.field
            return 0.0 if field.machines[row] == ensemble.rules.machines else float(field.switch[row])

        allowed = np.flatnonzero(prediction.dear <= money)
        if not len(allowed):
            if len(self.history) >= self.settings.min_trials:
                return None
            place = int(np.argmin(np.round(prediction.dear / max(float(prediction.dear.min()), _TINY), 9)))
            return LookaheadChoice(
                place, float(prediction.improvement[place]), prediction, float(feasible[place]), switch(place)
            )
        utility, spend = prediction.improvement[allowed], prediction.spend[allowed]
        if depth:
            roots = self._roots(utility, spend)
            allowed = allowed[roots]
            first = np.array([prediction.mean, prediction.sd, prediction.improvement, prediction.spend])[:, allowed]
            utility, spend = ensemble.paths(free, allowed, first, self.settings.threads)
        place = _best_ratio(utility, spend, prediction.spend[allowed])
        chosen = int(allowed[place])
        return LookaheadChoice(chosen, float(utility[place]), prediction, float(feasible[chosen]), switch(chosen))

    def _roots(self, utility: Floats, spend: Floats) -> Ints:
        """The places of the candidates that paths begin from."""
        if len(utility) <= self.settings.exact:
            return np.arange(len(utility))
        score = utility / np.maximum(spend, _TINY)
        order = np.argsort(-np.round(score / max(float(score.max()), 1e-300), 9), kind="stable")
        return np.sort(order[: self.settings.roots])

    def _marginal(self, choice: LookaheadChoice) -> bool:
        limit = self.settings.epsilon
        return limit is not None and choice.utility <= limit and len(self.history) >= self.settings.min_trials

    def _enough(self, state: SearchState, choice: LookaheadChoice | None) -> NothingLeft:
        """Explain that the search ends with candidates left."""
        if choice is None:
            left = format_money(state.money_left)
            reason = (
                f"no untried configuration is expected to cost at most the {left} left with {self.settings.beta:.0%}"
            )
        else:
            reason = f"the best path promises {choice.utility:.3g}, at most the epsilon of {self.settings.epsilon:g}"
        return NothingLeft(reason, final=not state.pending)

    # ------------------------------------------------------------------ proposals

    def _proposal(self, configuration: Configuration, choice: LookaheadChoice, best: float) -> Proposal:
        spend = float(choice.prediction.spend[choice.place])
        why: dict[str, float | str] = {
            "stage": "search for a feasible one" if math.isinf(best) else "search",
            "expected_cost": spend - choice.switch,
            "probability_feasible": choice.feasible,
            "expected_spend": spend,
            "path_improvement": choice.utility,
        }
        if not math.isinf(best):
            name = "expected_saving" if self.problem.objective.metric == COST else "expected_improvement"
            why[name] = float(choice.prediction.improvement[choice.place])
        return self._capped(configuration, best, why)

    def _capped(self, configuration: Configuration, best: float, why: Mapping[str, float | str]) -> Proposal:
        if not self.aborts:
            return Proposal(configuration, why=why)
        seconds, money = self.problem.constraints.deadline, None
        if math.isfinite(best) and best > 0 and self.problem.objective.grows_with_time:
            if self.problem.objective.metric == COST:
                money = best
            else:
                seconds = best if seconds is None else min(seconds, best)
        return Proposal(configuration, abort_cost=money, abort_time=seconds, why=why)

    def _start(self, state: SearchState, count: int) -> list[Proposal]:
        """Propose the next ones of the design; behind its end, while no run teaches anything, the rest at random."""
        reference = self._reference
        return [
            self._capped(reference.configuration(i), math.inf, {"stage": "start"})
            for i in self._next_starts(self._order, state, count)
        ]

    # ------------------------------------------------------------------ candidates

    @property
    def _tree_seed(self) -> int:
        return self.seed & 0xFFFFFFFF

    @cached_property
    def _starts(self) -> int:
        if self.settings.starts != "auto":
            return int(self.settings.starts)
        return max(round(0.03 * len(self._reference)), len(self.problem.space.parameters))

    @cached_property
    def _order(self) -> list[int]:
        """Places of the reference in the order of starting."""
        return self._start_order(self._chosen_starts)

    def _chosen_starts(self, rng: np.random.Generator) -> list[int]:
        if self.settings.design != "lhs":
            return []
        return latin_hypercube(self._map.of_candidates(self._reference), self._starts, rng)

    @cached_property
    def _map(self) -> LevelFeatureMap | FeatureMap:
        return make_feature_map(self.problem, self._reference, self.settings.features)

    @cached_property
    def _numbers(self) -> Floats:
        """The rows of the reference."""
        return self._map.of_candidates(self._reference)

    def _drawn(self, state: SearchState) -> list[Configuration]:
        """Random configurations, and changed copies of the best trials."""
        rng = self.rng(state)
        return self._with_neighbours(self.problem.space.sample(rng, self.settings.pool), self._leaders(), rng)

    def _table(self, candidates: Candidates, state: SearchState) -> TreeRows:
        """The candidates, with all trials behind them."""
        numbers = self._numbers if candidates is self._reference else self._map.of_candidates(candidates)
        count, offers = len(numbers), [candidates.offer(i) for i in range(len(numbers))]
        ended = [t for t in self.history if t.proposal.fidelity == 1.0]
        known: list[tuple[Floats, Trial]] = []
        for trial in (*ended, *sorted(state.pending, key=lambda t: t.number)):
            row = self._map.of(trial.configuration, trial.offer)
            if row is not None:
                known.append((row, trial))
                offers.append(trial.offer)
        machines = machine_numbers(offers)
        placed = [(count + i, trial) for i, (_, trial) in enumerate(known)]
        latest = max(placed, key=lambda pair: pair[1].number, default=None)
        return TreeRows(
            BinnedColumns(np.vstack([numbers, *(row for row, _ in known)])),
            np.array([offer.hourly for offer in offers]),
            machines,
            [(row, trial) for row, trial in placed if trial.observation is not None],
            [row for row, trial in placed if trial.observation is None],
            -1 if latest is None else int(machines[latest[0]]),
        )

    # ------------------------------------------------------------------ explaining

    def explain(self, configuration: Configuration) -> Mapping[str, float | str]:
        """Expected cost with its 90 % range, and the probability of being feasible."""
        one = self.problem.pool([configuration])
        table = self._table(one, SearchState()) if len(one) else None
        if table is None:
            return {}
        model = ObolModel(self.problem, self.settings, table, self._tree_seed, math.inf)
        if not model.known:
            return {}
        ensemble, free = model.ensemble(0), np.zeros(1, dtype=np.int64)
        prediction = ensemble.prediction(free)
        return {
            "expected_cost": float(prediction.spend[0]),
            "probability_feasible": float(model.feasible(ensemble, free, prediction)[0]),
        }


def _best_ratio(utility: Floats, spend: Floats, alone: Floats) -> int:
    """The path with the most utility for its money; where none has any, the one whose first run is cheapest.

    Ratios are rounded to 9 digits, so that equal ones are taken in order whatever the last bit says.
    """
    ratio = utility / np.maximum(spend, _TINY)
    most = float(ratio.max())
    if most <= 1e-200:
        return int(np.argmin(np.round(alone / max(float(np.abs(alone).max()), _TINY), 9)))
    return int(np.argmax(np.round(ratio / most, 9)))


@functools.cache
def _advise() -> None:
    """Log once, where numba is missing, that it makes lookahead quick."""
    from tradewind.utils.jit import COMPILED

    if not COMPILED:
        _log.warning("obol looks ahead without numba: the same choices, minutes slower (%s)", install_command("fast"))


def latin_hypercube(numbers: Floats, count: int, rng: np.random.Generator) -> list[int]:
    """Choose rows near the points of a maximin Latin hypercube (Morris & Mitchell, J. Stat. Planning 1995).

    Every column is cut into ``count`` strips with one point each, its levels at equal distances; each point stands for
    the nearest row that is not taken. Of some such designs, the one whose two nearest rows are farthest apart is taken.

    Args:
        numbers: Features of the rows, shape (n, d).
        count: Number of rows to choose; all if there are fewer.
        rng: Draws the hypercubes.

    Returns:
        Row numbers, in order.
    """
    if not numbers.shape[1]:  # nothing tells the rows apart
        return list(range(min(count, len(numbers))))
    ranks = [np.unique(np.round(column, 9), return_inverse=True) for column in numbers.T]
    unit = np.column_stack([(rank + 0.5) / len(levels) for levels, rank in ranks])
    count = min(count, len(unit))
    best: tuple[float, list[int]] | None = None
    for _ in range(_HYPERCUBES):
        strips = rng.permuted(np.tile(np.arange(count), (unit.shape[1], 1)), axis=1).T
        points = (strips + rng.random(strips.shape)) / count
        chosen: list[int] = []
        for point in points:
            away = np.round(((unit - point) ** 2).sum(axis=1), 9)
            away[chosen] = np.inf
            chosen.append(int(np.argmin(away)))
        picked = unit[chosen]
        apart = ((picked[:, None, :] - picked[None, :, :]) ** 2).sum(axis=2)
        least = round(float(apart[np.triu_indices(count, 1)].min(initial=np.inf)), 9)
        if best is None or least > best[0]:
            best = (least, chosen)
    assert best is not None
    return best[1]
