"""How many trials were stopped early, and about what that saved."""

from __future__ import annotations

import numpy as np

from tradewind.engine.state_machine.early_stopping import estimated_savings
from tradewind.problem import TrialState
from tradewind.reporting.study.data import StudyData
from tradewind.utils.units import count, format_money


def early_stopping_savings(data: StudyData) -> tuple[int, float]:
    """How many trials were stopped early, and about how many USD that saved; see `tradewind.engine.state_machine.early_stopping.estimated_savings`."""
    rows = np.flatnonzero(data.early)
    finished = data.runtime[data.having(TrialState.SUCCEEDED) & data.whole]
    hourly = data.floats["price_per_hour"][rows] * data.nodes[rows]
    pairs = list(zip(data.runtime[rows].tolist(), np.nan_to_num(hourly).tolist(), strict=True))
    return len(rows), estimated_savings(finished.tolist(), pairs)


def early_stopping_sentence(data: StudyData) -> str:
    """``6 trials were stopped early, which saved about $0.00012.``, or an empty text."""
    number, dollars = early_stopping_savings(data)
    if not number:
        return ""
    words = f"{count(number, 'trial')} {'was' if number == 1 else 'were'} stopped early"
    return f"{words}, which saved about {format_money(dollars)}." if dollars > 0 else f"{words}."
