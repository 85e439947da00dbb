"""A database of PostgreSQL that does not keep its texts in UTF-8."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from tradewind.errors import StoreError
from tradewind.store.base import Store
from tradewind.store.sql.backups import schema_version_at
from tradewind.testing.stores import study_row

OpenStore = Callable[..., Store]


def database_in(url: str, encoding: str) -> str:
    """Another database of the same server, in an encoding."""
    import psycopg

    parsed = sa.make_url(url)
    name = f"{parsed.database}_other"
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0")
    return parsed.set(database=name).render_as_string(hide_password=False)


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_another_encoding_is_one_line_that_says_what_to_do(
    postgresql_url: str, open_store: OpenStore, encoding: str
) -> None:
    url = database_in(postgresql_url, encoding)
    for opener in (open_store, schema_version_at):
        with pytest.raises(StoreError) as caught:
            opener(url)
        assert f"is in {encoding}, and has to be in UTF8" in caught.value.message
        assert caught.value.hint is not None
        assert "ENCODING 'UTF8'" in caught.value.hint
        assert "\n" not in str(caught.value)


def test_the_command_line_says_so_too(postgresql_url: str, tmp_path: Path) -> None:
    url = database_in(postgresql_url, "SQL_ASCII")
    environment = {**os.environ, "TRADEWIND_STORE": url, "TRADEWIND_HOME": str(tmp_path)}
    words = [sys.executable, "-m", "tradewind", "status"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == StoreError.exit_code
    assert "SQL_ASCII" in done.stderr
    assert "TypeError" not in done.stderr
    assert "Traceback" not in done.stderr


def test_a_client_that_is_set_to_another_encoding_speaks_utf8_all_the_same(
    postgresql_url: str, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "SQL_ASCII")
    assert open_store(postgresql_url).create_study(study_row(name="λ")).name == "λ"
