"""Counts prime numbers, in as many processes as the machine is worth: ``primes.py BELOW PROCESSES``."""

from __future__ import annotations

import math
import multiprocessing
import os
import sys
import time


def count(bounds: tuple[int, int]) -> int:
    """Count the primes from one number to below another, with a sieve of that part."""
    first, last = bounds
    small = bytearray([1]) * (math.isqrt(max(last, 4)) + 1)
    part = bytearray([1]) * max(0, last - first)
    for number in range(2, len(small)):
        if not small[number]:
            continue
        small[number * number :: number] = bytes(len(range(number * number, len(small), number)))
        begin = max(number * number, -(-first // number) * number)
        part[begin - first :: number] = bytes(len(range(begin - first, len(part), number)))
    return sum(part) - sum(1 for number in (0, 1) if first <= number < last)


def main() -> None:
    """Count, and write what came out."""
    below, processes = int(sys.argv[1]), int(sys.argv[2])
    parts = 8 * processes
    bounds = [below * part // parts for part in range(parts + 1)]
    begun = time.perf_counter()
    with multiprocessing.Pool(processes) as pool:
        found = sum(pool.imap_unordered(count, list(zip(bounds, bounds[1:], strict=False))))
    print(f"{found} primes below {below}, in {time.perf_counter() - begun:.2f} s with {processes} processes")
    with open(os.path.join(os.environ.get("TRADEWIND_OUTPUTS", "."), "primes.txt"), "w", encoding="utf-8") as file:
        file.write(f"{found} primes below {below}\n")


if __name__ == "__main__":
    main()
