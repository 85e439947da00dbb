"""Prints the tables of policies.py: python benchmarks/tenancy/analyze.py"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
ORDER = (
    "fifo", "drf", "dynamic", "least_attained", "gain", "gain_1", "gain_3", "gain_10", "gain_misled", "gain_unasked",
    "gain_constant", "gain_seconds", "next_run", "known", "informed", "clairvoyant",
)  # fmt: skip
BASES = (("fifo", 0), ("fifo", 1), ("drf", 0), ("drf", 1))


def main() -> int:
    """Ratios to FIFO and to equal shares over paired seeds, with bootstrap intervals."""
    with (HERE / "work/policies.csv").open() as file:
        rows = list(csv.DictReader(file))
    found: dict[tuple[str, str], dict[int, tuple[float, float]]] = defaultdict(dict)
    for row in rows:
        found[row["setting"], row["policy"]][int(row["seed"])] = float(row["mean"]), float(row["p90"])
    rng = np.random.default_rng(0)
    for setting in dict.fromkeys(row["setting"] for row in rows):
        print(
            f"\n{setting}\n\n| policy | mean / FIFO's | 90 % / FIFO's | mean / equal shares' | 90 % / equal shares' |"
            " seeds |"
            "\n|---|---|---|---|---|---|"
        )
        for policy in ORDER:
            mine = found[setting, policy]
            seeds = sorted(set(mine) & set(found[setting, "fifo"]) & set(found[setting, "drf"]))
            if not seeds:
                continue
            cells = []
            for base, place in BASES:
                ours = np.array([mine[seed][place] for seed in seeds])
                theirs = np.array([found[setting, base][seed][place] for seed in seeds])
                logs = np.log(ours / theirs)
                draws = np.exp(logs[rng.integers(len(logs), size=(4000, len(logs)))].mean(axis=1))
                low, high = np.quantile(draws, [0.025, 0.975])
                cells.append(f"{np.exp(logs.mean()):.3f} [{low:.3f}, {high:.3f}]")
            print(f"| {policy} | {' | '.join(cells)} | {len(seeds)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
