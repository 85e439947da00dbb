"""Sorts words in pieces, on several processes, merges them, and writes the hash of the result.

    python3 sort_words.py --processes 4 --piece 10000

It prints one line of JSON: how many words a second it sorted.
"""

from __future__ import annotations

import argparse
import hashlib
import heapq
import json
import random
import time
from multiprocessing import Pool
from pathlib import Path


def words(first: int, count: int) -> list[str]:
    """Some words, the same each time."""
    chance = random.Random(first)
    return sorted(f"{chance.getrandbits(40):010x}" for _ in range(count))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--words", type=int, default=1_000_000)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--piece", type=int, default=10_000)
    given = parser.parse_args()
    began = time.monotonic()
    pieces = [(first, min(given.piece, given.words - first)) for first in range(0, given.words, given.piece)]
    with Pool(given.processes) as pool:
        sorted_pieces = pool.starmap(words, pieces, chunksize=1)
    digest = hashlib.sha256()
    for word in heapq.merge(*sorted_pieces):
        digest.update(word.encode())
    Path("sorted.sha256").write_text(digest.hexdigest() + "\n")
    print(json.dumps({"words_per_second": given.words / (time.monotonic() - began)}))


if __name__ == "__main__":
    main()
