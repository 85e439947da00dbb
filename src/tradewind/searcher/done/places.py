"""Configurations as DONE's model sees them, and what it expects of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tradewind.problem import Candidates, Offer
from tradewind.searcher.done.expansion import Array
from tradewind.searcher.surrogate.features import FeatureMap


@dataclass(frozen=True, slots=True)
class DonePrediction:
    """What is expected of n configurations; every array has shape (n,).

    Attributes:
        seconds: Median runtime.
        seconds_low: 5 % quantile of it.
        seconds_high: 95 % quantile of it.
        cost: USD of a run of the median time.
        cost_low: 5 % quantile.
        cost_high: 95 % quantile.
        feasible: Probability that the run succeeds, in time and within every bound.
        loss: The objective, as something to make small.
    """

    seconds: Array
    seconds_low: Array
    seconds_high: Array
    cost: Array
    cost_low: Array
    cost_high: Array
    feasible: Array
    loss: Array


@dataclass(frozen=True)
class CandidateInputs:
    """Configurations as the model sees them.

    Attributes:
        rows: Features on [-1, 1], shape (n, k).
        hourly: USD per hour, shape (n,).
        power: Logarithm of the vCPUs of all nodes together, shape (n,).
    """

    rows: Array
    hourly: Array
    power: Array

    @classmethod
    def of(cls, candidates: Candidates, features: FeatureMap) -> CandidateInputs:
        """Those of candidates."""
        offers = [candidates.offer(i) for i in range(len(candidates))]
        return cls(2.0 * features.of_candidates(candidates) - 1.0, candidates.hourly, log_vcpus(offers))

    def __getitem__(self, which: NDArray[np.intp]) -> CandidateInputs:
        return CandidateInputs(self.rows[which], self.hourly[which], self.power[which])

    def with_one(self, other: CandidateInputs, i: int) -> CandidateInputs:
        """The same and the i-th of others."""
        both = zip((self.rows, self.hourly, self.power), (other.rows, other.hourly, other.power), strict=True)
        return CandidateInputs(*(np.concatenate([mine, more[[i]]]) for mine, more in both))

    def moved(self, by: Array) -> CandidateInputs:
        """The same with every feature moved, for the exploration noise."""
        return CandidateInputs(self.rows + by, self.hourly, self.power)


def log_vcpus(offers: Sequence[Offer]) -> Array:
    """Logarithms of the vCPUs of all nodes together, shape (n,)."""
    found: Array = np.log(np.maximum([offer.vcpu * offer.nodes for offer in offers], 1e-9))
    return found
