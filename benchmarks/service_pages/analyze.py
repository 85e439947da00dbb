"""Prints the table of results.csv.

python benchmarks/service_pages/analyze.py
"""

from __future__ import annotations

import csv
import statistics
from collections import defaultdict
from pathlib import Path

BAR = 1000.0
"""Milliseconds within which every page has to show something."""


def main() -> None:
    with (Path(__file__).parent / "results.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    pages: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in rows:
        pages[row["page"]].append(row)
    print(
        "| page | first answer, ms | first paint, ms | worst | first visit | usable, ms | worst | kB | files | "
        "server, ms of processor | page, ms of processor |"
    )
    print("|---" * 11 + "|")
    missed = []
    for page, found in pages.items():
        first, later = found[0], found[1:]
        painted = [float(row["painted"]) for row in later]
        usable = [float(row["interactive"]) for row in later]
        answered = statistics.median(float(row["answered"]) for row in later)
        cells = [answered, statistics.median(painted), max(painted), float(first["painted"])]
        cells += [statistics.median(usable), max(usable), float(later[0]["kilobytes"]), float(later[0]["requests"])]
        cells += [statistics.median(float(row[name]) for row in later) for name in ("server_cpu", "page_cpu")]
        print(f"| {page} | " + " | ".join(f"{cell:.0f}" for cell in cells) + " |")
        if max(*painted, float(first["painted"])) > BAR:
            missed.append(page)
    loads = sorted(float(row["load"]) for row in rows)
    print(f"\nLoad of the machine: {loads[0]:.1f} to {loads[-1]:.1f}, median {statistics.median(loads):.1f}.")
    who = f"all but {', '.join(missed)}" if missed else "all pages"
    print(f"First paint within {BAR / 1000:g} s, every time: {who}.")


if __name__ == "__main__":
    main()
