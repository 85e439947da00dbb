"""Asks a server many times, from several clients at once, and prints the latencies as a line of JSON."""

import argparse
import json
import os
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

ADDRESS = f"http://{os.environ['TRADEWIND_APPLICATION_HOST']}:{os.environ['TRADEWIND_APPLICATION_PORT']}/"


def ask(_: int) -> float:
    """Seconds until one answer is there."""
    began = time.perf_counter()
    with urllib.request.urlopen(ADDRESS, timeout=30) as answer:
        answer.read()
    return time.perf_counter() - began


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--clients", type=int, default=8)
    given = parser.parse_args()
    began = time.perf_counter()
    with ThreadPoolExecutor(given.clients) as clients:
        times = sorted(clients.map(ask, range(given.requests)))
    passed = time.perf_counter() - began
    middle, late = times[len(times) // 2], times[int(len(times) * 0.95)]
    print(json.dumps({"p50_ms": 1000 * middle, "p95_ms": 1000 * late, "per_second": given.requests / passed}))
