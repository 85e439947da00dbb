"""Fits expansions to runs; scale, penalty, inputs, lines or law are chosen by the evidence of a Bayesian linear model.

`ResponseModel` is one fit, `ModelAverage` several fits of the same runs, each weighted by how likely it makes them.
`SavedFit` keeps what was chosen before the weights for the next model of the same job.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tradewind.problem import Threshold
from tradewind.searcher.done.expansion import Array, FourierExpansion, ScalingLaw
from tradewind.searcher.done.ridge import DualRidge, RecursiveRidge, Ridge, misfits
from tradewind.searcher.done.run_history import LOG_SPREAD
from tradewind.searcher.outcomes import threshold_interval

SIGMAS = (0.1, 0.2, 0.4, 0.8)
"""Frequencies that are tried: standard deviation by input, on [-1, 1]."""

PENALTIES = (3e-4, 3e-3, 3e-2, 3e-1)
"""Penalties that are tried: variance of the noise by variance of the function."""

_LIKELY_SIGMA, _LIKELY_PENALTY = 0.3, 0.01
_SIGMA_SPREAD, _PENALTY_SPREAD = 0.7, 2.0
"""Log-normal priors of the two: they decide while the runs are too few to."""

_PRIOR_RUNS = 2.0
"""The prior of the amplitude weighs as much as so many runs."""

MOST_SELECTION_RUNS = 150
"""Runs that scale, penalty and inputs are chosen on, the first ones; more would cost more than they say."""

EVIDENCE_WINDOW = 20.0
"""Shapes that make the runs so many times less likely than the best one are left out (Madigan & Raftery 1994)."""

MOST_SHAPES = 12
"""Shapes at most, the likeliest ones: each is fitted and evaluated."""


@dataclass(frozen=True, slots=True)
class ExpansionShape:
    """Hyper-parameters of an expansion, chosen before its weights.

    Attributes:
        sigma: σ_ω of every input that is not dropped.
        penalty: λ, for columns with the factor √(2/m): the λ of the published form, by m/2.
        dropped: Names of the groups of inputs that do not matter.
        evidence: Logarithm of how likely it makes the runs, up to a constant.
        lawful: True for a law beside the cosines, False for straight lines.
    """

    sigma: float
    penalty: float
    dropped: frozenset[str] = frozenset()
    evidence: float = 0.0
    lawful: bool = False


@dataclass(frozen=True)
class ExpansionFamily:
    """The expansions that may be fitted, and the priors by which one of them is chosen.

    Attributes:
        expansion: Directions and phases; its scales are replaced.
        groups: Places of the inputs by name of the parameter or metric that they stand for; those in no group are
            always used.
        sigmas: Values of σ_ω to choose from.
        penalties: Values of λ to choose from.
        spread: Standard deviation that the figure is expected to have, before much is known.
        speedup: The power of the vCPUs that a law is to find in the figure; None to try no law. With a law, inputs have
            the logarithm of the vCPUs as one more column, the last.
        chosen: How many of the inputs, the first ones, are of the configuration.
    """

    expansion: FourierExpansion
    groups: Mapping[str, Sequence[int]]
    sigmas: Sequence[float] = SIGMAS
    penalties: Sequence[float] = PENALTIES
    spread: float = 0.7
    speedup: float | None = None
    chosen: int = 0
    _laws: dict[object, ScalingLaw] = field(default_factory=dict, repr=False, compare=False)

    def fitted(self, shape: ExpansionShape, z: Array, y: Array) -> FourierExpansion:
        """The expansion of a shape, its law fitted to runs where it has one; see `choose`."""
        expansion = self.shaped(shape)
        if not shape.lawful or self.speedup is None:
            return expansion
        key = (shape.dropped, z.tobytes(), y.tobytes())
        if key not in self._laws:
            self._laws[key] = ScalingLaw.fit(z, y, expansion.slopes, self.speedup, self.spread, self.chosen)
        return replace(expansion, law=self._laws[key])

    def shaped(self, shape: ExpansionShape) -> FourierExpansion:
        """The expansion of a shape, without a law."""
        scales = np.full(self.expansion.directions.shape[1], shape.sigma)
        for name in shape.dropped:
            scales[list(self.groups[name])] = 0.0
        return replace(self.expansion, scales=scales)

    def choose(self, z: Array, y: Array, dropped: frozenset[str] = frozenset()) -> ExpansionShape:
        """The most likely scale and penalty, with some inputs left out.

        Args:
            z: Inputs, shape (n, d).
            y: The figure around its mean, shape (n,).
            dropped: Names of groups.
        """
        return max(self.judged(z, y, dropped), key=lambda shape: shape.evidence)

    def judged(self, z: Array, y: Array, dropped: frozenset[str] = frozenset()) -> list[ExpansionShape]:
        """Every scale and penalty, with lines and with a law, with its evidence; see `choose`."""
        z, y = z[:MOST_SELECTION_RUNS], y[:MOST_SELECTION_RUNS]
        laws = (False,) if self.speedup is None else (False, True)
        kinds = [ExpansionShape(sigma, 0.0, dropped, lawful=lawful) for lawful in laws for sigma in self.sigmas]
        return [shape for kind in kinds for shape in self._judged(z, y, kind)]

    def _judged(self, z: Array, y: Array, kind: ExpansionShape) -> Iterator[ExpansionShape]:
        """A shape with every penalty, with the logarithm of their marginal likelihood and prior, up to a constant.

        The weights and the amplitude are integrated out: the weights are normal, the amplitude inverse gamma
        (Bishop, Pattern Recognition and Machine Learning, 2006, section 3.5 and exercise 3.23).
        """
        expansion = self.fitted(kind, z, y)
        columns, left = expansion.columns(z), y - expansion.start(z)
        likely_sigma = 0.5 * (math.log(kind.sigma / _LIKELY_SIGMA) / _SIGMA_SPREAD) ** 2
        both = zip(self.penalties, misfits(columns @ columns.T, left, self.penalties), strict=True)
        for penalty, (misfit, log_determinant) in both:
            total = _PRIOR_RUNS * self.spread**2 + misfit
            found = -0.5 * log_determinant - 0.5 * (_PRIOR_RUNS + len(y)) * math.log(total) - likely_sigma
            found -= 0.5 * (math.log(penalty / _LIKELY_PENALTY) / _PENALTY_SPREAD) ** 2
            yield replace(kind, penalty=penalty, evidence=round(found, 6))

    def eliminate(self, z: Array, y: Array, names: Sequence[str], start: ExpansionShape) -> list[ExpansionShape]:
        """Leave out, one after the other, the inputs without which the runs are as likely or more likely.

        Backward elimination: of all inputs, the one goes whose absence raises the evidence most; then the others are
        judged anew. An input that explains nothing costs the model freedom and lowers the evidence, so that no
        threshold is needed.

        Args:
            z: Inputs, shape (n, d).
            y: The figure around its mean, shape (n,).
            names: Groups that may go.
            start: The shape to begin with.

        Returns:
            The best shape of each set of inputs that was looked at; the first one with the most evidence is chosen.
        """
        best, seen = start, [start]
        while True:
            left = [name for name in names if name not in best.dropped]
            tries = [self.choose(z, y, best.dropped | {name}) for name in left]
            following = max(tries, key=lambda shape: shape.evidence, default=None)
            seen += tries
            if following is None or following.evidence <= best.evidence:
                return seen
            best = following


class ResponseModel:
    """One figure as a function of the inputs, with what is not known about it.

    Args:
        family: Expansions that may be fitted.
        shape: The shape to fit.
        z: Inputs, shape (n, d).
        y: The figure, shape (n,), n at least 1.
    """

    def __init__(self, family: ExpansionFamily, shape: ExpansionShape, z: Array, y: Array) -> None:
        self.shape = shape
        self.spread = family.spread
        self._offset = float(y.mean())
        self._expansion = family.fitted(shape, z, y - self._offset)
        self.count = len(y)
        columns = self._expansion.columns(z)
        # Whatever has fewer unknowns is solved; both give the same weights.
        solver: type[DualRidge] | type[RecursiveRidge] = DualRidge if self.count <= columns.shape[1] else RecursiveRidge
        self._ridge: Ridge = solver(columns, y - self._offset - self._expansion.start(z), shape.penalty)

    @property
    def grows(self) -> bool:
        """True when `learn` can be called: there are more points than columns."""
        return isinstance(self._ridge, RecursiveRidge)

    def learn(self, z: Array, y: float) -> None:
        """Take in one more point; only where it `grows`.

        Args:
            z: Inputs of the point, shape (d,).
            y: Figure of the point.
        """
        assert isinstance(self._ridge, RecursiveRidge)
        start = float(self._expansion.start(z[None, :])[0])
        self._ridge.update(self._expansion.columns(z[None, :])[0], y - self._offset - start)
        self.count += 1

    def fantasize(self, z: Array) -> ResponseModel:
        """A copy that takes its own expectations at more points, inputs of shape (n, d), for observed."""
        other = copy.copy(self)
        other._ridge = self._ridge.fantasize(self._expansion.columns(z))
        return other

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the Student distribution of a prediction."""
        return _PRIOR_RUNS + self.count

    def mean(self, z: Array) -> Array:
        """The expected figure, shape (n,)."""
        return self._mean(z, self._expansion.columns(z))

    def prediction(self, z: Array) -> tuple[Array, Array]:
        """The expected figure, and the scale of the Student distribution of a further run's, both of shape (n,)."""
        columns = self._expansion.columns(z)  # most of the time goes into them
        return self._mean(z, columns), np.sqrt(self._amplitude * (self._ridge.variance(columns) + self.shape.penalty))

    def difference(self, z: Array, place: int) -> tuple[Array, Array]:
        """The expected figure, and the variance of its difference from one point's, without the chance of a run.

        Args:
            z: Inputs, shape (n, d).
            place: The point of ``z`` that the others are compared with.
        """
        columns = self._expansion.columns(z)
        return self._mean(z, columns), self._amplitude * self._ridge.variance(columns - columns[place])

    def _mean(self, z: Array, columns: Array) -> Array:
        found: Array = columns @ self._ridge.weights + self._expansion.start(z) + self._offset
        return found

    @property
    def _amplitude(self) -> float:
        return (_PRIOR_RUNS * self.spread**2 + self._ridge.misfit) / self.freedom

    def slope(self, z: Array) -> Array:
        """Derivative of the expected figure by each input at one point, shape (d,)."""
        return self._expansion.gradient(z, self._ridge.weights)


