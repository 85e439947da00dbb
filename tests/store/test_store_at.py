"""Which store an address names."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from pathlib import Path
from typing import Any

import pytest

from tradewind import Study, plugins
from tradewind.cli.common import open_store
from tradewind.errors import StoreError
from tradewind.store.base import store_at
from tradewind.store.studies.sql_store import SqlStore


class Elsewhere(SqlStore):
    """A store of somebody else, which keeps its rows in a file all the same."""

    def __init__(self, *, settings: Any, url: str) -> None:
        super().__init__(settings=settings, url="sqlite:///" + url.removeprefix("elsewhere://"))


@pytest.fixture
def announced(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The store is announced as a package would announce it."""
    point = EntryPoint("elsewhere", f"{__name__}:Elsewhere", "tradewind.stores")
    every = [each for kind in plugins.KINDS for each in entry_points(group=plugins.group(kind))]
    monkeypatch.setattr(plugins, "entry_points", lambda: EntryPoints([*every, point]))
    for kept in (plugins._everything, plugins._load):
        kept.cache_clear()
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    yield
    for kept in (plugins._everything, plugins._load):
        kept.cache_clear()


@pytest.mark.slow
@pytest.mark.usefixtures("announced")
def test_a_store_is_chosen_by_the_scheme_of_its_address(tmp_path: Path) -> None:
    address = f"elsewhere://{tmp_path / 'rows.db'}"
    with Study({"name": "other", "space": {"x": [1, 2]}, "objective": {"minimise": "cost"}}, store=address) as study:
        assert type(study._store).__name__ == "Elsewhere"
        name = study.row.name
    store = open_store(address)
    assert type(store).__name__ == "Elsewhere"
    assert [row.name for row in store.find_studies()] == [name]
    store.close()


def test_other_addresses_are_those_of_the_sql_store(tmp_path: Path) -> None:
    store = store_at(f"sqlite:///{tmp_path / 'rows.db'}")
    assert type(store) is SqlStore
    store.close()
    with pytest.raises(StoreError, match="nowhere"):
        store_at("nowhere://rows")
