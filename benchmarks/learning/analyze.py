"""The tables of the README: ``python analyze.py``. Pairs: the same graph, machines and seed."""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

import numpy as np
from scipy.stats import t

FILE = Path(__file__).parent / "work" / "results.csv"
AGAINST = ("HEFT, followed", "HEFT, online", "MCT, online", "adaptive")


def load() -> dict[str, dict[str, dict[tuple[str, str, str], float]]]:
    found: dict[str, dict[str, dict[tuple[str, str, str], float]]] = defaultdict(lambda: defaultdict(dict))
    with FILE.open() as file:
        for row in csv.DictReader(file):
            key = (row["graph"], row["machines"], row["seed"])
            found[row["scenario"]][row["way"]][key] = float(row["makespan"])
    return found


def ratio(ours: dict, theirs: dict) -> str:
    """Mean ratio and its 95 % interval; seeds are what varies: cases of one seed are one observation."""
    by_seed = defaultdict(list)
    for key in ours.keys() & theirs.keys():
        by_seed[key[2]].append(np.log(ours[key] / theirs[key]))
    means = np.array([np.mean(each) for each in by_seed.values()])
    middle = np.exp(means.mean())
    if len(means) < 2:
        return f"{middle:.3f}"
    half = t.ppf(0.975, len(means) - 1) * means.std(ddof=1) / np.sqrt(len(means))
    return f"{middle:.3f} [{np.exp(means.mean() - half):.3f}, {np.exp(means.mean() + half):.3f}]"


def main() -> None:
    found = load()
    ways = list(dict.fromkeys(way for each in found.values() for way in each))
    print("| makespan / HEFT's plan followed | " + " | ".join(found) + " |")
    print("| --- |" + " --- |" * len(found))
    for way in ways[1:]:
        print(f"| {way} | " + " | ".join(ratio(each[way], each[AGAINST[0]]) for each in found.values()) + " |")
    for other in AGAINST[1:]:
        print(f"\n| makespan / {other} | " + " | ".join(found) + " |")
        print("| --- |" + " --- |" * len(found))
        for way in [each for each in ("adaptive", "adaptive, trained") if each != other]:
            print(f"| {way} | " + " | ".join(ratio(each[way], each[other]) for each in found.values()) + " |")
    print("\n| adaptive / HEFT's plan followed | " + " | ".join(found) + " |")
    print("| --- |" + " --- |" * len(found))
    for place, kind in ((0, "graph"), (1, "machines")):
        names = dict.fromkeys(key[place] for key in found["known"]["adaptive"])
        for name in names:
            cells = []
            for each in found.values():
                ours = {k: v for k, v in each["adaptive"].items() if k[place] == name}
                cells.append(ratio(ours, each[AGAINST[0]]).split(" ")[0])
            print(f"| {kind} {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
