"""Sets of rows as 64-bit words.

`add` is compiled into `kernel`, which numba does not renew when only this file changes: change a line there as well.
Import it inside functions, as `kernel`: it loads numba.
"""

from __future__ import annotations

import numpy as np

from tradewind.searcher.obol.arrays import Floats, Words
from tradewind.utils.jit import COMPILED, njit_inline

_ONE, _ZERO = np.uint64(1), np.uint64(0)

_DE_BRUIJN, _SHIFT = np.uint64(0x03F79D71B4CB0A89), np.uint64(58)
"""The product of a lone bit and this number, shifted right so far, is the index of the bit in `_PLACES`."""

_PLACES = np.zeros(64, dtype=np.int64)
for _bit in range(64):
    _PLACES[(((1 << _bit) * int(_DE_BRUIJN)) & (2**64 - 1)) >> 58] = _bit


@njit_inline
def _add_bits(sets: Words, row: int, value: float, sums: Floats, squares: Floats) -> None:
    """Add a leaf's value, and its square, for each of its candidates."""
    square = value * value
    for k in range(sets.shape[1]):
        word = sets[row, k]
        while word != _ZERO:
            lowest = word & (~word + _ONE)
            j = 64 * k + _PLACES[(lowest * _DE_BRUIJN) >> _SHIFT]
            sums[j] += value
            squares[j] += square
            word ^= lowest


def _add_array(sets: Words, row: int, value: float, sums: Floats, squares: Floats) -> None:
    """As `_add_bits`, for when nothing is compiled."""
    chosen = np.unpackbits(sets[row].view(np.uint8), bitorder="little")[: len(sums)].view(np.bool_)
    sums[chosen] += value
    squares[chosen] += value * value


add = _add_bits if COMPILED else _add_array
