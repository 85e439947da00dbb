"""Asking for slots of this machine, for runners whose runs take some: what a run wants, and when to ask again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tradewind.deployer.runner import resource_limits
from tradewind.deployer.runner.warden.slot_turns import DEFAULT_TENANT
from tradewind.deployer.runner.warden.slots import FREED, LOOK_SECONDS, inner_folder
from tradewind.problem import RunRequest
from tradewind.utils.machine.gpus import CONSTANTS, VARIABLES, gpus_here
from tradewind.utils.paths import SLOTS


def slot_order(request: RunRequest, registry: Path, *, share: bool, beside: float = 0.0) -> dict[str, Any] | None:
    """Write what a run wants of this machine, as `SlotRegistry.take` reads it; None for one that takes no account.

    Args:
        request: The run.
        registry: The folder of the registry.
        share: False for a run that waits for no CPUs and no memory.
        beside: CPUs of what runs beside the offer, as a load generator.
    """
    nodes, gang, name = request.offer.nodes, request.gang, request.env.get("TRADEWIND_STUDY", request.owner)
    gpus = resource_limits.gpus_of(request) * nodes
    cpus, memory = (resource_limits.cpus_of(request) or 0.0) * nodes, (resource_limits.memory_of(request) or 0) * nodes
    if gang is not None:
        cpus, memory = gang.cpus, gang.memory_bytes
    cpus, memory = (cpus + beside, memory) if share and cpus else (0.0, 0)
    if not (gpus or cpus):
        return None
    name, tenant = name.removesuffix("/runs"), request.tenant
    slot = {
        "folder": str(registry),
        "cpu": cpus,
        "memory": memory,
        "memory_here": resource_limits.memory_here(),
        "device": gpus,
        "devices_here": [],
        "search": request.owner,
        "name": name,
        "group": name.rpartition("/")[0],
        "tenant": DEFAULT_TENANT if tenant is None else tenant.name,
        "weight": None if tenant is None else tenant.weight,
    }
    found = gpus_here() if gpus else ()
    if found:
        of_maker = {"variables": VARIABLES[found[0].maker], "constants": CONSTANTS[found[0].maker]}
        slot |= {"devices_here": [str(gpu.index) for gpu in found], **of_maker}
    if gang is not None and cpus:
        slot |= {
            "gang": gang.name,
            "name": gang.title,
            "group": "",
            "device": min(float(gang.gpus), len(found)),
            "part": gpus,
        }
    return slot


def inner_registry(slot: dict[str, Any] | None, run_id: str) -> dict[str, str]:
    """The variables by which what a run starts itself shares its slot, and takes no second one.

    Args:
        slot: What it wants, of `slot_order`.
        run_id: The run.
    """
    return {} if slot is None else {SLOTS: inner_folder(slot["folder"], slot.get("gang") or run_id)}


class FreedSlots:
    """Says when it is worth asking again: when somebody has given a slot back, and now and then."""

    def __init__(self) -> None:
        self._seen, self._asked, self._again = 0, float("-inf"), float("inf")

    def due(self, registry: Path) -> bool:
        """True when runs that wait are to ask again now.

        Args:
            registry: The folder of the registry.
        """
        try:
            freed = (registry / FREED).stat().st_mtime_ns
        except OSError:  # nobody has yet
            freed = 0
        now = time.monotonic()
        if freed == self._seen and now < min(self._asked + LOOK_SECONDS, self._again):
            return False
        self._seen, self._asked, self._again = freed, now, float("inf")
        return True

    def ask_again(self, seconds: float) -> None:
        """Ask again after so many seconds at the latest; 0 where that would not help."""
        if seconds > 0:
            self._again = min(self._again, time.monotonic() + seconds)
