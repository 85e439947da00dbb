"""Which request an upload belongs to, and what is noted of it."""

from __future__ import annotations

import time

import sqlalchemy as sa

from tradewind.store.database import Database
from tradewind.store.request_rows import note, one
from tradewind.store.request_values import Remark, RequestRow
from tradewind.store.schema import requests, studies


class UploadStore:
    """Requests whose results are uploaded.

    Args:
        database: The open database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def request_of(self, owner: str) -> RequestRow | None:
        """The request whose study has an owner tag; None where the study is no request's."""
        mine = sa.select(studies.c.id).where(studies.c.owner == owner)
        with self._database.read() as connection:
            number = connection.scalar(sa.select(requests.c.id).where(requests.c.study_id.in_(mine)).limit(1))
            return None if number is None else one(connection, requests.c.id == number)

    def remark(self, number: int, text: str, results: str) -> None:
        """Note how an upload goes, whatever state the request is in.

        Args:
            number: The request.
            text: In words.
            results: ``waiting``, ``done`` or ``failed``.
        """
        with self._database.write() as connection:
            row = one(connection, requests.c.id == number, lock=True)
            note(connection, number, [Remark(row.state, text, {"results": results})])
            connection.execute(sa.update(requests).where(requests.c.id == number).values(updated=time.time()))
