"""Links to the results of requests: only their digests are kept."""

from __future__ import annotations

import time
from dataclasses import dataclass

import sqlalchemy as sa

from tradewind.store.sql.database import Database
from tradewind.store.sql.schema import links


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
        """What it is called in lists: nothing that leads anywhere."""
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
