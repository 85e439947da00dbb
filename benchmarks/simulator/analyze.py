"""The table of the README from the results of ``run.py``.

python benchmarks/simulator/analyze.py results.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

NAMES = {"25": "25 tasks", "1000": "1,000 tasks", "10000": "10,000 tasks"}
BARS = {"1000": 0.05, "10000": 1.0}
"""Milliseconds that one simulation in the kernel may take."""


def main() -> None:
    results = json.loads(Path(sys.argv[1]).read_text())
    names = list(dict.fromkeys(row["name"] for row in results["rows"]))
    print(f"| one simulation, ms: least (median) | {' | '.join(NAMES.values())} |")
    print("|---|" + "---|" * len(NAMES))
    for name in names:
        cells = []
        for graph in NAMES:
            row = next(row for row in results["rows"] if (row["name"], row["graph"]) == (name, graph))
            cells.append(f"{1e3 * row['least']:.3g} ({1e3 * row['median']:.3g})")
        print(f"| {name} | {' | '.join(cells)} |")
    print(f"\nload {results['load'][0]:.1f} at the start, {results['load'][1]:.1f} at the end")
    for graph, bar in BARS.items():
        for what in ("policy", "plan"):
            row = next(
                row for row in results["rows"] if (row["name"], row["graph"]) == (f"Tradewind, {what}, kernel", graph)
            )
            verdict = "kept" if 1e3 * row["least"] <= bar else "missed"
            print(f"{NAMES[graph]}, {what}: {1e3 * row['least']:.3f} ms, the bar is {bar} ms: {verdict}")


if __name__ == "__main__":
    main()
