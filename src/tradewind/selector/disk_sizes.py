"""Disks of machines, as catalogues write them."""

from __future__ import annotations

import math
import re

from tradewind.problem.offer import DISK

GIGABYTE = 1e9
"""Bytes of the unit in which providers give the sizes of disks."""

_UNITS = {"gb": 1e9, "gib": 2.0**30, "tb": 1e12, "tib": 2.0**40, "mb": 1e6, "mib": 2.0**20}
_SIZE = re.compile(
    r"(?:(?P<disks>\d{1,4})\s*x\s*)?(?P<size>\d{1,12}(?:,\d{3})*(?:\.\d+)?)\s*(?P<unit>[kmgt]i?b)?\b(?:\s.*)?",
    re.IGNORECASE,
)


def disk_facts(size: float | None) -> dict[str, float | str]:
    """The fact of an offer that says how much disk one of its machines has; none where nobody knows.

    Args:
        size: Bytes, or None. Lists write 0 for a machine that has no disk of its own: how large the one is that it
            is given is not theirs to know.
    """
    return {DISK: round(size / 2**30, 3)} if size is not None and 0 < size < math.inf else {}


def disk_size(text: str, unit: float = GIGABYTE) -> float | None:
    """Bytes of disk of a text such as ``80``, ``1.9 TB`` or ``2 x 1900 NVMe SSD``; None where it is no size.

    Args:
        text: What a list has.
        unit: Bytes of the unit of a number without one.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None or (found["unit"] and found["unit"].lower() not in _UNITS):
        return None
    size = float(found["size"].replace(",", "")) * int(found["disks"] or 1)
    return size * (_UNITS[found["unit"].lower()] if found["unit"] else unit)
