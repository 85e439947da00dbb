"""``tradewind service``: copies, versions, figures, what is too old."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import func, select, update
from tests.service.live_server import HELLO, move

from tradewind.cli.app import run
from tradewind.service.accounts.identity import Principal
from tradewind.service.context import Context, open_context
from tradewind.service.settings import ServiceSettings
from tradewind.store.service.request_values import RequestState
from tradewind.store.sql.schema import REVISIONS, request_events, requests, service_values
from tradewind.utils.paths import data_folder, store_url


@dataclass
class Place:
    context: Context
    root: Principal


@pytest.fixture
def place() -> Iterator[Place]:
    """The user's own store, with an administrator and an application."""
    context = open_context(ServiceSettings(), store_url(), data_folder())
    user = context.accounts.add_user("root", role="admin", email="root@example.org")
    root = Principal(user.id, "root", "admin", "root")
    context.applications.register(root, HELLO, shared=True)
    yield Place(context, root)
    context.close()


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    capsys.readouterr()
    assert run(list(words)) == code
    found = capsys.readouterr()
    return found.err if code else found.out


def ended(place: Place, state: RequestState, days: float) -> int:
    """A request that ended so many days ago."""
    number = place.context.requests.submit(place.root, {"application": "hello"}).id
    move(place.context.requests, number, state, cost=0.5)
    with place.context.database.write() as connection:
        values = {"ended": time.time() - 86400 * days}
        connection.execute(update(requests).where(requests.c.id == number).values(values))
    return number


def test_status(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.context.requests.submit(place.root, {"application": "hello"})
    ended(place, "done", 1)
    text = said(capsys, "service", "status")
    assert f"(schema {REVISIONS[-1]})" in text.splitlines()[0]
    assert "requests      1 done, 1 pending" in text
    assert "spent         $0.500, and $0.00 set aside" in text
    document = json.loads(said(capsys, "service", "status", "--json"))
    assert document["requests"] == {"done": 1, "pending": 1}
    assert document["spent"] == 0.5


def test_there_is_nothing_yet(capsys: pytest.CaptureFixture[str]) -> None:
    assert "there is no store yet (tradewind serve makes one)" in said(capsys, "service", "status", code=12)
    assert "there is no store" in said(capsys, "service", "backup", "copy.db", code=12)
    assert not data_folder().exists()


@pytest.mark.slow
def test_a_copy_there_and_back(place: Place, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    text = said(capsys, "service", "backup", str(copy))
    assert text.startswith(f"{copy}: ")
    assert "service.key" not in text  # nothing was sealed yet
    place.context.sealer.seal("sesame")
    assert "Keep a copy of" in said(capsys, "service", "backup", str(copy), "--force")
    assert "in use" in said(capsys, "service", "restore", str(copy), "--force", code=12)
    place.context.close()
    assert "before-restore-1" in said(capsys, "service", "restore", str(copy), "--force")
    assert "1 done" not in said(capsys, "service", "status")


def test_versions(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    old = tmp_path / "old.db"
    address = f"sqlite:///{old}"
    said(capsys, "service", "migrate", "--check", "--database", address, code=1)
    assert not old.exists()
    _older(old)
    said(capsys, "service", "migrate", "--check", "--database", address, code=1)
    text = said(capsys, "service", "migrate", "--database", address)
    assert text == f"The database had version 0002, and has version {REVISIONS[-1]} now.\n"
    assert "already" in said(capsys, "service", "migrate", "--database", address)
    assert "already" in said(capsys, "service", "migrate", "--check", "--database", address)


def _older(path: Path) -> None:
    """A store as an earlier version made it."""
    from alembic import command
    from alembic.config import Config
    from sqlalchemy import create_engine

    import tradewind.store

    config = Config()
    config.set_main_option("script_location", str(Path(tradewind.store.__path__[0]) / "migrations"))
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0002")
    engine.dispose()
    with closing(sqlite3.connect(path)) as opened:
        assert opened.execute("SELECT version_num FROM tradewind_version").fetchone() == ("0002",)


@pytest.mark.slow
def test_what_is_too_old_is_removed(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    context = place.context
    old = [ended(place, state, 100) for state in ("done", "failed", "cancelled")]
    young = ended(place, "done", 10)
    waiting = context.requests.submit(place.root, {"application": "hello"}).id
    folder = data_folder() / "requests" / str(old[0]) / "job"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "input").write_text("x")
    context.links.make(place.root, young, days=0.0000001)
    counted = said(capsys, "service", "prune", "--older", "90d", "--dry-run")
    assert counted.startswith("3 requests, 0 notices, 1 link, ")
    assert "would be removed" in counted
    assert _numbers(context) == [*old, young, waiting]
    found = json.loads(said(capsys, "service", "prune", "--older", "90d", "--json"))
    assert (found["requests"], found["links"], found["kept"]) == (3, 1, 0)
    assert _numbers(context) == [young, waiting]
    assert not folder.exists()
    with context.database.read() as connection:
        left = connection.scalar(select(func.count()).where(request_events.c.request_id.in_(old)))
        assert left == 0
        assert connection.scalar(select(func.count()).select_from(service_values)) is not None
    assert said(capsys, "service", "prune", "--older", "90d").startswith("0 requests, ")


def _numbers(context: Context) -> list[int]:
    with context.database.read() as connection:
        return list(
            connection.scalars(select(requests.c.id).where(requests.c.state != "deleted").order_by(requests.c.id))
        )


@pytest.mark.parametrize(("age", "code"), [("90x", 3), ("0", 3), ("10m", 3), ("-5d", 3), ("", 3)])
def test_ages_that_are_none(capsys: pytest.CaptureFixture[str], age: str, code: int) -> None:
    assert len(said(capsys, "service", "prune", f"--older={age}", code=code).splitlines()) == 1
