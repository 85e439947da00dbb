"""How long the searches of a cluster took that were like another one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from tradewind.store.cluster_values import JobRow
from tradewind.store.schema import cluster_jobs, trials

_AIM = ("space", "objective", "constraints", "searcher", "stop")
_LOOKED_AT = 50
"""Searches of that name, the newest, among which those with the same aim are looked for."""


@dataclass(frozen=True, slots=True)
class Length:
    """How long a search took that is over.

    Attributes:
        results: How many results it got.
        seconds: Run time of all of them together.
    """

    results: int
    seconds: float


def lengths_of(connection: Connection, job: JobRow, most: int) -> list[Length]:
    """How long the searches took that came to their end by themselves and are like this one, the newest first.

    They have its tenant, its name and its aim: what is searched for, where, by whom, and when it ends.

    Args:
        connection: To the database.
        job: The search.
        most: So many at most.
    """
    row = cluster_jobs.c
    same = (row.tenant == job.tenant, row.name == job.name, row.state == "done", row.id != job.id)
    query = sa.select(row.study_id, row.spec, row.options).where(*same, row.study_id.is_not(None))
    found = connection.execute(query.order_by(row.id.desc()).limit(_LOOKED_AT)).all()
    aim = aim_of(job.spec, job.options)
    like = [each.study_id for each in found if aim_of(json.loads(each.spec), json.loads(each.options)) == aim]
    if not like:
        return []
    told = (
        sa.select(trials.c.study_id, sa.func.count().label("results"), sa.func.sum(trials.c.runtime).label("seconds"))
        .where(trials.c.study_id.in_(like[:most]), trials.c.runtime.is_not(None))
        .group_by(trials.c.study_id)
        .order_by(trials.c.study_id.desc())
    )
    return [Length(each.results, float(each.seconds)) for each in connection.execute(told)]


def alike(jobs: Sequence[JobRow]) -> list[list[JobRow]]:
    """Searches in groups of equal tenant, name and aim, in their order."""
    groups: dict[tuple[str, str, str], list[JobRow]] = {}
    for job in jobs:
        aim = json.dumps(aim_of(job.spec, job.options), sort_keys=True)
        groups.setdefault((job.tenant, job.name, aim), []).append(job)
    return list(groups.values())


def aim_of(spec: Mapping[str, Any], options: Mapping[str, Any]) -> list[Any]:
    """What is searched for, where, by whom, and when the search ends: equal for searches that take as long.

    Args:
        spec: The specification of a search, as it was submitted.
        options: How it is run.
    """
    inner = spec.get("job") or {}
    return [*(inner.get(name) for name in _AIM), (inner.get("budget") or {}).get("trials"), options.get("target")]
