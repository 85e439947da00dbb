"""What the store tells about itself and the service, for those who run it."""

from __future__ import annotations

import sqlalchemy as sa

from tradewind.store.database import Database
from tradewind.store.schema import users


class OperationsStore:
    """Questions of those who run a server.

    Args:
        database: The open database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def has_users(self) -> bool:
        """Whether there is any user yet."""
        with self._database.read() as connection:
            return connection.execute(sa.select(users.c.id).limit(1)).first() is not None
