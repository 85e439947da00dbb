"""Stores uploads of results and links to them.

What is noted last tells how an upload stands: also that somebody wants it tried again, which the server that has the
files reads here, whichever server was asked.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import sqlalchemy as sa

from tradewind.store.service.audit import AuditRow, insert_audit_row
from tradewind.store.service.request_queries import add_events, event_of, request_where
from tradewind.store.service.request_values import DELETED, NewRequestEvent, RequestEvent, RequestRow
from tradewind.store.sql.database import Database
from tradewind.store.sql.schema import links, request_events, requests, studies


@dataclass(frozen=True, slots=True)
class LinkRow:
    """A link to what a request has left.

    Attributes:
        digest: Of its secret.
        request_id: The request.
        path: Only what is this file, or below this folder; empty for all.
        created: Seconds since the epoch.
        expires: When it leads nowhere any more; None for never.
    """

    digest: str
    request_id: int
    path: str = ""
    created: float = 0.0
    expires: float | None = None

    @property
    def id(self) -> str:
        """The name in lists: nothing that leads anywhere."""
        return self.digest[:16]


class LinkStore:
    """The table of links.

    Args:
        database: The open database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, row: LinkRow) -> LinkRow:
        """Add a link."""
        made = LinkRow(row.digest, row.request_id, row.path, row.created or time.time(), row.expires)
        with self._database.write() as connection:
            values = {name: getattr(made, name) for name in LinkRow.__dataclass_fields__}
            connection.execute(sa.insert(links).values(values))
        return made

    def find(self, digest: str) -> LinkRow | None:
        """The link of a digest, if it still leads anywhere."""
        alive = links.c.expires.is_(None) | (links.c.expires > time.time())
        with self._database.read() as connection:
            row = connection.execute(sa.select(links).where(links.c.digest == digest, alive)).mappings().first()
        return None if row is None else LinkRow(**row)

    def of_request(self, number: int) -> list[LinkRow]:
        """The links of a request that lead anywhere, the newest first."""
        alive = links.c.expires.is_(None) | (links.c.expires > time.time())
        query = sa.select(links).where(links.c.request_id == number, alive).order_by(links.c.created.desc())
        with self._database.read() as connection:
            return [LinkRow(**row) for row in connection.execute(query).mappings()]

    def delete(self, number: int, link_id: str) -> bool:
        """Take a link of a request away.

        Returns:
            Whether there was one.
        """
        mine = (links.c.request_id == number) & (sa.func.substr(links.c.digest, 1, 16) == link_id)
        with self._database.write() as connection:
            return bool(connection.execute(sa.delete(links).where(mine)).rowcount)


RETRY_REQUESTED = "again"
"""What is noted where somebody wants an upload tried again at once."""


class ResultUploadStore:
    """Requests whose results are uploaded.

    Args:
        database: The open database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def request_of(self, owner: str) -> RequestRow | None:
        """The request whose study has an owner tag; None where the study is no request's, or that was removed."""
        mine = sa.select(studies.c.id).where(studies.c.owner == owner)
        with self._database.read() as connection:
            there = requests.c.study_id.in_(mine) & (requests.c.state != DELETED)
            number = connection.scalar(sa.select(requests.c.id).where(there).limit(1))
            return None if number is None else request_where(connection, requests.c.id == number)

    def remark(self, number: int, text: str, results: str) -> None:
        """Note how an upload goes, whatever state the request is in.

        Args:
            number: The request.
            text: In words.
            results: ``waiting``, ``done`` or ``failed``.

        Raises:
            NotFoundError: There is no such request any more.
        """
        with self._database.write() as connection:
            _add_upload_event(connection, number, text, results)

    def ask(self, number: int, text: str, entry: AuditRow) -> None:
        """Note that somebody wants an upload tried again at once; asked twice, it is noted once.

        Args:
            number: The request.
            text: In words.
            entry: The line of the audit log for it; its subject is set here.

        Raises:
            NotFoundError: There is no such request any more.
        """
        with self._database.write() as connection:
            request_where(connection, requests.c.id == number, lock=True)
            last = _last_upload_event(connection, number)
            if last is not None and last.details["results"] == RETRY_REQUESTED:
                return
            _add_upload_event(connection, number, text, RETRY_REQUESTED)
            insert_audit_row(connection, replace(entry, subject=f"request {number}"))

    def last(self, number: int) -> RequestEvent | None:
        """The newest event of the upload of a request; None before there is one."""
        with self._database.read() as connection:
            return _last_upload_event(connection, number)

    def asked(self, owners: Sequence[str], since: int | None, until: int) -> set[str]:
        """The uploads that somebody wants tried again.

        Args:
            owners: Owner tags of the studies whose uploads they are.
            since: Number of the last event that was heard of; None for those of which nothing was noted afterwards.
            until: Number of the last event to look at.

        Returns:
            The owner tags of those.
        """
        word = request_events.c.details.contains(f'"results":"{RETRY_REQUESTED}"')
        query = (
            sa.select(studies.c.owner, requests.c.id)
            .select_from(request_events.join(requests).join(studies, studies.c.id == requests.c.study_id))
            .where(request_events.c.id > (since or 0), request_events.c.id <= until, word)
            .where(studies.c.owner.in_(owners))
            .distinct()
        )
        with self._database.read() as connection:
            found = connection.execute(query).all()
            last = {owner: _last_upload_event(connection, number) for owner, number in found}
        return {
            o
            for o, event in last.items()
            if since is not None or (event and event.details["results"] == RETRY_REQUESTED)
        }


def _add_upload_event(connection: sa.Connection, number: int, text: str, results: str) -> None:
    row = request_where(connection, requests.c.id == number, lock=True)
    add_events(connection, number, [NewRequestEvent(row.state, text, {"results": results})])
    connection.execute(sa.update(requests).where(requests.c.id == number).values(updated=time.time()))


def _last_upload_event(connection: sa.Connection, number: int) -> RequestEvent | None:
    """The last event of a request that tells of its upload."""
    mine = (request_events.c.request_id == number) & request_events.c.details.contains('"results":')
    query = sa.select(request_events).where(mine).order_by(request_events.c.id.desc())
    for found in map(event_of, connection.execute(query)):
        if isinstance(found.details.get("results"), str):  # the text may stand deeper within other details
            return found
    return None
