"""The audit log: who did what, when, from where, and what came of it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import sqlalchemy as sa

from tradewind.store import codec
from tradewind.store.sql.database import Database
from tradewind.store.sql.schema import audit

AuditOutcome = Literal["done", "refused"]

_INSERT = sa.insert(audit)


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One line of the audit log.

    Attributes:
        id: The store's own number; 0 before it is stored.
        at: Seconds since the epoch.
        user: Who; empty where nobody had signed in.
        tenant: For whom.
        address: Where from; empty for the command line.
        action: What, as ``kind.verb``.
        subject: What it was done to.
        outcome: ``done`` or ``refused``.
        details: More of it, without secrets.
    """

    id: int
    at: float
    user: str
    tenant: str
    address: str
    action: str
    subject: str
    outcome: AuditOutcome
    details: Mapping[str, Any] = field(default_factory=dict)


class AuditStore:
    """The table of the audit log; nothing in it is ever changed.

    Args:
        database: The open database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, row: AuditRow, *, lasting: bool = True) -> None:
        """Add a line.

        Args:
            row: The line.
            lasting: False where a power cut may take it back.
        """
        self._database.write_batched(lambda connection: insert_audit_row(connection, row), lasting=lasting)

    def page(
        self, *, before: int | None = None, limit: int = 100, user: str = "", action: str = "", outcome: str = ""
    ) -> list[AuditRow]:
        """Lines, the newest first.

        Args:
            before: Only those with a smaller id: the next page.
            limit: So many at most.
            user: Only of this user.
            action: Only of this action, or of this kind of them: ``user`` finds ``user.add``.
            outcome: Only with this outcome.
        """
        query = sa.select(audit).order_by(audit.c.id.desc()).limit(limit)
        if before is not None:
            query = query.where(audit.c.id < before)
        if user:
            query = query.where(audit.c.user == user)
        if action:
            query = query.where(
                sa.or_(audit.c.action == action, audit.c.action.startswith(f"{action}.", autoescape=True))
            )
        if outcome:
            query = query.where(audit.c.outcome == outcome)
        with self._database.read() as connection:
            found = connection.execute(query).mappings().all()
        return [AuditRow(**{**row, "details": json.loads(row["details"])}) for row in found]

    def forget(self, days: float) -> int:
        """Delete lines that are older than so many days.

        Returns:
            How many.
        """
        before = time.time() - 86400 * days
        # The oldest lines have the smallest numbers: where none is to go, one is read.
        first = sa.select(audit.c.id).where(audit.c.at >= before).order_by(audit.c.id).limit(1)
        oldest = sa.select(audit.c.at).order_by(audit.c.id).limit(1)
        with self._database.read() as connection:
            at = connection.scalar(oldest)
            if at is None or at >= before:
                return 0
            end = connection.scalar(first)
        with self._database.write() as connection:
            query = sa.delete(audit) if end is None else sa.delete(audit).where(audit.c.id < end)
            return int(connection.execute(query.where(audit.c.at < before)).rowcount)


def insert_audit_row(connection: sa.engine.Connection, row: AuditRow) -> None:
    """Add a line within a transaction: it is there exactly when that which it tells of is."""
    values = {name: getattr(row, name) for name in AuditRow.__dataclass_fields__ if name != "id"}
    connection.execute(_INSERT, {**values, "details": codec.dumps(dict(row.details))})
