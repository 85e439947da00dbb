"""Prints the tables of policies.py: python benchmarks/tenancy/analyze.py"""

from __future__ import annotations

import csv
import math
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
Found = dict[tuple[str, str], dict[int, tuple[float, float]]]
"""Mean and 90 % quantile by setting, policy and seed."""


def ratio(found: Found, setting: str, policy: str, base: str, place: int = 0) -> tuple[float, float, float]:
    """One policy's mean (or with 1, 90 % quantile) to another's, and its 95 % bootstrap interval, over common seeds."""
    ours, theirs = found[setting, policy], found[setting, base]
    seeds = sorted(set(ours) & set(theirs))
    if not seeds:
        return math.nan, math.nan, math.nan
    logs = np.log([ours[seed][place] / theirs[seed][place] for seed in seeds])
    draws = np.exp(logs[np.random.default_rng(0).integers(len(logs), size=(4000, len(logs)))].mean(axis=1))
    low, high = np.quantile(draws, [0.025, 0.975])
    return float(np.exp(logs.mean())), float(low), float(high)


def bar(found: Found) -> None:
    """How far ``gain`` is below FIFO and equal shares, and above a clairvoyant schedule and itself without a past."""

    def less(setting: str, policy: str, base: str, place: int = 0) -> str:
        middle, low, high = (100 * (each - 1) for each in ratio(found, setting, policy, base, place))
        return f"{middle:.0f} % [{low:.0f}, {high:.0f}]"

    print(
        "\n| searches | policy | to FIFO's | to equal shares' | 90 %, to FIFO's | 90 %, to equal shares' | to gain's |"
        " to clairvoyant |\n|---|---|---|---|---|---|---|---|"
    )
    for setting in dict.fromkeys(setting for setting, _ in found):
        for policy in ("gain", "gain_1", "gain_3", "gain_10", "gain_misled", "informed", "clairvoyant"):
            if not setting.startswith("paper") and found.get((setting, policy)):
                cells = [less(setting, policy, base, place) for place in (0, 1) for base in ("fifo", "drf")]
                cells += [less(setting, policy, "gain"), less(setting, policy, "clairvoyant")]
                print(f"| {setting} | {policy} | {' | '.join(cells)} |")


def main() -> int:
    """Ratios to FIFO and to equal shares over paired seeds, with bootstrap intervals."""
    with (HERE / "work/policies.csv").open() as file:
        rows = list(csv.DictReader(file))
    found: Found = defaultdict(dict)
    for row in rows:
        found[row["setting"], row["policy"]][int(row["seed"])] = float(row["mean"]), float(row["p90"])
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
            cells = [
                f"{middle:.3f} [{low:.3f}, {high:.3f}]"
                for middle, low, high in (ratio(found, setting, policy, base, place) for base, place in BASES)
            ]
            print(f"| {policy} | {' | '.join(cells)} | {len(seeds)} |")
    bar(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
