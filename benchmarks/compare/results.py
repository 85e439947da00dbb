"""Where searches are kept, and how those that took hours are recorded: ``python results.py cherrypick,optuna-gp``.

`run.py` appends a row for each search to ``work/results/POLICY.csv``. The slow ones, optimisers of others and
published searchers, which do not change with Tradewind's own, are recorded in ``recorded/POLICY.csv.gz``, which is kept
with the scripts: `run.py` goes on from there, and `analyze.py` reads both. Only searches without a past are recorded.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import tables
from bench import BUDGETS

RECORDED = tables.HERE / "recorded"
FIGURES = ("close", "exact", *(f"dopt{budget}" for budget in BUDGETS))
KEYS = ("table", "condition", "past", "seed")
COLUMNS = (*KEYS, *FIGURES, "trials", "spent", "ms_a_proposal", "seconds")
KEPT = ("condition", "table", "seed", *FIGURES)
"""What a recorded row has: wall times belong to one machine."""

Search = tuple[str, str, str, str]
"""Table, condition, past and seed."""


def key(row: Mapping[str, str]) -> Search:
    """Which search a row is of."""
    return row["table"], row["condition"], row["past"], row["seed"]


def measured(path: Path) -> Iterator[dict[str, str]]:
    """The rows of a file of ``work/results``; none if it is not there."""
    if path.exists():
        with path.open(newline="") as file:
            yield from csv.DictReader(file)


def recorded(policy: str) -> Iterator[dict[str, str]]:
    """The recorded rows of a policy; none if nothing was recorded."""
    path = RECORDED / f"{policy}.csv.gz"
    if path.exists():
        with gzip.open(path, "rt", newline="") as file:
            for row in csv.DictReader(file):
                yield {**row, "past": "cold"}


def every(work: Path, policy: str) -> dict[Search, dict[str, str]]:
    """All rows of a policy by search; what was measured here goes before what is recorded.

    Args:
        work: The folder ``results`` of the working folder.
        policy: Its name.
    """
    found = {key(row): row for row in recorded(policy)}
    found.update((key(row), row) for row in measured(work / f"{policy}.csv"))
    return found


def mend(path: Path) -> None:
    """Take away a last line that was cut off."""
    if path.exists() and not (text := path.read_text()).endswith("\n"):
        path.write_text(text[: text.rfind("\n") + 1])


def append(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Add rows to a file of ``work/results``."""
    fresh = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=COLUMNS)
        if fresh:
            writer.writeheader()
        writer.writerows(rows)


def record(work: Path, policy: str) -> int:
    """Record all searches of a policy without a past; the same rows make the same file.

    Args:
        work: The folder ``results`` of the working folder.
        policy: Its name.

    Returns:
        How many searches the file has.

    Raises:
        SystemExit: There is none.
    """
    found = {key(row): row for row in recorded(policy)}
    found.update((key(row), row) for row in measured(work / f"{policy}.csv") if row["past"] == "cold")
    if not found:
        raise SystemExit(f"nothing of {policy!r} was measured or is recorded: run run.py --policies {policy} first")
    text = io.StringIO()
    writer = csv.DictWriter(text, KEPT, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(sorted(found.values(), key=lambda row: (row["condition"], row["table"], int(row["seed"]))))
    RECORDED.mkdir(exist_ok=True)
    # A kill in the middle of it leaves what was recorded before.
    part = RECORDED / f"{policy}.part"
    part.write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))
    part.replace(RECORDED / f"{policy}.csv.gz")
    return len(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("policies", help="names with commas between them")
    parser.add_argument("--work", type=Path, default=tables.HERE / "work", help="folder of tables.json and results")
    given = parser.parse_args()
    if any(table["problem"][0] == "made" for table in tables.load(given.work / "tables.json")):
        parser.error(f"{given.work} has made tables: only searches of recorded ones are recorded")
    for policy in given.policies.split(","):
        mend(given.work / "results" / f"{policy}.csv")
        print(f"{policy}: {record(given.work / 'results', policy)} searches recorded")


if __name__ == "__main__":
    main()
