"""Sums what tenants have spent or set aside: one account of requests and of searches of clusters."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from tradewind.store import holders
from tradewind.store.clusters.rows import OPEN_JOB_STATES
from tradewind.store.service.request_queries import CLAIM_LOCK, HELD
from tradewind.store.sql.leases import CLUSTER_LEASES
from tradewind.store.sql.schema import cluster_jobs, clusters, leases, preemption_promises, requests, runs
from tradewind.store.studies.rows import ENDED_RUN_STATES, WAS_TAKEN

_TENANT: sa.BindParameter[str] = sa.bindparam("tenant")
_job, _request = cluster_jobs.c, requests.c
_may_cost = sa.case((HELD & (_request.reserved > _request.cost), _request.reserved), else_=_request.cost)
_of_requests = sa.select(sa.func.sum(_may_cost)).where(_request.tenant == _TENANT)
# A request that was tried again has handed its study over to a second search.
_asked_for = [
    sa.select(column).where(_request.tenant == _TENANT, column.is_not(None))
    for column in (_request.cluster_job, _request.study_id)
]
_is_open = _job.state.in_(OPEN_JOB_STATES)
_spent = sa.func.coalesce(sa.func.sum(runs.c.cost), 0.0)
_of_searches = (
    sa.select(_job.id, _is_open.label("open"), sa.case((_is_open, _job.spec)).label("spec"), _spent.label("spent"))
    .select_from(cluster_jobs.outerjoin(runs, runs.c.study_id == _job.study_id))
    .where(_job.tenant == _TENANT, ~_job.simulated, _job.id.not_in(_asked_for[0]))
    .where(_job.study_id.is_(None) | _job.study_id.not_in(_asked_for[1]))
    .group_by(_job.id)
)

# Few runs are open or were cancelled: the index finds them.
_taken_runs = sa.select(
    runs.c.study_id, runs.c.trial, runs.c.state, runs.c.cost, runs.c.reserved, runs.c.details
).where(
    runs.c.study_id.in_(sa.select(_job.study_id).where(_job.study_id.is_not(None), ~_job.simulated)),
    runs.c.state.not_in(ENDED_RUN_STATES) | (runs.c.state == "cancelled"),
    WAS_TAKEN,
)

_promised_by = clusters.join(preemption_promises, preemption_promises.c.cluster == clusters.c.name)
_promises = (
    sa.select(preemption_promises, leases.c.holder, leases.c.expires)
    .select_from(_promised_by.join(leases, CLUSTER_LEASES.of_row))
    .where(preemption_promises.c.tenant == _TENANT)
)

STUDIES_OF_REQUESTS = sa.select(_request.tenant, _request.study_id).order_by(_request.id)
"""Whose each request is, and its study."""


@dataclass(frozen=True, slots=True)
class PreemptionPromise:
    """USD that a tenant will pay for a run of another one.

    Attributes:
        cluster: The cluster that takes the run.
        request: The run's id in the cluster.
        tenant: Who pays.
        study_id: The study of the run.
        trial: Its trial.
        dollars: What it may cost until it is gone.
    """

    cluster: str
    request: str
    tenant: str
    study_id: int | None
    trial: int
    dollars: float


def spent_by_requests(connection: Connection, tenant: str) -> float:
    """USD that a tenant's requests have cost; those that are being carried out count with what they may cost.

    Args:
        connection: To the database.
        tenant: Whose.
    """
    return float(connection.scalar(_of_requests, {"tenant": tenant}) or 0.0)


def spent_by_searches(connection: Connection, tenant: str) -> dict[int, float]:
    """USD of each of a tenant's searches on clusters that no request has asked for, by number.

    One that is over counts with what it has spent, another one with its budget, which is infinite where it has none.
    One whose runs nobody pays does not count.

    Args:
        connection: To the database.
        tenant: Whose.
    """
    found = {}
    for row in connection.execute(_of_searches, {"tenant": tenant}):
        found[row.id] = float(row.spent)
        if row.open:
            budget = (json.loads(row.spec).get("budget") or {}).get("dollars")
            found[row.id] = max(found[row.id], float("inf") if budget is None else float(budget))
    return found


def spent_on_preemptions(connection: Connection, tenant: str) -> float:
    """USD of runs of others that a tenant took and pays; one that is not gone yet counts with what it may cost.

    So does one whose search has not noted yet that it is taken, with what was promised for it, as long as the cluster
    that takes it is held: nobody takes the runs of one that has ended.
    """
    total, noted = 0.0, set()
    for study, trial, state, cost, reserved, details in connection.execute(_taken_runs):
        taken = json.loads(details)["preemption"]
        if (taken["tenant"], taken["pays"]) == (tenant, "taker"):
            ended = state in ENDED_RUN_STATES
            total += taken["cost"] if ended else max(cost, reserved)
            noted |= set() if ended else {(study, trial)}
    for row in connection.execute(_promises, {"tenant": tenant}):
        held = holders.live_holder(row.holder, row.expires) is not None
        total += row.dollars if held and (row.study_id, row.trial) not in noted else 0.0
    return total


def spent_by_tenant(connection: Connection, tenant: str) -> float:
    """USD that a tenant has spent or set aside in all."""
    searches = sum(spent_by_searches(connection, tenant).values())
    return spent_by_requests(connection, tenant) + searches + spent_on_preemptions(connection, tenant)


def lock_spending(connection: Connection) -> None:
    """Wait until nobody else is deciding what a tenant's money is set aside for; SQLite has one writer anyhow."""
    if connection.dialect.name == "postgresql":
        connection.execute(CLAIM_LOCK)


def promise(connection: Connection, wanted: PreemptionPromise, quota: float) -> float | None:
    """Set money aside for a run that is taken; without enough of it, nothing is, and what is left is returned.

    Args:
        connection: In a transaction that has the lock of spending.
        wanted: What is set aside.
        quota: USD that the tenant may spend in all.
    """
    left = max(0.0, quota - spent_by_tenant(connection, wanted.tenant))
    if wanted.dollars > left:
        return left
    connection.execute(sa.insert(preemption_promises), asdict(wanted))
    return None


def forget_promises(connection: Connection, cluster: str, going_on: Collection[str]) -> None:
    """Forget what was promised for runs of a cluster that are gone.

    Args:
        connection: To the database.
        cluster: The cluster.
        going_on: The runs that are not gone.
    """
    of_cluster = preemption_promises.c.cluster == cluster
    known = connection.scalars(sa.select(preemption_promises.c.request).where(of_cluster)).all()
    if gone := [request for request in known if request not in going_on]:
        connection.execute(sa.delete(preemption_promises).where(of_cluster, preemption_promises.c.request.in_(gone)))
