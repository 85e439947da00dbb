"""What is shown of a study as a whole, computed by the database."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from tradewind.problem import round_money
from tradewind.store import listing
from tradewind.store.base import StudySummary
from tradewind.store.best import best_trial, studies_with_repeats
from tradewind.store.sql.schema import studies
from tradewind.store.studies import rows

_HOLD = (studies.c.hold_since, studies.c.hold_token, studies.c.hold_holder, studies.c.hold_expires)


def study_summaries_of(connection: Connection, study_ids: Sequence[int]) -> list[StudySummary]:
    """Summaries of some studies, the newest first; few enough for one list of parameters."""
    query = sa.select(*rows.STUDY_COLUMNS, *_HOLD).where(studies.c.id.in_(study_ids)).order_by(studies.c.id.desc())
    counts, money = listing.trial_counts_of(connection, study_ids), listing.study_costs_of(connection, study_ids)
    repeated = studies_with_repeats(connection, study_ids)
    found = []
    for row in connection.execute(query).all():
        study = rows.study_of(row[: -len(_HOLD)])
        since, *hold = row[-len(_HOLD) :]
        holder = listing.live_holder(*hold)
        spent, reserved = money.get(study.id, (0.0, 0.0))
        found.append(
            StudySummary(
                study=study,
                counts=counts.get(study.id, {}),
                spent=round_money(spent),
                reserved=round_money(reserved),
                best=best_trial(connection, study, repeated),
                running_since=since if holder else None,
                holder=holder,
            )
        )
    return found
