"""Renders the Mandelbrot set in several processes, and prints how long that took as a line of JSON."""

import argparse
import json
import multiprocessing
import time


def count(job: tuple[int, int, int]) -> int:
    """Points of some rows that stay bounded."""
    first, last, width = job
    inside = 0
    for y in range(first, last):
        for x in range(width):
            z, c = 0j, complex(3 * x / width - 2.2, 3 * y / width - 1.5)
            for _ in range(60):
                z = z * z + c
                if abs(z) > 2:
                    break
            else:
                inside += 1
    return inside


def main() -> None:
    """Render and report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--width", type=int, default=240)
    given = parser.parse_args()
    jobs = [(y, min(y + given.rows, given.width), given.width) for y in range(0, given.width, given.rows)]
    began = time.perf_counter()
    with multiprocessing.Pool(given.processes) as pool:
        inside = sum(pool.imap_unordered(count, jobs))
    print(json.dumps({"inside": inside, "seconds": time.perf_counter() - began}))


if __name__ == "__main__":
    main()
