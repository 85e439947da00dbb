"""Prints the tables of README.md from what run.py has written.

python benchmarks/service_load/analyze.py [--folder FOLDER] [--processes 1]
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any


def at(values: list[float], share: float) -> float:
    """A quantile, in milliseconds: the smallest value that this share is not above."""
    ordered = sorted(values)
    return 1000.0 * ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan


def row(name: str, values: list[float], errors: int, bar: str = "") -> str:
    cells = [f"{at(values, share):.1f}" for share in (0.5, 0.95, 0.99)] + [f"{at(values, 1.0):.0f}"]
    return f"| {name} | {len(values):,} | {' | '.join(cells)} | {errors} | {bar} |"


def tables(results: dict[str, Any]) -> str:
    lines = [
        "| calls | number | p50, ms | p95, ms | p99, ms | most, ms | errors | bar for p99 |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, words in (("calls", "with its worker"), ("answering", "answers only (`runs: 0`)")):
        if name in results:
            one = results[name]
            lines.append(row(f"reads, {words}", one["reads"], len(one["errors"]), "100"))
            lines.append(row(f"submits, {words}", one["submits"], len(one["errors"]), "250"))
    if "hello" in results:
        lines.append(row("FastAPI, hello world", results["hello"]["reads"], len(results["hello"]["errors"])))
    if {"hello", "calls"} <= results.keys():
        base = results["hello"]
        each = base["cpu"] * base["seconds"] / len(base["reads"])
        lines += ["", "| | CPU of a call | against hello world | p99 against hello world |", "|---|---:|---:|---:|"]
        lines.append(f"| FastAPI, hello world | {1000 * each:.2f} ms | 1.0 | 1.0 |")
        for name in ("calls", "answering"):
            if name in results:
                one = results[name]
                count = len(one["reads"]) + len(one["submits"])
                cost = one["cpu"]["server"] * one["seconds"] / count
                ratio = at(one["reads"], 0.99) / at(base["reads"], 0.99)
                lines.append(f"| {name} | {1000 * cost:.2f} ms | {cost / each:.1f} | {ratio:.1f} |")
        one = results["calls"]
        used = one["cpu"]
        lines += ["", f"The server used {used['server']:.2f} cores and its worker {used['worker']:.2f};"]
        lines[-1] += f" {one['unchanged'] / max(1, len(one['reads'])):.0%} of the reads were answered with 304."
    if "streams" in results:
        one = results["streams"]
        lines += ["", "| streams | |", "|---|---:|"]
        facts = {
            "open at a time": f"{one['streams']:,}",
            "of each process": ", ".join(f"{number:,}" for number in one["spread"]),
            "lost": f"{one['lost']:,}",
            "opened within": f"{one['opening']:.1f} s",
            "memory of one": f"{one['rss_each_kib']:.0f} KiB",
            "CPU while nothing happens": f"{one['cpu_idle']:.2f} cores",
            "CPU while a request is made and carried out every 5 s": f"{one['cpu_busy']:.2f} cores",
            "messages": f"{len(one['lags']):,}",
            "from the event to the reader, p50": f"{at(one['lags'], 0.5):.0f} ms",
            "from the event to the reader, p99": f"{at(one['lags'], 0.99):.0f} ms",
            "reads meanwhile, p99": f"{at(one['reads'], 0.99):.0f} ms",
            "submits meanwhile, p99": f"{at(one['submits'], 0.99):.0f} ms",
            "errors": f"{len(one['errors'])}",
        }
        lines += [f"| {name} | {value} |" for name, value in facts.items()]
    loads = ", ".join(f"{name} {one['load_before']:.1f}" for name, one in results.items())
    return "\n".join([*lines, "", f"Load of the machine before each scene: {loads}."])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/tradewind_service_load"))
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    name = "results.json" if options.processes == 1 else f"results-{options.processes}.json"
    print(tables(json.loads((options.folder / name).read_text())))


if __name__ == "__main__":
    main()
