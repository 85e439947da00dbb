"""A worker that has nothing to do leaves the database alone, and begins at once when something is asked."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.service.requests.request_world import working, world
from tests.store.conftest import _server as _server
from tests.store.conftest import postgresql_url as postgresql_url
from tests.waiting import eventually

from tradewind.service.context import open_context
from tradewind.service.settings import ServiceSettings
from tradewind.store.service.claims import ClaimStore
from tradewind.store.sql import notify


def counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, ClaimStore]]:
    """When a worker looks for requests, from now on."""
    looks: list[tuple[float, ClaimStore]] = []
    waits = ClaimStore.waits

    def look(self: ClaimStore, **given: object) -> bool:
        looks.append((time.monotonic(), self))
        return waits(self, **given)  # type: ignore[arg-type]

    monkeypatch.setattr(ClaimStore, "waits", look)
    return looks


@pytest.mark.thorough
@pytest.mark.slow
def test_an_idle_worker_looks_ever_more_seldom_and_is_woken(
    tmp_path: Path, postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = counted(monkeypatch)
    with (
        world(tmp_path, postgresql_url) as there,
        closing(open_context(ServiceSettings(), postgresql_url, there.home)) as other,
        working(there.context) as worker,
    ):
        eventually(lambda: worker._wakeup.listens, 10.0)
        time.sleep(3.0)
        del looks[:]
        time.sleep(4.2)
        mine = [at for at, who in looks if who is worker._claims]  # other tests of this process may have left a worker
        assert 1 <= len(mine) <= 3, "a look every 2 s"
        delays = []
        for _ in range(5):  # by another server, which has no thread in common with the worker
            row = other.requests.submit(there.ann, {"application": "note", "configuration": {"instance": "local.c1"}})
            begun = there.ended(row).started
            assert begun is not None
            delays.append(begun - row.created)
            time.sleep(0.9)
        assert sorted(delays)[2] < 0.5, delays  # a look without being woken comes every 2 s


@pytest.mark.slow
def test_a_worker_that_hears_nothing_looks_by_itself(
    tmp_path: Path, postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a pooler that gives the connection away after each transaction."""
    monkeypatch.setattr(notify, "_NOTIFY", sa.select(1))
    with (
        world(tmp_path, postgresql_url) as there,
        closing(open_context(ServiceSettings(), postgresql_url, there.home)) as other,
        working(there.context) as worker,
    ):
        eventually(lambda: worker._wakeup.listens, 10.0)
        time.sleep(3.0)
        row = other.requests.submit(there.ann, {"application": "note", "configuration": {"instance": "local.c1"}})
        begun = there.ended(row).started
        assert begun is not None
        assert begun - row.created < 3.5


def test_it_listens_again_when_the_connection_was_lost(postgresql_url: str) -> None:
    import psycopg

    heard: list[float] = []
    with closing(open_bell(postgresql_url, heard)) as listening, psycopg.connect(_plain(postgresql_url)) as other:
        other.autocommit = True
        eventually(lambda: listening.listens, 10.0)
        other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
        eventually(lambda: len(heard) > 1, 10.0)
        before = len(heard)
        other.execute("SELECT pg_notify('tradewind_requests', '')")
        eventually(lambda: len(heard) > before, 5.0)
        assert listening.listens


def open_bell(url: str, heard: list[float]) -> notify.NotifyListener:
    found = notify.NotifyListener(url, lambda: heard.append(time.monotonic()))
    found.start()
    return found


def _plain(url: str) -> str:
    return url.replace("postgresql+psycopg", "postgresql")
