"""Prints the tables of ``work/mix.csv``: how much cheaper sets of several types are, and what finding them takes."""

from __future__ import annotations

import csv
import statistics
from collections import defaultdict
from pathlib import Path

RESULTS = Path(__file__).parent / "work/mix.csv"

Row = dict[str, str]


def main() -> None:
    with RESULTS.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for refine in dict.fromkeys(row["refine"] for row in rows):
        some = [row for row in rows if row["refine"] == refine]
        pure = {_question(row): row for row in some if row["mix"] == "1"}
        for mix in sorted({row["mix"] for row in some} - {"1"}):
            for speeds in dict.fromkeys(row["speeds"] for row in some):
                pairs = [(pure[_question(row)], row) for row in some
                         if row["mix"] == mix and row["speeds"] == speeds and _question(row) in pure]  # fmt: skip
                _table(f"--mix {mix}, --refine {refine}, {speeds}", pairs)


def _question(row: Row) -> tuple[str, ...]:
    return row["graph"], row["speeds"], row["tightness"]


def _saved(pair: tuple[Row, Row]) -> float:
    return 100.0 * (1.0 - float(pair[1]["cost"]) / float(pair[0]["cost"]))


def _table(title: str, pairs: list[tuple[Row, Row]]) -> None:
    by_graph: dict[str, dict[str, tuple[Row, Row]]] = defaultdict(dict)
    for pair in pairs:
        by_graph[pair[0]["graph"]][pair[0]["tightness"]] = pair
    deadlines = sorted({pair[0]["tightness"] for pair in pairs}, key=float)
    print(f"\n{title}: cheaper by, in %\n")
    print("| graph | tasks |", " | ".join(f"{each} ×" for each in deadlines), "| seconds alone | with mixing |")
    print("|---" * (len(deadlines) + 4) + "|")
    for graph, cells in by_graph.items():
        name = Path(graph).name.split(".")[0]
        saved = [f"{_saved(cells[each]):.1f}" if each in cells else "" for each in deadlines]
        alone, both = (statistics.median(float(pair[at]["seconds"]) for pair in cells.values()) for at in (0, 1))
        print(
            "|", " | ".join([name, next(iter(cells.values()))[0]["tasks"], *saved, f"{alone:.2f}", f"{both:.2f}"]), "|"
        )
    means = [
        statistics.fmean(_saved(cells[each]) for cells in by_graph.values() if each in cells) for each in deadlines
    ]
    print("| mean | |", " | ".join(f"{mean:.1f}" for mean in means), "| | |")
    gains = [_saved(pair) for pair in pairs]
    more = [float(pair[1]["seconds"]) - float(pair[0]["seconds"]) for pair in pairs]
    print(
        f"\n{len(pairs)} questions: mean {statistics.fmean(gains):.2f} %, most {max(gains):.1f} %, "
        f"least {min(gains):.2f} %; "
        f"more than 0.1 % in {sum(gain > 0.1 for gain in gains)}, more than 2 % in {sum(gain > 2 for gain in gains)}; "
        f"proven {sum(pair[1]['proven'] == 'True' for pair in pairs)}; "
        f"seconds more: median {statistics.median(more):.2f}, most {max(more):.2f}"
    )


if __name__ == "__main__":
    main()
