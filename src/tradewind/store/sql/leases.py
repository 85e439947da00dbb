"""Leases: one table says who holds each study, request, cluster and notice, by which token, and until when.

Whoever changes something by its lease locks the row of the lease first and the row of the subject after it: of two that
come at the same moment, the second one sees what the first has done. On SQLite there is one writer at a time anyhow.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from tradewind.store.sql.schema import clusters, leases, notices, requests, studies

LeaseKind = Literal["study", "proposer", "request", "cluster", "notice"]

_KEY = [column.name for column in leases.primary_key]

RELEASED = dict.fromkeys(("token", "holder", "since", "expires"))
"""The columns of a lease that nobody holds."""

ALONE = ""
"""The seat of who holds a subject alone. Each of several workers on one study has a seat of its own besides."""


class Lease(NamedTuple):
    """The lease of a subject, as it was found.

    Attributes:
        token: Proves it; None where nobody does.
        holder: The process that has it.
        expires: When it ends, in seconds since the epoch; of a study that nobody has, when it was let go.
    """

    token: str | None = None
    holder: str | None = None
    expires: float | None = None


class Leases:
    """The leases of one kind of subject.

    Whether a subject may be taken is for the caller to decide, once it has been locked (`holders.live_holder`).

    Args:
        kind: The kind.
        table: The subjects; a table with a primary key of one column.

    Attributes:
        of_row: True of the lease of a subject's row, to join the two tables.
        of_subject: True of the lease of the subject ``id_``.
        of_seats: True of the leases of the workers of the subject ``id_``.
        held: True of a row of the subjects that somebody holds, or held until the time ran out.
        mine: True if the subject ``id_`` is held with ``token_``; its lease is locked.
        change_mine: Changes that subject; the columns to set are those of the other parameters.
    """

    def __init__(self, kind: LeaseKind, table: sa.Table) -> None:
        (key,) = table.primary_key
        self._kind = kind
        id_ = sa.bindparam("id_", type_=key.type)
        # As a literal: queries that are turned into text once have no parameter for it.
        of_kind = leases.c.kind == sa.literal_column(f"'{kind}'")
        nobodys: sa.ColumnElement[str] = sa.literal_column(f"'{ALONE}'")
        alone, of_id = leases.c.seat == nobodys, leases.c.subject == sa.cast(id_, sa.Text)
        self.of_subject, self.of_seats = of_kind & of_id & alone, of_kind & of_id & (leases.c.seat != nobodys)
        with_token = self.of_subject & (leases.c.token == sa.bindparam("token_"))
        self.of_row = of_kind & alone & (leases.c.subject == sa.cast(key, sa.Text))
        self.held = sa.exists(sa.select(1).where(self.of_row, leases.c.token.is_not(None)).correlate(table))
        self.mine = sa.exists(sa.select(1).select_from(leases).where(with_token).with_for_update())
        self.change_mine = sa.update(table).where(key == id_, self.mine)
        self.change = sa.update(table).where(key == id_)
        self.change_lease = sa.update(leases).where(with_token)
        found = sa.select(leases.c.token, leases.c.holder, leases.c.expires).where(self.of_subject)
        self._lock = found.with_for_update()
        self._lock_mine = sa.select(leases.c.subject).where(with_token).with_for_update(skip_locked=True)

    def lock(self, connection: Connection, key: int | str) -> Lease:
        """The lease of a subject, which nobody else takes or writes by until the transaction ends."""
        while (found := connection.execute(self._lock, {"id_": key}).first()) is None:
            connection.execute(insert_lease(connection.dialect.name).on_conflict_do_nothing(), self.row(key))
        return Lease(*found)

    def lock_mine(self, connection: Connection, key: int | str, token: str) -> bool:
        """As `lock`; False where the token does not hold it any more, or somebody writes by it at this moment."""
        return connection.execute(self._lock_mine, {"id_": key, "token_": token}).first() is not None

    def take(
        self, connection: Connection, key: int | str, holder: str | None, seconds: float, token: str = "", **fields: Any
    ) -> str:
        """Take a subject, whoever holds it, and change fields of its row; the token is returned, a new one without."""
        now, token = time.time(), token or secrets.token_hex(16)
        lease = {"token": token, "holder": holder, "since": now, "expires": now + seconds}
        new = insert_lease(connection.dialect.name)
        new = new.on_conflict_do_update(index_elements=_KEY, set_={name: new.excluded[name] for name in lease})
        connection.execute(new, {**self.row(key), **lease})
        if fields:
            connection.execute(self.change, {"id_": key, **fields})
        return token

    def take_free(self, connection: Connection, key: int | str, seconds: float, token: str) -> bool:
        """Take a subject unless somebody holds it at this moment: no process is named, so only time ends the lease."""
        now = time.time()
        lease = {"token": token, "holder": None, "since": now, "expires": now + seconds}
        new = insert_lease(connection.dialect.name)
        over = leases.c.token.is_(None) | (leases.c.expires <= now)
        changed = {name: new.excluded[name] for name in lease}
        new = new.on_conflict_do_update(index_elements=_KEY, set_=changed, where=over)
        new = new.returning(leases.c.subject)
        return connection.execute(new, {**self.row(key), **lease}).first() is not None

    def renew(self, connection: Connection, key: int | str, token: str, seconds: float, **fields: Any) -> bool:
        """Have a lease end ``seconds`` from now, even if it had run out and nobody took the subject.

        Returns:
            False, and nothing is changed, where the token does not hold the subject any more.
        """
        return self._change(connection, key, token, {"expires": time.time() + seconds}, fields)

    def release(self, connection: Connection, key: int | str, token: str, *, moment: float | None = None) -> bool:
        """As `renew`, and the subject is free from now on; ``moment`` is kept as the end of its last lease."""
        return self._change(connection, key, token, {**RELEASED, "expires": moment}, {})

    def forget(self, connection: Connection, condition: sa.ColumnElement[bool]) -> None:
        """Delete the leases of subjects that a condition holds for: they are about to go."""
        gone = sa.select(1).where(self.of_row, condition).correlate(leases)
        connection.execute(sa.delete(leases).where(leases.c.kind == self._kind, gone.exists()))

    def forget_seats(self, connection: Connection, key: int | str, seats: Sequence[str]) -> None:
        """Delete the leases of workers of a subject."""
        connection.execute(sa.delete(leases).where(self.of_seats, leases.c.seat.in_(seats)), {"id_": key})

    def _change(
        self, connection: Connection, key: int | str, token: str | None, lease: dict[str, Any], fields: dict[str, Any]
    ) -> bool:
        if not connection.execute(self.change_lease, {"id_": key, "token_": token, **lease}).rowcount:
            return False
        if fields:
            connection.execute(self.change, {"id_": key, **fields})
        return True

    def row(self, key: int | str, seat: str = ALONE) -> dict[str, Any]:
        """The columns that a lease is found by."""
        return {"kind": self._kind, "subject": str(key), "seat": seat}


def insert_lease(dialect: str) -> Any:
    """An INSERT that may say what to do where the lease is there."""
    if dialect == "sqlite":  # the other one's modules are not imported
        from sqlalchemy.dialects.sqlite import insert
    else:
        from sqlalchemy.dialects.postgresql import insert  # type: ignore[assignment]
    return insert(leases)


STUDY_LEASES = Leases("study", studies)
PROPOSER_LEASES = Leases("proposer", studies)
"""Of several workers on a study, the one that makes the proposals for all of them."""

REQUEST_LEASES = Leases("request", requests)
CLUSTER_LEASES = Leases("cluster", clusters)
NOTICE_LEASES = Leases("notice", notices)
