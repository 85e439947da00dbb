"""Prints the tables of the README from ``work/<group>.csv``: ``python analyze.py [group] [columns]``.

With ``columns`` the scenarios are the columns, which fits many policies better.

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


def table(rows: list[dict[str, str]], measure: str, *, turned: bool) -> None:
    cells: dict[tuple[str, str], dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        cells[row["scenario"], row["policy"]][row["seed"]].append(float(row[measure]) <= CLOSE)
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    together: dict[str, list[tuple[float, float]]] = defaultdict(list)
    lines = [["relative" if measure == "excess" else "share of the range", *policies]]
    for scenario in dict.fromkeys(row["scenario"] for row in rows):
        words = [scenario]
        for policy in policies:
            sequences = list(cells[scenario, policy].values())
            runs = sum(map(sum, sequences)) / sum(map(len, sequences))
            hold = sum(sum(one) >= 0.8 * len(one) for one in sequences) / len(sequences)
            together[policy].append((runs, hold))
            words.append(f"{runs:.0%}, {hold:.0%}")
        lines.append(words)
    means = [[sum(part) / len(part) for part in zip(*together[p], strict=True)] for p in policies]
    lines.append(["mean", *(f"{a:.0%}, {b:.0%}" for a, b in means)])
    if turned:
        lines = [list(line) for line in zip(*lines, strict=True)]
    lines.insert(1, ["---"] * len(lines[0]))
    print("\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n")


def kinds(rows: list[dict[str, str]]) -> None:
    """The short table: share of the runs by kind of job, by either measure."""
    cells: dict[tuple[str, str], list[tuple[bool, bool]]] = defaultdict(list)
    for row in rows:
        name = row["scenario"]
        kind = "wide" if "wide" in name else f"c3o {name.split(', ')[1]}" if name.startswith("c3o") else "synthetic"
        near = float(row["share_of_range"]) <= CLOSE, float(row["excess"]) <= CLOSE
        cells[kind, row["policy"]].append(near)
    policies = list(dict.fromkeys(policy for _, policy in cells))
    print(f"| jobs | {' | '.join(policies)} |\n|---|{'---|' * len(policies)}")
    for kind in dict.fromkeys(kind for kind, _ in cells):
        shares = [[sum(part) / len(part) for part in zip(*cells[kind, p], strict=True)] for p in policies]
        print(f"| {kind} | {' | '.join(f'{a:.0%} / {b:.0%}' for a, b in shares)} |")


def main() -> None:
    path = HERE / f"work/{sys.argv[1] if len(sys.argv) > 1 else 'main'}.csv"
    if not path.exists():
        sys.exit("run run.py first")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for measure in ("excess", "share_of_range"):
        table(rows, measure, turned="columns" in sys.argv)
    kinds(rows)


if __name__ == "__main__":
    main()
