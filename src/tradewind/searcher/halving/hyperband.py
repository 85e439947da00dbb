"""Hyperband: brackets of successive halving, from many configurations on little of the input to few on all of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

from pydantic import Field

from tradewind.problem import Proposal, Trial
from tradewind.searcher.base import NothingLeft, SearchState
from tradewind.searcher.halving.asha import RungSearcher, RungSettings
from tradewind.utils import units

_BRACKET = "bracket"
_ROUND = 1e-9


class HyperbandSettings(RungSettings):
    """Settings of `HyperbandSearcher`."""

    rounds: int = Field(1, ge=1, le=1000, description="How often all brackets are carried out.")


class HyperbandSearcher(RungSearcher):
    """Hedges between many configurations on little of the input and few on all of it: Hyperband.

    Li et al., "Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization" (JMLR 18, 2018), Algorithm 1:
    bracket s begins with ceil((s_max + 1) / (s + 1) · eta^s) configurations on the share eta^-s of the input, and of
    those on each rung the best 1/eta go on at the next one, from their checkpoints. A rung waits until it is full; a
    place that is free meanwhile begins the next bracket.
    """

    name = "hyperband"
    Settings = HyperbandSettings
    settings: HyperbandSettings

    @cached_property
    def least_trials(self) -> int:
        """The trials of the first bracket, which comes to the whole input last; a small space does not fill it."""
        enumerable = self.problem.space.enumerable
        return sum(min(size, len(self.problem.candidates)) if enumerable else size for size in self.sizes(0))

    def sizes(self, bracket: int) -> tuple[int, ...]:
        """The number of trials on each rung of a bracket, which are counted from 0; 0 on those that it leaves out.

        Args:
            bracket: Its number; every ``rungs`` of them make a round.
        """
        eta, most = self.settings.eta, self.settings.rungs - 1
        kind = most - bracket % (most + 1)
        first = math.ceil((most + 1) / (kind + 1) * eta**kind - _ROUND)
        later = [max(1, int(first * eta**-step + _ROUND)) for step in range(1, kind + 1)]
        return (*[0] * (most - kind), first, *later)

    def origins(self, state: SearchState) -> list[int]:
        """List the trials that may yet go on: on each rung of a bracket as many of the best as its next rung has."""
        found: list[tuple[int, int, int]] = []
        for bracket, members in self._members(state).items():
            sizes, ended = self.sizes(bracket), {trial.number for trial in self.history}
            for rung, most in enumerate(sizes[1:]):
                here = [trial for trial in members if self.rung_of(trial) == rung and trial.number in ended]
                above = {trial.configuration.key for trial in members if self.rung_of(trial) == rung + 1}
                left = [trial for trial in self.ranked(here)[:most] if trial.configuration.key not in above]
                found += [(bracket, -rung, trial.number) for trial in left]
        return [number for *_, number in sorted(found, key=lambda each: each[:2])]

    def _members(self, state: SearchState) -> dict[int, list[Trial]]:
        """The trials of each bracket."""
        members: dict[int, list[Trial]] = {}
        for trial in (*self.history, *state.pending):
            if isinstance(number := trial.proposal.why.get(_BRACKET), int | float):
                members.setdefault(int(number), []).append(trial)
        return members

    def ask(self, state: SearchState, count: int = 1) -> list[Proposal] | NothingLeft:
        """Propose what the earliest bracket lacks that can go on, then what the next one does."""
        proposals: list[Proposal] = []
        members = self._members(state)
        spare = self.spare(state, self.least_trials - len(members.get(0, ())))
        for bracket in range(self.settings.rounds * self.settings.rungs):
            first_goes_on = bool(proposals) or any(trial.proposal.why.get(_BRACKET) == 0.0 for trial in state.pending)
            if bracket == 1 and spare is not None and first_goes_on:  # what it still needs is not used up by others
                count = min(count, len(proposals) + max(0, spare))
            proposals += self._of_bracket(bracket, members.get(bracket, []), state, count - len(proposals), proposals)
            if len(proposals) >= count:
                break
        if proposals:
            return proposals
        if state.pending:
            return NothingLeft("it waits for the trials that run", final=False)
        done = f"all brackets were carried out ({units.count(self.settings.rounds, 'round')})"
        return NothingLeft(done) if self.history else self.nothing_left(state)

    def _of_bracket(
        self, bracket: int, members: Sequence[Trial], state: SearchState, count: int, before: Sequence[Proposal]
    ) -> list[Proposal]:
        """The proposals that a bracket has, as many as are wanted; none while a rung of it is not full."""
        sizes = self.sizes(bracket)
        first = next(rung for rung, size in enumerate(sizes) if size)
        began = [trial for trial in members if self.rung_of(trial) == first]
        lacking = min(count, sizes[first] - len(began))
        if lacking > 0:
            not_these = {proposal.configuration.key for proposal in before}
            why: dict[str, float | str] = {"stage": f"new, in bracket {bracket}", _BRACKET: float(bracket)}
            new = self.fresh(state, self.rng(state), lacking, not_these)
            if new:
                return [Proposal(each, fidelity=self.shares[first], why=why) for each in new]
        ended = {trial.number for trial in self.history}
        for rung in range(first, len(sizes) - 1):
            here = [trial for trial in members if self.rung_of(trial) == rung]
            if not here or any(trial.number not in ended for trial in here):
                return []
            above = {trial.configuration.key for trial in members if self.rung_of(trial) == rung + 1}
            found: list[Proposal] = []
            for trial in self.ranked(here)[: sizes[rung + 1]]:
                if trial.configuration.key not in above and len(found) < count:
                    stage = f"goes on from trial {trial.number}, in bracket {bracket}"
                    why = {"stage": stage, _BRACKET: float(bracket)}
                    next_one = self.promotion(trial, rung + 1, why, state)
                    found += [] if next_one is None else [next_one]
            if found:
                return found
        return []
