"""Searchers for tests of the engine: they need no model."""

from __future__ import annotations

from collections.abc import Sequence

from tradewind.plugins import Settings
from tradewind.problem import Problem, Proposal
from tradewind.searcher.base import NothingLeft, Searcher, SearchState


class InOrder(Searcher):
    """Proposes the candidates in order, each once."""

    def ask(self, state: SearchState, count: int = 1) -> list[Proposal] | NothingLeft:
        candidates, free = self.open_candidates(state)
        if not len(free):
            return NothingLeft("every configuration was tried", final=not state.pending)
        return [Proposal(candidates.configuration(int(i))) for i in free[:count]]


class Scripted(Searcher):
    """Proposes what it was given."""

    def __init__(self, problem: Problem, script: Sequence[Proposal]) -> None:
        super().__init__(settings=Settings(), problem=problem)
        self.script = list(script)

    def ask(self, state: SearchState, count: int = 1) -> list[Proposal] | NothingLeft:
        if not self.script:
            return NothingLeft("the script is over")
        given, self.script = self.script[:count], self.script[count:]
        return given


def in_order(problem: Problem) -> InOrder:
    return InOrder(settings=Settings(), problem=problem)
