"""Compress a corpus in blocks with several processes, and report how well and how fast it went.

A real data-parallel program for Tradewind to tune. It needs the standard library only, makes its own data (the same
on every machine, kept in a cache file), and checks its result::

    python compress.py --workers 2 --codec lzma --level 3 --block-kib 1024
"""

from __future__ import annotations

import argparse
import array
import bz2
import json
import lzma
import math
import multiprocessing
import random
import sys
import tempfile
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

CODECS = {
    "zlib": (zlib.compress, zlib.decompress),
    "bz2": (bz2.compress, bz2.decompress),
    "lzma": (lambda data, level: lzma.compress(data, preset=level), lzma.decompress),
}
CHECK_EVERY = 8
SEED_MIB = 2


@dataclass(frozen=True)
class Task:
    """One block to compress: where it lies and how to do it."""

    path: str
    start: int
    length: int
    codec: str
    level: int
    check: bool


def compress_block(task: Task) -> tuple[int, int]:
    """Compress one block; returns its length before and after.

    Raises:
        ValueError: The block does not decompress to what it was.
    """
    with Path(task.path).open("rb") as file:
        file.seek(task.start)
        data = file.read(task.length)
    squeeze, restore = CODECS[task.codec]
    packed = squeeze(data, task.level)
    if task.check and zlib.crc32(restore(packed)) != zlib.crc32(data):
        raise ValueError(f"the block at {task.start} does not decompress to itself")
    return len(data), len(packed)


def corpus(mib: int, folder: Path) -> Path:
    """The file with the data, made if it is not there; the same bytes on every machine."""
    path = folder / f"tradewind-corpus-1-{mib}MiB.bin"
    if path.is_file() and path.stat().st_size == mib << 20:
        return path
    seed = seed_text(random.Random(20)) if mib else b""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
        left, turn = mib << 20, 0
        while left > 0:
            piece = vary(seed, turn)[:left]
            file.write(piece)
            left -= len(piece)
            turn += 1
    Path(file.name).replace(path)  # two processes may make it at once: each sees a whole file
    return path


def seed_text(rng: random.Random) -> bytes:
    """Two MiB of what computers keep: prose, logs, tables and measurements."""
    syllables = [a + b for a in "bcdfghklmnprstvw" for b in ("a", "e", "i", "o", "u", "an", "er", "on")]
    words = ["".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(4000)]
    weights = [1 / (rank + 3) for rank in range(len(words))]
    part = (SEED_MIB << 20) // 4
    prose = " ".join(rng.choices(words, weights, k=part // 4)).encode()[:part]
    hosts = [f"10.0.{rng.randint(0, 9)}.{rng.randint(1, 99)}" for _ in range(60)]
    lines = []
    clock = 1_700_000_000.0
    for word in rng.choices(words, weights, k=part // 60):
        clock += rng.expovariate(3)
        lines.append(f"{clock:.3f} {rng.choice(hosts)} GET /{word}/{rng.randint(1, 5000)} 200 {rng.randint(90, 99999)}")
    log = "\n".join(lines).encode()[:part]
    rows = (f"{i},{rng.gauss(20, 3):.2f},{rng.gauss(1013, 8):.1f},{rng.choice(words)}" for i in range(part // 24))
    table = "\n".join(rows).encode()[:part]
    level, walk = 0.0, array.array("f")
    for _ in range(part // 4):
        level += round(rng.gauss(0, 1), 1)
        walk.append(level)
    return prose + log + table + walk.tobytes()


def vary(seed: bytes, turn: int) -> bytes:
    """The seed in another alphabet and another order: what it teaches about one copy says nothing of the next."""
    rng = random.Random(turn)
    letters = list(b"abcdefghijklmnopqrstuvwxyz")
    digits = list(b"0123456789")
    table = bytearray(range(256))
    for group in (letters, digits):
        for old, new in zip(group, rng.sample(group, len(group)), strict=True):
            table[old] = new
    size = 64 << 10
    pieces = [seed[i : i + size] for i in range(0, len(seed), size)]
    rng.shuffle(pieces)
    return b"".join(pieces).translate(table)


def run(args: argparse.Namespace) -> dict[str, float]:
    """Compress everything; returns the metrics."""
    path = corpus(args.mib, Path(args.cache))
    total, size = path.stat().st_size, args.block_kib << 10
    count = math.ceil(total / size)
    tasks = [
        Task(str(path), i * size, min(size, total - i * size), args.codec, args.level, i % CHECK_EVERY == 0)
        for i in range(count)
    ]
    started = time.perf_counter()
    before = after = done = 0
    if args.workers == 1:
        results = map(compress_block, tasks)
        pool = None
    else:
        pool = multiprocessing.get_context("spawn").Pool(args.workers)
        results = pool.imap_unordered(compress_block, tasks)
    try:
        for length, packed in results:
            before, after, done = before + length, after + packed, done + 1
            if done % max(1, count // 4) == 0:
                print(f"{done:5d} of {count} blocks, ratio so far {before / after:.3f}", flush=True)
    finally:
        if pool is not None:
            pool.terminate()
            pool.join()
    seconds = time.perf_counter() - started
    return {"ratio": before / after, "throughput_mb_s": before / 1e6 / seconds}


def publish(metrics: dict[str, float]) -> None:
    """Report the metrics to Tradewind, or print them as one line of JSON where it is not installed."""
    try:
        from tradewind.runtime_api import report
    except ImportError:
        print(json.dumps(metrics))
    else:
        report(**metrics)


def main(argv: list[str] | None = None) -> int:
    """Read the command line, compress, report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--codec", choices=sorted(CODECS), default="zlib")
    parser.add_argument("--level", type=int, default=6, choices=range(1, 10), metavar="1..9")
    parser.add_argument("--block-kib", type=int, default=256, help="KiB that are compressed at once")
    parser.add_argument("--mib", type=int, default=24, help="MiB of data")
    parser.add_argument("--cache", default=tempfile.gettempdir(), help="folder of the data")
    args = parser.parse_args(argv)
    if min(args.workers, args.block_kib, args.mib) < 1:
        parser.error("--workers, --block-kib and --mib must be at least 1")
    print(f"{args.mib} MiB with {args.codec} -{args.level}, blocks of {args.block_kib} KiB, {args.workers} workers")
    metrics = run(args)
    print(f"ratio {metrics['ratio']:.3f}, {metrics['throughput_mb_s']:.1f} MB/s")
    publish(metrics)
    return 0


if __name__ == "__main__":
    sys.exit(main())
