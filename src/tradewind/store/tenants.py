"""The rows of tenants, which users, searches of clusters and requests belong to."""

from __future__ import annotations

import contextlib
import time

import sqlalchemy as sa

from tradewind.store.sql.schema import tenants


def make_tenant(connection: sa.engine.Connection, name: str, created: float = 0.0) -> None:
    """Make a tenant of weight 1 without quota, unless there is one of that name.

    Args:
        connection: In a transaction.
        name: Its name.
        created: Seconds since the epoch; now without it.
    """
    if connection.execute(sa.select(tenants.c.name).where(tenants.c.name == name)).first() is None:
        row = {"name": name, "weight": 1.0, "priority": 0, "quota": "{}", "created": created or time.time()}
        # On PostgreSQL another one may have been quicker: that one is as good.
        with contextlib.suppress(sa.exc.IntegrityError), connection.begin_nested():
            connection.execute(sa.insert(tenants).values(row))
