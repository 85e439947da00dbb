"""Prints the table of the README from results.csv.

python benchmarks/service_faults/analyze.py
"""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

RESULTS = Path(__file__).parent / "results.csv"
SUMMED = {
    "requests": "requests",
    "kills": "kills",
    "kills_worker": "of a worker",
    "kills_server": "of a server",
    "kills_both": "of both",
    "unfinished": "not done",
    "lost": "lost",
    "twice": "a run begun twice",
    "ended_twice": "ended twice",
    "money": "money wrong",
    "doubled": "doubled",
    "processes": "processes left",
    "repeated": "repeated",
}


def table(path: Path) -> list[str]:
    """The lines of the table: one for each database."""
    sums: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(["rounds", *SUMMED], 0))
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            mine = sums[row["database"]]
            mine["rounds"] += 1
            for column in SUMMED:
                mine[column] += int(row[column])
    lines = [f"| database | rounds | {' | '.join(SUMMED.values())} |", "|---" * (len(SUMMED) + 2) + "|"]
    for database, mine in sums.items():
        lines.append(f"| {database} | {' | '.join(str(value) for value in mine.values())} |")
    return lines


if __name__ == "__main__":
    print("\n".join(table(RESULTS)))
