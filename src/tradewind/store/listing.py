"""Lists of studies, without their specifications, and sums over all of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from tradewind.problem import round_money
from tradewind.store import holders
from tradewind.store.base import StudyLine, StudyTotals
from tradewind.store.sql.schema import runs, studies, trials
from tradewind.store.studies import rows

_COLUMNS = tuple(
    studies.c[name] for name in ("id", "name", "state", "owner", "hold_token", "hold_holder", "hold_expires")
)


def study_lines(connection: Connection, name: str | None, limit: int | None) -> list[StudyLine]:
    """Studies, the newest first; the arguments are those of `Store.list_studies`."""
    query = sa.select(*_COLUMNS).order_by(studies.c.id.desc()).limit(limit)
    if name is not None:
        query = query.where(studies.c.name == rows.storable_text(name))
    return [_study_line(*row) for row in connection.execute(query)]


def _study_line(
    number: int, name: str, state: Any, owner: str, token: str | None, holder: str | None, until: float | None
) -> StudyLine:
    return StudyLine(number, name, state, owner, live_holder(token, holder, until))


def live_holder(token: str | None, holder: str | None, until: float | None) -> str:
    """Who holds a study, for people; empty where nobody does, or where who did is dead."""
    if token is None or holder is None or (until or 0.0) <= time.time() or holders.is_dead(holder):
        return ""
    return holders.display_name(holder)


def study_totals(connection: Connection) -> StudyTotals:
    """All studies by state, and what they have cost."""
    begun = sa.exists().where(trials.c.study_id == studies.c.id)
    held = studies.c.hold_token.is_not(None)
    query = sa.select(studies.c.state, begun, sa.func.count()).group_by(studies.c.state, begun)
    states: dict[str, int] = {}
    for state, has_trials, number in connection.execute(query.where(~held)):
        shown = _shown(state, has_trials=has_trials)
        states[shown] = states.get(shown, 0) + number
    # Whether a holder is alive is no question for a database.
    columns = (studies.c.state, begun, studies.c.hold_token, studies.c.hold_holder, studies.c.hold_expires)
    for state, has_trials, *hold in connection.execute(sa.select(*columns).where(held)):
        shown = "running" if live_holder(*hold) else _shown(state, has_trials=has_trials)
        states[shown] = states.get(shown, 0) + 1
    spent, reserved = _money(connection, None).get(None, (0.0, 0.0))
    return StudyTotals(states, round_money(spent), round_money(reserved))


def _shown(state: str, *, has_trials: bool) -> str:
    return "stopped" if state == "open" and has_trials else state


def trial_counts_of(connection: Connection, study_ids: Sequence[int]) -> dict[int, dict[str, int]]:
    """Trials by state, of each of some studies."""
    query = sa.select(trials.c.study_id, trials.c.state, sa.func.count()).group_by(trials.c.study_id, trials.c.state)
    found: dict[int, dict[str, int]] = {}
    for study_id, state, number in connection.execute(query.where(trials.c.study_id.in_(study_ids))):
        found.setdefault(study_id, {})[str(state)] = int(number)
    return found


def study_costs_of(connection: Connection, study_ids: Sequence[int]) -> dict[int | None, tuple[float, float]]:
    """USD spent and reserved, of each of some studies that have runs."""
    return _money(connection, study_ids)


def _money(connection: Connection, study_ids: Sequence[int] | None) -> dict[int | None, tuple[float, float]]:
    sums = (runs.c.state, sa.func.sum(runs.c.cost), sa.func.sum(runs.c.reserved))
    query: Any = sa.select(sa.null(), *sums).group_by(runs.c.state)
    if study_ids is not None:
        query = sa.select(runs.c.study_id, *sums).group_by(runs.c.study_id, runs.c.state)
        query = query.where(runs.c.study_id.in_(study_ids))
    found: dict[int | None, tuple[float, float]] = {}
    for study_id, state, cost, aside in connection.execute(query):
        spent, reserved = found.get(study_id, (0.0, 0.0))
        found[study_id] = (spent + cost, reserved + (0.0 if state in rows.ENDED_RUN_STATES else aside))
    return found
