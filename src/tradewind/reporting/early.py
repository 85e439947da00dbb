"""How many trials were stopped early, and about what that saved."""

from __future__ import annotations

import numpy as np

from tradewind.engine.early import saved
from tradewind.problem import TrialState
from tradewind.reporting.data import StudyData
from tradewind.units import count, format_money


def stopped_early(data: StudyData) -> tuple[int, float]:
    """How many trials were stopped early, and about how many USD that saved; see `tradewind.engine.early.saved`."""
    rows = np.flatnonzero(data.early)
    finished = data.runtime[data.having(TrialState.SUCCEEDED) & data.whole]
    hourly = data.floats["price_per_hour"][rows] * data.nodes[rows]
    pairs = list(zip(data.runtime[rows].tolist(), np.nan_to_num(hourly).tolist(), strict=True))
    return len(rows), saved(finished.tolist(), pairs)


def early_sentence(data: StudyData) -> str:
    """``6 trials were stopped early, which saved about $0.00012.``, or an empty text."""
    number, dollars = stopped_early(data)
    if not number:
        return ""
    words = f"{count(number, 'trial')} {'was' if number == 1 else 'were'} stopped early"
    return f"{words}, which saved about {format_money(dollars)}." if dollars > 0 else f"{words}."
