"""The statements with which requests are claimed and carried out: each is put together once, with named parameters."""

from __future__ import annotations

from typing import NamedTuple

import sqlalchemy as sa

from tradewind.store.service.request_values import OPEN
from tradewind.store.sql.schema import cluster_jobs, requests, studies, tenants

_CLAIMING = 0x7477636C61  # "twcla": one at a time claims, or two would fill the same quota


class RequestHold(NamedTuple):
    """Who holds a request, as `WAITING_OR_HELD` and `HELD_REQUESTS` give it.

    Attributes:
        id: The request.
        hold_token: Proves it; None where nobody does.
        hold_holder: Host, pid and start time of the process.
        hold_expires: Seconds since the epoch.
        cluster: The shared cluster that it goes to, or empty.
    """

    id: int
    hold_token: str | None
    hold_holder: str | None
    hold_expires: float | None
    cluster: str


_request = requests.c
_NUMBER = _request.id == sa.bindparam("number")
_OF_TENANT = _request.tenant == sa.bindparam("tenant")
# Not IN: a list is put into the text anew each time, and `Database.rows` takes a text that stays.
_OPEN = sa.or_(*(_request.state == sa.literal(state) for state in OPEN))
HELD = _OPEN & _request.hold_token.is_not(None)
_WAITS = (_request.state == sa.literal("pending")) & _request.hold_token.is_(None)
_ALONE = _request.cluster == sa.literal("")
_FOR_CLUSTER = _request.cluster != sa.literal("")

_of_hold = sa.select(*(_request[name] for name in RequestHold._fields))
_look = _of_hold.order_by(_request.hold_token.is_not(None)).limit(sa.bindparam("limit"))

WAITING_OR_HELD = {
    True: _look.where(_OPEN, _WAITS | HELD),
    False: _look.where(_OPEN, (_WAITS & _FOR_CLUSTER) | HELD),
}
"""What waits, and what is held, by whether there is room for more than those for clusters; ``limit`` rows."""

HELD_REQUESTS = _of_hold.where(HELD).order_by(_request.id)
STILL_HELD = sa.select(_request.id).where(HELD, _NUMBER, _request.hold_token == sa.bindparam("token"))
STILL_HELD = STILL_HELD.with_for_update(skip_locked=True)
"""A request that is still held with a token; it is locked."""

STILL_WAITS = sa.select(_request.id).where(_WAITS, _NUMBER).with_for_update(skip_locked=True)
WAITING_OF_TENANT = sa.select(_request.id).where(_WAITS, _OF_TENANT, _ALONE).order_by(_request.id)
INTENTS = sa.select(_request.id, _request.wanted).where(HELD)
INTENT_BY_NUMBER = sa.select(_request.wanted).where(_NUMBER)
TENANT_LIMITS = sa.select(tenants.c.weight, tenants.c.quota).where(tenants.c.name == sa.bindparam("tenant"))
RUNNING_BY_TENANT = sa.select(_request.tenant, sa.func.count().label("running")).where(HELD, _ALONE)
RUNNING_BY_TENANT = RUNNING_BY_TENANT.group_by(_request.tenant)

_columns = (_request.id, _request.tenant, _request.plan, _request.cost, tenants.c.weight, tenants.c.quota)
_with_tenant = sa.select(*_columns).select_from(requests.outerjoin(tenants, tenants.c.name == _request.tenant))
_with_tenant = _with_tenant.order_by(_request.id)
_first = sa.select(sa.func.min(_request.id)).where(_WAITS).group_by(_request.tenant)
FIRST_FOR_CLUSTERS = _with_tenant.where(_request.id.in_(_first.where(_FOR_CLUSTER)))
FIRST_OF_TENANTS = _with_tenant.where(_request.id.in_(_first.where(_ALONE)))
"""The oldest request of each tenant: of many that wait for its money, only one is looked at."""

# The columns to set are those of the parameters that these are executed with.
UPDATE_REQUEST = sa.update(requests).where(_request.id == sa.bindparam("id_"))
UPDATE_HELD_REQUEST = UPDATE_REQUEST.where(_request.hold_token == sa.bindparam("token_"))
ADD_STUDY = sa.insert(studies)
ADD_JOB = sa.insert(cluster_jobs)
CLAIM_LOCK = sa.select(sa.func.pg_advisory_xact_lock(_CLAIMING))
