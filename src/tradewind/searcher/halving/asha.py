"""ASHA: asynchronous successive halving over shares of the input, each from the checkpoint of the one before."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence, Set
from functools import cached_property
from typing import ClassVar

import numpy as np
from pydantic import Field

from tradewind import plugins
from tradewind.errors import SpecError
from tradewind.problem import Configuration, Problem, Proposal, Trial, TrialState
from tradewind.searcher.base import (
    Concludes,
    ContinuesTrials,
    ContinuousSpaces,
    LetsRunsEnd,
    NothingLeft,
    ProposesMany,
    Searcher,
    SearchState,
    UsesFractions,
)
from tradewind.utils import units

_DRAWS = 200
"""Configurations of a space that cannot be listed that are drawn for a new one."""
_ROUND = 1e-9
DIGITS = 6
"""Shares of the input are told apart by so many digits."""


class RungSettings(plugins.Settings):
    """Settings of searchers that run shares of the input in rungs."""

    eta: float = Field(
        3.0, gt=1, le=100, description="One in eta goes on at each rung, on eta times as much of the input."
    )
    rungs: int = Field(
        4, ge=1, le=12, description="Number of rungs; the last one is the whole input. 4 with eta 3: 1/27, 1/9, 1/3, 1."
    )


Rank = tuple[int, float]
"""The rank of a trial, smaller is better: (0, loss) feasible, (1, loss) infeasible."""


class ContinuingSearcher(
    Searcher, ProposesMany, ContinuousSpaces, UsesFractions, ContinuesTrials, Concludes, LetsRunsEnd
):
    """Common parts of searchers whose trials run shares of the input, and go on from their checkpoints.

    Raises:
        SpecError: The budget of trials ends before one could have come to the whole input.
    """

    def __init__(self, *, settings: plugins.Settings, problem: Problem, seed: int = 0) -> None:
        super().__init__(settings=settings, problem=problem, seed=seed)
        trials = problem.budget.trials
        if trials is not None and trials < self.least_trials:
            raise SpecError(
                f"a budget of {units.count(trials, 'trial')} is too small for the searcher {self.name}: "
                f"it needs {self.least_trials} until one has run on the whole input",
                hint=f"give it {self.least_trials} or more, or {self.fewer_by}",
            )

    fewer_by: ClassVar[str] = "fewer rungs"
    """The settings by which a whole run comes earlier, in words."""

    @property
    @abstractmethod
    def least_trials(self) -> int:
        """The number of trials after which one may have run on the whole input."""

    @property
    @abstractmethod
    def shares(self) -> tuple[float, ...]:
        """The shares of the input that trials run, growing; the last is 1."""

    def rung_of(self, trial: Trial) -> int | None:
        """The place of a trial's share among `shares`; None where it ran another one."""
        share = round(trial.proposal.fidelity, DIGITS)
        return self.shares.index(share) if share in self.shares else None

    def rank(self, trial: Trial) -> Rank | None:
        """The rank of a trial among those of its rung; None where it has no result, and never goes on."""
        seen = trial.observation
        if trial.state is not TrialState.SUCCEEDED or seen is None or seen.objective is None:
            return None
        loss = self.problem.objective.loss(seen.objective)
        return None if math.isnan(loss) else (0 if seen.feasible else 1, loss)

    def ranked(self, trials: Sequence[Trial]) -> list[Trial]:
        """Trials that have a result and may still be run, the best first."""
        found = [(rank, trial.number, trial) for trial in trials if (rank := self.rank(trial)) is not None]
        return [trial for *_, trial in sorted(found, key=lambda each: each[:2])]

    def spare(self, state: SearchState, needed: int) -> int | None:
        """The trials that are left beside those for one to come to the whole input; None where one has, or no limit is.

        A search that uses them up, in places of its own beside the one that leads, ends without a result.

        Args:
            state: Pending trials and what is left of the budget.
            needed: The trials that the one which has come furthest needs after its present one.
        """
        whole = any(self.rank(trial) is not None for trial in self.history if trial.proposal.fidelity == 1.0)
        if state.trials_left is None or whole or any(trial.proposal.fidelity == 1.0 for trial in state.pending):
            return None
        return state.trials_left - needed

    def fresh(
        self, state: SearchState, rng: np.random.Generator, count: int, not_these: Set[str]
    ) -> list[Configuration]:
        """New configurations at random, none of which was run on one of the shares.

        Args:
            state: Pending trials and what is left of the budget.
            rng: The random numbers of this call.
            count: The most that are wanted.
            not_these: Keys of further configurations that are none.
        """
        trials = [trial for trial in (*self._told.values(), *state.pending) if self.rung_of(trial) is not None]
        if self.problem.space.enumerable:
            candidates = self.problem.candidates
            free = self.affordable(state, candidates.hourly)
            for configuration in (trial.configuration for trial in trials):
                if (place := candidates.index(configuration)) is not None:
                    free[place] = False
            places = rng.permutation(np.flatnonzero(free)).tolist()
            chosen = (candidates.configuration(int(place)) for place in places)
        else:
            seen = {trial.configuration.key for trial in trials}
            pool = self.problem.pool(self.problem.space.sample(rng, max(_DRAWS, 4 * count)))
            payable = self.affordable(state, pool.hourly)
            every = (pool.configuration(place) for place in range(len(pool)) if payable[place])
            chosen = (configuration for configuration in every if configuration.key not in seen)
        found: dict[str, Configuration] = {}
        for configuration in chosen:
            if len(found) == count:
                break
            if configuration.key not in not_these:
                found.setdefault(configuration.key, configuration)
        return list(found.values())


