"""The statements with which requests are claimed and carried out: each is put together once, with named parameters."""

from __future__ import annotations

from typing import NamedTuple

import sqlalchemy as sa

from tradewind.store.request_values import OPEN
from tradewind.store.schema import cluster_jobs, requests, studies, tenants

_LOCK = 0x7477636C61  # "twcla": one at a time claims, or two would fill the same quota


class Hold(NamedTuple):
    """Who holds a request, as `LOOK` and `HOLDS` give it.

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
_TENANT = _request.tenant == sa.bindparam("tenant")
# Not IN: a list is put into the text anew each time, and `Database.rows` takes a text that stays.
_OPEN = sa.or_(*(_request.state == sa.literal(state) for state in OPEN))
HELD = _OPEN & _request.hold_token.is_not(None)
_WAITS = (_request.state == sa.literal("pending")) & _request.hold_token.is_(None)
_ALONE = _request.cluster == sa.literal("")
_FOR_CLUSTER = _request.cluster != sa.literal("")

_of_hold = sa.select(*(_request[name] for name in Hold._fields))
_look = _of_hold.order_by(_request.hold_token.is_not(None)).limit(sa.bindparam("limit"))

LOOK = {
    True: _look.where(_OPEN, _WAITS | HELD),
    False: _look.where(_OPEN, (_WAITS & _FOR_CLUSTER) | HELD),
}
"""What waits, and what is held, by whether there is room for more than those for clusters; ``limit`` rows."""

HOLDS = _of_hold.where(HELD).order_by(_request.id)
SAME = sa.select(_request.id).where(HELD, _NUMBER, _request.hold_token == sa.bindparam("token"))
SAME = SAME.with_for_update(skip_locked=True)
"""A request that is still held with a token; it is locked."""

STILL_WAITS = sa.select(_request.id).where(_WAITS, _NUMBER).with_for_update(skip_locked=True)
QUEUE = sa.select(_request.id).where(_WAITS, _TENANT, _ALONE).order_by(_request.id)
WISHES = sa.select(_request.id, _request.wanted).where(HELD)
WANTED = sa.select(_request.wanted).where(_NUMBER)
LIMITS = sa.select(tenants.c.weight, tenants.c.quota).where(tenants.c.name == sa.bindparam("tenant"))
RUNNING = sa.select(_request.tenant, sa.func.count().label("running")).where(HELD, _ALONE)
RUNNING = RUNNING.group_by(_request.tenant)

_columns = (_request.id, _request.tenant, _request.plan, _request.cost, tenants.c.weight, tenants.c.quota)
_with_tenant = sa.select(*_columns).select_from(requests.outerjoin(tenants, tenants.c.name == _request.tenant))
_with_tenant = _with_tenant.order_by(_request.id)
_first = sa.select(sa.func.min(_request.id)).where(_WAITS).group_by(_request.tenant)
FIRST_FOR_CLUSTERS = _with_tenant.where(_request.id.in_(_first.where(_FOR_CLUSTER)))
FIRST_OF_TENANTS = _with_tenant.where(_request.id.in_(_first.where(_ALONE)))
"""The oldest request of each tenant: of many that wait for its money, only one is looked at."""

# The columns to set are those of the parameters that these are executed with.
TAKE = sa.update(requests).where(_request.id == sa.bindparam("id_"))
CHANGE_MINE = TAKE.where(_request.hold_token == sa.bindparam("token_"))
ADD_STUDY = sa.insert(studies)
ADD_JOB = sa.insert(cluster_jobs)
CLAIM_LOCK = sa.select(sa.func.pg_advisory_xact_lock(_LOCK))
