"""The cross-entropy method: a search over numbers by drawing many, and drawing the next ones near the best."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tradewind.workflow.graph import Numbers


class CrossEntropy:
    """Draws generations of candidates from a normal distribution, which moves to the best of each.

    Rubinstein and Kroese, "The Cross-Entropy Method", Springer, 2004, algorithm 2.2, with a step that is smaller than
    the whole way, since what a candidate comes to is partly luck.

    Args:
        mean: Where the search begins.
        spread: The standard deviation of each number at the beginning.
        size: Candidates in a generation; the first is the mean itself.
        seed: Of the draws.
        step: Share of the way to the best that is gone in a generation.

    Attributes:
        mean: The middle of the distribution.
        spread: Its standard deviations.
        generation: How many have been told.
    """

    def __init__(
        self, mean: Sequence[float] | Numbers, spread: Sequence[float] | Numbers, *, size: int, seed: int,
        step: float = 0.5,
    ) -> None:  # fmt: skip
        self.mean, self.spread = np.array(mean, dtype=float), np.array(spread, dtype=float)
        self.generation = 0
        self._size, self._seed, self._step = size, seed, step

    def ask(self) -> Numbers:
        """The candidates of this generation, one a row; the same as often as it is asked."""
        draws = np.random.default_rng((self._seed, self.generation)).standard_normal((self._size, len(self.mean)))
        draws[0] = 0.0
        # Each draw stands beside its mirror image: the middle is then not moved by which side was drawn more.
        half = (self._size - 1) // 2
        draws[1 + half : 1 + 2 * half] = -draws[1 : 1 + half]
        return np.asarray(self.mean + draws * self.spread)

    def tell(self, scores: Sequence[float] | Numbers) -> None:
        """Take what the candidates came to, the smaller the better, and go on to the next generation."""
        candidates = self.ask()
        best = candidates[np.argsort(np.asarray(scores), kind="stable")[: max(2, self._size // 3)]]
        self.mean = self.mean + self._step * (best.mean(axis=0) - self.mean)
        self.spread = np.maximum((1.0 - self._step) * self.spread + self._step * best.std(axis=0), 0.02)
        self.generation += 1
