"""A small catalogue and workflows for the tests of advice."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tradewind import plugins
from tradewind.problem import Billing, Offer
from tradewind.store.base import Store
from tradewind.workflow.advice.offers import MachineAssumptions
from tradewind.workflow.advice.set_search import AdviceRequest
from tradewind.workflow.files import read_workflow
from tradewind.workflow.graph import Workflow
from tradewind.workflow.planner.heft import HeftPlanner
from tradewind.workflow.platform import Platform, Vm

OFFERS = (
    Offer("here", "slow-1", 1, 2, 0.05, region="a", family="slow"),
    Offer("here", "slow-1b", 1, 2, 0.06, region="a", family="slow"),
    Offer("here", "slow-4", 4, 8, 0.21, region="a", family="slow"),
    Offer("here", "fast-2", 2, 4, 0.33, region="a", family="fast"),
    Offer("there", "fast-8", 8, 16, 1.1, region="b", family="fast"),
)
"""`slow-1b` is as `slow-1`, and dearer."""

TERMS = MachineAssumptions(
    speeds={"fast": 2.5}, boot_seconds=20.0, billing=Billing(minimum_seconds=60.0, granularity_seconds=1.0)
)


def store(folder: Path) -> Store:
    """An empty store."""
    made: Store = plugins.create("store", "sql", {}, url=f"sqlite:///{folder}/store.db")
    return made


def drawn(folder: Path, seed: int, count: int = 24) -> tuple[Path, Workflow]:
    """A workflow of some layers, as a file and as it is read."""
    chance = random.Random(seed)
    tasks: dict[str, dict[str, Any]] = {}
    for place in range(count):
        after = sorted(chance.sample(range(place), min(place, chance.randint(0, 2)))) if place > 3 else []
        tasks[f"t{place}"] = {
            "command": ["true"],
            "activity": f"a{place % 3}",
            "runtime": round(chance.uniform(5, 90), 3),
            "after": [f"t{parent}" for parent in after],
        }
    path = folder / f"drawn{seed}.yaml"
    path.write_text(json.dumps({"name": f"drawn{seed}", "tasks": tasks}))
    return path, read_workflow(path)


def wanted(path: Path, flow: Workflow, **changes: Any) -> AdviceRequest:
    """A question over the small catalogue that chance has no part in."""
    given = {"terms": TERMS, "max_vms": 6, "mix": 1, "refine": 0.0, "front": 4, "seconds": 100.0, **changes}
    return AdviceRequest(file=path, flow=flow, **given)


def by_hand(flow: Workflow, offer: Offer, count: int, speed: float) -> tuple[float, float]:
    """Makespan and cost of a set with HEFT's plan, written out: nothing of the code under test but the planner."""
    vms = tuple(Vm(str(place), speed, int(offer.vcpu), 0.0, boot_seconds=20.0) for place in range(count))
    made = HeftPlanner(settings=plugins.Settings()).plan(flow, Platform(vms))
    billed = max(60, math.ceil(made.makespan - 1e-6))
    return made.makespan, billed / 3600 * offer.price_per_hour * count


def every_set(flow: Workflow, offers: Sequence[Offer] = OFFERS, most: int = 6) -> dict[str, tuple[float, float]]:
    """Makespan and cost of all sets, by the key of their offer."""
    return {
        replace(offer, nodes=count).key: by_hand(flow, offer, count, 2.5 if offer.family == "fast" else 1.0)
        for offer in offers
        for count in range(1, most + 1)
    }
