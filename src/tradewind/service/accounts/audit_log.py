"""The audit log: sign-ins, refused calls, changes by administrators, and everything that spends money."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from tradewind.errors import ForbiddenError, StoreError
from tradewind.service.accounts.identity import Principal, clean_text
from tradewind.service.operations.server_log import redact
from tradewind.store.service.audit import AuditOutcome, AuditRow, AuditStore
from tradewind.store.sql.database import Database

_LOG = logging.getLogger("tradewind.service.audit")
_MOST_REFUSED = 60  # lines a minute and address: who is refused must not fill the disk
_TIDY = 3600.0


def audit_row(who: Principal, action: str, subject: str = "", **details: Any) -> AuditRow:
    """Build a line of the audit log, to be added in the transaction of the action itself.

    Args:
        who: The user who acts.
        action: The action, as ``kind.verb``.
        subject: The object of the action, such as ``request 17``.
        details: More of it: JSON-able, and never a secret.
    """
    return AuditRow(0, time.time(), who.name, who.tenant, who.address, action, clean_text(subject), "done", details)


def record_action(database: Database, who: Principal, action: str, subject: str = "", **details: Any) -> None:
    """Add a line about a finished action, where no `AuditLog` is at hand.

    Args:
        database: The open database.
        who: The user who acted.
        action: The action, as ``kind.verb``.
        subject: The object of the action, such as ``request 17``.
        details: More of it: JSON-able, and never a secret.
    """
    row = audit_row(who, action, subject, **details)
    _say(row)
    AuditStore(database).add(row)


def _say(row: AuditRow) -> None:
    facts = {name: getattr(row, name) for name in ("action", "user", "tenant", "address", "outcome")}
    words = (row.action, row.subject, row.outcome, row.user or "?", row.address or "here")
    _LOG.info("%s %s, %s, by %s from %s", *words, extra={"facts": {**facts, **row.details}})


class AuditLog:
    """The audit log: lines are added by `record`, and read by administrators.

    Args:
        database: The open database.
        days: Days that a line is kept.
    """

    def __init__(self, database: Database, days: float) -> None:
        self._store = AuditStore(database)
        self._days = days
        self._lock = threading.Lock()
        self._refused: dict[str, int] = {}
        self._minute = 0
        self._tidied = 0.0

    def record(
        self, who: Principal | None, action: str, subject: str = "", *, outcome: AuditOutcome = "done", **details: Any
    ) -> None:
        """Add a line; it is in the server's log as well.

        Args:
            who: The user who acted; None for somebody who had not signed in.
            action: The action, as ``kind.verb``: ``request.submit``.
            subject: The object of the action: ``request 17``.
            outcome: Whether it was done.
            details: More of it: JSON-able, and never a secret.
        """
        name, tenant, address = (who.name, who.tenant, who.address) if who is not None else ("", "", "")
        self.record_of(name, tenant, address, action, subject, outcome, details)

    def record_of(
        self,
        name: str,
        tenant: str,
        address: str,
        action: str,
        subject: str,
        outcome: AuditOutcome,
        details: dict[str, Any],
    ) -> None:
        """Add a line about somebody who has no principal: one who tries to sign in."""
        row = AuditRow(0, time.time(), name, tenant, address, action, clean_text(redact(subject)), outcome, details)
        _say(row)
        if outcome == "refused" and not self._has_room(address):
            return
        try:
            self._store.add(row, lasting=outcome == "done")
            self._tidy()
        except StoreError as error:
            if outcome == "done":
                raise
            _LOG.error("the audit log could not be written: %s", error)  # a refusal stays one

    def page(
        self,
        who: Principal,
        *,
        before: int | None = None,
        limit: int = 100,
        user: str = "",
        action: str = "",
        outcome: str = "",
    ) -> list[AuditRow]:
        """List lines of the log, the newest first; only for administrators.

        Args:
            who: The user who asks.
            before: Only those with a smaller id: the next page.
            limit: Rows at most.
            user: Only of this user.
            action: Only of this action, or of this kind of them: ``user`` finds ``user.add``.
            outcome: Only ``done``, or only ``refused``.

        Raises:
            ForbiddenError: The user is no administrator.
        """
        if not who.is_admin:
            raise ForbiddenError("only an administrator may see the audit log")
        words = {"user": clean_text(user), "action": clean_text(action), "outcome": clean_text(outcome)}
        return self._store.page(before=before, limit=limit, **words)

    def _has_room(self, address: str) -> bool:
        minute = int(time.monotonic() // 60)
        with self._lock:
            if minute != self._minute:
                self._minute, self._refused = minute, {}
            self._refused[address] = count = self._refused.get(address, 0) + 1
            return count <= _MOST_REFUSED and sum(min(n, _MOST_REFUSED) for n in self._refused.values()) <= 600

    def _tidy(self) -> None:
        now = time.monotonic()
        with self._lock:
            if self._tidied and now - self._tidied < _TIDY:
                return
            self._tidied = now
        self._store.forget(self._days)
