"""One number for each different row of small integers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


class RowNumbers:
    """Gives each different row of small integers a number of its own.

    The columns are the digits of a number with mixed radix; where that would not fit 63 bits, the numbers so far
    are replaced by their ranks.

    Args:
        rows: Shape (n, columns), from -1 upwards.
    """

    def __init__(self, rows: NDArray[np.int32] | Rows) -> None:
        self._radix = [int(rows[:, i].max(initial=-1)) + 2 for i in range(rows.shape[1])]
        self._ranks: dict[int, Rows] = {}
        numbers = np.zeros(len(rows), dtype=np.int64)
        size = 1
        for i, radix in enumerate(self._radix):
            if size * radix >= 1 << 62:
                self._ranks[i], numbers = np.unique(numbers, return_inverse=True)
                size = len(self._ranks[i])
            numbers = numbers * radix + (rows[:, i] + 1)
            size *= radix
        self.numbers: Rows = numbers

    def of(self, rows: Rows) -> Rows:
        """The numbers of other rows, shape (n,); -1 for a row that was not among the first ones."""
        numbers = np.zeros(len(rows), dtype=np.int64)
        known = np.ones(len(rows), dtype=bool)
        for i, radix in enumerate(self._radix):
            if i in self._ranks:
                ranks = np.minimum(np.searchsorted(self._ranks[i], numbers), len(self._ranks[i]) - 1)
                known &= self._ranks[i][ranks] == numbers
                numbers = ranks
            known &= rows[:, i] + 1 < radix
            numbers = numbers * radix + (rows[:, i] + 1)
        return np.where(known, numbers, -1)
