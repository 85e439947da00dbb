"""Where a run goes when there are no machines for it, or its spot machines were taken back."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import Literal

from tradewind.problem import Fault, Offer, Run, RunState, Trial

FallbackKind = Literal["region", "on_demand"]

FallbackFinder = Callable[[Offer, Collection[str]], Offer | None]
"""Another offer of the same machines, none of those with the given keys; None if there is none."""


def no_fallback(_offer: Offer, _refused: Collection[str]) -> Offer | None:
    """There is no other offer."""
    return None


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


class OfferRefusals:
    """Which offers have failed which trials.

    Args:
        spot_attempts: Runs of a trial on spot machines that may be taken back before the offer counts as refused.
    """

    def __init__(self, spot_attempts: int = 1) -> None:
        self._spot_attempts = spot_attempts
        self._refused: defaultdict[int, set[str]] = defaultdict(set)
        self._taken: Counter[tuple[int, str]] = Counter()

    def note(self, run: Run) -> None:
        """Take in the end of a run."""
        key = run.offer_key
        if run.fault is Fault.CAPACITY:
            self._refused[run.trial].add(key)
        elif run.state is RunState.PREEMPTED and "/spot" in key:
            self._taken[run.trial, key] += 1
            if self._taken[run.trial, key] >= self._spot_attempts:
                self._refused[run.trial].add(key)

    def other_offer(self, trial: Trial, find: FallbackFinder) -> Offer | None:
        """Where a trial should go on, or None where its offer is as good as any."""
        refused = self._refused[trial.number]
        return find(trial.offer, refused) if trial.offer.key in refused else None
