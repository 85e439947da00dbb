"""What the infrastructure has lost, and whether it is tried again."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from tradewind.engine.policy import SearchPolicy
from tradewind.engine.state_machine import trial_outcome
from tradewind.engine.state_machine.search_policy import OfferRefusals
from tradewind.problem import Fault, Observation, Run, Trial, TrialState

_MOST_LOST_IN_A_ROW = 8
"""So many trials in a row that the infrastructure lost end the search: nobody is told of them, so it would not end."""

_NEVER_RETRIED = (Fault.CREDENTIALS, Fault.PREREQUISITE)
"""Whatever the configuration, no run succeeds before the user has done something."""


class RetryTracker:
    """Lost runs, by their trials.

    Args:
        policy: How often, and where else, a trial is tried again.
    """

    def __init__(self, policy: SearchPolicy) -> None:
        self._policy = policy
        self._runs: Counter[int] = Counter()
        self._refusals = OfferRefusals(policy.spot_attempts)
        self._in_a_row = 0

    def note(self, run: Run) -> None:
        """Take over a run that ended in an earlier session."""
        self._runs[run.trial] += trial_outcome.is_lost(run)
        self._refusals.note(run)

    def again(self, run: Run, trial: Trial) -> Trial | None:
        """The trial of a lost run as it is to be tried again, perhaps elsewhere; None where it is lost, too."""
        if run.fault in _NEVER_RETRIED:
            return None  # until somebody mends that, every further attempt would end like this one
        self._refusals.note(run)
        if other := self._refusals.other_offer(trial, self._policy.elsewhere):
            return replace(trial, offer=other)  # at most once for each offer
        self._runs[trial.number] += 1  # what the user interrupted is no attempt that failed
        return trial if self._runs[trial.number] <= self._policy.retries else None

    def lost(self, run: Run, trial: Trial) -> Trial:
        """The trial of a lost run that is not tried again."""
        self._in_a_row += 1
        seen = Observation(None, run.cost, run.runtime, feasible=False, reason=run.reason)
        return replace(trial, state=TrialState.LOST, observation=seen, ended=run.ended)

    def why_over(self, run: Run) -> str:
        """Why the search must end after a lost run, or an empty text."""
        if run.fault in _NEVER_RETRIED:
            return f"{run.reason}; the same command goes on once that is mended"
        if self._in_a_row < _MOST_LOST_IN_A_ROW:
            return ""
        return f"{self._in_a_row} trials in a row were lost, the last one: {run.reason}"

    def ended(self) -> None:
        """A trial has ended that was not lost."""
        self._in_a_row = 0
