"""How large the space of a stored study is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tradewind.errors import TradewindError
from tradewind.paths import data_folder


def space_size(spec: Mapping[str, Any]) -> int | None:
    """How many configurations the space of a specification has.

    Args:
        spec: The document of `StudyRow.spec`.

    Returns:
        The number; None where it is infinite, too large to list, or cannot be told because the catalogue or a part
        that the specification names is no longer there: a report is read long after the search.
    """
    from tradewind.engine.assemble import build_problem
    from tradewind.problem.spec import Spec

    try:
        space = build_problem(Spec.from_json(spec), data_folder()).space
        return len(space) if space.enumerable else None
    except TradewindError:
        return None
