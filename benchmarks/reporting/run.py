"""Times the commands that show a stored study, each in a process of its own: what a user waits for.

python benchmarks/reporting/run.py FOLDER [REPETITIONS]
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

COMMANDS = {
    "status": ["status"],
    "status many": ["status", "many"],
    "status many --json": ["status", "many", "--json"],
    "report many": ["report", "many"],
    "report many --html": ["report", "many", "--html", "{out}/report.html"],
    "report many --png": ["report", "many", "--png", "{out}/png"],
    "export many --out trials.csv": ["export", "many", "--out", "{out}/trials.csv"],
}


def main() -> None:
    # What pip installs is compiled; without this, a session that writes no .pyc files would compile in every round.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    environment = {**os.environ, "TRADEWIND_HOME": sys.argv[1]}
    repetitions = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    print("| command | median, s | least, s | greatest, s | processor time, median, s |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as out:
        for name, words in COMMANDS.items():
            argv = [sys.executable, "-m", "tradewind", *(word.format(out=out) for word in words)]
            times, processor = [], []
            for _ in range(repetitions):
                used, begin = _used(), time.perf_counter()
                subprocess.run(argv, env=environment, check=True, stdout=subprocess.DEVNULL)
                times.append(time.perf_counter() - begin)
                processor.append(_used() - used)
            spread = f"{statistics.median(times):.2f} | {min(times):.2f} | {max(times):.2f}"
            print(f"| `{name}` | {spread} | {statistics.median(processor):.2f} |")
        page = Path(out) / "report.html"
        print(f"\nThe web page has {page.stat().st_size / 1000:.0f} kB.")
    print("Load: " + ", ".join(f"{value:.1f}" for value in os.getloadavg()))


def _used() -> float:
    """Processor seconds of the commands that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
