"""Which studies there were before another one: what a searcher may learn from."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

import sqlalchemy as sa

from tradewind.store import holders
from tradewind.store.base import EarlierStudy, StudyRow
from tradewind.store.sql.schema import studies
from tradewind.store.studies import rows

_HOLD_COLUMNS = (studies.c.hold_token, studies.c.hold_holder, studies.c.hold_expires)


def earlier_studies_query(tenant: str, names: Collection[str] | None, before: StudyRow | None) -> sa.Select[Any]:
    """The rows for `earlier_study_of`, the newest first; the arguments are those of `Store.earlier_studies`."""
    query = sa.select(*rows.STUDY_COLUMNS, *_HOLD_COLUMNS).order_by(studies.c.id.desc())
    prefix = f"{rows.storable_text(tenant)}/" if tenant else ""
    if names is not None:
        query = query.where(studies.c.name.in_([prefix + rows.storable_text(name) for name in names]))
    else:
        # Not LIKE 'tenant/%': SQLite compares that without regard to case.
        rest = sa.func.substr(studies.c.name, len(prefix) + 1)
        query = query.where(sa.func.substr(studies.c.name, 1, len(prefix)) == prefix, ~rest.contains("/"))
    if before is not None:
        query = query.where(studies.c.created <= before.created, studies.c.id != before.id)
    return query


def earlier_study_of(row: Any) -> EarlierStudy:
    """The study of a row of `earlier_studies_query`."""
    token, holder, until = row[-len(_HOLD_COLUMNS) :]
    held = token is not None and until > time.time() and not holders.is_dead(holder)
    return EarlierStudy(rows.study_of(row[: -len(_HOLD_COLUMNS)]), None if held else until)
