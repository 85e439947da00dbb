"""From what a searcher proposes to trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tradewind.engine.state_machine.events import PricedProposal
from tradewind.engine.state_machine.trial_history import TrialHistory
from tradewind.problem import Observation, Offer, Trial, TrialState

_REPEATS = 20
"""A searcher that proposes so many finished trials in a row is stopped: it will not get further."""

_NO_OFFER = Offer("", "", 0, 0, 0)


class ProposalIntake:
    """Makes trials of proposals, and leaves out what was tried before.

    Attributes:
        stuck: The searcher has proposed only that, many times in a row.
    """

    def __init__(self) -> None:
        self.stuck = False
        self._repeats = 0

    def take(self, proposals: Sequence[PricedProposal], history: TrialHistory, now: float) -> list[Trial]:
        """The new trials, which are in the book then: pending, or failed where nobody sells what they need.

        Args:
            proposals: What is proposed.
            book: The trials so far.
            now: The runner's clock, in seconds.
        """
        keys = {trial.key for trial in history.pending}
        found = []
        for priced in proposals:
            if not priced.proposal.repeat and (priced.key in keys or history.known(priced.key)):
                self._repeats += 1
                self.stuck = self.stuck or self._repeats >= _REPEATS
                continue
            self._repeats = 0
            keys.add(priced.key)
            trial = Trial(
                number=history.next_number,
                proposal=priced.proposal,
                offer=priced.offer or _NO_OFFER,
                state=TrialState.PENDING,
                key=priced.key,
                created=now,
            )
            history.put(trial)
            if priced.offer is None:
                seen = Observation(None, 0.0, 0.0, feasible=False, reason=priced.reason)
                trial = replace(trial, state=TrialState.FAILED, observation=seen, ended=now)
            found.append(trial)
        return found
