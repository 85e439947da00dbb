"""A list that is read page by page, the newest first, and narrowed by filters in its address."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import urlencode

_Row = TypeVar("_Row")

PER_PAGE = 25
"""Rows on a page."""


def list_page(
    place: str,
    filters: Mapping[str, str],
    before: int | None,
    found: Sequence[_Row],
    number: Callable[[_Row], int],
    show: Callable[[_Row], Any],
    *,
    size: int = PER_PAGE,
) -> dict[str, Any]:
    """What the template of a list needs.

    Args:
        place: The path of the list.
        filters: What it is narrowed to, by name; empty for nothing.
        before: The number that the page begins below; None for the first page.
        found: The rows: ``size``, and one more where there are older ones.
        number: The number of a row.
        show: A row as the template takes it.
        size: Rows on a page.

    Returns:
        ``rows``, ``older`` and ``newest`` (addresses of other pages; empty where there are none), ``filtered``,
        ``filters``, and ``live`` (the address of the rows alone).
    """
    rows = found[:size]
    return {
        "rows": [show(row) for row in rows],
        "older": list_address(place, filters, before=number(rows[-1])) if len(found) > size else "",
        "newest": list_address(place, filters) if before is not None else "",
        "filtered": any(filters.values()) or before is not None,
        "filters": filters,
        "live": list_address(place, filters, before=before, part=1),
    }


def list_address(place: str, filters: Mapping[str, str], **more: Any) -> str:
    """The address of a list with filters; what is empty is left out."""
    given = {key: value for key, value in {**filters, **more}.items() if value}
    return place + (f"?{urlencode(given)}" if given else "")
