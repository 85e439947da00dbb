"""Long names in little room, cut where that leaves most of them apart."""

from __future__ import annotations

from collections.abc import Callable, Collection


def _end(name: str, most: int) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def _beginning(name: str, most: int) -> str:
    return name if len(name) <= most else "…" + name[len(name) - most + 1 :]


def _middle(name: str, most: int) -> str:
    if len(name) <= most:
        return name
    keep = most - 1
    return name[: (keep + 1) // 2] + "…" + name[len(name) - keep // 2 :]


CUTS: tuple[Callable[[str, int], str], ...] = (_end, _beginning, _middle)
"""What makes a name shorter, with a mark where something is missing: at its end, at its beginning, in its middle."""


def shortened_names(names: Collection[str], most: int) -> dict[str, str]:
    """What stands for each name in so many columns.

    Names that one workflow engine makes often begin alike (``NFCORE_RNASEQ.RNASEQ.ALIGN_STAR.STAR_ALIGN``), others end
    alike: all are cut at the end, or all at the beginning, or all in the middle, whichever leaves most of them apart.

    Args:
        names: The names; those that fit stay.
        most: Columns that there are, at least 3.
    """
    return max(({name: cut(name, most) for name in names} for cut in CUTS), key=lambda found: len(set(found.values())))