def likely_shapes(shapes: Iterable[ExpansionShape]) -> list[ExpansionShape]:
    """The shapes that are not much less likely than the best, the likeliest first, each once.

    As in "Occam's window" of Madigan & Raftery, "Model selection and accounting for model uncertainty in graphical
    models using Occam's window" (Journal of the American Statistical Association, 1994).

    Args:
        shapes: All that were judged on the same runs.
    """
    found = sorted(dict.fromkeys(shapes), key=lambda one: -one.evidence)
    return [one for one in found if one.evidence >= found[0].evidence - math.log(EVIDENCE_WINDOW)][:MOST_SHAPES]


class ModelAverage:
    """A figure by several shapes at once: Bayesian model averaging.

    With few runs several scales, penalties and sets of inputs explain them about as well, and expect different things
    of what was not run. One of them alone takes its own choice for certain, and its ranges are too narrow; the average
    counts what they disagree on as not known (Hoeting, Madigan, Raftery & Volinsky, "Bayesian model averaging: a
    tutorial", Statistical Science 1999). Mean and variance are those of the mixture.

    Args:
        family: Expansions that may be fitted.
        shapes: The shapes, the likeliest first, with their evidence; at least one.
        z: Inputs, shape (n, d).
        y: The figure, shape (n,).
    """

    def __init__(self, family: ExpansionFamily, shapes: Sequence[ExpansionShape], z: Array, y: Array) -> None:
        best = ResponseModel(family, shapes[0], z, y)
        # With more runs than columns they say which shape it is, and one alone can take in runs as they come.
        others = () if best.grows else shapes[1:]
        self.parts = [best, *(ResponseModel(family, shape, z, y) for shape in others)]
        weights = np.exp(np.array([part.shape.evidence - best.shape.evidence for part in self.parts]))
        self._weights: Array = weights / weights.sum()

    @property
    def shape(self) -> ExpansionShape:
        """The likeliest shape."""
        return self.parts[0].shape

    @property
    def shapes(self) -> list[ExpansionShape]:
        """All of them, the likeliest first."""
        return [part.shape for part in self.parts]

    @property
    def spread(self) -> float:
        """Standard deviation that the figure is expected to have, before much is known."""
        return self.parts[0].spread

    @property
    def grows(self) -> bool:
        """True when `learn` can be called."""
        return self.parts[0].grows

    def learn(self, z: Array, y: float) -> None:
        """Take in one more point; only where it `grows`. See `ResponseModel.learn`."""
        self.parts[0].learn(z, y)

    def fantasize(self, z: Array) -> ModelAverage:
        """A copy that takes its own expectations at more points, inputs of shape (n, d), for observed."""
        other = copy.copy(self)
        other.parts = [part.fantasize(z) for part in self.parts]
        return other

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the Student distribution of a prediction."""
        return self.parts[0].freedom

    def mean(self, z: Array) -> Array:
        """The expected figure, shape (n,)."""
        found: Array = self._weights @ np.array([part.mean(z) for part in self.parts])
        return found

    def prediction(self, z: Array) -> tuple[Array, Array]:
        """The expected figure, and the scale of the distribution of a further run's, both of shape (n,).

        What the shapes disagree on is in the scale.
        """
        means, scales = (np.array(found) for found in zip(*(part.prediction(z) for part in self.parts), strict=True))
        mean: Array = self._weights @ means
        # The variance of a Student distribution is its scale's square times ν/(ν − 2).
        apart = self._weights @ (means - mean) ** 2 * (1.0 - 2.0 / self.freedom)
        return mean, np.sqrt(self._weights @ scales**2 + apart)

    def difference_variance(self, z: Array, place: int) -> Array:
        """See `ResponseModel.difference`; what the shapes disagree on is in it, and it has shape (n,)."""
        both = zip(*(part.difference(z, place) for part in self.parts), strict=True)
        means, own = (np.array(found) for found in both)
        means -= means[:, [place]]
        found: Array = self._weights @ (own + (means - self._weights @ means) ** 2)
        return found

    def slope(self, z: Array) -> Array:
        """Derivative of the expected figure by each input at one point, shape (d,)."""
        found: Array = self._weights @ np.array([part.slope(z) for part in self.parts])
        return found


@dataclass(frozen=True, slots=True)
class SavedFit:
    """Scale, penalty and inputs of a model of run times.

    Attributes:
        sigma: σ_ω of every input that is not dropped.
        penalty: λ.
        dropped: Job parameters that do not matter.
        helping: Low-level metrics that matter.
        evidence: Logarithm of how likely it makes the runs, less that of the likeliest.
        others: Less likely fits that are averaged with it.
        lawful: True for a law of the time, False for straight lines.
    """

    sigma: float
    penalty: float
    dropped: frozenset[str]
    helping: frozenset[str]
    evidence: float = 0.0
    others: tuple[SavedFit, ...] = ()
    lawful: bool = False

    @classmethod
    def of(cls, shapes: Sequence[ExpansionShape], profiles: Collection[str]) -> SavedFit:
        """Save fitted shapes, the likeliest first; ``profiles`` are the metrics that they could have used."""
        metrics = frozenset(profiles)
        found = [
            cls(
                one.sigma,
                one.penalty,
                one.dropped - metrics,
                metrics - one.dropped,
                one.evidence - shapes[0].evidence,
                lawful=one.lawful,
            )
            for one in shapes
        ]
        return replace(found[0], others=tuple(found[1:]))

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> SavedFit | None:
        """Read a document that `to_json` made; None for any other."""
        try:
            sigma, penalty = float(document["sigma"]), float(document["penalty"])
            names = frozenset(map(str, document["dropped"])), frozenset(map(str, document["helping"]))
            evidence = float(document.get("evidence", 0.0))
            lawful = bool(document.get("law", False))
            others = [cls.from_json(one) for one in document.get("others", ())]
        except (AttributeError, KeyError, TypeError, ValueError):
            return None
        if not (0 < sigma <= 100 and 0 < penalty <= 1000 and evidence <= 0):
            return None
        return cls(sigma, penalty, *names, evidence, tuple(one for one in others if one is not None), lawful)

    def to_json(self) -> dict[str, Any]:
        """A JSON-able document."""
        document: dict[str, Any] = {
            "sigma": self.sigma,
            "penalty": self.penalty,
            "dropped": sorted(self.dropped),
            "helping": sorted(self.helping),
        }
        if self.evidence:
            document["evidence"] = self.evidence
        if self.lawful:
            document["law"] = True
        if self.others:
            document["others"] = [one.to_json() for one in self.others]
        return document

    def without(self, parameters: Collection[str], profiles: Collection[str]) -> frozenset[str]:
        """The inputs of another model that are left out; a parameter that did not vary before is kept."""
        return (self.dropped & frozenset(parameters)) | (frozenset(profiles) - self.helping)

    def shapes(
        self, parameters: Collection[str], profiles: Collection[str], *, laws: bool = True
    ) -> list[ExpansionShape]:
        """The shapes of another model, the likeliest first, with laws where these may be; see `without`."""
        every = ((one, one.without(parameters, profiles)) for one in (self, *self.others))
        return [ExpansionShape(one.sigma, one.penalty, gone, one.evidence, one.lawful and laws) for one, gone in every]


def mean_above_bound(mean: Array, sd: Array, bound: Array) -> Array:
    """Expectations of figures that are known to lie above a bound, and at least the bound.

    The mean of the normal distribution above it, as in Schmee & Hahn, "A simple method for regression analysis with
    censored data" (Technometrics 1979).

    Args:
        mean: Expectation without the bound, shape (n,).
        sd: Standard deviation, shape (n,).
        bound: Lower bounds, shape (n,).
    """
    from scipy.special import log_ndtr

    at = (bound - mean) / sd
    expected: Array = mean + sd * np.exp(-0.5 * at * at - 0.5 * math.log(2.0 * math.pi) - log_ndtr(-at))
    return np.maximum(expected, bound)


def prior_spread(values: Array, *, log: bool) -> float:
    """Standard deviation that a figure is expected to have, before a model has explained anything."""
    if log:
        return LOG_SPREAD
    return max(float(values.std()), 0.1 * abs(float(values.mean())), 1e-9)


def student_probability_within(bound: Threshold, mean: Array, scale: Array, freedom: float, *, log: bool) -> Array:
    """Probability that a figure with a Student distribution keeps a bound, shape (n,).

    Args:
        bound: The bound.
        mean: Mean of the figure, or of its logarithm, shape (n,).
        scale: Scale of the same, shape (n,).
        freedom: Degrees of freedom.
        log: True for the logarithm.
    """
    from scipy.special import stdtr

    low, high = (stdtr(freedom, (edge - mean) / scale) for edge in threshold_interval(bound, log=log))
    found: Array = np.maximum(high - low, 0.0)
    return found
