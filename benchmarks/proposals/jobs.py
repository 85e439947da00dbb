"""The jobs of the measurement: paper 5's two programs, programs of our own, and two families of recorded runs."""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.done.scenarios import PARAMETERS, Scenario, Values, recorded, synthetic
from benchmarks.proposals.programs import DEVELOPED, HELD_OUT, STARTED, WORDS, machines, make_job

from tradewind.problem import Configuration, Nodes, Offer, Parameter


def scale_out(folder: Path, metric: str) -> Scenario:
    """The six jobs of Bell on 4 to 60 nodes: the job's name is the only parameter (median of seven runs)."""
    tables: dict[str, dict[int, float]] = {}
    for path in sorted(folder.glob("*.csv")):
        cells: dict[int, list[float]] = defaultdict(list)
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                cells[int(row["Nodes"])].append(float(row["Runtime"]) / 1000.0)
        tables[path.stem] = {nodes: median(seconds) for nodes, seconds in cells.items()}
    counts = sorted(set.intersection(*(set(table) for table in tables.values())))
    offers = {"node": Offer("lab", "node", vcpu=8, memory_gib=16.0, price_per_hour=0.4)}

    def law(given: Values, chosen: Configuration, _: Offer) -> float:
        return tables[str(given["job"])][int(chosen["nodes"])]

    words = "time" if metric == "runtime" else "cost"
    inputs: list[Values] = [{"job": name} for name in tables]
    space: list[Parameter] = [machines(offers), Nodes(name="nodes", values=tuple(counts))]
    return make_job(f"bell, {words}", inputs, space, law, metric)


def jobs(folder: Path) -> dict[str, Scenario]:
    """All by name; the recorded ones only where the folder of the tables is there."""
    found = {f"paper 5, {law}": synthetic(law, levels=slice(2, 5)) for law in ("dynamic", "static")}
    found |= {one.name: one for make in (*STARTED, *DEVELOPED, *HELD_OUT, *WORDS) for one in (make(),)}
    if (folder / "c3o").is_dir():
        for name in PARAMETERS:
            for metric, words in (("runtime", "time"), ("cost", "cost")):
                found[f"c3o {name}, {words}"] = recorded(folder / "c3o", name, metric)
    if (folder / "bell").is_dir():
        for metric in ("runtime", "cost"):
            made = scale_out(folder / "bell", metric)
            found[made.name] = made
    return {name: replace(one, name=name) for name, one in found.items()}
