"""Turns compact family tables into offers: within a family, prices and memory grow in step with the size.

A table has one line a family, or one a machine where a family is not linear; words are separated by spaces and
lines that begin with ``#`` are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MachineType:
    """What a machine is and costs in a catalogue's first region.

    Attributes:
        name: The provider's name for it.
        family: The provider's family.
        category: As in `Offer`.
        arch: As in `Offer`.
        vcpu: Virtual CPUs.
        memory_gib: Memory, GiB.
        price: USD per hour.
        gpus: Accelerators.
        accelerator: Their name, or empty.
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
    """The words of each line of a table."""
    for line in table.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            yield line.split()


def tidy_price(price: float) -> float:
    """A price per hour without the noise of the multiplication that made it."""
    return round(price, 8)
