"""Proposes one configuration, once: a single run goes through the same engine as a search."""

from __future__ import annotations

from tradewind.plugins import Settings
from tradewind.problem import Configuration, Problem, Proposal
from tradewind.searcher.base import NothingLeft, PricesAborts, Searcher, SearchState


class FixedSearcher(Searcher, PricesAborts):
    """Proposes one configuration, even if it was run before, and nothing after it.

    Args:
        problem: The problem.
        configuration: What to run.
        asked: It was proposed by an earlier process, and its trial is on its way.
    """

    def __init__(self, problem: Problem, configuration: Configuration, *, asked: bool = False) -> None:
        super().__init__(settings=Settings(), problem=problem)
        self._configuration = configuration
        self._asked = asked

    def ask(self, state: SearchState, count: int = 1) -> list[Proposal] | NothingLeft:
        """The configuration at the first call; after it nothing."""
        if self._asked:
            return NothingLeft("the run has ended")
        self._asked = True
        return [Proposal(self._configuration, repeat=True)]
