"""Stores shared clusters: their tenants, their searches, and the process that runs each."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from tradewind.errors import InputError, StoreError, StudyBusyError, StudyNotFoundError
from tradewind.store import codec, holders
from tradewind.store.clusters import tenant_spending
from tradewind.store.clusters.rows import (
    OPEN_JOB_STATES,
    ClusterRow,
    JobIntent,
    JobRow,
    JobState,
    TenantRow,
    make_tenant,
)
from tradewind.store.clusters.tenant_spending import PreemptionPromise
from tradewind.store.sql.database import Database
from tradewind.store.sql.leases import CLUSTER_LEASES
from tradewind.store.sql.schema import cluster_jobs, clusters, leases, tenants, trials

_AIM = (
    "space", "where", "offers", "select", "objective", "constraints", "searcher", "stop", "budget", "early_stop",
    "abort", "future_runs", "value", "least_improvement",
)  # fmt: skip
_RUNS = ("command", "workflow", "image", "inputs", "parameters", "load", "fraction")
REMEMBERED = "remembered"
"""The key of a cluster's snapshot under which stands what its priority remembers of searches, by number."""

TAKINGS = "takings"
"""Key in a snapshot: the runs that were taken last for other tenants."""

_LOOKED_AT = 50
"""Searches of that name, the newest, among which those with the same aim are looked for."""


@dataclass(frozen=True, slots=True)
class SearchDuration:
    """The results and the run time of a search that is over.

    Attributes:
        results: How many results it got.
        seconds: Run time of all of them together.
    """

    results: int
    seconds: float


