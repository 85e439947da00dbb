"""First configurations: at random, or a Latin hypercube."""

from __future__ import annotations

import numpy as np

from tradewind.searcher.obol.arrays import Floats

_HYPERCUBES = 20
"""Latin hypercubes of which the one with the largest least distance is taken."""


def latin_hypercube(numbers: Floats, count: int, rng: np.random.Generator) -> list[int]:
    """Choose rows near the points of a maximin Latin hypercube (Morris & Mitchell, J. Stat. Planning 1995).

    Every column is cut into ``count`` strips with one point each, its levels at equal distances; each point stands for
    the nearest row that is not taken. Of some such designs, the one whose two nearest rows are farthest apart is taken.

    Args:
        numbers: Shape (n, d).
        count: How many to choose; all rows if there are fewer.
        rng: For the hypercubes.

    Returns:
        Row numbers, in order.
    """
    if not numbers.shape[1]:  # nothing tells the rows apart
        return list(range(min(count, len(numbers))))
    ranks = [np.unique(np.round(column, 9), return_inverse=True) for column in numbers.T]
    unit = np.column_stack([(rank + 0.5) / len(levels) for levels, rank in ranks])
    count = min(count, len(unit))
    best: tuple[float, list[int]] | None = None
    for _ in range(_HYPERCUBES):
        strips = rng.permuted(np.tile(np.arange(count), (unit.shape[1], 1)), axis=1).T
        points = (strips + rng.random(strips.shape)) / count
        chosen: list[int] = []
        for point in points:
            away = np.round(((unit - point) ** 2).sum(axis=1), 9)
            away[chosen] = np.inf
            chosen.append(int(np.argmin(away)))
        picked = unit[chosen]
        apart = ((picked[:, None, :] - picked[None, :, :]) ** 2).sum(axis=2)
        least = round(float(apart[np.triu_indices(count, 1)].min(initial=np.inf)), 9)
        if best is None or least > best[0]:
            best = (least, chosen)
    assert best is not None
    return best[1]
