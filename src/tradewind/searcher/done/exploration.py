"""The value of a run to later ones: expected improvement with a price."""

from __future__ import annotations

import math

import numpy as np

from tradewind.searcher.done.expansion import Array

FUTURE_RUNS = 5.0
"""Later runs that what one run teaches is taken to be worth something for."""


def net_gain(improvement: Array, doubt: Array) -> Array:
    """Expected gain of `FUTURE_RUNS` later runs from knowing a configuration, less what its own run loses, shape (n,).

    A later run takes the better one of the configuration and the best known. Its expected gain by that is the expected
    improvement of Mockus, Tiesis & Zilinskas ("The application of Bayesian methods for seeking the extremum", Towards
    Global Optimization 2, 1978). The price is what the run to find out is expected to be worse by. So a configuration
    that is surely worse is never worth a run, and one of which nothing is known may be.

    Args:
        improvement: How much better than the best known each configuration is expected to be, shape (n,).
        doubt: Standard deviation of that, shape (n,).
    """
    from scipy.special import ndtr

    sure = doubt < 1e-9
    spread = np.where(sure, 1.0, doubt)
    at = improvement / spread
    expected = spread * (at * ndtr(at) + np.exp(-0.5 * at * at) / math.sqrt(2.0 * math.pi))
    found: Array = FUTURE_RUNS * np.where(sure, np.maximum(improvement, 0.0), expected) + improvement
    return found
