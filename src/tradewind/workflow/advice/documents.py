"""Advice on a workflow's machines as documents: for programs, and as a file of machines."""

from __future__ import annotations

import json
from typing import Any

from tradewind.workflow.advice.advice import Advice, MachineSetOption, keeps_limits
from tradewind.workflow.advice.set_search import AdviceRequest


def to_json(advice: Advice, wanted: AdviceRequest) -> dict[str, Any]:
    """Advice as a document."""
    searched = advice.searched
    return {
        "workflow": wanted.flow.name,
        "tasks": len(wanted.flow),
        "deadline": wanted.deadline,
        "budget": wanted.budget,
        "best": choice_to_json(advice.best, wanted),
        "front": [choice_to_json(row, wanted) for row in advice.front],
        "reasons": list(advice.reasons),
        "warnings": list(advice.warnings),
        "sets": searched.sets,
        "tried": len(searched.trials),
        "proven": searched.proven,
        "mixed": {
            "kinds": wanted.mix,
            "sets": advice.mixing.sets,
            "tried": len(advice.mixing.planned),
            "proven": advice.mixing.proven,
        },
        "study": None if searched.study is None else {"id": searched.study, "name": searched.name},
    }


def choice_to_json(choice: MachineSetOption, wanted: AdviceRequest) -> dict[str, Any]:
    """One set as a document."""
    found = choice.figures
    machines = _machines(choice)
    single = machines[0] if len(machines) == 1 else dict.fromkeys(machines[0])
    return {
        **single,
        "machines": machines,
        "count": len(choice.platform.vms),
        "makespan": found.makespan,
        "lower_bound": found.lower_bound,
        "gap": found.gap,
        "serial": found.serial,
        "utilisation": found.utilisation,
        "cost": found.cost,
        "fits": keeps_limits(wanted, choice),
        "planner": choice.planner,
    }


def _machines(choice: MachineSetOption) -> list[dict[str, Any]]:
    """The kinds of machines of a set."""
    found, first = [], 0
    for offer in choice.offers:
        vm = choice.platform.vms[first]
        first += offer.nodes
        found.append(
            {
                "provider": offer.provider,
                "region": offer.region,
                "type": offer.instance_type,
                "count": offer.nodes,
                "slots": vm.slots,
                "speed": vm.speed,
                "price_per_hour": offer.price_per_hour,
            }
        )
    return found


def vms_yaml(choice: MachineSetOption) -> str:
    """The machines of a set as a file for ``--vms``, the offers in comments."""
    platform = choice.platform
    vm, billing = platform.vms[0], platform.billing
    kinds, first = [], 0
    for each in _machines(choice):
        memory, first = platform.vms[first].memory_bytes, first + each["count"]
        has = "" if memory is None else f", memory: {memory}B"
        where = ":".join(part for part in (each["provider"], each["region"], each["type"]) if part)
        kinds += [
            f"  # {each['count']} x {where}",
            f"  - {{kind: {_quoted(each['type'])}, count: {each['count']}, speed: {each['speed']!r}, "
            f"slots: {each['slots']}, price: {each['price_per_hour']!r}, boot: {vm.boot_seconds!r}s{has}}}",
        ]
    return "\n".join(
        [
            "vms:",
            *kinds,
            f"storage: {platform.storage}",
            f"bandwidth: {platform.bandwidth!r}",
            f"latency: {platform.latency!r}s",
            f"billing: {{setup: {billing.setup_seconds!r}s, minimum: {billing.minimum_seconds!r}s, "
            f"granularity: {billing.granularity_seconds!r}s}}",
            "",
        ]
    )


def _quoted(text: str) -> str:
    return json.dumps(text)
