"""Random search: tries configurations at random."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from tradewind.plugins import Settings
from tradewind.problem import Configuration, Proposal
from tradewind.searcher.base import ContinuousSpaces, IgnoresResults, NothingLeft, ProposesMany, Searcher, SearchState
from tradewind.searcher.candidate_pool import REFERENCE_SIZES

_STAGE = {"stage": "at random"}


class RandomSettings(Settings):
    """Random search has no settings."""


class RandomSearcher(Searcher, ProposesMany, IgnoresResults, ContinuousSpaces):
    """Tries configurations at random, none twice.

    On a finite space every untried configuration that the money left pays for is equally likely; on a continuous
    one each parameter is uniform on its scale.
    """

    Settings = RandomSettings

    def ask(self, state: SearchState, count: int = 1) -> list[Proposal] | NothingLeft:
        """Propose random configurations that are neither ended nor pending."""
        rng = self.rng(state)
        if self.problem.space.enumerable:
            candidates, open_ones = self.open_candidates(state)
            if not len(open_ones):
                return self.nothing_left(state)
            chosen = rng.choice(open_ones, size=min(count, len(open_ones)), replace=False)
            return [Proposal(candidates.configuration(int(i)), why=_STAGE) for i in chosen]
        few = 16 * count + 16
        # Where hardly any is sold, new and payable, a few draws miss them: a search must not end for that.
        for most, tries in ((few, 200), (max(few, REFERENCE_SIZES[-1]), 20)):
            if found := self._fresh(state, self.problem.space.samples(rng, most, tries=tries), count):
                return found
        return self.nothing_left(state)

    def _fresh(self, state: SearchState, samples: Iterator[Configuration], count: int) -> list[Proposal]:
        """Up to ``count`` of some configurations, drawn one after the other."""
        pending = {trial.key for trial in state.pending}
        sample: list[Configuration] = []
        found: list[Proposal] = []
        for more in (count, None):  # the first ones nearly always do
            sample += islice(samples, more)
            drawn = self.problem.pool(sample)
            payable = self.affordable(state, drawn.hourly)
            keys = (drawn.key(i) if payable[i] else None for i in range(len(drawn)))
            # Not `taken`, which copies the keys of all trials.
            fresh = (i for i, key in enumerate(keys) if key and key not in pending and key not in self._told_keys)
            found = [Proposal(drawn.configuration(i), why=_STAGE) for i in islice(fresh, count)]
            if len(found) == count:
                break
        return found
