"""Which configurations come first: by money, by constrained value, and with ties broken by order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tradewind.searcher.base import SearchState
from tradewind.searcher.surrogate.gp import Array
from tradewind.searcher.trimtuner.fidelity_models import FullInputPrediction
from tradewind.searcher.trimtuner.field import CandidateRows


def payable_candidates(field: CandidateRows, whole: FullInputPrediction, state: SearchState) -> NDArray[np.bool_]:
    """The open configurations whose whole run the money left pays: for sure, else probably, else whatever it costs."""
    if state.money_left is not None:
        for cost in (whole.cost_high, whole.cost):
            enough: NDArray[np.bool_] = field.open & (cost <= state.money_left)
            if enough.any():
                return enough
    return field.open


def constrained_value(whole: FullInputPrediction) -> Array:
    """Constrained expected value: the expected value, from 0 for the worst to 1 for the best, times the probability.

    TrimTuner's constrained expected accuracy (section III-C), for objectives that are no share between 0 and 1.
    """
    low, high = float(whole.loss.min()), float(whole.loss.max())
    value = (high - whole.loss) / (high - low) if high > low else np.ones(len(whole.loss))
    result: Array = (value + 0.01) * whole.feasible
    return result


def stable_argmax(score: Array) -> int:
    """The place of the greatest, rounded to 9 digits of the range so that ties are broken by order."""
    known = np.isfinite(score)
    if not known.any():
        return int(np.argmax(known))
    low, high = float(score[known].min()), float(score[known].max())
    relative = (score - low) / (high - low) if high > low else np.zeros(len(score))
    return int(np.argmax(np.where(known, np.round(relative, 9), -np.inf)))
