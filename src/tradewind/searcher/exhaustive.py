"""Exhaustive search: tries every configuration."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

import numpy as np
from pydantic import Field

from tradewind import plugins
from tradewind.errors import SpecError
from tradewind.problem import Problem, Proposal, Trial
from tradewind.searcher.base import IgnoresResults, NothingLeft, ProposesMany, Searcher, SearchState


class ExhaustiveSettings(plugins.Settings):
    """Settings of the order and the repetitions of exhaustive search."""

    order: Literal["declared", "shuffled", "cheapest"] = Field(
        default="declared",
        description="declared: as the space is written; shuffled: at random; cheapest: lowest price per hour first.",
    )
    repetitions: int = Field(default=1, ge=1, description="How often each configuration is run.")


class ExhaustiveSearcher(Searcher, ProposesMany, IgnoresResults):
    """Tries every configuration of a finite space, once or several times.

    All configurations are run once before any is run again.

    Raises:
        SpecError: The space cannot be listed.
    """

    Settings = ExhaustiveSettings
    weighs_by_default = False
    settings: ExhaustiveSettings

    def __init__(self, *, settings: plugins.Settings, problem: Problem, seed: int = 0) -> None:
        super().__init__(settings=settings, problem=problem, seed=seed)
        if not problem.space.enumerable:
            raise SpecError(
                f"the exhaustive searcher cannot try a space with {problem.space.size_text}",
                hint="give the values to try as lists, or use the searcher random or gp",
            )

    @cached_property
    def _order(self) -> np.ndarray[Any, np.dtype[np.intp]]:
        candidates = self.problem.candidates
        if self.settings.order == "shuffled":
            return np.random.default_rng([self.seed & 0xFFFFFFFF]).permutation(len(candidates))
        if self.settings.order == "cheapest":
            return np.argsort(candidates.hourly, kind="stable")
        return np.arange(len(candidates))

    @cached_property
    def _times_told(self) -> np.ndarray[Any, np.dtype[np.intp]]:
        """Number of ended trials of each candidate; kept up by `tell`, so that `ask` need not count them all."""
        return np.zeros(len(self.problem.candidates), dtype=int)

    def tell(self, trial: Trial) -> None:
        """Count the run of a configuration; the same trial again changes nothing."""
        if trial.state.informs and trial.number not in self._told:
            self._count(self._times_told, trial)
        super().tell(trial)

    def _count(self, times: np.ndarray[Any, np.dtype[np.intp]], trial: Trial) -> None:
        index = self.problem.candidates.index(trial.configuration)
        if index is not None and trial.proposal.fidelity == 1.0:
            times[index] += 1

    def ask(self, state: SearchState, count: int = 1) -> list[Proposal] | NothingLeft:
        """Propose the next configurations in order."""
        candidates = self.problem.candidates
        times = self._times_told.copy()
        for trial in state.pending:
            self._count(times, trial)
        payable = self.affordable(state, candidates.hourly)
        chosen: list[Proposal] = []
        for turn in range(self.settings.repetitions):
            due = self._order[((times <= turn) & payable)[self._order]]
            for index in due[: count - len(chosen)]:
                why = {"stage": f"run {turn + 1} of {self.settings.repetitions}"}
                chosen.append(Proposal(candidates.configuration(int(index)), repeat=turn > 0, why=why))
            if len(chosen) == count:
                break
        return chosen or self.nothing_left(state)
