"""Ratios of the default's money to that of its rivals, from files of held_out.py, with intervals.

    python benchmarks/compare/peer_ratios.py work/tpe.csv work/smac.csv ...

Each rival is compared on the cases that both have: money until within 5 %, geometric means, families counting equally.
Intervals are 95 % bootstraps over families and their tables. Late money is a share of what was spent until then.
"""

from __future__ import annotations

import math
import random
import sys
from collections import defaultdict
from pathlib import Path

from held_out import mean_log, rows_of

Case = tuple[str, str, str]
OURS = "default"


def read(paths: list[str]) -> dict[str, dict[Case, dict[str, str]]]:
    """The rows of some files by choice and case: family, table, deadline."""
    found: dict[str, dict[Case, dict[str, str]]] = defaultdict(dict)
    for path in paths:
        for row in rows_of(Path(path)):
            found[row["choice"]][row["family"], row["table"], row["quantile"]] = row
    return found


def mean(values: dict[Case, float]) -> float:
    """The geometric mean, families counting equally."""
    return math.exp(mean_log(values, sorted({case[0] for case in values})))


def interval(values: dict[Case, float], draws: int = 2000) -> tuple[float, float]:
    """The 95 % interval of `mean`: families are drawn, and tables of each, with all their deadlines."""
    chance = random.Random(1)
    tables: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for (family, table, _), value in values.items():
        tables[family][table].append(math.log(value))
    found = []
    for _ in range(draws):
        means = []
        for family in chance.choices(list(tables), k=len(tables)):
            drawn = chance.choices(list(tables[family].values()), k=len(tables[family]))
            logs = [each for table in drawn for each in table]
            means.append(sum(logs) / len(logs))
        found.append(math.exp(sum(means) / len(means)))
    found.sort()
    return found[int(0.025 * draws)], found[int(0.975 * draws)]


def late(rows: dict[Case, dict[str, str]], cases: list[Case]) -> float:
    """The share of money that went to late runs."""
    spent = sum(min(float(rows[case]["close"]), float(rows[case]["spent"])) for case in cases)
    return sum(float(rows[case]["late_money"]) for case in cases) / spent


def main() -> None:
    found = read(sys.argv[1:])
    print("| rival | cases | default | rival | default by rival | late money, default | rival |")
    print("|---|---|---|---|---|---|---|")
    for rival in sorted(found.keys() - {OURS}):
        both = [case for case in found[rival] if case in found[OURS]]
        dear = [case for case in both if found[OURS][case]["cheapest_wins"] == "0"]
        for words, cases in (("all", both), ("dear", dear)):
            ours, theirs = ({case: float(found[name][case]["close"]) for case in cases} for name in (OURS, rival))
            ratios = {case: ours[case] / theirs[case] for case in cases}
            low, high = interval(ratios)
            print(
                f"| {rival} | {len(cases)} {words} | {mean(ours):.2f} | {mean(theirs):.2f} | {mean(ratios):.2f} "
                f"[{low:.2f}, {high:.2f}] | {late(found[OURS], cases):.0%} | {late(found[rival], cases):.0%} |"
            )
    print()
    names = sorted(found)
    print(f"| family | {' | '.join(names)} |\n{'|---' * (len(names) + 1)}|")
    for family in sorted({case[0] for case in found[OURS]}):
        cells = []
        for name in names:
            values = {case: float(row["close"]) for case, row in found[name].items() if case[0] == family}
            cells.append(f"{mean(values):.2f} ({len(values)})" if values else "-")
        print(f"| {family} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
