"""The conformance suite over both databases."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tradewind.store.base import Store
from tradewind.testing.stores import StoreConformance


class TestSqlite(StoreConformance):
    @pytest.fixture
    def store(self, sqlite_url: str, open_store: Callable[..., Store]) -> Store:
        return open_store(sqlite_url)


@pytest.mark.slow
class TestPostgresql(StoreConformance):
    @pytest.fixture
    def store(self, postgresql_url: str, open_store: Callable[..., Store]) -> Store:
        return open_store(postgresql_url)
