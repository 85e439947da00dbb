"""First configurations: few, cheap, and far apart."""

from __future__ import annotations

import numpy as np

from tradewind.searcher.surrogate.gp import Array


def cheap_maximin(
    features: Array,
    hourly: Array,
    count: int,
    rng: np.random.Generator,
    share: float = 0.5,
    *,
    first: int | None = None,
) -> list[int]:
    """Choose rows among the cheaper ones, each as far as possible from those before it.

    Greedy maximin design (Johnson, Moore & Ylvisaker, J. Statistical Planning and Inference 1990) over the rows whose
    price per hour is in the lower ``share``; the first is drawn at random unless it is given.

    Args:
        features: Shape (n, d).
        hourly: USD per hour, shape (n,).
        count: How many to choose; all rows if there are fewer.
        rng: For the first.
        share: Share of the rows, by price, that are chosen among; where these are fewer than ``count``, the next
            cheapest are added.
        first: The row to begin with.

    Returns:
        Row numbers, in order.
    """
    by_price = np.argsort(hourly, kind="stable")
    limit = hourly[by_price[max(1, int(np.ceil(share * len(hourly)))) - 1]]
    pool = np.flatnonzero(hourly <= limit)
    if len(pool) < count:
        pool = np.sort(by_price[:count])
    chosen = [int(pool[rng.integers(len(pool))]) if first is None else first]
    distance = ((features[pool] - features[chosen[0]]) ** 2).sum(axis=1)
    while len(chosen) < min(count, len(pool)):
        distance[np.isin(pool, chosen)] = -1.0
        # Rounded, so that ties are broken by order and not by the last bit of a sum.
        following = int(pool[int(np.argmax(np.round(distance, 9)))])
        chosen.append(following)
        distance = np.minimum(distance, ((features[pool] - features[following]) ** 2).sum(axis=1))
    return chosen
