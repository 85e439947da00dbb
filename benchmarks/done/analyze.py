"""Prints the tables of the README from ``work/<group>.csv``: ``python analyze.py [group]``.

A cell says two shares: of the runs from the eighth on that are within 5 % of the optimum, and of the sequences in
which at least four runs of five from the eighth on are. The second table counts by the publication's own measure, the
distance from the optimum as a share of the range from the best to the worst configuration.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).parent
CLOSE = 0.05


def table(rows: list[dict[str, str]], measure: str) -> None:
    cells: dict[tuple[str, str], dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        cells[row["scenario"], row["policy"]][row["seed"]].append(float(row[measure]) <= CLOSE)
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    print(f"| {'relative' if measure == 'excess' else 'share of the range'} | {' | '.join(policies)} |")
    print("|---|" + "---|" * len(policies))
    together: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for scenario in dict.fromkeys(row["scenario"] for row in rows):
        words = []
        for policy in policies:
            sequences = list(cells[scenario, policy].values())
            runs = sum(map(sum, sequences)) / sum(map(len, sequences))
            hold = sum(sum(one) >= 0.8 * len(one) for one in sequences) / len(sequences)
            together[policy].append((runs, hold))
            words.append(f"{runs:.0%}, {hold:.0%}")
        print(f"| {scenario} | {' | '.join(words)} |")
    means = [[sum(part) / len(part) for part in zip(*together[p], strict=True)] for p in policies]
    print(f"| mean | {' | '.join(f'{a:.0%}, {b:.0%}' for a, b in means)} |\n")


def main() -> None:
    path = HERE / f"work/{sys.argv[1] if len(sys.argv) > 1 else 'main'}.csv"
    if not path.exists():
        sys.exit("run run.py first")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for measure in ("excess", "share_of_range"):
        table(rows, measure)
    steps = sorted(float(row["ms"]) for row in rows if row["policy"] == rows[-1]["policy"])
    print(f"median {steps[len(steps) // 2]:.0f} ms a proposal, {rows[-1]['policy']}")


if __name__ == "__main__":
    main()
