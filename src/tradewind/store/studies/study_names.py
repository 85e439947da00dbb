"""Names of studies, read so quickly that a shell can ask for them between two key strokes."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from urllib.parse import quote

_SQLITE = "sqlite:///"
_WAIT_SECONDS = 0.2
_NEWEST = """
SELECT name FROM studies WHERE substr(name, 1, ?) = ? GROUP BY name ORDER BY max(id) DESC LIMIT ?
"""


def study_names_starting_with(url: str, start: str, limit: int = 100) -> list[str]:
    """The names of studies that begin like this, the newest first.

    Neither SQLAlchemy nor a connection to elsewhere is worth the wait here: of a store that is no SQLite file, that is
    not there, or that cannot be read just now, there is no name.

    Args:
        url: Address of the store.
        start: How the names begin.
        limit: How many at most.
    """
    if not url.startswith(_SQLITE):
        return []
    place = f"file:{quote(url.removeprefix(_SQLITE))}?mode=ro"
    try:
        with closing(sqlite3.connect(place, timeout=_WAIT_SECONDS, uri=True)) as connection:
            return [str(name) for (name,) in connection.execute(_NEWEST, (len(start), start, limit))]
    except sqlite3.Error:
        return []
