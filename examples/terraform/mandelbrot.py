"""Counts the points of a grid that are in the Mandelbrot set, with some worker processes.

    python3 mandelbrot.py --size 400 --workers 2

It needs Python's standard library alone, so that it runs on a machine as its provider made it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time

_TURNS = 100


def row(place: tuple[int, int]) -> int:
    """Points of one row that are inside."""
    line, size = place
    y = (line + 0.5) / size * 2.0 - 1.0
    inside = 0
    for column in range(size):
        c = complex((column + 0.5) / size * 2.0 - 1.5, y)
        z = 0j
        for _ in range(_TURNS):
            z = z * z + c
            if abs(z) > 2.0:
                break
        else:
            inside += 1
    return inside


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=400)
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    begun = time.perf_counter()
    with multiprocessing.Pool(given.workers) as pool:
        rows = pool.map(row, [(line, given.size) for line in range(given.size)], chunksize=8)
    print(f"{sum(rows) / given.size**2:.4f} of the points are inside")
    print(f"{time.perf_counter() - begun:.3f} s with {given.workers} workers")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
