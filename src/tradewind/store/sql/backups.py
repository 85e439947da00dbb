"""Copies of a store: made while it is used, and put back; and which version of the schema a store has."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
from collections.abc import Mapping
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.engine import URL

from tradewind.errors import InputError, StoreCorruptError, StoreError, StoreLockedError, StudyBusyError
from tradewind.store.sql import error_translation
from tradewind.store.sql.address import parse_address, require_utf8, shown_address
from tradewind.store.sql.schema import REVISIONS, VERSION_TABLE, metadata
from tradewind.utils.atomic_files import atomic_path
from tradewind.utils.dependencies import find_program

_MAGIC = b"PGDMP"
_LONGEST = 24 * 3600.0
_HINT_CLIENT = "apt-get install postgresql-client, of the server's version or later"


def schema_version_at(url: str) -> str | None:
    """The version of the schema of a store, which is left as it is.

    Args:
        url: The store's address.

    Returns:
        The version; None where there is no store yet.

    Raises:
        StoreError: The database does not answer.
        StoreCorruptError: It is another program's file.
    """
    parsed, path = parse_address(url)
    if path is not None:
        return _version_of(path) if path.exists() else None
    engine = sa.create_engine(parsed, connect_args={"connect_timeout": 10})
    require_utf8(engine, shown_address(parsed))
    try:
        with engine.connect() as connection:
            if not sa.inspect(connection).has_table(VERSION_TABLE):
                return None
            row = connection.scalar(sa.text(f"SELECT version_num FROM {VERSION_TABLE}"))  # noqa: S608
            return None if row is None else str(row)
    except exc.SQLAlchemyError as error:
        raise error_translation.from_database_error(error, shown_address(parsed), None) from None
    finally:
        engine.dispose()


def back_up(url: str, file: Path, *, force: bool = False) -> None:
    """Copy a store, of one moment, while others read and write it.

    Args:
        url: The store's address.
        file: The copy: an SQLite file, or what ``pg_dump`` writes.
        force: Whether a file that is there may be overwritten.

    Raises:
        InputError: There is such a file, or no such folder.
        StoreError: The store cannot be read, or the copy not be written.
        MissingProgramError: There is no ``pg_dump``.
    """
    if file.exists() and not force:
        raise InputError(f"{file} is there already", hint="name another file, or write --force")
    if file.is_dir() or not file.absolute().parent.is_dir():
        raise InputError(f"{file} cannot be written: there is no folder {file.parent}", hint="name a file")
    if schema_version_at(url) is None:
        raise StoreError(f"there is no store at {_shown(url)} yet", hint="tradewind serve makes one")
    parsed, path = parse_address(url)
    try:
        with atomic_path(file, mode=0o600, durable=True) as aside:
            if path is not None:
                _copy_sqlite(path, aside)
            else:
                tables = [f"--table={name}" for name in (*metadata.tables, VERSION_TABLE)]
                words = ["--format=custom", "--no-owner", "--no-privileges", *tables, f"--file={aside}"]
                _run("pg_dump", words, parsed)
    except OSError as error:
        raise StoreError(f"{file} cannot be written: {error.strerror or error}") from None


def restore(url: str, file: Path, *, force: bool = False) -> Path | None:
    """Put a copy in the place of a store that nobody uses.

    Args:
        url: The store's address.
        file: What `back_up` has written.
        force: Whether a store that is there may be replaced.

    Returns:
        Where the replaced SQLite file is kept, if there was one.

    Raises:
        InputError: The file is no copy of such a store.
        StoreError: There is a store, or it is in use, or it cannot be written.
        MissingProgramError: There is no ``pg_restore``.
    """
    parsed, path = parse_address(url)
    try:
        with file.open("rb") as opened:
            is_dump = opened.read(5) == _MAGIC
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror or error}") from None
    if is_dump is (path is not None):
        kind, other = ("PostgreSQL", "an SQLite file") if is_dump else ("SQLite", "PostgreSQL")
        raise InputError(f"{file} is a copy of a {kind} store, and {_shown(url)} is {other}")
    if _is_store(url, path, force=force) and not force:
        raise StoreError(f"there is a store at {_shown(url)}", hint="write --force to replace it")
    if path is None:
        _restore_dump(parsed, file)
        return None
    return _restore_file(path, file)


def _is_store(url: str, path: Path | None, *, force: bool) -> bool:
    """True where a store is; a damaged one is what a copy is kept for, and is replaced where ``force`` allows it."""
    try:
        return schema_version_at(url) is not None
    except StoreCorruptError:
        if not force or (path is not None and _is_foreign(path)):
            raise
        return True


def _is_foreign(path: Path) -> bool:
    """True for a database that can be read, and has another program's tables."""
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as opened:
            tables = {row[0] for row in opened.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except sqlite3.Error:
        return False
    return bool(tables) and VERSION_TABLE not in tables


def _version_of(path: Path) -> str | None:
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as opened:
            tables = {row[0] for row in opened.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if VERSION_TABLE not in tables:
                if tables:
                    raise StoreCorruptError(f"{path} is another program's database", hint="name a copy of a store")
                return None
            row = opened.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()  # noqa: S608
            return None if row is None else str(row[0])
    except sqlite3.Error as error:
        raise error_translation.from_database_error(error, str(path), path) from None


def _copy_sqlite(source: Path, target: Path) -> None:
    """One step, in which others read and write on: the copy is of the moment at which it begins."""
    try:
        with (
            contextlib.closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True, timeout=30.0)) as old,
            contextlib.closing(sqlite3.connect(target)) as new,
        ):
            old.backup(new, pages=-1)
            new.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it
            found = new.execute("PRAGMA quick_check").fetchone()[0]
            if found != "ok":
                raise error_translation.corrupt_error(str(source), str(found))
    except sqlite3.Error as error:
        raise error_translation.from_database_error(error, str(source), source) from None