class RungSearcher(ContinuingSearcher):
    """Common parts of searchers that let the best of those on a share of the input go on, on a larger one."""

    Settings = RungSettings
    settings: RungSettings

    @property
    def least_trials(self) -> int:
        """See `ContinuingSearcher.least_trials`."""
        return self.settings.rungs

    @cached_property
    def shares(self) -> tuple[float, ...]:
        """The share of the input at each rung; the last is 1."""
        top = self.settings.rungs - 1
        return tuple(round(self.settings.eta ** (rung - top), DIGITS) for rung in range(top + 1))

    def promotion(self, trial: Trial, rung: int, why: Mapping[str, float | str], state: SearchState) -> Proposal | None:
        """The proposal that a trial goes on at a rung, from its checkpoint; None where that was run, or is too dear."""
        share = self.shares[rung]
        if not self.sold(trial.configuration):
            return None
        offer = self.problem.resolver.resolve(trial.configuration)
        key = self.problem.key_of(offer, trial.configuration, share)
        if key in self.taken(state) or not self.affordable(state, np.array([offer.hourly]))[0]:
            return None
        return Proposal(trial.configuration, fidelity=share, why=why, origin=trial.number)


class AshaSearcher(RungSearcher):
    """Tries many configurations on a small share of the input, and lets the best third go on: ASHA.

    Li et al., "A System for Massively Parallel Hyperparameter Tuning" (MLSys 2020), Algorithm 2, without early-stopping
    rate (bracket 0). Whenever a place is free, a trial that is among the best 1/eta of its rung goes on at the next
    one, on eta times as much of the input, from its checkpoint; where there is none, a new configuration begins. Nobody
    waits for a rung to be full. So that a search that ends has an answer, the best goes on before its time when all
    configurations were begun, or when the trials that are left are just enough for it to come to the whole input:
    then nothing else begins any more, however many places are free.
    """

    name = "asha"

    def ask(self, state: SearchState, count: int = 1) -> list[Proposal] | NothingLeft:
        """Propose promotions, the highest first, then new configurations."""
        proposals: list[Proposal] = []
        began = {(self.rung_of(trial), trial.configuration.key) for trial in (*self.history, *state.pending)}
        rungs = [[trial for trial in self.history if self.rung_of(trial) == rung] for rung in range(len(self.shares))]
        leads, last = self._leader(rungs, began, state)
        ahead = max((self.rung_of(trial) or 0 for trial in state.pending), default=-1)
        spare = self.spare(state, len(self.shares) - 1 - max(leads, ahead, 0))
        if spare is not None and spare <= 0 and max(leads, ahead) >= 0:
            return last if leads > ahead else NothingLeft("it waits for the trials that run", final=False)
        if spare is not None:
            count = min(count, max(1, spare))
        for rung in reversed(range(len(self.shares) - 1)):
            room = int(len(rungs[rung]) / self.settings.eta + _ROUND)
            for trial in self.ranked(rungs[rung])[:room]:
                if len(proposals) == count:
                    return proposals
                if (rung + 1, trial.configuration.key) not in began:
                    proposals += self._promote(trial, rung + 1, state)
        if len(proposals) < count:
            new = self.fresh(state, self.rng(state), count - len(proposals), set())
            why: dict[str, float | str] = {"stage": f"new, on {self.shares[0]:.3g} of the input"}
            proposals += [Proposal(each, fidelity=self.shares[0], why=why) for each in new]
        if proposals:
            return proposals
        if state.pending:
            return NothingLeft("it waits for the trials that run", final=False)
        for rung in reversed(range(len(self.shares) - 1)):  # nothing new is left: the best of all goes on to the end
            for trial in self.ranked(rungs[rung])[:1]:
                if (rung + 1, trial.configuration.key) not in began and (last := self._promote(trial, rung + 1, state)):
                    return last
        return self.nothing_left(state)

    def _leader(
        self, rungs: Sequence[Sequence[Trial]], began: Set[tuple[int | None, str]], state: SearchState
    ) -> tuple[int, list[Proposal]]:
        """The highest rung from which a trial can go on, and the proposal that its best does; -1 where none can."""
        for rung in reversed(range(len(self.shares) - 1)):
            for trial in self.ranked(rungs[rung]):
                if (rung + 1, trial.configuration.key) not in began and (last := self._promote(trial, rung + 1, state)):
                    return rung, last
        return -1, []

    def origins(self, state: SearchState) -> list[int]:
        """List the trials that may yet be promoted, those next in turn first.

        Each further trial may be one of a rung, whose best third grows with it; the best that have not gone on yet may
        do so before their time, with the last trials of the budget. Without a budget of trials nobody knows how many
        there will be.
        """
        began = {(self.rung_of(trial), trial.configuration.key) for trial in (*self.history, *state.pending)}
        found: list[tuple[float, int, int]] = []
        for rung in range(len(self.shares) - 1):
            here = [trial for trial in self.history if self.rung_of(trial) == rung]
            most, early = math.inf, len(self.shares) - 1
            if state.trials_left is not None:
                coming = state.trials_left + sum(self.rung_of(trial) == rung for trial in state.pending)
                most = int((len(here) + coming) / self.settings.eta + _ROUND)
                early = min(early, state.trials_left)
            for place, trial in enumerate(self.ranked(here)):
                if (rung + 1, trial.configuration.key) in began:
                    continue
                if place < most or early > 0:
                    found.append((place / len(here), -rung, trial.number))
                early -= 1
        return [number for *_, number in sorted(found)]

    def _promote(self, trial: Trial, rung: int, state: SearchState) -> list[Proposal]:
        why = {"stage": f"goes on from trial {trial.number}, on {self.shares[rung]:.3g} of the input"}
        found = self.promotion(trial, rung, why, state)
        return [] if found is None else [found]
