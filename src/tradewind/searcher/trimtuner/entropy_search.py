"""Information gain of a run on a part of the input about the optimum on the whole.

Entropy search as in FABOLAS (Klein et al., AISTATS 2017, equation 7) and TrimTuner (Mendes et al., MASCOTS 2020,
equation 5): the distribution p_opt of the best among some representative configurations, by Monte Carlo over the
posterior; its entropy now, and expected after a run by Gauss-Hermite quadrature over what the run would show.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tradewind.searcher.surrogate.gp import Array
from tradewind.searcher.trimtuner.extra_trees import ExtraTrees
from tradewind.searcher.trimtuner.fidelity_process import FidelityProcess

SAMPLES = 256
_NODES = np.array([-np.sqrt(3.0), 0.0, np.sqrt(3.0)])
_WEIGHTS = np.array([1 / 6, 2 / 3, 1 / 6])
"""Three-point Gauss-Hermite quadrature for a standard normal variable."""


def information_gain(
    model: FidelityProcess | ExtraTrees,
    targets: Array,
    tried: Array,
    as_loss: Callable[[Array], Array],
    rng: np.random.Generator,
) -> Array:
    """Expected fall of the entropy of p_opt.

    Args:
        model: Model of the objective.
        targets: Representative configurations on the whole input, shape (m, d + 1).
        tried: Runs that could be made, shape (k, d + 1).
        as_loss: Maps the model's figure to the loss on the whole input; its last axis is the targets'.
        rng: Draws the samples; all of ``tried`` are judged by the same ones.

    Returns:
        Nats, at least 0, shape (k,).
    """
    if isinstance(model, ExtraTrees):
        return _of_trees(model, targets, tried, as_loss, rng)
    return _of_process(model, targets, tried, as_loss, rng)


def entropy(samples: Array) -> Array:
    """Entropy of the place of the least value, in nats.

    Args:
        samples: Losses, shape (..., samples, m).

    Returns:
        Shape (...).
    """
    m = samples.shape[-1]
    places = samples.argmin(axis=-1).reshape(-1, samples.shape[-2])
    offsets = m * np.arange(len(places))[:, None]
    shares = np.bincount((places + offsets).ravel(), minlength=m * len(places)) / samples.shape[-2]
    parts = np.where(shares > 0, shares * np.log(np.maximum(shares, 1e-300)), 0.0)
    return np.asarray(-parts.reshape(len(places), m).sum(axis=1).reshape(samples.shape[:-2]))


def _of_process(
    model: FidelityProcess, targets: Array, tried: Array, as_loss: Callable[[Array], Array], rng: np.random.Generator
) -> Array:
    m = len(targets)
    mean, covariance = model.joint(np.vstack([targets, tried]))
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2.0)
    # A symmetric root: it is the same whatever signs the eigenvectors come with.
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    drawn = mean + rng.standard_normal((SAMPLES, len(mean))) @ root
    noise = np.sqrt(model.noise_variance) * rng.standard_normal((SAMPLES, 1))
    known, spots = drawn[:, :m], drawn[:, m:] + noise
    now = float(entropy(as_loss(known)))
    gains = np.zeros(len(tried))
    for k in range(len(tried)):
        variance = max(float(covariance[m + k, m + k]), 0.0) + model.noise_variance
        if variance <= 0.0:
            continue
        pull = covariance[:m, m + k] / variance
        shown = mean[m + k] + np.sqrt(variance) * _NODES
        # Samples of the posterior after an observation, without another factorisation (Matheron's rule).
        moved = known[None] + (shown[:, None] - spots[None, :, k])[:, :, None] * pull
        gains[k] = now - float(_WEIGHTS @ entropy(as_loss(moved)))
    return np.maximum(gains, 0.0)


def _of_trees(
    model: ExtraTrees, targets: Array, tried: Array, as_loss: Callable[[Array], Array], rng: np.random.Generator
) -> Array:
    noise = rng.standard_normal((SAMPLES, len(targets)))
    mean, variance = model.predict(targets)
    now = float(entropy(as_loss(mean + np.sqrt(variance) * noise)))
    centre, spread = model.predict(tried)
    values = centre[:, None] + np.sqrt(spread)[:, None] * _NODES
    gains = np.zeros(len(tried))
    for k, answers in enumerate(model.after(targets, tried, values)):
        means, variances = model.moments(answers)
        after = as_loss(means[:, None, :] + np.sqrt(variances)[:, None, :] * noise)
        gains[k] = now - float(_WEIGHTS @ entropy(after))
    return np.maximum(gains, 0.0)
