"""The address of a store: what it may be, and what of it is Tradewind's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.engine import URL, Engine

from tradewind.errors import StoreError
from tradewind.passwords import hide_password


def require_utf8(engine: Engine, place: str) -> None:
    """Let an engine connect to databases in UTF-8 only, and speak UTF-8 with them.

    SQLAlchemy asks for the server's version before anybody else can ask for anything, and takes bytes for a mistake.

    Args:
        engine: Of a PostgreSQL database.
        place: The store's address in words, without a password.
    """

    def connect(dialect: Any, _record: object, words: Any, options: Any) -> Any:
        opened = dialect.connect(*words, **({"client_encoding": "utf8"} | options))
        encoding = opened.info.parameter_status("server_encoding")
        # Some poolers do not tell.
        if encoding in (None, "", "UTF8"):
            return opened
        name = opened.info.dbname
        opened.close()
        raise StoreError(
            f"the database of the store {place} is in {encoding}, and has to be in UTF8",
            hint=f"make another: CREATE DATABASE {name}_utf8 ENCODING 'UTF8' TEMPLATE template0",
        )

    sa.event.listen(engine, "do_connect", connect)


ADDRESS_HINT = "write sqlite:///path/to/tradewind.db or postgresql+psycopg://user@host/name"
"""What to write for an address, in words."""

_LONGEST_WAIT = 3600.0
_SQLITE_OPTIONS = frozenset({"cache", "immutable", "mode", "nolock", "psow", "uri", "vfs"})


def parse_address(url: str) -> tuple[URL, Path | None]:
    """Read a store's address.

    Args:
        url: ``sqlite:///path`` or ``postgresql+psycopg://user@host/name``.

    Returns:
        It without Tradewind's own options, and the file of an SQLite store, or None.

    Raises:
        StoreError: It is none.
    """
    parsed, _ = read_address(url, 0.0)
    return parsed, file_of(parsed)


def connection_options(url: URL, **more: str) -> dict[str, Any]:
    """Options of a connection to PostgreSQL that the address does not give."""
    ours = {"connect_timeout": 10, "application_name": "tradewind", **more}
    return {key: value for key, value in ours.items() if key not in url.query}


def read_address(url: str, busy_timeout: float) -> tuple[URL, float]:
    """Read a store's address with Tradewind's own option in it.

    Args:
        url: The address.
        busy_timeout: Seconds to wait for a lock where the address does not say it.

    Returns:
        It without that option, and the seconds.

    Raises:
        StoreError: It is none.
    """
    try:
        parsed = sa.make_url(url)
    except (exc.ArgumentError, ValueError) as error:
        raise StoreError(f"{hide_password(url)!r} is no store address", hint=ADDRESS_HINT) from error
    if parsed.drivername in ("postgresql", "postgres"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    backend = parsed.drivername.partition("+")[0]
    if backend not in ("sqlite", "postgresql"):
        raise StoreError(f"a store cannot be kept in {backend}", hint=ADDRESS_HINT)
    if backend == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise StoreError("a store in memory keeps nothing", hint=ADDRESS_HINT)
    if (written := parsed.query.get("busy_timeout")) is not None:
        busy_timeout = _seconds(written)
        parsed = parsed.difference_update_query(["busy_timeout"])
    unknown = sorted(set(parsed.query) - _SQLITE_OPTIONS) if backend == "sqlite" else []
    if unknown:
        raise StoreError(f"the store's address has the unknown option {unknown[0]!r}", hint="known: busy_timeout")
    return parsed, busy_timeout


def _seconds(written: str | tuple[str, ...]) -> float:
    try:
        seconds = float(written) if isinstance(written, str) else -1.0
    except ValueError:
        seconds = -1.0
    if not 0.0 <= seconds <= _LONGEST_WAIT:
        raise StoreError(
            f"busy_timeout={written} in the store's address is no number of seconds",
            hint=f"write one from 0 to {_LONGEST_WAIT:.0f}",
        )
    return seconds


def shown_address(url: URL) -> str:
    """An address as it may be shown: the file of an SQLite store, or the address without a password."""
    path = file_of(url)
    return str(path) if path is not None else hide_password(url.render_as_string(hide_password=False))


def file_of(url: URL) -> Path | None:
    """The file of an SQLite store, or None."""
    if url.get_backend_name() != "sqlite":
        return None
    return Path(str(url.database).removeprefix("file:")).absolute()
