"""Machine types as compact tables write them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tradewind.problem import Offer


@dataclass(frozen=True, slots=True)
class MachineType:
    """A machine type and its price in a catalogue's first region.

    Attributes:
        name: The provider's name for it.
        family: The provider's family.
        category: Category, as in `Offer`.
        arch: Processor architecture, as in `Offer`.
        vcpu: Virtual CPUs.
        memory_gib: Memory, GiB.
        price: USD per hour.
        gpus: Number of accelerators.
        accelerator: Name of the accelerators, or empty.
    """

    name: str
    family: str
    category: str
    arch: str
    vcpu: float
    memory_gib: float
    price: float
    gpus: int = 0
    accelerator: str = ""


ARCHITECTURES = {"x": "x86_64", "a": "arm64"}
"""The letters that tables write for architectures."""


def table_rows(table: str) -> Iterator[list[str]]:
    """Split each line of a compact family table into words; lines that begin with ``#`` are left out.

    A table has one line a family, whose prices and memory grow in step with the size, or one line a machine where a
    family is not linear.
    """
    for line in table.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            yield line.split()


def offer_of(machine: MachineType, provider: str, region: str, price: float, date: str, source: str) -> Offer:
    """The offer of a machine type in a region at a price."""
    return Offer(
        provider,
        machine.name,
        float(machine.vcpu),
        float(machine.memory_gib),
        price,
        region,
        machine.category,
        machine.family,
        machine.arch,
        machine.gpus,
        price_date=date,
        source=source,
        facts={"accelerator": machine.accelerator} if machine.accelerator else {},
    )
