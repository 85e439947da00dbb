"""How long the searches of a cluster took that were like another one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from tradewind.store.clusters.rows import JobRow
from tradewind.store.sql.schema import cluster_jobs, trials

_AIM = (
    "space", "where", "offers", "select", "objective", "constraints", "searcher", "stop", "budget", "early_stop",
    "abort", "future_runs",
)  # fmt: skip
_RUNS = ("command", "image", "inputs", "parameters", "load", "fraction")
_LOOKED_AT = 50
"""Searches of that name, the newest, among which those with the same aim are looked for."""


@dataclass(frozen=True, slots=True)
class SearchDuration:
    """How long a search took that is over.

    Attributes:
        results: How many results it got.
        seconds: Run time of all of them together.
    """

    results: int
    seconds: float


def similar_search_durations(connection: Connection, job: JobRow, most: int) -> list[SearchDuration]:
    """How long the searches took that came to their end by themselves and are like this one, the newest first.

    They have its tenant and its name, and are equal in `similarity_key`.

    Args:
        connection: To the database.
        job: The search.
        most: So many at most.
    """
    row = cluster_jobs.c
    same = (row.tenant == job.tenant, row.name == job.name, row.state == "done", row.id != job.id)
    query = sa.select(row.study_id, row.spec, row.options).where(*same, row.study_id.is_not(None))
    found = connection.execute(query.order_by(row.id.desc()).limit(_LOOKED_AT)).all()
    wanted = similarity_key(job.spec, job.options)
    like = [
        each.study_id for each in found if similarity_key(json.loads(each.spec), json.loads(each.options)) == wanted
    ]
    if not like:
        return []
    told = (
        sa.select(trials.c.study_id, sa.func.count().label("results"), sa.func.sum(trials.c.runtime).label("seconds"))
        .where(trials.c.study_id.in_(like[:most]), trials.c.runtime.is_not(None))
        .group_by(trials.c.study_id)
        .order_by(trials.c.study_id.desc())
    )
    return [SearchDuration(each.results, float(each.seconds)) for each in connection.execute(told)]


def similarity_key(spec: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    """What runs, what is searched for, where, by whom, and when the search ends: equal for searches that take as long.

    How many runs go at a time, on which engine, and the seed make no difference.

    Args:
        spec: The specification of a search, as it was submitted.
        options: How it is run.
    """
    inner = spec.get("job") or {}
    job = inner.get("job") or {}
    aim = [*(inner.get(name) for name in _AIM), *(job.get(name) for name in _RUNS), options.get("target")]
    return json.dumps(aim, sort_keys=True)