def similar_search_durations(connection: Connection, job: JobRow, most: int) -> list[SearchDuration]:
    """Durations of searches that ended by themselves and are like this one, the newest first.

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
    durations = (
        sa.select(trials.c.study_id, sa.func.count().label("results"), sa.func.sum(trials.c.runtime).label("seconds"))
        .where(trials.c.study_id.in_(like[:most]), trials.c.runtime.is_not(None))
        .group_by(trials.c.study_id)
        .order_by(trials.c.study_id.desc())
    )
    return [SearchDuration(each.results, float(each.seconds)) for each in connection.execute(durations)]


def similarity_key(spec: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    """A text that is equal for searches that take as long: program, aim, machines, searcher and stopping rules.

    How many runs go at a time, on which engine, and the seed make no difference.

    Args:
        spec: The specification of a search, as it was submitted.
        options: How it is run.
    """
    inner = spec.get("job") or {}
    job = inner.get("job") or {}
    aim = [*(inner.get(name) for name in _AIM), *(job.get(name) for name in _RUNS), options.get("target")]
    return json.dumps(aim, sort_keys=True)


__all__ = [
    "OPEN_JOB_STATES",
    "REMEMBERED",
    "TAKINGS",
    "ClusterRow",
    "ClusterStore",
    "JobIntent",
    "JobRow",
    "JobState",
    "SearchDuration",
    "TenantRow",
]

_DOCUMENTS = {"spec", "options", "quota", "settings", "snapshot", "preempt"}
_WITH_LEASES = clusters.outerjoin(leases, CLUSTER_LEASES.of_row)
_HOLDERS = sa.select(leases.c.holder, leases.c.expires).select_from(_WITH_LEASES)
_JOB_COLUMNS = [cluster_jobs.c[name] for name in JobRow.__dataclass_fields__]


class ClusterStore:
    """The tables of clusters, in the same database as the studies.

    Args:
        url: The store's address.
        busy_timeout: Seconds to wait for a lock that another process holds.

    Raises:
        StoreError: The database cannot be opened.
    """

    def __init__(self, url: str, *, busy_timeout: float = 30.0) -> None:
        self.url = url
        self._database = Database(url, busy_timeout=busy_timeout)

    def close(self) -> None:
        """Give back connections."""
        self._database.close()

    # ------------------------------------------------------------------ tenants

    def set_tenant(self, tenant: TenantRow) -> None:
        """Add a tenant, or change it."""
        values = {
            "weight": tenant.weight,
            "priority": tenant.priority,
            "quota": codec.dumps(dict(tenant.quota)),
            "preempt": codec.dumps(dict(tenant.preempt)),
        }
        with self._database.write() as connection:
            make_tenant(connection, tenant.name, tenant.created)
            connection.execute(sa.update(tenants).where(tenants.c.name == tenant.name).values(values))

    def tenants(self) -> list[TenantRow]:
        """All tenants, by name."""
        with self._database.read() as connection:
            found = connection.execute(sa.select(tenants).order_by(tenants.c.name)).mappings().all()
        return [TenantRow(**_read(row)) for row in found]

    def spending(self, tenant: str, before: int | None = None) -> tuple[dict[int, float], float]:
        """USD that a tenant has spent or set aside: of each of its searches, by number, and of all else.

        A search that is over counts with what it has spent, another one with its budget, which is infinite where it has
        none, and one whose runs nobody pays not at all; a request of the service with what it has cost, or may cost
        while it is carried out. A search that a request has asked for is among the requests only. All else are the
        requests, and runs of others that it took.

        Args:
            tenant: The tenant's name.
            before: Only searches with a smaller number.
        """
        with self._database.write() as connection:  # what servers are setting aside at this moment counts, too
            tenant_spending.lock_spending(connection)
            searches = tenant_spending.spent_by_searches(connection, tenant)
            requests = tenant_spending.spent_by_requests(connection, tenant)
            requests += tenant_spending.spent_on_preemptions(connection, tenant)
        return {number: most for number, most in searches.items() if before is None or number < before}, requests

    def promise(self, wanted: PreemptionPromise, quota: float) -> float | None:
        """Set money aside for a run that is taken, as long as nobody else decides what the tenant's money is for.

        Args:
            wanted: What is set aside.
            quota: USD that the tenant may spend in all.

        Returns:
            What is left where it is not enough, and nothing was set aside; else None.
        """
        with self._database.write() as connection:
            tenant_spending.lock_spending(connection)
            return tenant_spending.promise(connection, wanted, quota)

    def forget_promises(self, cluster: str, going_on: Collection[str]) -> None:
        """Forget what was promised for the runs of a cluster that are not among those that go on."""
        with self._database.write() as connection:
            tenant_spending.forget_promises(connection, cluster, going_on)

    def studies_of_requests(self) -> list[tuple[str, int | None]]:
        """Tenant and study of each request to the service, the oldest first; one that has not begun has no study."""
        with self._database.read() as connection:
            return [(row.tenant, row.study_id) for row in connection.execute(tenant_spending.STUDIES_OF_REQUESTS)]

    # ------------------------------------------------------------------ searches

    def submit(self, job: JobRow) -> JobRow:
        """Add a search; its ``id`` is set by the store. A tenant that is not there is made.

        Raises:
            StudyBusyError: It goes on with a study that another search has, which is not over.
        """
        with self._database.write() as connection:
            # Else what is set aside at this moment might miss this search, which misses that, too.
            tenant_spending.lock_spending(connection)
            _check_study_free(connection, job.study_id)
            make_tenant(connection, job.tenant)
            values = {name: getattr(job, name) for name in JobRow.__dataclass_fields__ if name != "id"}
            values["submitted"] = job.submitted or time.time()
            result = connection.execute(sa.insert(cluster_jobs).values(_written(values)))
            (number,) = result.inserted_primary_key or (0,)
            return _job(connection, number)

    def job(self, number: int) -> JobRow:
        """One search.

        Raises:
            StudyNotFoundError: There is none.
        """
        with self._database.read() as connection:
            return _job(connection, number)

    def jobs(
        self,
        *,
        tenant: str | None = None,
        open_only: bool = False,
        limit: int | None = None,
        before: int | None = None,
        cluster: str | None = None,
    ) -> list[JobRow]:
        """Searches, the newest first.

        Args:
            tenant: Only of this tenant.
            open_only: Only those that are not over.
            limit: So many at most.
            before: Only those with a smaller id: the next page.
            cluster: Only those that are this cluster's, or for any.
        """
        query = sa.select(*_JOB_COLUMNS).order_by(cluster_jobs.c.id.desc())
        if tenant is not None:
            query = query.where(cluster_jobs.c.tenant == tenant)
        if open_only:
            query = query.where(cluster_jobs.c.state.in_(OPEN_JOB_STATES))
        if before is not None:
            query = query.where(cluster_jobs.c.id < before)
        if cluster is not None:
            query = query.where(_for(cluster))
        with self._database.read() as connection:
            return [JobRow(**_read(row)) for row in connection.execute(query.limit(limit)).mappings()]

    def searches_of(self, study_id: int) -> list[JobRow]:
        """The searches that have had a study, the newest first."""
        query = sa.select(*_JOB_COLUMNS).where(cluster_jobs.c.study_id == study_id).order_by(cluster_jobs.c.id.desc())
        with self._database.read() as connection:
            return [JobRow(**_read(row)) for row in connection.execute(query).mappings()]

    def durations(self, job: JobRow, most: int = 20) -> list[SearchDuration]:
        """Durations of earlier searches that are like one, the newest first; see `similar_search_durations`.

        Args:
            job: The search.
            most: So many at most.
        """
        with self._database.read() as connection:
            return similar_search_durations(connection, job, most)

    def intents(self, cluster: str) -> list[tuple[int, JobIntent, int]]:
        """Number, wish and place of each search that is not over, the oldest first: what changes while it runs.

        Args:
            cluster: Only of those that are this cluster's, or for any.
        """
        columns = (cluster_jobs.c.id, cluster_jobs.c.wanted, cluster_jobs.c.nice)
        query = (
            sa.select(*columns)
            .where(cluster_jobs.c.state.in_(OPEN_JOB_STATES), _for(cluster))
            .order_by(cluster_jobs.c.id)
        )
        with self._database.read() as connection:
            return [(row.id, row.wanted, row.nice) for row in connection.execute(query)]

    def take(self, number: int, cluster: str) -> JobRow | None:
        """Make a search a cluster's own; None where it is another's, or over."""
        with self._database.write() as connection:
            mine = sa.and_(cluster_jobs.c.id == number, cluster_jobs.c.state.in_(OPEN_JOB_STATES), _for(cluster))
            taken = connection.execute(sa.update(cluster_jobs).where(mine).values(cluster=cluster)).rowcount
            return _job(connection, number) if taken else None

    def change_job(self, number: int, **fields: Any) -> JobRow:
        """Change fields of a search, all of them or none.

        Raises:
            StudyNotFoundError: There is none.
            StoreError: A field cannot be changed.
        """
        unknown = sorted(set(fields) - (set(JobRow.__dataclass_fields__) - {"id", "tenant", "submitted"}))
        if unknown:
            raise StoreError(f"a search's {unknown[0]!r} cannot be changed")
        with self._database.write() as connection:
            where = cluster_jobs.c.id == number
            connection.execute(sa.update(cluster_jobs).where(where).values(_written(fields)))
            return _job(connection, number)

    def reopen(self, number: int, **fields: Any) -> JobRow:
        """Queue a search anew that is over, with some fields changed.

        Raises:
            StudyNotFoundError: There is none.
            StudyBusyError: It is not over, or another search has its study and is not.
        """
        with self._database.write() as connection:
            tenant_spending.lock_spending(connection)  # of several at once, the first one is seen by the others
            known = _job(connection, number)
            if known.state in OPEN_JOB_STATES:
                raise StudyBusyError(
                    f"search {number} ({known.name}) is not over: {known.state}", hint="tradewind queue shows it"
                )
            _check_study_free(connection, fields.get("study_id", known.study_id))
            values = {"state": "queued", "wanted": "run", "reason": "", "ended": None, **fields}
            connection.execute(sa.update(cluster_jobs).where(cluster_jobs.c.id == number).values(_written(values)))
            return _job(connection, number)

    def want(self, number: int, wanted: JobIntent) -> JobRow:
        """Say what becomes of a search that is not over.

        Raises:
            StudyNotFoundError: There is none.
            InputError: It is over.
        """
        with self._database.write() as connection:
            job = _job(connection, number)
            if job.state not in OPEN_JOB_STATES:
                hint = f"tradewind resume {number} lets it go on"
                raise InputError(f"search {number} ({job.name}) is over: {job.state}", hint=hint)
            connection.execute(sa.update(cluster_jobs).where(cluster_jobs.c.id == number).values(wanted=wanted))
            return _job(connection, number)

    # ------------------------------------------------------------------ clusters

    def hold(self, name: str, holder: str, seconds: float, settings: Mapping[str, Any]) -> str:
        """Take a cluster for this process, unless another live one runs it.

        Args:
            name: The cluster.
            holder: `tradewind.store.base.this_process`.
            seconds: How long without `renew`.
            settings: What it is started with.

        Returns:
            A token, for `renew` and `release`.

        Raises:
            StudyBusyError: Another live process runs it.
        """
        with self._database.write() as connection:
            lease = CLUSTER_LEASES.lock(connection, name)
            if connection.scalar(sa.select(clusters.c.name).where(clusters.c.name == name)) is None:
                new = {"name": name, "settings": "{}", "snapshot": "{}", "updated": time.time()}
                connection.execute(sa.insert(clusters).values(new))
            other = holders.live_holder(lease.holder, lease.expires)
            if other is not None and other != holder:
                raise StudyBusyError(
                    f"cluster {name} is being run by process {holders.display_name(other)}",
                    hint="end that one first, or start another cluster with --name",
                )
            return CLUSTER_LEASES.take(connection, name, holder, seconds, settings=codec.dumps(dict(settings)))

    def renew(self, name: str, token: str, seconds: float, snapshot: Mapping[str, Any]) -> None:
        """Hold on for ``seconds`` more, and keep what the cluster is like.

        Raises:
            StudyBusyError: Another process has taken it.
        """
        values = {"snapshot": codec.dumps(dict(snapshot)), "updated": time.time()}
        with self._database.write(lasting=False) as connection:  # after a power cut nobody holds it
            if not CLUSTER_LEASES.renew(connection, name, token, seconds, **values):
                raise StudyBusyError(f"cluster {name} was taken over by another process")

    def release(self, name: str, token: str) -> None:
        """Let go of a cluster; a lost hold is no error."""
        with self._database.write() as connection:
            CLUSTER_LEASES.release(connection, name, token)

    def clusters(self) -> Sequence[ClusterRow]:
        """All clusters, by name."""
        with self._database.read() as connection:
            query = sa.select(clusters, leases.c.holder, leases.c.expires).select_from(_WITH_LEASES)
            found = connection.execute(query.order_by(clusters.c.name)).all()
        rows = []
        for row in found:
            holder = holders.live_holder(row.holder, row.expires) or ""
            rows.append(ClusterRow(row.name, json.loads(row.settings), json.loads(row.snapshot), row.updated, holder))
        return rows

    def remembered(self, name: str) -> dict[int, Mapping[str, Any]]:
        """Documents of what a cluster's priority remembered of its searches when it last said so, by their numbers.

        Args:
            name: The cluster.
        """
        found = self._snapshot(name).get(REMEMBERED, {})
        return {int(number): document for number, document in found.items()}

    def takings(self, name: str) -> list[dict[str, Any]]:
        """Documents of the runs that a cluster took last for other tenants, as it last said, the oldest first.

        Args:
            name: The cluster.
        """
        return list(self._snapshot(name).get(TAKINGS, ()))

    def _snapshot(self, name: str) -> dict[str, Any]:
        with self._database.read() as connection:
            found: dict[str, Any] = json.loads(
                connection.scalar(sa.select(clusters.c.snapshot).where(clusters.c.name == name)) or "{}"
            )
        return found

    def is_run(self, name: str) -> bool:
        """True when a process runs the cluster; of any cluster where the name is empty."""
        query = _HOLDERS.where(clusters.c.name == name) if name else _HOLDERS
        with self._database.read() as connection:
            return any(holders.live_holder(*row) for row in connection.execute(query))


def taking_words(taking: Mapping[str, Any]) -> str:
    """``trial 3 of search 1 (train) of maths was stopped for search 2 of physics, which had no place ...``.

    Args:
        taking: A document of a run that was taken, as a snapshot has it; a search without a number is not named.
    """
    pays = {"owner": taking["owner"], "taker": taking["tenant"], "cluster": "nobody"}[taking["pays"]]
    whose = f"trial {taking['trial']} of search {taking['search']} ({taking['name']})"
    taker = f"search {taking['for']} of {taking['tenant']}" if taking["for"] is not None else taking["tenant"]
    return (
        f"{whose if taking['search'] is not None else 'a run'} of {taking['owner']} was stopped for {taker}, "
        f"which {taking['why']}; {pays} pays what it had cost"
    )


def _for(cluster: str) -> sa.ColumnElement[bool]:
    return cluster_jobs.c.cluster.in_((cluster, ""))


def _check_study_free(connection: sa.Connection, study_id: int | None) -> None:
    """Refuse a second search of a study, inside of the transaction that would add it: both would run it.

    Raises:
        StudyBusyError: A search that is not over has it.
    """
    if study_id is None:
        return
    mine = sa.and_(cluster_jobs.c.study_id == study_id, cluster_jobs.c.state.in_(OPEN_JOB_STATES))
    query = sa.select(cluster_jobs.c.id, cluster_jobs.c.name, cluster_jobs.c.state).where(mine).limit(1)
    if (row := connection.execute(query).first()) is not None:
        raise StudyBusyError(
            f"study {study_id} is that of search {row.id} ({row.name}), which is not over: {row.state}",
            hint="tradewind queue shows it",
        )


def _job(connection: sa.engine.Connection, number: int) -> JobRow:
    row = connection.execute(sa.select(*_JOB_COLUMNS).where(cluster_jobs.c.id == number)).mappings().first()
    if row is None:
        raise StudyNotFoundError(f"there is no search {number} in the queue", hint="tradewind queue --all lists them")
    return JobRow(**_read(row))


def _written(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: codec.dumps(value) if name in _DOCUMENTS else value for name, value in fields.items()}


def _read(row: Mapping[Any, Any]) -> dict[str, Any]:
    return {name: json.loads(value) if name in _DOCUMENTS else value for name, value in row.items()}
