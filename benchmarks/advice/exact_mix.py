"""How far the search over mixed sets is from the best one: ``python exact_mix.py [DATASETS] [--graphs NAME...]``.

Every set of one or two types of c6g, c7g and c8g up to 16 vCPU is planned with HEFT; newer generations are faster.
Prints, for each deadline, the cost over the least one: of the best set of one type, and of what 300 plans find.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from mix import answer, questions
from run import HERE, MOST

from tradewind.problem import Offer, OfferQuery
from tradewind.selector.offer_search import find_offers
from tradewind.workflow.advice.offers import kept_cost
from tradewind.workflow.advice.runner import simulate_planner
from tradewind.workflow.advice.set_search import AdviceRequest
from tradewind.workflow.job.preparation import make_planner

FAMILIES, LARGEST = ("c6g", "c7g", "c8g"), 16


def every(wanted: AdviceRequest, offers: Sequence[Offer]) -> Iterator[tuple[float, float, int]]:
    """Cost, makespan and number of types of every set of one or two types."""
    planner = make_planner("heft", 0, Path())
    ordered = sorted(offers, key=lambda offer: (-wanted.terms.speed(offer), -offer.vcpu))
    for pair in itertools.combinations(ordered, 2):
        for counts in itertools.product(range(MOST + 1), repeat=2):
            machines = [replace(offer, nodes=count) for offer, count in zip(pair, counts, strict=True) if count]
            if machines and sum(counts) <= MOST:
                platform = wanted.terms.together(machines, wanted.flow)
                makespan = simulate_planner(wanted.flow, platform, planner).makespan
                yield kept_cost(platform, makespan), makespan, len(machines)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("datasets", nargs="?", type=Path, default=HERE.parents[2] / "shared/datasets")
    words.add_argument("--graphs", nargs="*", default=["dax/Montage_100.xml.gz", "dax/Epigenomics_100.xml.gz"])
    given = words.parse_args()
    query = OfferQuery(provider=("aws",), region=("us-east-1",))
    offers = [offer for offer in find_offers(query, HERE / "work")
              if offer.family in FAMILIES and offer.vcpu <= LARGEST]  # fmt: skip
    print("| graph | deadline | one type / best | found / best | sets planned |\n|---|---|---|---|---|")
    for graph in given.graphs:
        sets: list[tuple[float, float, int]] = []
        for cell, wanted in questions(given.datasets, [graph], offers, ["by generation"]):
            sets = sets or list(every(wanted, offers))
            good = [each for each in sets if each[1] <= (wanted.deadline or 0.0)]
            best, single = min(good)[0], min(each for each in good if each[2] == 1)[0]
            found = answer(replace(wanted, refine=0.0), offers)
            name = Path(graph).name.split(".")[0]
            print(f"| {name} | {cell.tightness} × | {single / best:.3f} | {float(str(found['cost'])) / best:.3f} | "
                  f"{found['planned']} of {len(sets)} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
