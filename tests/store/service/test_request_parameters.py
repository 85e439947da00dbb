"""Requests are found by the values of their parameters, in SQLite and in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import sqlalchemy as sa

from tradewind.errors import InputError
from tradewind.store.service.accounts import AccountStore, UserRow
from tradewind.store.service.request_parameters import parameter_rows, parse_conditions
from tradewind.store.service.requests import NewRequestEvent, RequestRow, RequestStore
from tradewind.store.sql.database import Database
from tradewind.store.sql.schema import request_parameters


@pytest.fixture(params=["sqlite_url", "postgresql_url"])
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    with closing(Database(request.getfixturevalue(request.param), busy_timeout=30.0)) as opened:
        AccountStore(opened).add_user(UserRow(0, "ann", "user", "physics"))
        yield opened


def add(store: RequestStore, **parameters: Any) -> int:
    row = RequestRow(0, "physics", 1, "run", {"application": "galaxy", "parameters": parameters})
    return store.add(row, NewRequestEvent("pending", "asked for"))[0].id


def test_values_are_compared_as_numbers_and_as_texts(database: Database) -> None:
    store = RequestStore(database)
    small, large = add(store, stars=300, solver="implicit", fast=False), add(store, stars=1e3, solver="explicit")
    other = add(store, steps=10, solver="10")

    def found(*texts: str, **more: Any) -> list[int]:
        return [row.id for row in store.page(parameters=parse_conditions(texts), **more)]

    assert found("stars=1000") == found("stars == 1e3") == found("stars=1,000") == [large]
    assert found("stars>=300") == [large, small]
    assert found("stars>300") == found("stars!=300") == [large]
    assert found("stars<1000, solver=implicit") == found("stars<1000", "solver=implicit") == [small]
    assert found("fast=no") == found("fast=false") == [small]
    assert found("solver!=implicit") == [other, large]
    assert found("solver!=10") == [large, small]
    assert found("solver=10") == [other]
    assert found("stars>0", before=large) == [small]
    assert found("stars>0", tenant="biology") == []
    assert found("moons=1") == []


def test_what_is_removed_is_found_no_more(database: Database) -> None:
    store = RequestStore(database)
    number = add(store, stars=300)
    with database.write() as connection:
        connection.execute(sa.text("UPDATE requests SET state = 'done'"))
    store.remove(number, {"user": "ann"})
    with database.read() as connection:
        assert connection.execute(sa.select(request_parameters)).all() == []


@pytest.mark.parametrize("text", ["stars", "=5", "stars>many", "stars=", "a b=5", f"stars={'9' * 300}"])
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"no condition on a parameter|compares with no number"):
        parse_conditions([text])


def test_parameters_are_those_of_the_form_and_of_the_machines() -> None:
    document = {
        "resources": {"nodes": 2, "cpu": 4},
        "configuration": {"nodes": 8},
        "parameters": {"mesh": {"file": "sha256:0", "name": "plate.msh"}, "sizes": [1, 2], "label": "x\0"},
    }
    found = {row["name"]: (row["text"], row["number"]) for row in parameter_rows(7, document)}
    assert found == {"nodes": ("8", 8.0), "cpu": ("4", 4.0), "mesh": ("plate.msh", None), "label": ("x\ufffd", None)}
