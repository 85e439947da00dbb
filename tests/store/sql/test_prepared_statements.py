from __future__ import annotations

from pathlib import Path

import pytest

from tradewind.errors import StudyBusyError
from tradewind.store.base import Change, StudyRow, this_process
from tradewind.store.sql.database import Database
from tradewind.store.sql.raw_driver import HeldStudyUpdate
from tradewind.store.studies.sql_store import SqlSettings, SqlStore


def _study(name: str) -> StudyRow:
    return StudyRow(id=0, name=name, problem_key="k", spec={}, created=1.0, seed=1, owner="tw-1")


def test_a_change_needs_the_token_that_holds_the_study(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    store = SqlStore(settings=SqlSettings(), url=url)
    mine, other = store.create_study(_study("mine")).id, store.create_study(_study("other")).id
    token = store.hold(mine, this_process(), 60.0)
    store.write(mine, Change(study={"reason": "it is ours"}), token)
    with pytest.raises(StudyBusyError):
        store.write(mine, Change(study={"reason": "it is not"}), "another token")
    with pytest.raises(StudyBusyError):
        store.write(other, Change(study={"reason": "nobody holds it"}), token)
    assert (store.study(mine).reason, store.study(other).reason) == ("it is ours", "")
    store.close()


def test_one_statement_serves_each_set_of_fields(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    store = SqlStore(settings=SqlSettings(), url=url)
    number = store.create_study(_study("mine")).id
    token = store.hold(number, this_process(), 60.0)
    database = Database(url, busy_timeout=5.0)
    changes = HeldStudyUpdate(database.sql)
    with database.write() as connection:
        assert changes.run(connection, number, token, {"reason": "first", "elapsed": 1.0})
        assert changes.run(connection, number, token, {"elapsed": 2.0, "reason": "second"})
        assert changes.run(connection, number, token, {"elapsed": 3.0})
        assert not changes.run(connection, number + 1, token, {"elapsed": 4.0})
    found = store.study(number)
    assert (found.reason, found.elapsed) == ("second", 3.0)
    database.close()
    store.close()
