"""Prints the tables of the README from ``work/searches.csv``: ``python analyze.py``."""

from __future__ import annotations

import csv
import random
import statistics
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
SHARES = (0.1, 0.2, 0.5)
Line = dict[str, str]


def interval(values: Sequence[float], draws: int = 4000) -> tuple[float, float]:
    """The 95 % bootstrap interval of a mean."""
    rng = random.Random(1)
    means = sorted(statistics.fmean(rng.choices(values, k=len(values))) for _ in range(draws))
    return means[int(0.025 * draws)], means[int(0.975 * draws)]


def best_error(lines: Sequence[Line], money: float = float("inf")) -> float:
    """The least error of the runs that ended well before so much was spent; 1 if there is none."""
    spent, best = 0.0, 1.0
    for line in lines:
        spent += float(line["cost"])
        if spent > money:
            break
        if line["error"]:
            best = min(best, float(line["error"]))
    return best


def words(values: Sequence[float], unit: float = 100.0) -> str:
    """A mean with its interval."""
    low, high = interval(values)
    return f"{statistics.fmean(values) * unit:.2f} ({low * unit:.2f} to {high * unit:.2f})"


def table(found: dict[str, dict[str, list[Line]]]) -> None:
    """One program's tables."""
    plain = found["none"]
    total = {seed: sum(float(line["cost"]) for line in lines) for seed, lines in plain.items()}
    print("| policy | stopped | money saved, % | time saved, % | best error, % | worse by, points | same best |")
    print("|---|---|---|---|---|---|---|")
    for policy, seeds in found.items():
        stopped = statistics.fmean(sum(not line["error"] for line in lines) for lines in seeds.values())
        money = [1 - sum(float(line["cost"]) for line in lines) / total[seed] for seed, lines in seeds.items()]
        hours = [
            1 - max(float(line["at"]) for line in lines) / max(float(line["at"]) for line in plain[seed])
            for seed, lines in seeds.items()
        ]
        best = [best_error(lines) for lines in seeds.values()]
        worse = [best_error(lines) - best_error(plain[seed]) for seed, lines in seeds.items()]
        same = sum(value <= 0 for value in worse)
        print(
            f"| {policy} | {stopped:.0f} of {len(next(iter(seeds.values())))} | {statistics.fmean(money):.0%} | "
            f"{statistics.fmean(hours):.0%} | {statistics.fmean(best) * 100:.2f} | {words(worse)} | "
            f"{same} of {len(seeds)} |"
        )
    print()
    print("| policy | " + " | ".join(f"at {share:.0%} of the money" for share in SHARES) + " |")
    print("|---|" + "---|" * len(SHARES))
    for policy, seeds in found.items():
        cells = []
        for share in SHARES:
            errors = {seed: best_error(lines, share * total[seed]) for seed, lines in seeds.items()}
            gains = [best_error(plain[seed], share * total[seed]) - error for seed, error in errors.items()]
            mean = f"{statistics.fmean(errors.values()) * 100:.2f}"
            cells.append(mean if policy == "none" else f"{mean}; better by {words(gains)}")
        print(f"| {policy} | " + " | ".join(cells) + " |")


def main() -> None:
    """Print all tables."""
    found: dict[str, dict[str, dict[str, list[Line]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    with (HERE / "work/searches.csv").open(newline="") as file:
        for line in csv.DictReader(file):
            found[line["table"]][line["policy"]][line["seed"]].append(line)
    for name, policies in found.items():
        print(f"\n### {name}\n")
        table(policies)


if __name__ == "__main__":
    main()
