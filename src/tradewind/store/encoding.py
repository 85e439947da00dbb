"""A database of PostgreSQL has to keep its texts in UTF-8: as SQL_ASCII it gives bytes instead of texts."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from tradewind.errors import StoreError


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
