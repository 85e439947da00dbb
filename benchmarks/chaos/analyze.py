"""Prints the table of the README from results.csv, or another file of results.

python benchmarks/chaos/analyze.py [FILE]
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from pathlib import Path

RESULTS = Path(__file__).parent / "results.csv"
COLUMNS = ("kills", "at_calls", "runs", "repeated", "lost", "leaked", "twice", "machines", "money")
_HEAD = (
    "kills",
    "of them at a call",
    "runs",
    "repeated",
    "lost",
    "leaked",
    "executed twice",
    "machines left",
    "money wrong",
)


def table(path: Path) -> list[str]:
    """The lines of the table: one for each engine, then all together."""
    sums: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(COLUMNS, 0))
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            for place in (row["engine"], "all"):
                for column in COLUMNS:
                    sums[place][column] += int(row[column])
    lines = [f"| engine | {' | '.join(_HEAD)} |", "|---" * (len(_HEAD) + 1) + "|"]
    for engine in sorted(sums, key=lambda name: (name == "all", -sums[name]["kills"])):
        lines.append(f"| {engine} | {' | '.join(str(sums[engine][column]) for column in COLUMNS)} |")
    return lines


if __name__ == "__main__":
    print("\n".join(table(Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS)))
