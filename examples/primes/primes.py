"""Counts the primes below a size with a segmented sieve, on several processes.

    python primes.py --size=10000000 --workers=2 --segment=65536

Each process sieves its segments by itself and counts; the sum is printed. It needs nothing but Python.
"""

from __future__ import annotations

import argparse
import math
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial


def small_primes(limit: int) -> list[int]:
    """The primes up to a limit, by the plain sieve."""
    sieve = bytearray([1]) * (limit + 1)
    sieve[:2] = b"\0" * len(sieve[:2])
    for p in range(2, math.isqrt(limit) + 1):
        if sieve[p]:
            sieve[p * p :: p] = bytes(len(range(p * p, limit + 1, p)))
    return [p for p in range(2, limit + 1) if sieve[p]]


def count(start: int, segment: int, size: int) -> int:
    """The primes of one segment, from ``start`` on and below ``size``."""
    end = min(start + segment, size)
    sieve = bytearray([1]) * (end - start)
    for p in small_primes(math.isqrt(end)):
        first = max(p * p, -(-start // p) * p)
        if first < end:
            sieve[first - start :: p] = bytes(len(range(first, end, p)))
    return sum(sieve) - sum(sieve[: max(0, 2 - start)])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=10_000_000)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--segment", type=int, default=65_536)
    given = parser.parse_args()
    started = time.perf_counter()
    work = partial(count, segment=given.segment, size=given.size)
    starts = range(0, given.size, given.segment)
    if given.workers == 1:
        total = sum(map(work, starts))
    else:
        with ProcessPoolExecutor(given.workers) as pool:
            total = sum(pool.map(work, starts))
    print(f"{total} primes below {given.size} in {time.perf_counter() - started:.3f} s")


if __name__ == "__main__":
    main()
