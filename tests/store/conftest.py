"""A store of each kind: an SQLite file, and a PostgreSQL server started for the session."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tradewind import plugins
from tradewind.store.base import Store

OpenStore = Callable[..., Store]


@pytest.fixture
def open_store() -> Iterator[OpenStore]:
    """Opens stores and closes them when the test is over."""
    with contextlib.ExitStack() as stack:

        def opener(url: str, **settings: object) -> Store:
            store: Store = plugins.create("store", "sql", settings, url=url)
            stack.callback(store.close)
            return store

        yield opener


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store' / 'tradewind.db'}"


@pytest.fixture
def postgresql_url(_server: str) -> str:
    """An empty database of its own."""
    import psycopg

    name = f"tw_{uuid.uuid4().hex}"
    with psycopg.connect(f"postgresql://tw@/postgres?host={_server}", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"postgresql+psycopg://tw@/{name}?host={_server}"


@pytest.fixture(scope="session")
def _server() -> Iterator[str]:
    binaries = _binaries()
    if binaries is None:
        pytest.skip("PostgreSQL is not installed (apt-get install postgresql): the store is tested on SQLite only")
    if importlib.util.find_spec("psycopg") is None:
        pytest.skip(
            "psycopg is not installed (pip install 'tradewind[postgresql]'): the store is tested on SQLite only"
        )
    user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    identity: dict[str, object] = {}
    if os.geteuid() == 0:  # the server refuses to be run by root
        entry = pwd.getpwnam(user)
        identity = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    # Unix sockets have short paths, and the server's user may not enter pytest's folder.
    folder = Path(tempfile.mkdtemp(prefix="twpg", dir="/tmp"))
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, user)
        data = folder / "data"
        options = {"cwd": folder, "check": True, "capture_output": True, "timeout": 100, **identity}
        init = [binaries / "initdb", "-D", data, "-U", "tw", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"]
        subprocess.run(init, **options)  # type: ignore[call-overload]
        flags = f"-k {folder} -c listen_addresses= -c fsync=off -c max_connections=30"
        start = [binaries / "pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", flags, "start"]
        subprocess.run(start, **{**options, "capture_output": False, "stdout": subprocess.DEVNULL})  # type: ignore[call-overload]
        try:
            yield str(folder)
        finally:
            subprocess.run([binaries / "pg_ctl", "-D", data, "-m", "immediate", "stop"], **options)  # type: ignore[call-overload]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _binaries() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


def run_python(code: str, *arguments: object, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Another process with this code."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
