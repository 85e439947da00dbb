"""The owners of studies, and stamps of their changes: what the service asks before it reads a study."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from tradewind.problem import RunState
from tradewind.store.holders import live_holder_name
from tradewind.store.sql.database import Database
from tradewind.store.sql.leases import STUDY_LEASES
from tradewind.store.sql.schema import cluster_jobs, leases, requests, runs, studies, trials
from tradewind.store.studies import rows


@dataclass(frozen=True, slots=True)
class StudyOwnership:
    """The owner of a study.

    Attributes:
        study_id: The study.
        name: The study's name.
        tenant: The tenant of its request or of its search on a cluster; empty for one of the command line.
        request_id: The request that it answers, or None.
        cluster_job: The search on a cluster that it is, or None.
    """

    study_id: int
    name: str
    tenant: str
    request_id: int | None
    cluster_job: int | None


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run that has not ended, with its machines.

    Attributes:
        study_id: The study.
        study: The study's name.
        tenant: The tenant that pays for it; empty for the command line.
        run_id: The run.
        trial: The number of its trial.
        state: The run's state, one that has not ended.
        started: Seconds since the epoch, or None.
        nodes: Machines.
        provider: Who sells them.
        instance_type: Their type.
        price_per_hour: USD per node and hour, or None.
        holder: The process that watches it (host and pid); empty when nobody does.
        held_until: Seconds since the epoch at which its hold runs out, or None.
        reserved: USD set aside for it.
    """

    study_id: int
    study: str
    tenant: str
    run_id: str
    trial: int
    state: RunState
    started: float | None
    nodes: int
    provider: str
    instance_type: str
    price_per_hour: float | None
    holder: str
    held_until: float | None
    reserved: float


def _first(table: sa.Table, column: sa.Column[Any]) -> sa.ScalarSelect[Any]:
    return sa.select(column).where(table.c.study_id == studies.c.id).order_by(table.c.id).limit(1).scalar_subquery()


_TENANT = sa.func.coalesce(_first(requests, requests.c.tenant), _first(cluster_jobs, cluster_jobs.c.tenant), "")
_COLUMNS = (
    studies.c.id,
    studies.c.name,
    _TENANT.label("tenant"),
    _first(requests, requests.c.id).label("request_id"),
    _first(cluster_jobs, cluster_jobs.c.id).label("cluster_job"),
)


class StudyAccess:
    """Finds the owners of studies.

    Args:
        database: The open database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def of(self, study_id: int) -> StudyOwnership | None:
        """The owner of one study; None where there is no such study."""
        with self._database.read() as connection:
            row = connection.execute(sa.select(*_COLUMNS).where(studies.c.id == study_id)).first()
        return None if row is None else StudyOwnership(*row)

    def page(
        self,
        *,
        tenant: str | None = None,
        states: Collection[str] = (),
        text: str = "",
        single_runs: bool = False,
        before: int | None = None,
        limit: int = 50,
    ) -> list[StudyOwnership]:
        """Studies, the newest first.

        Args:
            tenant: Only of this tenant; of all without it, those of the command line included.
            single_runs: Also the studies of requests for a single run: such a one has nothing to compare.
            states: Only in one of these: ``running``, ``stopped``, ``finished`` or ``interrupted``.
            text: Only those whose name has this in it, whatever the case.
            before: Only those with a smaller number: the next page.
            limit: So many at most.
        """
        query = sa.select(*_COLUMNS).order_by(studies.c.id.desc()).limit(limit)
        if tenant is not None:
            query = query.where(studies.c.id.in_(_ids_of(tenant)))
        if states:
            query = query.where(sa.or_(*(_in_state(state) for state in states)))
        if text:
            query = query.where(sa.func.lower(studies.c.name).contains(text.lower(), autoescape=True))
        if not single_runs:
            single = sa.select(requests.c.id).where(requests.c.study_id == studies.c.id, requests.c.kind == "run")
            query = query.where(~single.exists())
        if before is not None:
            query = query.where(studies.c.id < before)
        with self._database.read() as connection:
            return [StudyOwnership(*row) for row in connection.execute(query)]

    def stamps(self, study_ids: Sequence[int]) -> dict[int, str]:
        """A text for each study that changes whenever it does: indexes are read for it, and no trial."""
        if not study_ids:
            return {}
        head = (
            sa.select(studies.c.id, studies.c.state, studies.c.elapsed, leases.c.holder, leases.c.expires)
            .select_from(studies.outerjoin(leases, STUDY_LEASES.of_row))
            .where(studies.c.id.in_(study_ids))
        )
        counted = (
            sa.select(trials.c.study_id, trials.c.state, sa.func.count())
            .where(trials.c.study_id.in_(study_ids))
            .group_by(trials.c.study_id, trials.c.state)
            .order_by(trials.c.study_id, trials.c.state)
        )
        summed = (
            sa.select(runs.c.study_id, runs.c.state, sa.func.count(), sa.func.sum(runs.c.cost))
            .where(runs.c.study_id.in_(study_ids))
            .group_by(runs.c.study_id, runs.c.state)
            .order_by(runs.c.study_id, runs.c.state)
        )
        with self._database.read() as connection:
            found = {
                row.id: [row.state, f"{row.elapsed:.0f}", live_holder_name(row.holder, row.expires)]
                for row in connection.execute(head)
            }
            for query in (counted, summed):
                for study_id, *facts in connection.execute(query):
                    found[study_id] += map(str, facts)
        return {study_id: " ".join(facts) for study_id, facts in found.items()}

    def open_runs(self, tenant: str | None = None) -> list[OpenRun]:
        """Runs that have not ended, the oldest first: what costs money now.

        Args:
            tenant: Only of this tenant; of all without it.
        """
        query = (
            sa.select(
                runs.c.study_id,
                studies.c.name.label("study"),
                _TENANT.label("tenant"),
                runs.c.run_id,
                runs.c.trial,
                runs.c.state,
                runs.c.started,
                trials.c.nodes,
                trials.c.provider,
                trials.c.instance_type,
                trials.c.price_per_hour,
                leases.c.holder,
                leases.c.expires.label("held_until"),
                runs.c.reserved,
            )
            .join_from(runs, studies, runs.c.study_id == studies.c.id)
            .outerjoin(leases, STUDY_LEASES.of_row)
            .join(trials, sa.and_(trials.c.study_id == runs.c.study_id, trials.c.number == runs.c.trial))
            .where(runs.c.state.not_in(rows.ENDED_RUN_STATES))
            .order_by(runs.c.started, runs.c.run_id)
        )
        if tenant is not None:
            query = query.where(runs.c.study_id.in_(_ids_of(tenant)))
        with self._database.read() as connection:
            return [_open_run(row) for row in connection.execute(query).mappings()]


def _open_run(row: sa.RowMapping) -> OpenRun:
    holder = live_holder_name(row["holder"], row["held_until"])
    return OpenRun(**{**row, "state": RunState(row["state"]), "holder": holder})


def _ids_of(tenant: str) -> sa.CompoundSelect[Any]:
    return sa.union(
        *(
            sa.select(table.c.study_id).where(table.c.tenant == tenant, table.c.study_id.is_not(None))
            for table in (requests, cluster_jobs)
        )
    )


def _in_state(state: str) -> sa.ColumnElement[bool]:
    in_time = leases.c.expires > time.time()
    held = sa.exists(sa.select(1).where(STUDY_LEASES.of_row, leases.c.token.is_not(None), in_time))
    if state == "running":
        return held
    if state == "stopped":
        return sa.and_(studies.c.state == "open", ~held)
    return sa.and_(studies.c.state == state, ~held)
