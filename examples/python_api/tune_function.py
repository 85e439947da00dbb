"""Tunes a Python function in this process: which block size and level compress a text fastest, well enough?

    python examples/python_api/tune_function.py

Needs nothing but Tradewind. The study is kept in the store: run it twice, and the second run has nothing left to do.
"""

from __future__ import annotations

import random
import zlib

import tradewind

WORDS = ["tradewind", "deadline", "offer", "trial", "incumbent", "surrogate", "budget", "lease", "makespan", "ledger"]
TEXT = " ".join(random.Random(1).choices(WORDS, k=400_000)).encode()


@tradewind.tunable(
    {"level": "1..9", "block_kib": [1, 4, 16, 64, 256]},
    objective={"minimise": "runtime"},
    constraints={"metrics": {"ratio": ">= 8"}},
    budget={"trials": 20},
)
def compress(level: int, block_kib: int) -> None:
    """Compress the text in blocks, and report how well."""
    size = block_kib * 1024
    packed = sum(len(zlib.compress(TEXT[i : i + size], level)) for i in range(0, len(TEXT), size))
    tradewind.report(ratio=len(TEXT) / packed)


if __name__ == "__main__":
    best = compress.tune()
    if best is None or best.observation is None:
        raise SystemExit("no setting compresses well enough")
    seen = best.observation
    print(f"use {best.configuration}: {seen.runtime:.3f} s, ratio {seen.metrics['ratio']:.2f}")
