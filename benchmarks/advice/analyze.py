"""Prints the tables of ``work/results.csv``: what each searcher paid for its plans, and what it found."""

from __future__ import annotations

import csv
import math
import statistics
from collections import defaultdict
from pathlib import Path

RESULTS = Path(__file__).parent / "work/results.csv"
HEAD = "| searcher | searches | trials, median | cost / optimum, mean | worst | within 1 % after | never | proven | s |"


def main() -> None:
    with RESULTS.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for speeds in dict.fromkeys(row["speeds"] for row in rows):
        some = [row for row in rows if row["speeds"] == speeds]
        print(f"\n{speeds}: {', '.join(sorted({row['sets'] for row in some}))} sets\n\n{HEAD}")
        groups = defaultdict(list)
        for row in some:
            groups[row["searcher"]].append(row)
        for name, group in groups.items():
            print("|", " | ".join(_cells(name, group)), "|")
        took = statistics.median(float(row["exhaustive_seconds"]) for row in some)
        print(f"\nplanning all sets without a study: {took:.2f} s (median)")


def _cells(name: str, group: list[dict[str, str]]) -> list[str]:
    shares = [float(row["best"]) for row in group]
    found = [share for share in shares if math.isfinite(share)]
    reached = [int(row["within_1"]) if row["within_1"] else math.inf for row in group]
    return [
        name,
        str(len(group)),
        f"{statistics.median(int(row['trials']) for row in group):g}",
        f"{statistics.fmean(found):.4f}",
        f"{max(found):.3f}" if len(found) == len(shares) else f"{len(shares) - len(found)} found none in time",
        f"{statistics.median(reached):g}",
        str(sum(math.isinf(at) for at in reached)),
        str(sum(row["proven"] == "True" for row in group)),
        f"{statistics.median(float(row['seconds']) for row in group):.1f}",
    ]


if __name__ == "__main__":
    main()
