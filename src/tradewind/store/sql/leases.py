"""Leases on rows: one process at a time holds a study, a request, a cluster or a notice."""

from __future__ import annotations

import secrets
import time
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from tradewind.store.sql.schema import clusters, notices, requests, studies

RELEASED = dict.fromkeys(("hold_token", "hold_holder", "hold_expires"))
"""The columns of a lease that nobody holds."""


class LeaseColumns:
    """The leases of a table: ``hold_token`` proves one, ``hold_holder`` names its process, ``hold_expires`` ends it.

    Whether a row may be taken is for the caller to decide, in the same transaction (`holders.live_holder`).

    Args:
        table: A table with a primary key of one column.

    Attributes:
        mine: True of the row ``id_`` if it is held with ``token_``.
        change_mine: Changes that row; the columns to set are those of the other parameters.
    """

    def __init__(self, table: sa.Table) -> None:
        (key,) = table.primary_key
        row = key == sa.bindparam("id_")
        self._change = sa.update(table).where(row)
        self.mine = row & (table.c.hold_token == sa.bindparam("token_"))
        self.change_mine = sa.update(table).where(self.mine)

    def take(self, connection: Connection, key: int | str, holder: str, seconds: float, **fields: Any) -> str:
        """Take a row, whoever holds it, and change other fields of it; the token is returned."""
        token = secrets.token_hex(16)
        lease = {"hold_token": token, "hold_holder": holder, "hold_expires": time.time() + seconds}
        connection.execute(self._change, {"id_": key, **lease, **fields})
        return token

    def change(self, connection: Connection, key: int | str, token: str | None, **fields: Any) -> bool:
        """Change fields of a row; False, and nothing is changed, where the token does not hold it any more."""
        return connection.execute(self.change_mine, {"id_": key, "token_": token, **fields}).rowcount > 0

    def renew(self, connection: Connection, key: int | str, token: str, seconds: float, **fields: Any) -> bool:
        """As `change`, and the lease ends ``seconds`` from now, even if it had run out and nobody took the row."""
        return self.change(connection, key, token, hold_expires=time.time() + seconds, **fields)

    def release(self, connection: Connection, key: int | str, token: str, **fields: Any) -> bool:
        """As `change`, and the row is free; ``fields`` may have another ``hold_expires``."""
        return self.change(connection, key, token, **{**RELEASED, **fields})


STUDY_LEASES = LeaseColumns(studies)
REQUEST_LEASES = LeaseColumns(requests)
CLUSTER_LEASES = LeaseColumns(clusters)
NOTICE_LEASES = LeaseColumns(notices)
