"""Prints the tables of the README from work/*.jsonl."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def rows(part: str) -> list[dict[str, Any]]:
    file = HERE / "work" / f"{part}.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []


def mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def quality() -> None:
    found: dict[str, dict[tuple[str, int], tuple[float, float]]] = {}
    for row in rows("quality"):
        found.setdefault(row["planner"], {})[row["graph"], row["vcpu"]] = row["makespan"], row["seconds"]
    bound = found.pop("bound", {})
    print(f"{len(bound)} cells, geometric mean of makespan / lower bound; processor seconds of the slowest cell\n")
    print("| planner | all | 16 vCPU | 32 | 64 | 128 | worst cell | s, slowest |\n|---|---|---|---|---|---|---|---|")
    table = []
    for planner, of in found.items():
        ratios = {cell: of[cell][0] / bound[cell][0] for cell in of}
        each = [mean([r for (_, v), r in ratios.items() if v == vcpu]) for vcpu in (16, 32, 64, 128)]
        worst = max(ratios, key=lambda cell: ratios[cell])
        slowest = max(seconds for _, seconds in of.values())
        table.append(
            (mean(list(ratios.values())), planner, each, f"{ratios[worst]:.2f} {worst[0]}@{worst[1]}", slowest)
        )
    for total, planner, each, worst, slowest in sorted(table, reverse=True):
        print(f"| {planner} | {total:.4f} | " + " | ".join(f"{e:.3f}" for e in each) + f" | {worst} | {slowest:.3f} |")
    for planner in sorted({row["planner"] for row in rows("online")}):
        of = [row for row in rows("online") if row["planner"] == planner]
        during = mean([row["makespan"] / bound[row["graph"], row["vcpu"]][0] for row in of])
        before = mean([found[planner][r["graph"], r["vcpu"]][0] / bound[r["graph"], r["vcpu"]][0] for r in of])
        print(f"{planner}: decided during the run {during:.4f}, planned before {before:.4f} ({len(of)} cells)")
    optima = rows("optima")
    proven = [row for row in optima if row["proven"]]
    print(f"\n{len(proven)} of {len(optima)} cells proven optimal by CP-SAT.")
    for planner in ("heft", "search"):
        ratios = {(r["graph"], r["vcpu"]): found[planner][r["graph"], r["vcpu"]][0] / r["makespan"] for r in proven}
        equal = [cell for cell, ratio in ratios.items() if ratio <= 1.0 + 1e-5]
        rest = ", ".join(f"{g}@{v} {100 * (ratios[g, v] - 1):.2f} %" for g, v in ratios if (g, v) not in equal)
        print(f"{planner}: equal in {len(equal)}; above: {rest or 'none'}")
    tight = [bound[r["graph"], r["vcpu"]][0] / r["makespan"] for r in proven]
    if tight:
        print(
            f"the lower bound is {100 * (1 - mean(tight)):.1f} % below these optima, "
            f"{100 * (1 - min(tight)):.1f} % at most"
        )
    better = [
        r for r in optima if not r["proven"] and found["search"][r["graph"], r["vcpu"]][0] < r["makespan"] * (1 - 1e-6)
    ]
    print(f"search beats CP-SAT's best in {len(better)} of the {len(optima) - len(proven)} others")


def money() -> None:
    found: dict[tuple[str, float, float], dict[str, dict[str, Any]]] = {}
    for row in rows("money"):
        found.setdefault((row["graph"], row["unit"], row["factor"]), {})[row["planner"]] = row
    if not found:
        return
    print("\n| deadline | ic_pcp / HEFT | cost_search / HEFT | cost_search / ic_pcp | ic_pcp finds none |")
    print("|---|---|---|---|---|")
    for factor in sorted({factor for _, _, factor in found}):
        cells = [cell for (_, _, own), cell in found.items() if own == factor]
        both = [cell for cell in cells if cell["ic_pcp"]["cost"] is not None]
        ratios = [
            mean([cell[one]["cost"] / cell[other]["cost"] for cell in both])
            for one, other in (("ic_pcp", "heft"), ("cost_search", "heft"), ("cost_search", "ic_pcp"))
        ]
        print(
            f"| {factor:g} | "
            + " | ".join(f"{ratio:.3f}" for ratio in ratios)
            + f" | {len(cells) - len(both)} of {len(cells)} |"
        )
    cells = [cell for cell in found.values() if cell["ic_pcp"]["cost"] is not None]
    for unit in sorted({unit for _, unit, _ in found}):
        of = [cell for (_, own, _), cell in found.items() if own == unit and cell["ic_pcp"]["cost"] is not None]
        ratio = mean([cell["cost_search"]["cost"] / cell["ic_pcp"]["cost"] for cell in of])
        print(f"billed by {unit:g} s: cost_search / ic_pcp {ratio:.3f}")
    worst = max(cell["cost_search"]["cost"] / cell["ic_pcp"]["cost"] for cell in cells)
    slowest = max(cell["ic_pcp"]["seconds"] for cell in found.values())
    none = sum(cell["cost_search"]["cost"] is None for cell in found.values())
    print(f"at most {worst:.3f}; ic_pcp takes {1000 * slowest:.0f} ms at most")
    print(f"cost_search finds none in {none} of {len(found)}")


def speed() -> None:
    print("\n| tasks x machines | tradewind, ms | SAGA, ms | makespan, SAGA / tradewind |\n|---|---|---|---|")
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for row in rows("speed"):
        found.setdefault((row["tasks"], row["vms"]), {})[row["who"]] = row
    for (tasks, vms), who in found.items():
        saga = who.get("saga")
        theirs = (
            f"{1000 * saga['seconds']:,.0f} | {saga['makespan'] / who['tradewind']['makespan']:.4f}" if saga else " | "
        )
        print(f"| {tasks:,} x {vms} | {1000 * who['tradewind']['seconds']:.1f} | {theirs} |")


if __name__ == "__main__":
    quality()
    money()
    speed()
