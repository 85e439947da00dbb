"""Searches the sets of machines with what no plan on them can beat."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from pydantic import Field

from tradewind import plugins
from tradewind.errors import SpecError
from tradewind.problem import COST, RUNTIME, Offer, Problem, Proposal, Trial
from tradewind.searcher.base import Concludes, Explains, NothingLeft, Searcher, SearchState
from tradewind.utils.units import format_duration, format_money
from tradewind.workflow.advice.offers import MachineSetBounds, fitting_power, probable_makespan
from tradewind.workflow.graph import Numbers

_STAGE = "stage"
BEST, FRONT = "could be the best", "could be worth its money"
"""Why a set is tried."""

_CLOSE = 1e-9


class BoundSearcherSettings(plugins.Settings):
    """Settings of the search over sets of machines."""

    front: int = Field(15, ge=0, description="Sets to try beyond the best one, for the choice of time against money")


class BoundSearcher(Searcher, Concludes, Explains):
    """Tries the sets of machines that could be best by their bounds, and ends when no other can be better.

    What a set must take and cost at least is known before any plan is made (`MachineSetBounds`). Once the best one found is no
    worse than the bound of every untried one, none of those can win, whoever plans (branch and bound, the sets being
    the leaves: Lawler and Wood, "Branch-and-bound methods", Operations Research 14(4), 1966). Of those that could, the
    ones come first that are expected to keep deadline and budget, the best expected objective first. A plan is
    expected to take ``(path**k + work**k) ** (1/k)`` seconds, between the bound and the sum of its two parts, with the
    k that fits best what was tried. Some more trials then go where something cheaper or quicker than all that was
    tried is possible.

    Args:
        settings: Its settings.
        problem: Its configurations are sets of machines; the objective is ``cost`` or ``runtime``.
        seed: Not used: nothing is left to chance.
        outlook: The bounds.
    """

    name = "bounds"
    Settings = BoundSearcherSettings
    settings: BoundSearcherSettings

    def __init__(
        self, *, settings: plugins.Settings, problem: Problem, seed: int = 0, outlook: MachineSetBounds
    ) -> None:
        super().__init__(settings=settings, problem=problem, seed=seed)
        self._outlook = outlook
        if problem.objective.metric not in (COST, RUNTIME) or problem.objective.goal != "minimise":
            raise SpecError("sets of machines are searched for the least cost or the least runtime")

    @cached_property
    def _least(self) -> tuple[Numbers, Numbers]:
        """Seconds and USD of each candidate at least; infinite where it can never be of use."""
        candidates = self.problem.candidates
        offers = [candidates.offer(place) for place in range(len(candidates))]
        seconds = np.array(
            [math.inf if self._outlook.idle(offer) else self._outlook.makespan(offer) for offer in offers]
        )
        money = np.array([self._outlook.cost(offer) if least < math.inf else math.inf
                          for offer, least in zip(offers, seconds, strict=True)])  # fmt: skip
        return seconds, money

    @property
    def _wanted(self) -> Numbers:
        seconds, money = self._least
        return money if self.problem.objective.metric == COST else seconds

    def _most_money(self) -> float:
        bounds = [t.at_most for t in self.problem.constraints.thresholds if t.metric == COST and t.at_most is not None]
        return min(bounds, default=math.inf)

    def hopeful(self, tried: Sequence[Trial], free: Any) -> Any:
        """Which of some candidates could still be better than the best feasible trial; their places.

        Args:
            tried: The trials that have ended.
            free: Places of candidates.
        """
        seconds, money = self._least
        deadline = self.problem.constraints.deadline
        possible = np.isfinite(seconds[free]) & (money[free] <= self._most_money() + _CLOSE)
        if deadline is not None:
            possible &= seconds[free] <= deadline + _CLOSE
        values = [t.observation.objective for t in tried if t.observation and t.observation.feasible]
        best = min((value for value in values if value is not None), default=math.inf)
        return free[possible & (self._wanted[free] < best * (1.0 - _CLOSE))]

    def ask(self, state: SearchState, count: int = 1) -> list[Proposal] | NothingLeft:
        """The sets that could be best, then some of the front; see `Searcher.ask`."""
        candidates, free = self.open_candidates(state)
        tried = [*self.history, *state.pending]
        hopeful = self.hopeful(self.history, free)
        if len(hopeful):
            return [self._proposal(int(place), BEST) for place in self._by_expectation(hopeful)[:count]]
        if state.pending:
            return NothingLeft("the sets on their way decide what else could be best", final=False)
        shown = sum(trial.proposal.why.get(_STAGE) == FRONT for trial in tried)
        place = self._next_of_front(tried, free) if shown < self.settings.front else None
        if place is not None:
            return [self._proposal(place, FRONT)]
        return NothingLeft(f"no other of the {len(candidates)} sets can be better: their lower bounds say so")

    def _by_expectation(self, places: Any) -> Any:
        """Candidates, those first that are expected to keep the limits, and of them the best by expectation."""
        offers = [self.problem.candidates.offer(int(place)) for place in places]
        seconds = self._expected(offers, self._power())
        money = np.array(
            [self._outlook.cost_of(offer, float(each)) for offer, each in zip(offers, seconds, strict=True)]
        )
        deadline = self.problem.constraints.deadline
        over = np.maximum(seconds / (deadline or math.inf), money / self._most_money())
        by_money = self.problem.objective.metric == COST
        first, second = (money, seconds) if by_money else (seconds, money)
        return places[np.lexsort((second, first, np.maximum(over, 1.0)))]

    def _expected(self, offers: Sequence[Offer], power: float) -> Numbers:
        """Seconds that plans on the machines of some offers probably take."""
        return np.asarray(self._outlook.boot + probable_makespan(*self._parts(offers), power))

    def _parts(self, offers: Sequence[Offer]) -> tuple[Numbers, Numbers]:
        parts = np.array([self._outlook.parts(offer) for offer in offers]).reshape(-1, 2)
        return parts[:, 0], parts[:, 1]

    def _power(self) -> float:
        """The power that fits what was tried best."""
        seen = [(trial.offer, trial.observation.runtime) for trial in self.history if trial.observation is not None]
        seconds = np.array([runtime for _, runtime in seen])
        return fitting_power(*self._parts([offer for offer, _ in seen]), seconds, self._outlook.boot)

    def _next_of_front(self, tried: Sequence[Trial], free: Any) -> int | None:
        """The set farthest in time from all tried ones, of those that could be quicker or cheaper than each of them."""
        seconds, money = self._least
        seen = [(t.observation.runtime, t.observation.cost) for t in tried if t.observation is not None]
        found = free[np.isfinite(seconds[free])]
        for runtime, cost in seen:
            found = found[(seconds[found] < runtime * (1.0 - _CLOSE)) | (money[found] < cost * (1.0 - _CLOSE))]
        if not len(found):
            return None
        kept: list[int] = []
        cheapest = math.inf
        for place in found[np.lexsort((money[found], seconds[found]))]:
            if money[place] < cheapest:
                kept.append(int(place))
                cheapest = float(money[place])
        times = np.log([max(runtime, _CLOSE) for runtime, _ in seen] or [1.0])
        away = [float(np.abs(math.log(max(float(seconds[place]), _CLOSE)) - times).min()) for place in kept]
        return kept[int(np.argmax(away))]

    def _proposal(self, place: int, stage: str) -> Proposal:
        candidates = self.problem.candidates
        seconds, money = self._least
        why: dict[str, float | str] = {
            _STAGE: stage,
            "at_least": f"{format_duration(float(seconds[place]))} and {format_money(float(money[place]))}",
        }
        return Proposal(candidates.configuration(place), why=why)
