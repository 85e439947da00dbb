"""Measures how long Tradewind keeps people waiting before it does anything.

    python benchmarks/startup/run.py [--install] [--rounds 20]

It prints the table of the README beside it. With --install it also makes a fresh virtual environment with the core
of Tradewind in it (which needs pip's network), and measures that.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = [sys.executable, "-m", "tradewind"]
JOB = """\
name: startup
job: {command: "true"}
space: {instance: {provider: local}, size: [1, 2, 3, 4, 5, 6, 7, 8], level: 1..9}
budget: {dollars: 1, trials: 1}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--install", action="store_true", help="measure a fresh installation too")
    parser.add_argument("--rounds", type=int, default=20, help="how often each command is run")
    arguments = parser.parse_args()

    # What pip installs is compiled; without this, a session that writes no .pyc files would compile in every round.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    rows = [("`tradewind --help`", "0.25 s", *_spread(help_seconds, arguments.rounds))]
    rows.append(("command to first trial", "1.5 s", *_spread(first_trial_seconds, arguments.rounds)))
    before = _used()
    for _ in range(arguments.rounds):
        help_seconds()
    rows.append(("processor time of `tradewind --help`", "", f"{(_used() - before) / arguments.rounds:.2f} s", "mean"))
    before = _used()
    for _ in range(arguments.rounds):
        first_trial_seconds()
    rows.append(
        ("processor time of a whole `tune` of one trial", "", f"{(_used() - before) / arguments.rounds:.2f} s", "mean")
    )
    if arguments.install:
        seconds, megabytes = fresh_installation()
        rows.append(("core installed into a fresh environment", "40 s", f"{seconds:.1f} s", "one round"))
        rows.append(("size of that environment, without pip", "330 MB", f"{megabytes:.0f} MB", "one round"))
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{date.today()}, {cpu()}, {os.cpu_count()} CPUs, Python {platform.python_version()}, load {load}\n")
    print("| what | bar | median | least and most |\n|---|---|---|---|")
    for row in rows:
        print("| " + " | ".join(row) + " |")


def _spread(measure: Callable[[], float], rounds: int) -> tuple[str, str]:
    measure()  # the first one reads from the disk what the others find in memory
    times = [measure() for _ in range(rounds)]
    return f"{statistics.median(times):.2f} s", f"{min(times):.2f} s to {max(times):.2f} s"


def _used() -> float:
    """Processor seconds of the commands that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def help_seconds() -> float:
    started = time.perf_counter()
    subprocess.run([*PROGRAM, "--help"], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def first_trial_seconds() -> float:
    """From the command to the moment that the store has as the start of the first run's program."""
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder, "job.yaml")
        job.write_text(JOB)
        environment = {**os.environ, "TRADEWIND_HOME": folder}
        environment.pop("TRADEWIND_STORE", None)
        called = time.time()
        done = subprocess.run([*PROGRAM, "tune", str(job)], env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"tradewind tune ended with {done.returncode}: {done.stderr}")
        with sqlite3.connect(Path(folder, "tradewind.db")) as database:
            (started,) = database.execute("select min(started) from runs").fetchone()
        database.close()
        return float(started) - called


def fresh_installation() -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder, "env")
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        before = size(environment)
        started = time.perf_counter()
        command = [environment / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-cache-dir", ROOT]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        seconds = time.perf_counter() - started
        return seconds, (size(environment) - before) / 1e6


def size(folder: Path) -> int:
    """Bytes on the disk, as du counts them."""
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*") if not path.is_symlink())


def cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


if __name__ == "__main__":
    main()
