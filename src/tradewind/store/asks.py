"""Questions that one server puts to the workers of others, and their answers, by way of the database."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from tradewind.store.sql.database import Database
from tradewind.store.sql.notify import notify_workers
from tradewind.store.sql.schema import service_values

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
