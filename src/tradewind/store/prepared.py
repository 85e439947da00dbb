"""Statements of the path of every write: their text is made once, as a driver takes it."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Dialect

from tradewind.store.sql.schema import studies

AnyConnection = Connection | sqlite3.Connection
"""Within a transaction; SQLite's own where nothing is to stand between."""


class PreparedStatement:
    """A statement without its way through SQLAlchemy's compiler and caches, which costs more than SQLite's own work.

    It takes values as the driver does: numbers, texts, bytes, booleans and None.

    Args:
        statement: The statement; its parameters are named.
        dialect: Of the connections that it is run on.
        columns: The columns that an INSERT or UPDATE without values is about; all of the table without it.
    """

    def __init__(self, statement: Any, dialect: Dialect, columns: Sequence[str] | None = None) -> None:
        compiled = statement.compile(dialect=dialect, column_keys=columns)
        self._text = str(compiled)
        self._order: Sequence[str] | None = compiled.positiontup

    def run(self, connection: AnyConnection, rows: Sequence[Mapping[str, Any]]) -> int:
        """Run it for each row; the parameters are the row's values by name.

        Returns:
            How many rows of the table it was about.
        """
        if self._order is None:
            assert isinstance(connection, Connection)
            return connection.exec_driver_sql(self._text, [dict(row) for row in rows]).rowcount
        values = [tuple([row[name] for name in self._order]) for row in rows]
        if isinstance(connection, Connection):
            return connection.exec_driver_sql(self._text, values).rowcount
        if len(values) == 1:
            return connection.execute(self._text, values[0]).rowcount
        return connection.executemany(self._text, values).rowcount


class HeldStudyUpdate:
    """Changes of a study by who holds it: whether it is still held and the change are one statement.

    Args:
        dialect: Of the connections.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._known: dict[tuple[str, ...], PreparedStatement] = {}

    def run(self, connection: AnyConnection, study_id: int, token: str, fields: Mapping[str, Any]) -> bool:
        """Change the fields of a study; False, and nothing is changed, where the token does not hold it."""
        names = tuple(fields)
        prepared = self._known.get(names)
        if prepared is None:
            mine = (studies.c.id == sa.bindparam("id_")) & (studies.c.hold_token == sa.bindparam("token_"))
            prepared = self._known[names] = PreparedStatement(sa.update(studies).where(mine), self._dialect, names)
        return prepared.run(connection, [{**fields, "id_": study_id, "token_": token}]) > 0
