"""How much the tests try: enough to notice a fault in ``make test``, all that there is in ``make test-all``.

A test that counts kills, examples or seeds takes a share of them by default. A test that is marked ``thorough``
measures what others hold already (golden sequences, a conformance suite), or does again what another does in short.
"""

from __future__ import annotations

import os

EVERYTHING = os.environ.get("TRADEWIND_ENGINES") == "all"
"""Whether all is tried, the long tests of real engines too."""


def share(everything: int, few: int | None = None) -> int:
    """The number of kills, examples or seeds to try.

    Args:
        everything: All of them.
        few: How many are enough by default; a third where it is None.
    """
    if EVERYTHING:
        return everything
    return -(-everything // 3) if few is None else few
