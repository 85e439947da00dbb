"""How large the space of a stored study is."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from tradewind.errors import TradewindError
from tradewind.problem import Parameter
from tradewind.utils.paths import data_folder


def space_size(spec: Mapping[str, Any]) -> int | None:
    """How many configurations the space of a specification has.

    Args:
        spec: The document of `StudyRow.spec`.

    Returns:
        The number; None where it is infinite, too large to list, or cannot be told because the catalogue or a part
        that the specification names is no longer there: a report is read long after the search.
    """
    from tradewind.engine.search_builder import build_problem
    from tradewind.problem.job_spec.spec import JobSpec

    try:
        space = build_problem(JobSpec.from_json(spec), data_folder()).space
        return len(space) if space.enumerable else None
    except TradewindError:
        return None


def several_valued(spec: Mapping[str, Any], names: Collection[str]) -> list[str]:
    """Those of some parameters that a specification declares more than one value of.

    Instances are not among them: how many there are, only their catalogue says.

    Args:
        spec: The document of `StudyRow.spec`.
        names: Names of parameters.

    Returns:
        Their names in the order of the specification; empty where it cannot be read any more.
    """
    from tradewind.problem.job_spec.spec import JobSpec

    if not names:
        return []
    try:
        declared = [
            one for one in JobSpec.from_json(spec).parameters if one.name in names and one.parameter is not None
        ]
    except TradewindError:
        return []
    return [one.name for one in declared if one.parameter is not None and _several(one.parameter)]


def _several(parameter: Parameter) -> bool:
    levels = parameter.levels
    return levels is None or len(levels) > 1
