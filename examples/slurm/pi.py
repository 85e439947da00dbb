"""Estimates pi by throwing darts, on all tasks of a Slurm job: each throws its share and leaves its count in a file.

    srun --ntasks=4 python pi.py --darts 4000000 --block 100000

Without Slurm it is one task. The first task waits for the counts of the others, adds them up and prints the result; the
other tasks print nothing. Any way to exchange results would do (MPI, sockets); files need no package.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from pathlib import Path


def hits(darts: int, block: int, seed: int) -> int:
    """Darts of some that fall into the quarter circle, counted block by block."""
    chance, found = random.Random(seed), 0
    for first in range(0, darts, block):
        throws = range(min(block, darts - first))
        points = [(chance.random(), chance.random()) for _ in throws]
        found += sum(x * x + y * y <= 1.0 for x, y in points)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--darts", type=int, default=1_000_000)
    parser.add_argument("--block", type=int, default=10_000)
    given = parser.parse_args()
    rank, size = (int(os.environ.get(name, default)) for name, default in (("SLURM_PROCID", 0), ("SLURM_NTASKS", 1)))
    place = Path(os.environ.get("TRADEWIND_OUTPUTS", "."))
    share = given.darts // size
    count = place / f"count-{rank}"
    part = count.with_suffix(".part")
    part.write_text(str(hits(share, given.block, seed=rank)))
    part.replace(count)
    if rank:
        return 0
    counts = [place / f"count-{i}" for i in range(size)]
    end = time.monotonic() + 60
    while not all(each.exists() for each in counts):
        if time.monotonic() > end:
            print("some tasks have not answered", file=sys.stderr)
            return 1
        time.sleep(0.02)
    total = sum(int(each.read_text()) for each in counts)
    print(f"pi is about {4 * total / (share * size):.4f}, from {size} tasks")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
