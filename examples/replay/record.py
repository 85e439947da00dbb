"""Measure the compression example once for each configuration and keep the runs in a CSV for the replay runner.

    python record.py --out runs.csv --machine local-1=1 --machine local-2=2 --mib 8

A machine is a name and a number of CPUs, to which the program is held. Runs take place one after the other; a file
that is there already is continued.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[1] / "compress" / "compress.py"
SETTINGS = ("instance", "workers", "codec", "level", "block_kib")
FIELDS = (*SETTINGS, "runtime", "exit_code", "ratio", "throughput_mb_s")


def measure(cpus: int, mib: int, cache: str, workers: int, codec: str, level: int, block_kib: int) -> dict[str, object]:
    """Run the program once on ``cpus`` CPUs; returns the measured columns."""
    with tempfile.TemporaryDirectory() as folder:
        metrics = Path(folder) / "metrics.jsonl"
        words = [sys.executable, str(PROGRAM), f"--workers={workers}", f"--codec={codec}", f"--level={level}"]
        words += [f"--block-kib={block_kib}", f"--mib={mib}", f"--cache={cache}"]
        chosen = sorted(os.sched_getaffinity(0))[:cpus]
        started = time.perf_counter()
        done = subprocess.run(
            words,
            env={**os.environ, "TRADEWIND_METRICS": str(metrics)},
            stdout=subprocess.DEVNULL,
            preexec_fn=lambda: os.sched_setaffinity(0, chosen),
            check=False,
        )
        seconds = time.perf_counter() - started
        found = json.loads(metrics.read_text().splitlines()[-1]) if metrics.exists() else {}
    return {"runtime": round(seconds, 4), "exit_code": done.returncode, **{k: round(v, 5) for k, v in found.items()}}


def main(argv: list[str] | None = None) -> int:
    """Measure what is missing in the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--machine", action="append", required=True, metavar="NAME=CPUS")
    parser.add_argument("--mib", type=int, default=8)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--codecs", nargs="+", default=["zlib", "bz2", "lzma"])
    parser.add_argument("--levels", type=int, nargs="+", default=[1, 3, 6, 9])
    parser.add_argument("--blocks", type=int, nargs="+", default=[64, 256, 1024, 4096])
    parser.add_argument("--cache", default=tempfile.gettempdir())
    args = parser.parse_args(argv)
    known = set()
    if args.out.exists():
        with args.out.open(newline="") as file:
            known = {tuple(row[name] for name in SETTINGS) for row in csv.DictReader(file)}
    with args.out.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        if not known:
            writer.writeheader()
        for machine, *rest in itertools.product(args.machine, args.workers, args.codecs, args.levels, args.blocks):
            name, _, cpus = machine.partition("=")
            if rest[0] <= 2 * int(cpus) and tuple(map(str, (name, *rest))) not in known:
                row = dict(zip(SETTINGS, (name, *rest), strict=True))
                writer.writerow(row | measure(int(cpus), args.mib, args.cache, *rest))
                file.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
