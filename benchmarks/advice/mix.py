"""What sets of several types gain over sets of one type, and what looking for them takes.

    python benchmarks/advice/mix.py [DATASETS] [--refine 0] [--mix 1 2 3] [--graphs NAME...] [--speeds ...]

For each graph, speeds and deadline the whole advice is asked for, with each number of types in a set.
Each answer is appended to ``work/mix.csv`` as it ends, and not repeated when it is there: an interrupted run goes on.
``analyze_mix.py`` prints the tables.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from run import HERE, MOST, exhaustive, terms_of

from tradewind import plugins
from tradewind.errors import NothingFeasibleError
from tradewind.problem import Offer, OfferQuery
from tradewind.selector.offer_search import find_offers
from tradewind.workflow.advice.advice import advise
from tradewind.workflow.advice.offers import worth_trying
from tradewind.workflow.advice.runner import offer_words
from tradewind.workflow.advice.set_search import AdviceRequest
from tradewind.workflow.files import read_workflow

RESULTS = HERE / "work/mix.csv"
GRAPHS = (
    "dax/Montage_100.xml.gz",
    "dax/CyberShake_100.xml.gz",
    "dax/Epigenomics_100.xml.gz",
    "dax/Inspiral_100.xml.gz",
    "dax/Sipht_100.xml.gz",
    "dax/Montage_1000.xml.gz",
    "wfinstances/1000genome-chameleon-10ch-250k-001.json.gz",
    "wfinstances/epigenomics-chameleon-hep-7seq-50k-001.json.gz",
    "wfinstances/blast-chameleon-large-001.json.gz",
    "wfinstances/airrflow-dirt02-001.json.gz",
)
SPEEDS = ("all alike", "by generation")
TIGHTNESS = (1.05, 1.2, 1.5, 2.0, 3.0, 5.0)
COLUMNS = [
    "graph", "tasks", "speeds", "tightness", "mix", "refine", "cost", "makespan", "seconds", "tried", "planned", "sets",
    "proven", "machines",
]  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """One question: a workflow, the machines' speeds and a deadline in shortest makespans of sets of one type."""

    graph: str
    speeds: str
    tightness: float


def questions(
    datasets: Path, graphs: Sequence[str], offers: Sequence[Offer], kinds: Sequence[str] = SPEEDS
) -> Iterator[tuple[Cell, AdviceRequest]]:
    """Each question."""
    for graph in graphs:
        path = datasets / graph
        flow = read_workflow(path, lenient=True)
        for speeds in kinds:
            terms = terms_of(speeds, offers)
            wanted = AdviceRequest(path, flow, terms, lenient=True, seconds=60.0, max_vms=MOST)
            quickest = min(span for span, _ in exhaustive(wanted, worth_trying(offers, flow, terms)))
            for tightness in TIGHTNESS:
                yield Cell(graph, speeds, tightness), replace(wanted, deadline=quickest * tightness)


def answer(wanted: AdviceRequest, offers: Sequence[Offer]) -> dict[str, object]:
    """The advice, and what it took."""
    with tempfile.TemporaryDirectory() as folder:
        store = plugins.create("store", "sql", {}, url=f"sqlite:///{folder}/store.db")
        began = time.process_time()
        try:
            found = advise(wanted, offers, store, Path(folder))
        except NothingFeasibleError:
            return {"cost": "inf", "seconds": round(time.process_time() - began, 3)}
        finally:
            store.close()
        took = time.process_time() - began
    return {
        "cost": found.best.figures.cost,
        "makespan": found.best.figures.makespan,
        "seconds": round(took, 3),
        "tried": len(found.searched.trials),
        "planned": len(found.mixing.planned),
        "sets": found.mixing.sets,
        "proven": found.searched.proven and found.mixing.proven,
        "machines": offer_words(found.best.offers),
    }


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("datasets", nargs="?", type=Path, default=HERE.parents[2] / "shared/datasets")
    words.add_argument("--refine", type=float, default=0.0)
    words.add_argument("--mix", type=int, nargs="*", default=[1, 2])
    words.add_argument("--graphs", nargs="*", default=list(GRAPHS))
    words.add_argument("--speeds", nargs="*", default=list(SPEEDS))
    given = words.parse_args()
    RESULTS.parent.mkdir(exist_ok=True)
    done = set()
    if RESULTS.is_file():
        with RESULTS.open(newline="") as file:
            done = {tuple(row[name] for name in ("graph", "speeds", "tightness", "mix", "refine"))
                    for row in csv.DictReader(file)}  # fmt: skip
    query = OfferQuery(provider=("aws",), region=("us-east-1",))
    offers = [offer for offer in find_offers(query, Path(HERE / "work")) if offer.category != "burstable"]
    for cell, wanted in questions(given.datasets, given.graphs, offers, given.speeds):
        for mix in given.mix:
            key = (cell.graph, cell.speeds, str(cell.tightness), str(mix), str(given.refine))
            if key in done:
                continue
            row = dict(zip(("graph", "speeds", "tightness", "mix", "refine"), key, strict=True))
            row["tasks"] = str(len(wanted.flow))
            row |= answer(replace(wanted, mix=mix, refine=given.refine), offers)
            new = not RESULTS.is_file()
            with RESULTS.open("a", newline="") as file:
                writer = csv.DictWriter(file, COLUMNS)
                if new:
                    writer.writeheader()
                writer.writerow(row)
            print(*(row.get(name, "") for name in COLUMNS), flush=True)


if __name__ == "__main__":
    main()
