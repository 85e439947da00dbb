"""What the store says of the studies before another one."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tradewind import plugins
from tradewind.store.base import Store, StudyRow
from tradewind.testing.stores import ELSEWHERE, study_row


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made: Store = plugins.create("store", "sql", {}, url=f"sqlite:///{tmp_path}/s.db")
    return made


def test_studies_of_one_tenant_before_another_one_the_newest_first(store: Store) -> None:
    names = ("a", "b", "bob/a", "a.runs", "bob/a.runs", "Bob/a", "a", "bob/a")
    made = [store.create_study(study_row(name, created=float(at))) for at, name in enumerate(names)]

    def found(tenant: str, names: list[str] | None = None, before: StudyRow | None = None, limit: int = 9) -> list[int]:
        return [made.index(one.study) for one in store.earlier_studies(tenant, names, before=before, limit=limit)]

    assert found("") == [6, 3, 1, 0]
    assert found("bob") == [7, 4, 2]
    assert found("Bob") == [5]
    assert found("bo") == []
    assert found("", ["a", "a.runs"]) == [6, 3, 0]
    assert found("bob", ["a"]) == [7, 2]
    assert found("", []) == []
    assert found("", before=made[6]) == [3, 1, 0]
    assert found("bob", before=made[6]) == [4, 2]
    assert found("", before=made[6], limit=2) == [3, 1]


def test_when_a_study_was_let_go(store: Store) -> None:
    study = store.create_study(study_row())

    def quiet() -> float | None:
        return store.earlier_studies("", limit=1)[0].quiet

    assert quiet() is None
    token = store.hold(study.id, ELSEWHERE, 60)
    assert quiet() is None
    begun = time.time()
    store.release(study.id, token)
    let_go = quiet()
    assert let_go is not None
    assert begun <= let_go <= time.time()
    assert store.summaries()[0].running_since is None
    store.hold(study.id, ELSEWHERE, 60)
    store.hold(study.id, ELSEWHERE, -10)  # runs out
    expired = quiet()
    assert expired is not None
    assert expired < let_go
