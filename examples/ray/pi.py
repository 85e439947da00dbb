"""Estimates pi by throwing darts, on several processes of one node.

    python pi.py --darts 600000 --block 10000 --processes 2

It needs nothing but Python. On a Ray cluster it could as well call ``ray.init()``: ``RAY_ADDRESS`` is set.
"""

from __future__ import annotations

import argparse
import random
from concurrent.futures import ProcessPoolExecutor


def hits(darts: int, block: int, seed: int) -> int:
    """Darts of some that fall into the quarter circle, counted block by block."""
    chance, found = random.Random(seed), 0
    for first in range(0, darts, block):
        throws = range(min(block, darts - first))
        points = [(chance.random(), chance.random()) for _ in throws]
        found += sum(x * x + y * y <= 1.0 for x, y in points)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--darts", type=int, default=600_000)
    parser.add_argument("--block", type=int, default=10_000)
    parser.add_argument("--processes", type=int, default=1)
    given = parser.parse_args()
    share = given.darts // given.processes
    with ProcessPoolExecutor(given.processes) as pool:
        counts = [pool.submit(hits, share, given.block, seed) for seed in range(given.processes)]
        total = sum(count.result() for count in counts)
    print(f"pi is about {4 * total / (share * given.processes):.4f}")


if __name__ == "__main__":
    main()
