"""How many plans it takes to find the cheapest machines for a workflow before a deadline.

    python benchmarks/advice/run.py [DATASETS] [--trials 30] [--seeds 5]

Every set (types of the catalogue x 1 to 16 machines) is planned once, which gives the optimum; then each searcher looks
for it in a study of its own. Each search is appended to ``work/results.csv`` as it ends, and not repeated when it is
there: an interrupted run goes on. ``analyze.py`` prints the tables.
"""

from __future__ import annotations

import argparse
import csv
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tradewind import plugins
from tradewind.problem import Billing, Offer, OfferQuery
from tradewind.selector.offer_search import find_offers
from tradewind.workflow.advice.offers import MachineAssumptions, kept_cost, worth_trying
from tradewind.workflow.advice.runner import simulate_planner
from tradewind.workflow.advice.set_search import AdviceRequest, search_sets
from tradewind.workflow.files import read_workflow
from tradewind.workflow.job.preparation import make_planner

HERE = Path(__file__).parent
RESULTS = HERE / "work/results.csv"
COLUMNS = [
    "graph", "speeds", "tightness", "searcher", "seed", "sets", "optimum", "exhaustive_seconds",
    "trials", "seconds", "proven", "best", "within_5", "within_1",
]  # fmt: skip
GRAPHS = ("Montage_100", "CyberShake_100", "Epigenomics_100")
TIGHTNESS = (1.2, 2.0, 5.0)
MOST = 16


@dataclass(frozen=True)
class Cell:
    """One question: a workflow, the machines' speeds and a deadline."""

    graph: str
    speeds: str
    tightness: float


def terms_of(speeds: str, offers: Sequence[Offer]) -> MachineAssumptions:
    """All types alike, or newer generations faster: 10 % a generation, which is made up."""
    factors = {}
    if speeds == "by generation":
        for offer in offers:
            digit = re.search(r"\d", offer.family)
            factors[offer.family] = 0.5 + 0.1 * int(digit[0]) if digit else 1.0
    return MachineAssumptions(factors, boot_seconds=60.0, billing=Billing(minimum_seconds=60.0))


def exhaustive(wanted: AdviceRequest, kept: Sequence[Offer]) -> list[tuple[float, float]]:
    """Makespan and cost of every set."""
    planner = make_planner("heft", 0, Path())
    found = []
    for offer in kept:
        for count in range(1, MOST + 1):
            platform = wanted.terms.platform(replace(offer, nodes=count), wanted.flow)
            span = simulate_planner(wanted.flow, platform, planner).makespan
            found.append((span, kept_cost(platform, span)))
    return found


def questions(datasets: Path, offers: Sequence[Offer]) -> Iterator[tuple[Cell, AdviceRequest, float, int, float]]:
    """Each question with its optimum, the number of sets, and the seconds that planning all of them took."""
    for graph in GRAPHS:
        path = datasets / "dax" / f"{graph}.xml.gz"
        flow = read_workflow(path, lenient=True)
        for speeds in ("all alike", "by generation"):
            terms = terms_of(speeds, offers)
            wanted = AdviceRequest(path, flow, terms, lenient=True, front=0, seconds=600.0, max_vms=MOST)
            kept = worth_trying(offers, flow, terms)
            exhaustive(wanted, kept[:1])  # compiles
            began = time.perf_counter()
            every = exhaustive(wanted, kept)
            took = time.perf_counter() - began
            quickest = min(span for span, _ in every)
            for tightness in TIGHTNESS:
                deadline = quickest * tightness
                optimum = min(cost for span, cost in every if span <= deadline)
                yield Cell(graph, speeds, tightness), replace(wanted, deadline=deadline), optimum, len(every), took


def searched(wanted: AdviceRequest, offers: Sequence[Offer], optimum: float) -> dict[str, object]:
    """One search: what it found, and after how many trials."""
    with tempfile.TemporaryDirectory() as folder:
        store = plugins.create("store", "sql", {}, url=f"sqlite:///{folder}/store.db")
        began = time.perf_counter()
        found = search_sets(wanted, offers, store, Path(folder))
        took = time.perf_counter() - began
        store.close()
    best, reached = float("inf"), {5: "", 1: ""}
    for number, trial in enumerate(found.trials, 1):
        seen = trial.observation
        if seen is not None and seen.feasible:
            best = min(best, seen.cost)
        for share, at in reached.items():
            if not at and best <= optimum * (1 + share / 100):
                reached[share] = str(number)
    return {
        "trials": len(found.trials),
        "seconds": round(took, 3),
        "proven": found.proven,
        "best": best / optimum,
        "within_5": reached[5],
        "within_1": reached[1],
    }


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("datasets", nargs="?", type=Path, default=HERE.parents[2] / "shared/datasets")
    words.add_argument("--trials", type=int, default=30)
    words.add_argument("--seeds", type=int, default=5, help="Of the random searcher; the others are run once.")
    words.add_argument("--searchers", nargs="*", default=["bounds", "tradewind", "cherrypick", "random"])
    given = words.parse_args()
    RESULTS.parent.mkdir(exist_ok=True)
    done = set()
    if RESULTS.is_file():
        with RESULTS.open(newline="") as file:
            done = {tuple(row[name] for name in COLUMNS[:5]) for row in csv.DictReader(file)}
    query = OfferQuery(provider=("aws",), region=("us-east-1",))
    offers = [offer for offer in find_offers(query, Path(HERE / "work")) if offer.category != "burstable"]
    for cell, wanted, optimum, sets, took in questions(given.datasets, offers):
        for searcher in given.searchers:
            for seed in range(given.seeds if searcher == "random" else 1):
                key = (cell.graph, cell.speeds, str(cell.tightness), searcher, str(seed))
                if key in done:
                    continue
                question = replace(wanted, searcher=searcher, seed=seed, trials=given.trials)
                row = dict(zip(COLUMNS[:5], key, strict=True))
                row |= {"sets": sets, "optimum": optimum, "exhaustive_seconds": round(took, 3)}
                row |= searched(question, offers, optimum)
                new = not RESULTS.is_file()
                with RESULTS.open("a", newline="") as file:
                    writer = csv.DictWriter(file, COLUMNS)
                    if new:
                        writer.writeheader()
                    writer.writerow(row)
                print(*row.values(), flush=True)


if __name__ == "__main__":
    main()
