"""The table of the README from ``work/results.csv``: ``python analyze.py``."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from run import LIMIT, POLICIES, SPEND

HERE = Path(__file__).parent


def interval(values: np.ndarray) -> str:
    """Mean with its 95 % interval by the bootstrap, in USD."""
    rng = np.random.default_rng(0)
    means = values[rng.integers(len(values), size=(10_000, len(values)))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return f"{values.mean():.2f} ({low:.2f}-{high:.2f})"


def main() -> None:
    rows = list(csv.DictReader((HERE / "work/results.csv").open()))
    print(f"USD; a search that was given up after ${SPEND} counts as that. A whole run may cost ${LIMIT}.\n")
    titles = ["policy", "searches", "recommended close: mean (95 %)", "median"]
    print("|", " | ".join([*titles, "incumbent close: mean (95 %)", "median", "p90", "given up"]), "|")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for policy in POLICIES:
        mine = [row for row in rows if row["policy"] == policy]
        if not mine:
            continue
        advice, incumbent = (np.array([float(r[k] or SPEND) for r in mine]) for k in ("recommended", "incumbent"))
        lost = sum(not r["incumbent"] for r in mine)
        print(
            f"| {policy} | {len(mine)} | {interval(advice)} | {np.median(advice):.2f} | {interval(incumbent)} | "
            f"{np.median(incumbent):.2f} | {np.quantile(incumbent, 0.9):.2f} | {lost} |"
        )
    base = {int(r["seed"]): float(r["incumbent"] or SPEND) for r in rows if r["policy"] == "trimtuner"}
    print("\nIncumbent, trimtuner less the other, same seeds: mean difference (95 %)")
    for policy in POLICIES:
        other = {int(r["seed"]): float(r["incumbent"] or SPEND) for r in rows if r["policy"] == policy}
        if policy != "trimtuner" and other:
            print(f"- {policy}: {interval(np.array([base[s] - other[s] for s in sorted(base) if s in other]))}")


if __name__ == "__main__":
    main()
