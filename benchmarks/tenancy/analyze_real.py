"""Prints the tables of real.py and bare.py: python benchmarks/tenancy/analyze_real.py"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from ground import ENGINES
from real import CELLS, SCALES, Cell, told

WORK = Path(__file__).parent / "work"
MANY = 200
"""Seeds of the simulator where no run is real."""

Row = dict[str, str]


def rows_of(name: str) -> list[Row]:
    """The rows of a file of results."""
    path = WORK / name
    return list(csv.DictReader(path.read_text().splitlines())) if path.exists() else []


def interval(values: Sequence[float], *, ratio: bool = True) -> str:
    """The mean (geometric of ratios) with its 95 % bootstrap interval."""
    found = np.log(np.array(values)) if ratio else np.array(values)
    draws = found[np.random.default_rng(0).integers(len(found), size=(4000, len(found)))].mean(axis=1)
    middle, (low, high) = found.mean(), np.quantile(draws, [0.025, 0.975])
    if ratio:
        middle, low, high = np.exp([middle, low, high])
    return f"{middle:.2f} [{low:.2f}, {high:.2f}]"


@cache
def expected(engine: str, cell: Cell, seed: int, more: float = 0.0) -> float:
    """The mean time to target that the simulator says."""
    return float(np.mean(told(engine, cell, seed, more)[0]))


def cell_of(row: Row) -> Cell:
    """The cell of a row."""
    return Cell(int(row["jobs"]), int(row["parallel"]), row["policy"])


def by_cell(rows: Iterable[Row]) -> dict[Cell, dict[int, float]]:
    """The mean time to target by cell and seed."""
    found: dict[Cell, dict[int, float]] = defaultdict(dict)
    for row in rows:
        found[cell_of(row)][int(row["seed"])] = float(row["mean"])
    return found


def overhead_of(engine: str, times: dict[Cell, dict[int, float]]) -> float:
    """Seconds that a run takes longer than it sleeps: with which the simulator meets searches that are alone best."""
    alone = {cell: each for cell, each in times.items() if cell.jobs == 1 and cell.policy == "fifo"} or {
        cell: each for cell, each in times.items() if cell.policy == "fifo"
    }
    best = (float("inf"), 0.0)
    for more in (*np.arange(0.0, 1.0, 0.02), *np.arange(1.0, 6.0, 0.1)):
        gaps = [
            abs(np.log(real / expected(engine, cell, seed, round(float(more), 2))))
            for cell, each in alone.items()
            for seed, real in each.items()
        ]
        best = min(best, (float(np.mean(gaps)), round(float(more), 2)))
    return best[1]


def real_table(engine: str, rows: list[Row]) -> None:
    """Print the times of an engine, and each policy's ratio to FIFO."""
    times = by_cell(rows)
    more = overhead_of(engine, times)
    busy = [float(row["busy"]) for row in rows]
    print(
        f"\n{engine}: runs of {SCALES[engine].seconds:g} s in the mean; {more:.2f} s more for each run; "
        f"processors busy {np.median(busy):.0f} % in the median, {max(busy):.0f} % at most\n"
    )
    print("| searches | at once | policy | seeds | s | to simulated | with overhead | to FIFO | simulated, to FIFO |")
    print("|---:|---:|---|---:|---:|---|---|---|---|")
    order = list(CELLS)
    for cell in sorted(times, key=lambda c: (c.jobs > 1 and c.parallel > 1, c.jobs, c.parallel, order.index(c))):
        mine, base = times[cell], times.get(Cell(cell.jobs, cell.parallel, "fifo"), {})
        plain = [real / expected(engine, cell, seed) for seed, real in mine.items()]
        longer = [real / expected(engine, cell, seed, more) for seed, real in mine.items()]
        words = ["", ""]
        if cell.policy != "fifo":
            words[0] = interval([mine[seed] / base[seed] for seed in mine if seed in base])
            fifo = Cell(cell.jobs, cell.parallel, "fifo")
            words[1] = interval([expected(engine, cell, s) / expected(engine, fifo, s) for s in range(MANY)])
        print(
            f"| {cell.jobs} | {cell.parallel} | {cell.policy} | {len(mine)} | {np.mean(list(mine.values())):.2f} "
            f"| {interval(plain)} | {interval(longer)} | {words[0]} | {words[1]} |"
        )


def bare_table(rows: list[Row]) -> None:
    """Print what each way takes, and its ratio to the engine by itself."""
    found: dict[tuple[str, str], dict[int, Row]] = defaultdict(dict)
    for row in rows:
        found[row["engine"], row["way"]][int(row["round"])] = row
    print(
        "\n| engine | way | rounds | s | least and most | ms a task more than bare | ratio to bare | processors busy |"
    )
    print("|---|---|---:|---:|---|---:|---|---:|")
    for (engine, way), mine in found.items():
        base = found[engine, "bare"]
        walls = [float(row["wall"]) for row in mine.values()]
        both = [(float(row["wall"]), float(base[turn]["wall"])) for turn, row in mine.items() if turn in base]
        tasks = int(next(iter(mine.values()))["tasks"])
        more = float(np.median([1000 * (ours - theirs) / tasks for ours, theirs in both]))
        last = ("", "") if way == "bare" else (f"{more:.0f}", interval([ours / theirs for ours, theirs in both]))
        busy = np.median([float(row["busy"]) for row in mine.values()])
        print(
            f"| {engine} | {way} | {len(mine)} | {np.median(walls):.2f} | {min(walls):.2f} to {max(walls):.2f} "
            f"| {last[0]} | {last[1]} | {busy:.0f} % |"
        )


def main() -> int:
    """Print all tables."""
    rows = rows_of("real.csv")
    for engine in ENGINES:
        mine = [row for row in rows if row["engine"] == engine]
        if mine:
            real_table(engine, mine)
    bare_table(rows_of("bare.csv"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