def _restore_file(path: Path, file: Path) -> Path | None:
    version = _version_of(file)
    if version not in REVISIONS:
        raise InputError(
            f"{file} is no copy of a store that this program knows" + (f" (schema {version})" if version else "")
        )
    kept: Path | None = None
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with atomic_path(path, mode=0o600) as aside:
            _copy_sqlite(file, aside)
            kept = _put_away(path)
    except OSError as error:
        raise error_translation.from_os_error(error, str(path)) from None
    return kept


def _put_away(path: Path) -> Path | None:
    """Move what is at a store's place to another name, with its log: SQLite would apply that to whatever comes next."""
    kept: Path | None = None
    if path.exists():
        _alone(path)
        kept = _free_name(path)
        path.rename(kept)
    for ending in ("-wal", "-shm", "-journal"):
        beside = path.with_name(path.name + ending)
        if kept is not None and beside.exists():
            beside.rename(kept.with_name(kept.name + ending))
        beside.unlink(missing_ok=True)
    return kept


def _alone(path: Path) -> None:
    """See that nobody has a file open; its log is put into it.

    Raises:
        StudyBusyError: Somebody has.
    """
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=1.0)) as opened:
            # SQLite leaves WAL mode only for the one who has the file alone.
            opened.execute("PRAGMA journal_mode = DELETE").fetchone()
    except sqlite3.Error as error:
        fault = error_translation.from_database_error(error, str(path), path)
        if isinstance(fault, StoreLockedError):
            raise StudyBusyError(f"{path} is in use", hint="end the server, and what else uses it, first") from None
        if not isinstance(fault, StoreCorruptError):
            raise fault from None
        # A damaged file is replaced all the more.


def _free_name(path: Path) -> Path:
    number = 1
    while (name := path.with_name(f"{path.name}.before-restore-{number}")).exists():
        number += 1
    return name


def _restore_dump(parsed: URL, file: Path) -> None:
    engine = sa.create_engine(parsed, connect_args={"connect_timeout": 10})
    shown = shown_address(parsed)
    require_utf8(engine, shown)
    try:
        with engine.connect() as connection:
            query = (
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                "AND pid <> pg_backend_pid() AND application_name = 'tradewind'"
            )
            if others := connection.scalar(sa.text(query)):
                number = f"{others} connection{'s' if others > 1 else ''}"
                raise StudyBusyError(f"the store {shown} is in use by {number}", hint="end all servers first")
    except exc.SQLAlchemyError as error:
        raise error_translation.from_database_error(error, shown, None) from None
    finally:
        engine.dispose()
    words = ["--clean", "--if-exists", "--no-owner", "--no-privileges", "--single-transaction", "--exit-on-error"]
    _run("pg_restore", [*words, f"--dbname={parsed.database}", str(file)], parsed)


def _run(program: str, words: list[str], parsed: URL) -> None:
    """Run a program of PostgreSQL; a password goes by the environment, where other users do not see it."""
    found = find_program(program, _HINT_CLIENT)
    environment = {**os.environ, **_variables(parsed)}
    try:
        done = subprocess.run(
            [found, *words],
            env=environment,
            capture_output=True,
            timeout=_LONGEST,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise StoreError(f"{program} took more than a day") from None
    if done.returncode:
        lines = [line.strip() for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
        why = next((line for line in lines if "error:" in line), lines[0] if lines else "it gives no reason")
        hint = _HINT_CLIENT if "server version mismatch" in " ".join(lines) else None
        raise StoreError(f"{program} failed: {why.partition('error: ')[2] or why}", hint=hint)


def _variables(parsed: URL) -> Mapping[str, str]:
    query = {key: value for key, value in parsed.query.items() if isinstance(value, str)}
    names = {"host": "PGHOST", "port": "PGPORT", "sslmode": "PGSSLMODE", "sslrootcert": "PGSSLROOTCERT"}
    found = {
        "PGDATABASE": parsed.database,
        "PGHOST": parsed.host,
        "PGPORT": str(parsed.port) if parsed.port else None,
        "PGUSER": parsed.username,
        "PGPASSWORD": parsed.password,
        **{names[key]: value for key, value in query.items() if key in names},
        "PGCONNECT_TIMEOUT": "10",
        "PGAPPNAME": "tradewind-copy",
    }
    return {name: str(value) for name, value in found.items() if value}


def _shown(url: str) -> str:
    return shown_address(parse_address(url)[0])
