"""The versions of the program that trials ran, of whatever runs have one."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

from tradewind import plugins
from tradewind.store.base import Change, CodeVersion, Store
from tradewind.testing.stores import run, study_row, trial


def test_versions_come_in_the_order_of_their_first_trials(tmp_path: Path) -> None:
    store: Store = plugins.create("store", "sql", {}, url=f"sqlite:///{tmp_path}/s.db")
    with closing(store):
        row = store.create_study(study_row())
        assert store.code_versions(row.id) == []
        digests = {(0, 1): "old", (1, 1): "", (2, 1): "old", (2, 2): "new", (3, 1): "new", (4, 1): "old"}
        runs = [replace(run(number, attempt), code=code) for (number, attempt), code in digests.items()]
        store.write(row.id, Change(trials=[trial(number, 1.0) for number in range(5)], runs=runs))
        found = [CodeVersion("old", (0, 2, 4)), CodeVersion("new", (2, 3))]
        assert store.code_versions(row.id) == found
        assert Store.code_versions(store, row.id) == found
        assert [each.code for each in store.runs(row.id)] == list(digests.values())
