"""Connections for requests: to this machine's own store, or to a server, with the token of ``tradewind login``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tradewind.cli.service.local_client import LocalClient
    from tradewind.client import Client

Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        envvar="TRADEWIND_SERVER",
        help="A server's address; else this machine's store.",
        show_default=False,
        is_eager=True,  # before --database, which looks at where this one came from
    ),
]
"""The option of every command that works on a server."""


def _not_both(context: typer.Context, database: str | None) -> str | None:
    """A store that is named counts for more than the environment's server; two places on one line are a mistake.

    Raises:
        InputError: The command line names a server, too.
    """
    source = context.get_parameter_source("server")
    if database is not None and source is not None and source.name == "COMMANDLINE":
        from tradewind.errors import InputError

        raise InputError("--server and --database are two places", hint="leave one of them out")
    return database


Database = Annotated[
    str | None,
    typer.Option(help="Address of this machine's store, if it is no server.", show_default=False, callback=_not_both),
]
"""The option that says which store otherwise."""


def open_client(server: str) -> Client:
    """A client of a server, with the token of the environment or of the login.

    Raises:
        SignInError: There is no token.
        InputError: The address is none.
    """
    from tradewind.client import Client

    return Client(server)


@contextmanager
def connect(server: str | None, database: str | None, user: str = "") -> Iterator[Client | LocalClient]:
    """Connect to a server by its client, or to the same functions on this machine's store.

    Args:
        server: The server's address; empty for this machine.
        database: The store's address, for this machine.
        user: Whose the requests are, on this machine.

    Raises:
        InputError: There is no such user.
    """
    if server and database is None:
        from tradewind.errors import InputError

        if user:
            raise InputError("--user is for this machine's store", hint="on a server the token says who asks")
        with open_client(server) as client:
            yield client
        return
    from tradewind.cli.service.local_client import open_local_client

    with open_local_client(database, user) as here:
        yield here


def emit_dataclasses(found: Any) -> None:
    """Print something of the client as JSON."""
    from dataclasses import asdict, is_dataclass

    from tradewind.cli.common import emit_json

    def document(value: Any) -> Any:
        return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value

    emit_json([document(one) for one in found] if isinstance(found, list) else document(found))
