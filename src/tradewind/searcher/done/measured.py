"""What was measured at the present job parameters, beside what the model makes of all runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tradewind.searcher.done.expansion import Array

_PRIOR = 2.0
"""Repetitions that it takes to move the belief that half of what the model leaves over is a configuration's own."""
_DIGITS = 9


@dataclass(frozen=True, slots=True)
class MeasuredCorrection:
    """Draws the expectations of a model towards what its configurations really took.

    A smooth model of few runs leaves something over at each of them. One part of that is chance, the other belongs to
    the configuration and will be there again: the next run of it is then expected between the model and the mean of
    its runs, nearer to these the more there are (the area effects of Fay & Herriot, "Estimates of income for small
    places", Journal of the American Statistical Association 1979). How the parts compare is told by runs that were
    repeated; until then they count as equal.

    Attributes:
        errors: By row, the mean of what the model leaves over of its runs, and how many there are.
        own: The share of it, as a variance, that belongs to the configuration.
    """

    errors: Mapping[bytes, tuple[float, int]]
    own: float

    @classmethod
    def of(cls, rows: Array, errors: Array) -> MeasuredCorrection:
        """What runs with the present job parameters tell.

        Args:
            rows: Their configurations' features, shape (n, k), n at least 1.
            errors: Their figures less what the model expects of their configurations, shape (n,); NaN where a run has
                none.
        """
        known = np.isfinite(errors)
        rows, errors = rows[known], errors[known]
        cells: dict[bytes, list[float]] = {}
        for key, error in zip(_keys(rows), errors, strict=True):
            cells.setdefault(key, []).append(float(error))
        found = [np.array(one) for one in cells.values()]
        total = float((errors**2).mean())
        apart = sum(float(((one - one.mean()) ** 2).sum()) for one in found)
        chance = (_PRIOR * 0.5 * total + apart) / (_PRIOR + len(errors) - len(found))
        means = {key: (float(np.mean(one)), len(one)) for key, one in cells.items()}
        return cls(means, max(0.0, 1.0 - chance / total) if total > 0.0 else 0.0)

    def applied(self, rows: Array, mean: Array, scale: Array) -> tuple[Array, Array]:
        """Mean and scale of the distribution of a further run, with what was measured.

        Args:
            rows: Features of the configurations, shape (m, k).
            mean: By the model, shape (m,).
            scale: By the model, shape (m,).
        """
        seen = [self.errors.get(key, (0.0, 0)) for key in _keys(rows)]
        count = np.array([many for _, many in seen], dtype=float)
        drawn = count * self.own / np.maximum(count * self.own + 1.0 - self.own, 1e-12)
        return mean + drawn * np.array([error for error, _ in seen]), scale * np.sqrt(1.0 - self.own * drawn)


def _keys(rows: Array) -> list[bytes]:
    # Zero is added so that there is no -0.0, whose bytes differ.
    return [row.tobytes() for row in np.round(rows, _DIGITS) + 0.0]
