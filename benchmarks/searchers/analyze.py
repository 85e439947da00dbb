"""Prints the table of the README from ``work/results.csv``: ``python analyze.py [name that a table starts with]``."""

from __future__ import annotations

import csv
import math
import sys
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).parent


def main() -> None:
    prefix = sys.argv[1] if len(sys.argv) > 1 else ""
    path = HERE / "work/results.csv"
    if not path.exists():
        sys.exit("run run.py first")
    cells: dict[tuple[str, str], list[float]] = defaultdict(list)
    steps: dict[str, list[float]] = defaultdict(list)
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["table"].startswith(prefix):
                cells[row["policy"], row["billing"]].append(float(row["money"]))
                steps[row["policy"]].append(float(row["ms_per_trial"]))
    billings = list(dict.fromkeys(billing for _, billing in cells))
    print(f"| policy | {' | '.join(billings)} | ms a trial |")
    print("|---|" + "---|" * (len(billings) + 1))
    for policy in dict.fromkeys(policy for policy, _ in cells):
        figures = []
        for billing in billings:
            money = cells[policy, billing]
            mean = math.exp(sum(math.log(m) for m in money) / len(money))
            figures.append(f"{mean:.1f}, {sum(m <= 8 for m in money) / len(money):.0%}")
        step = sorted(steps[policy])[len(steps[policy]) // 2]
        print(f"| {policy} | {' | '.join(figures)} | {step:.1f} |")


if __name__ == "__main__":
    main()
