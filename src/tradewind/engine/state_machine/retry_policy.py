"""Decides whether a run that the infrastructure lost is tried again, and at which offer."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace

from tradewind.engine.state_machine import trial_outcome
from tradewind.engine.state_machine.search_policy import FallbackFinder, FallbackKind, SearchPolicy
from tradewind.problem import Fault, Observation, Offer, Run, RunState, Trial, TrialState

_MOST_LOST_IN_A_ROW = 8
"""So many lost trials in a row end the search: the searcher does not learn of them, so it would never end."""

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
        spared = self._refusals.note(run)
        self._runs[run.trial] += trial_outcome.is_lost(run) and not spared

    def again(self, run: Run, trial: Trial) -> Trial | None:
        """The trial of a lost run as it is to be tried again, perhaps elsewhere; None where it is lost, too."""
        if run.fault in _NEVER_RETRIED:
            return None  # until somebody mends that, every further attempt would end like this one
        if self._refusals.note(run):
            return trial
        if other := self._refusals.other_offer(trial, self._policy.elsewhere):
            return replace(trial, offer=other)  # at most once for each offer
        self._runs[trial.number] += 1  # what the user interrupted is no attempt that failed
        return trial if self._runs[trial.number] <= self._policy.retries else None

    def lost(self, run: Run, trial: Trial) -> Trial:
        """The trial of a lost run that is not tried again."""
        self._in_a_row += 1
        seen = Observation(None, run.cost, run.runtime, feasible=False, reason=run.reason)
        return replace(trial, state=TrialState.LOST, observation=seen, ended=run.ended)

    def why_over(self, run: Run) -> tuple[str, str]:
        """Say why the search must end after a lost run: the reason, and the trouble alone; empty where it goes on."""
        if run.fault in _NEVER_RETRIED:
            return f"{run.reason}; the same command goes on once that is mended", run.reason
        if self._in_a_row < _MOST_LOST_IN_A_ROW:
            return "", ""
        reason = f"{self._in_a_row} trials in a row were lost, the last one: {run.reason}"
        return reason, reason

    def ended(self) -> None:
        """A trial has ended that was not lost."""
        self._in_a_row = 0


class OfferRefusals:
    """The offers that have failed each trial.

    Args:
        spot_attempts: Runs of a trial on spot machines that may be taken back before the offer counts as refused.
    """

    def __init__(self, spot_attempts: int = 1) -> None:
        self._spot_attempts = spot_attempts
        self._refused: defaultdict[int, set[str]] = defaultdict(set)
        self._taken: Counter[tuple[int, str]] = Counter()

    def note(self, run: Run) -> bool:
        """Take in the end of a run.

        Returns:
            True where it lost spot machines, as its trial still may on that offer: that is no attempt that failed.
        """
        key = run.offer_key
        if run.fault is Fault.CAPACITY:
            self._refused[run.trial].add(key)
        elif run.state is RunState.PREEMPTED and "/spot" in key:
            self._taken[run.trial, key] += 1
            if self._taken[run.trial, key] < self._spot_attempts:
                return True
            self._refused[run.trial].add(key)
        return False

    def other_offer(self, trial: Trial, find: FallbackFinder) -> Offer | None:
        """The offer on which a trial should go on, or None where its offer is as good as any."""
        refused = self._refused[trial.number]
        return find(trial.offer, refused) if trial.offer.key in refused else None


def fallback_finder(offers: Sequence[Offer], ways: Collection[FallbackKind]) -> FallbackFinder:
    """Look for the same instance type among some offers of one node each.

    Args:
        offers: What could be used instead.
        ways: ``region``: in another region; ``on_demand``: not as spot. Spot never takes the place of on demand.

    Returns:
        What finds the other offer. Machines of the same kind in another region come before those on demand, and of
        several the cheapest.
    """

    def find(offer: Offer, refused: Collection[str]) -> Offer | None:
        def allowed(other: Offer) -> bool:
            moves = other.region != offer.region
            firms = offer.spot and not other.spot
            return (
                (other.provider, other.instance_type) == (offer.provider, offer.instance_type)
                and other.key not in refused
                and other.key != offer.key
                and (not moves or "region" in ways)
                and (other.spot == offer.spot or (firms and "on_demand" in ways))
            )

        found = [other for each in offers if allowed(other := each.times(offer.nodes))]
        return min(found, key=lambda other: (not other.spot, other.hourly, other.key), default=None)

    return find
