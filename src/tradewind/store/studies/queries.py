"""Queries of whole studies: lists, totals, summaries, the best trial, and earlier studies to learn from."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from tradewind.problem import MachineLease, Trial, TrialState, round_money
from tradewind.problem.ranking import ConfigurationRanking, MeasuredRun
from tradewind.problem.stored_goal import read_constraints, read_objective
from tradewind.store.base import EarlierStudy, StudyLine, StudyRow, StudySummary, StudyTotals
from tradewind.store.clusters.rows import OPEN_JOB_STATES
from tradewind.store.holders import live_holder, live_holder_name
from tradewind.store.sql.leases import STUDY_LEASES
from tradewind.store.sql.schema import cluster_jobs, leases, runs, studies, trials
from tradewind.store.studies import rows

_HOLD_COLUMNS = (leases.c.holder, leases.c.expires)
_WITH_LEASES = studies.outerjoin(leases, STUDY_LEASES.of_row)
_COLUMNS = (studies.c.id, studies.c.name, studies.c.state, studies.c.owner, studies.c.kind, *_HOLD_COLUMNS)


def study_lines(connection: Connection, name: str | None, limit: int | None) -> list[StudyLine]:
    """Studies, the newest first; the arguments are those of `Store.list_studies`."""
    query = sa.select(*_COLUMNS).select_from(_WITH_LEASES).order_by(studies.c.id.desc()).limit(limit)
    if name is not None:
        query = query.where(studies.c.name == rows.storable_text(name))
    return [StudyLine(*row[:4], holder=live_holder_name(*row[-2:]), kind=row.kind) for row in connection.execute(query)]


def queued_search(connection: Connection, study_id: int, tenant: str, name: str) -> int | None:
    """See `Store.queued_search`."""
    row = cluster_jobs.c
    waits = row.study_id.is_(None) & (row.tenant == tenant) & (row.name == rows.storable_text(name))
    query = sa.select(row.id).where(row.state.in_(OPEN_JOB_STATES), waits | (row.study_id == study_id))
    return connection.scalar(query.order_by(row.id.desc()).limit(1))


def study_totals(connection: Connection, simulates: Callable[[Mapping[str, Any]], bool]) -> StudyTotals:
    """All studies by state, and what they have cost; the arguments are those of `Store.totals`."""
    begun = sa.exists().where(trials.c.study_id == studies.c.id)
    held = leases.c.token.is_not(None)
    query = sa.select(studies.c.state, begun, sa.func.count()).select_from(_WITH_LEASES)
    query = query.group_by(studies.c.state, begun)
    states: dict[str, int] = {}
    for state, has_trials, number in connection.execute(query.where(leases.c.token.is_(None))):
        shown = _shown(state, has_trials=has_trials)
        states[shown] = states.get(shown, 0) + number
    # Whether a holder is alive is no question for a database.
    columns = (studies.c.state, begun, *_HOLD_COLUMNS)
    for state, has_trials, *hold in connection.execute(sa.select(*columns).select_from(_WITH_LEASES).where(held)):
        shown = "running" if live_holder(*hold) else _shown(state, has_trials=has_trials)
        states[shown] = states.get(shown, 0) + 1
    money = _money(connection, None)
    for study in _studies_that_keep(connection):
        spent, reserved = money.get(study, (0.0, 0.0))
        money[study] = spent, reserved + sum(lease.reserved for lease in _kept(connection, study))
    unpaid = _simulated(connection, money, simulates)
    spent = sum(each for study, (each, _) in money.items() if study not in unpaid)
    reserved = sum(each for study, (_, each) in money.items() if study not in unpaid)
    simulated = sum(money[study][0] for study in unpaid)
    return StudyTotals(states, round_money(spent), round_money(reserved), round_money(simulated))


def _simulated(
    connection: Connection, money: Mapping[int, tuple[float, float]], simulates: Callable[[Mapping[str, Any]], bool]
) -> set[int]:
    """The studies whose money nobody pays; only of those that have any are specifications read."""
    query = sa.select(studies.c.id, studies.c.spec).where(studies.c.kind == "search")
    having = {study for study, (spent, reserved) in money.items() if spent or reserved}
    if not having:
        return set()
    rows_of = connection.execute(query.where(studies.c.id.in_(sa.select(runs.c.study_id).distinct())))
    return {study for study, spec in rows_of if study in having and simulates(json.loads(spec))}


def _shown(state: str, *, has_trials: bool) -> str:
    return "stopped" if state == "open" and has_trials else state


def trial_counts_of(connection: Connection, study_ids: Sequence[int]) -> dict[int, dict[str, int]]:
    """Trials by state, of each of some studies."""
    query = sa.select(trials.c.study_id, trials.c.state, sa.func.count()).group_by(trials.c.study_id, trials.c.state)
    found: dict[int, dict[str, int]] = {}
    for study_id, state, number in connection.execute(query.where(trials.c.study_id.in_(study_ids))):
        found.setdefault(study_id, {})[str(state)] = int(number)
    return found


def study_costs_of(connection: Connection, study_ids: Sequence[int]) -> dict[int, tuple[float, float]]:
    """USD spent and reserved, of each of some studies that have runs."""
    return _money(connection, study_ids)


def _money(connection: Connection, study_ids: Sequence[int] | None) -> dict[int, tuple[float, float]]:
    sums = (runs.c.state, sa.func.sum(runs.c.cost), sa.func.sum(runs.c.reserved))
    query = sa.select(runs.c.study_id, *sums).group_by(runs.c.study_id, runs.c.state)
    if study_ids is not None:
        query = query.where(runs.c.study_id.in_(study_ids))
    found: dict[int, tuple[float, float]] = {}
    for study_id, state, cost, aside in connection.execute(query):
        spent, reserved = found.get(study_id, (0.0, 0.0))
        found[study_id] = (spent + cost, reserved + (0.0 if state in rows.ENDED_RUN_STATES else aside))
    return found


def earlier_studies_query(tenant: str, names: Collection[str] | None, before: StudyRow | None) -> sa.Select[Any]:
    """The rows for `earlier_study_of`, the newest first; the arguments are those of `Store.earlier_studies`."""
    query = sa.select(*rows.STUDY_COLUMNS, *_HOLD_COLUMNS).select_from(_WITH_LEASES).order_by(studies.c.id.desc())
    query = query.where(studies.c.kind == "search")
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
    *study, holder, until = row
    return EarlierStudy(rows.study_of(study), None if live_holder(holder, until) else until)


_INFORM = tuple(state.value for state in TrialState if state.informs)


def studies_with_repeats(connection: Connection, study_ids: Sequence[int]) -> set[int]:
    """Studies, of some, that ran a configuration several times."""
    again = (
        sa.select(trials.c.study_id)
        .where(trials.c.study_id.in_(study_ids), trials.c.state.in_(_INFORM), trials.c.fidelity >= 1.0)
        .group_by(trials.c.study_id, trials.c.key)
        .having(sa.func.count() > 1)
    )
    return set(connection.execute(again).scalars())


def best_trial(connection: Connection, study: StudyRow, repeated: Collection[int]) -> Trial | None:
    """The best feasible trial on the whole input, or None; of equals the one with the shortest run time.

    Where a configuration was run several times, all its runs count together: see `ConfigurationRanking`.

    Args:
        connection: The database.
        study: The study.
        repeated: The studies in which that is so, by `studies_with_repeats`.
    """
    objective = trials.c.objective
    better = objective.desc() if read_objective(study.spec).goal == "maximise" else objective.asc()
    own = trials.c.study_id == study.id
    row = connection.execute(
        sa.select(*rows.TRIAL_COLUMNS)
        .where(own, trials.c.feasible == sa.true(), objective.is_not(None))
        .where(trials.c.state == TrialState.SUCCEEDED.value, trials.c.fidelity >= 1.0)
        .order_by(better, trials.c.runtime.asc().nulls_last(), trials.c.number)
        .limit(1)
    ).first()
    if row is None:
        return None
    least = rows.trial_of(row)
    if study.id not in repeated:
        return least
    measured, constraints = _measured(connection, study), read_constraints(study.spec)
    best = ConfigurationRanking(measured, read_objective(study.spec), constraints).best_run
    if best is None or best.number == least.number:
        return least
    chosen = sa.select(*rows.TRIAL_COLUMNS).where(own, trials.c.number == best.number)
    return rows.trial_of(connection.execute(chosen).one())


def _measured(connection: Connection, study: StudyRow) -> list[MeasuredRun]:
    """The runs as `ConfigurationRanking` counts them; their documents are read only where a metric has a bound."""
    objective, constraints = read_objective(study.spec), read_constraints(study.spec)
    informing = (trials.c.study_id == study.id, trials.c.state.in_(_INFORM), trials.c.fidelity >= 1.0)
    if constraints.thresholds:
        found = connection.execute(sa.select(*rows.TRIAL_COLUMNS).where(*informing))
        measured = (MeasuredRun.of(rows.trial_of(row), objective, constraints) for row in found)
        return [one for one in measured if one is not None]
    columns = [trials.c[name] for name in ("number", "key", "objective", "runtime", "feasible", "censored")]
    return [
        MeasuredRun(
            number,
            key,
            math.nan if value is None else objective.loss(value),
            runtime or 0.0,
            bool(feasible),
            bool(censored),
        )
        for number, key, value, runtime, feasible, censored in connection.execute(sa.select(*columns).where(*informing))
    ]


def study_summaries_of(connection: Connection, study_ids: Sequence[int]) -> list[StudySummary]:
    """Summaries of some studies, the newest first; few enough for one list of parameters."""
    query = (
        sa.select(*rows.STUDY_COLUMNS, leases.c.since, *_HOLD_COLUMNS)
        .select_from(_WITH_LEASES)
        .where(studies.c.id.in_(study_ids))
        .order_by(studies.c.id.desc())
    )
    counts, money = trial_counts_of(connection, study_ids), study_costs_of(connection, study_ids)
    repeated = studies_with_repeats(connection, study_ids)
    found = []
    for row in connection.execute(query).all():
        study, since, holder = rows.study_of(row[:-3]), row.since, live_holder_name(*row[-2:])
        spent, reserved = money.get(study.id, (0.0, 0.0))
        kept = _kept_machines(connection, study)
        reserved += sum(lease.reserved for lease in kept)
        found.append(
            StudySummary(
                study=study,
                counts=counts.get(study.id, {}),
                spent=round_money(spent),
                reserved=round_money(reserved),
                best=best_trial(connection, study, repeated),
                running_since=since if holder else None,
                holder=holder,
                kept=kept,
            )
        )
    return found


def _kept_machines(connection: Connection, study: StudyRow) -> tuple[MachineLease, ...]:
    """The machines that a study keeps for its next trial; only of a study that keeps any are rows read for it."""
    document = study.spec.get("job")
    deploy = document.get("deploy") if isinstance(document, Mapping) else None
    if study.state == "finished" or not isinstance(deploy, Mapping) or deploy.get("keep") is None:
        return ()
    return _kept(connection, study.id)


def _studies_that_keep(connection: Connection) -> Sequence[int]:
    """The numbers of the studies that may keep machines now; a word of the job is enough to look at their runs."""
    query = sa.select(studies.c.id).where(studies.c.state != "finished", studies.c.spec.contains('"keep":'))
    return connection.scalars(query).all()


def _kept(connection: Connection, study_id: int) -> tuple[MachineLease, ...]:
    query = sa.select(*rows.RUN_COLUMNS).where(runs.c.study_id == study_id, runs.c.details.contains('"lease":'))
    leases = (rows.run_of(row).lease for row in connection.execute(query))
    return tuple(lease for lease in leases if lease is not None and lease.ended is None)
