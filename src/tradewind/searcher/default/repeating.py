"""What running a configuration again is worth: it tells a good one from a lucky one."""

from __future__ import annotations

import numpy as np

from tradewind.problem import Billing
from tradewind.problem.ranking import ConfigurationRanking
from tradewind.searcher.surrogate.gp import Array

UNKNOWN_SPREAD = 0.1
"""By how much runs are taken to vary until one was repeated."""
LEAST_GAIN = 0.0001
"""Share of the best by which a repetition must be expected to improve the recommendation."""
_LEAST_STEP = 0.01
"""Change of ln time over which a bill is looked at, where runs hardly vary."""
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(25)
_SHARES = _WEIGHTS / _WEIGHTS.sum()


def bill_elasticities(billing: Billing, seconds: Array, hourly: Array, spread: float | None) -> Array:
    """By what share of a change of its time the bill of a run changes.

    Below one where set-up is paid besides, and zero where the change stays within what is billed in any case: a
    minimum, or a unit of time that is begun.

    Args:
        billing: How time becomes money.
        seconds: Run times, shape (k,).
        hourly: USD per hour, shape (k,).
        spread: Standard deviation of the logarithm of a run's time; None as long as it is not known.

    Returns:
        Elasticities between 0 and 1, shape (k,).
    """
    step = max(UNKNOWN_SPREAD if spread is None else spread, _LEAST_STEP)
    longer, shorter = (np.array(billing.costs(seconds * np.exp(side), hourly)) for side in (step, -step))
    moved: Array = np.log(np.maximum(longer, 1e-12) / np.maximum(shorter, 1e-12)) / (2.0 * step)
    return np.clip(moved, 0.0, 1.0)


def repetition_gains(standing: ConfigurationRanking, times: Array, moved: Array) -> Array:
    """By how much one more run of each configuration is expected to lower the loss of what will be recommended.

    The knowledge gradient of Frazier, Powell & Dayanik, "A knowledge-gradient policy for sequential information
    collection", SIAM J. Control Optim. 2008: beliefs about configurations are independent and rest on their own runs
    alone, for what a model expects of a configuration cannot tell whether its runs were lucky.

    Args:
        standing: What was measured.
        times: How often each configuration ran, or is running, shape (k,).
        moved: By what share of a change of its time its loss changes, shape (k,).

    Returns:
        In units of the objective, shape (k,); zero where there is nothing to choose between.
    """
    if len(times) < 2:
        return np.zeros(len(times))
    sd = UNKNOWN_SPREAD if standing.spread is None else standing.spread
    now, then = sd / np.sqrt(times), sd / np.sqrt(times + 1.0)
    step = np.sqrt(now**2 - then**2)

    def value(shift: Array, spread: Array) -> Array:
        return standing.price(standing.loss * np.exp(moved * shift), standing.log_time + shift, spread)

    present = value(np.zeros(len(times)), now)
    first, second = np.argsort(present, kind="stable")[:2]
    rival = np.full(len(times), present[first])
    rival[first] = present[second]
    after = sum(share * np.minimum(value(z * step, then), rival) for z, share in zip(_NODES, _SHARES, strict=True))
    gain: Array = np.maximum(float(present[first]) - after, 0.0)
    return gain
