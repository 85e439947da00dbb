"""Prints what scores save, as shares of the money without: ``python analyze.py``.

The figure of a family is the geometric mean over its tables of money until within 5 %; intervals are 95 % bootstraps
over tables, and over the searches of each.
"""

from __future__ import annotations

import csv
import json
import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
DRAWS = 2000
Ratios = dict[str, list[float]]
"""ln(money / money without) of the searches of each table."""


def read() -> dict[tuple[str, str, str], dict[str, dict[tuple[str, str], dict[str, float]]]]:
    """Ln money by searcher, condition and kind of table; then by arm, table, and copy and seed."""
    found: dict[tuple[str, str, str], dict[str, dict[tuple[str, str], dict[str, float]]]] = {}
    with (HERE / "work/results.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            kind = "tables" if row["copy"] == "0" else "copies"
            arms = found.setdefault((row["searcher"], row["condition"], kind), defaultdict(lambda: defaultdict(dict)))
            arms[row["arm"]][row["table"], row["copy"]][row["seed"]] = math.log(float(row["close"]))
    return found


def interval(ratios: Ratios, rng: np.random.Generator) -> tuple[float, float, float]:
    """Geometric mean over tables, and its 95 % bootstrap."""
    names = sorted(ratios)
    means = np.mean([np.mean(ratios[name]) for name in names])
    drawn = []
    for _ in range(DRAWS):
        chosen = rng.choice(len(names), size=len(names))
        drawn.append(np.mean([np.mean(rng.choice(ratios[names[i]], size=len(ratios[names[i]]))) for i in chosen]))
    low, high = np.quantile(drawn, [0.025, 0.975])
    return math.exp(means), math.exp(low), math.exp(high)


def shown(groups: Sequence[tuple[str, Ratios]], rng: np.random.Generator) -> str:
    """Cells of a row."""
    cells = []
    for _, ratios in groups:
        if not ratios:
            cells.append("")
            continue
        mean, low, high = interval(ratios, rng)
        cells.append(f"{mean:.2f} [{low:.2f}, {high:.2f}]")
    return " | ".join(cells)


def main() -> None:
    scores = json.loads((HERE / "work/scores.json").read_text())
    rng = np.random.default_rng(0)
    for (searcher, condition, kind), arms in read().items():
        base = arms["without"]
        tables = {name for name, _ in base}
        families = sorted({name.partition("/")[0] for name in tables if scores[name]["complete"]})
        complete = {name for name in tables if scores[name]["complete"]}
        groups = [("all", complete)] + [
            (family, {name for name in complete if name.startswith(f"{family}/")}) for family in families
        ]
        groups.append(("some types have none", tables - complete))
        print(f"\n{searcher}, {condition}, {kind}\n\n| | {' | '.join(f'{g} ({len(n)})' for g, n in groups)} |")
        print(f"|---{'|---' * len(groups)}|")
        money = [
            math.exp(np.mean([np.mean(list(v.values())) for (name, _), v in base.items() if name in names]))
            if names
            else math.nan
            for _, names in groups
        ]
        print(f"| without, mean costs | {' | '.join(f'{m:.2f}' for m in money)} |")
        for arm, found in arms.items():
            if arm == "without":
                continue
            ratios: Ratios = defaultdict(list)
            for (name, copy), by_seed in found.items():
                for seed, value in by_seed.items():
                    plain = base[name, copy]
                    ratios[name].append(value - plain.get(seed, plain["0"]))
            row = [(group, {name: r for name, r in ratios.items() if name in names}) for group, names in groups]
            print(f"| {arm} | {shown(row, rng)} |")


if __name__ == "__main__":
    main()
