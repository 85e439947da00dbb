"""Make the table of README.md from the lines that run.py wrote."""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, nargs="?", default=Path("/tmp/tradewind-execution/results.jsonl"))
    given = parser.parse_args()
    rows = [json.loads(line) for line in given.file.read_text().splitlines()]
    groups: dict[tuple[str, str, str], list[dict[str, float]]] = {}
    for row in rows:
        groups.setdefault((row["on"], row["plan"], row["way"]), []).append(row)
    loads = [row["load"] for row in rows]
    print(f"{len(rows)} runs, load {min(loads):.1f} to {max(loads):.1f}\n")
    print("| on | plan | tasks | way | planned | over the plan, median | least and most | per task | around it |")
    print("|---|---|---|---|---|---|---|---|---|")
    for (on, plan, way), found in sorted(groups.items()):
        over = [100 * (row["ratio"] - 1) for row in found]
        tasks = int(found[0]["tasks"])
        per_task = statistics.median(1000 * row["cpu"] / tasks for row in found)
        around = statistics.median(row["around"] for row in found)
        print(
            f"| {on} | {plan} | {tasks} | {way} | {found[0]['planned']:.2f} s | {statistics.median(over):+.2f} % "
            f"| {min(over):+.2f} % to {max(over):+.2f} % | {per_task:.2f} ms | {around:.1f} s |"
        )
    worst = max(statistics.median(100 * (r["ratio"] - 1) for r in g) for k, g in groups.items() if k[0] == "local")
    print(f"\nThe worst median on local processes: {worst:+.2f} %; the bar is +2 %.")


if __name__ == "__main__":
    main()
