"""Finds the scores of the machines of the prepared tables: ``python prepare.py DATASETS``.

Needs ``../compare/work/tables.json`` (``python ../compare/prepare.py DATASETS``). Writes ``work/scores.json``: for each
table the score of each machine type, by the name of the fact. A table is complete where 99 % of the types have it.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
COMPARE = HERE.parent / "compare"
sys.path.insert(0, str(COMPARE))

import tables  # noqa: E402

COREMARK, STRESS = "coremark", "stress_ng_bestn"
FACT = {
    # No table is given the score that is its own time.
    **dict.fromkeys(("tensorflow", "cherrypick", "scout", "c3o", "ec2/ffmpeg"), COREMARK),
    **dict.fromkeys(("ec2/coremark", "sparecores"), STRESS),
}
"""Which score a table, or a family of tables, is given."""

MOST_MISSING = 0.01
"""Share of the types without a score up to which a table counts as one whose types have scores."""


def scores_of(folder: Path) -> dict[str, dict[str, float]]:
    """Scores of machine types, by fact and type."""
    found: dict[str, dict[str, float]] = {COREMARK: {}, STRESS: {}}
    with (folder / "ec2-coremark/ec2_measured.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            found[COREMARK][row["instance_type"]] = float(row["coremark_iterations_per_s"])
    with gzip.open(folder / "sparecores/servers.csv.gz", "rt", newline="") as file:
        for row in csv.DictReader(file):
            if row["stressng_best"]:
                found[STRESS][row["instance_type"]] = float(row["stressng_best"])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", type=Path, help="the folder with ec2-coremark and sparecores")
    known = scores_of(parser.parse_args().datasets)
    chosen: dict[str, Any] = {}
    without: dict[str, int] = {}
    for table in tables.load(COMPARE / "work/tables.json"):
        fact = FACT.get(table["name"]) or FACT.get(table["family"])
        if fact is None:
            without[table["family"]] = without.get(table["family"], 0) + 1
            continue
        # One type of CherryPick's tables is sold with several kinds of disks.
        scores = {name: known[fact].get(name.partition("/")[0]) for name in table["machines"]}
        missing = sum(score is None for score in scores.values())
        chosen[table["name"]] = {
            "fact": fact,
            "complete": missing <= MOST_MISSING * len(scores),
            "scores": {name: score for name, score in scores.items() if score is not None},
        }
        if missing:
            print(f"{table['name']}: {missing} of {len(scores)} types have no {fact}")
    (HERE / "work").mkdir(exist_ok=True)
    (HERE / "work/scores.json").write_text(json.dumps(chosen))
    names = ", ".join(f"{family} ({count})" for family, count in without.items())
    print(f"{len(chosen)} tables with scores; machines are not named in: {names}")


if __name__ == "__main__":
    main()
