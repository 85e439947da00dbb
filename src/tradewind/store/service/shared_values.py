"""Small values: those that all servers of one database share, and what users have set."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from tradewind.errors import NotFoundError
from tradewind.store import codec
from tradewind.store.sql.database import Database
from tradewind.store.sql.notify import notify_workers
from tradewind.store.sql.schema import service_values, users

_QUESTION, _ANSWER = "ask.question.", "ask.answer."
_name = service_values.c.name
_QUESTIONS = sa.select(_name, service_values.c.value).where(_name.startswith(_QUESTION, autoescape=True))
_VALUE = sa.select(service_values.c.value).where(_name == sa.bindparam("name"))
_ADD = sa.insert(service_values)
_REMOVE = sa.delete(service_values).where(_name.in_([sa.bindparam("question"), sa.bindparam("answer")]))


class WorkerQuestionStore:
    """Questions with their answers; both are gone when who asked has read them.

    Args:
        database: The open database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def ask(self, question: Mapping[str, Any]) -> str:
        """Ask all workers.

        Returns:
            What the answer is found by.
        """
        token = secrets.token_hex(16)
        with self._database.write(lasting=False) as connection:
            connection.execute(_ADD, {"name": _QUESTION + token, "value": json.dumps(dict(question))})
            notify_workers(connection)
        return token

    def questions(self) -> dict[str, dict[str, Any]]:
        """All questions that were not answered or given up yet."""
        return {name.removeprefix(_QUESTION): json.loads(text) for name, text in self._database.rows(_QUESTIONS)}

    def answer(self, token: str, answer: Mapping[str, Any]) -> None:
        """Answer a question, unless somebody else has."""
        with self._database.write(lasting=False) as connection:
            gone = connection.execute(_REMOVE, {"question": _QUESTION + token, "answer": _QUESTION + token})
            if gone.rowcount:
                connection.execute(_ADD, {"name": _ANSWER + token, "value": json.dumps(dict(answer))})

    def answered(self, token: str) -> dict[str, Any] | None:
        """The answer to a question, or None before there is one."""
        found = self._database.rows(_VALUE, name=_ANSWER + token)
        return json.loads(found[0][0]) if found else None

    def forget(self, token: str) -> None:
        """Remove a question and its answer."""
        with self._database.write(lasting=False) as connection:
            connection.execute(_REMOVE, {"question": _QUESTION + token, "answer": _ANSWER + token})


class SharedValueStore:
    """Values by name, shared by all servers of a database.

    Args:
        database: The open database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, name: str) -> str | None:
        """A value, or None."""
        with self._database.read() as connection:
            return connection.scalar(sa.select(service_values.c.value).where(service_values.c.name == name))

    def first(self, name: str, value: str) -> str:
        """A value, which is the given one where there was none: of several servers one is the first."""
        with self._database.write() as connection:
            add_value(connection, name, value)
            return str(connection.scalar(sa.select(service_values.c.value).where(service_values.c.name == name)))

    def set(self, name: str, value: str) -> None:
        """Set a value."""
        with self._database.write() as connection:
            mine = service_values.c.name == name
            if not connection.execute(sa.update(service_values).where(mine).values(value=value)).rowcount:
                connection.execute(sa.insert(service_values).values(name=name, value=value))

    def delete(self, name: str) -> None:
        """Remove a value; one that is not there is no error."""
        with self._database.write() as connection:
            connection.execute(sa.delete(service_values).where(service_values.c.name == name))

    def named(self, start: str) -> dict[str, str]:
        """All values whose names begin like this, by name."""
        query = sa.select(service_values.c.name, service_values.c.value).where(
            service_values.c.name.startswith(start, autoescape=True)
        )
        with self._database.read() as connection:
            return {str(name): str(value) for name, value in connection.execute(query)}

    def change_user(self, number: int, key: str, value: Mapping[str, Any] | None) -> dict[str, Any]:
        """Set one of the things that a user has set, and leave the others as they are.

        Args:
            number: The user.
            key: Which.
            value: A JSON-able document; None removes it.

        Returns:
            All that the user has set.

        Raises:
            NotFoundError: There is no such user.
        """
        with self._database.write() as connection:
            query = sa.select(users.c.settings).where(users.c.id == number)
            text = connection.scalar(query.with_for_update() if self._database.dialect == "postgresql" else query)
            if text is None:
                raise NotFoundError("there is no such user")
            settings: dict[str, Any] = json.loads(text)
            if value is None:
                settings.pop(key, None)
            else:
                settings[key] = dict(value)
            changed = {"settings": codec.dumps(settings)}
            connection.execute(sa.update(users).where(users.c.id == number).values(changed))
            return settings


def add_value(connection: Connection, name: str, value: str) -> None:
    """Add a value unless there is one, whoever else does so at this moment."""
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects.postgresql import insert

        connection.execute(insert(service_values).values(name=name, value=value).on_conflict_do_nothing())
        return
    if connection.scalar(sa.select(service_values.c.name).where(service_values.c.name == name)) is None:
        connection.execute(sa.insert(service_values).values(name=name, value=value))
