"""Where requests are made: in this machine's own store, or on a server, with the token of ``tradewind login``."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tradewind.cli.service.here import Here
    from tradewind.client import Client

TOKEN = "TRADEWIND_TOKEN"  # noqa: S105  (the name of a variable)
"""The environment's variable with the token, where no login kept one."""

Server = Annotated[
    str | None,
    typer.Option(
        "--server", envvar="TRADEWIND_SERVER", help="A server's address; else this machine's store.", show_default=False
    ),
]
"""The option of every command that works on a server."""

Database = Annotated[
    str | None, typer.Option(help="Address of this machine's store, if it is no server.", show_default=False)
]
"""The option that says which store otherwise."""


def tokens_file() -> Path:
    """Where the tokens of ``tradewind login`` are."""
    from tradewind.paths import data_folder

    return data_folder() / "tokens.json"


def tokens() -> dict[str, str]:
    """The tokens that were kept, by the server's address.

    Raises:
        InputError: The file is damaged, or others may read it.
    """
    from tradewind.errors import InputError

    file = tokens_file()
    try:
        with file.open("rb") as opened:
            if os.fstat(opened.fileno()).st_mode & 0o077:
                raise InputError(f"others may read the tokens in {file}", hint=f"chmod 600 {file}")
            found = json.load(opened)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InputError(f"the tokens in {file} cannot be read: {error}", hint="remove it, and log in again") from None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise InputError(f"the tokens in {file} cannot be read", hint="remove it, and log in again")
    return found


def keep_tokens(kept: Mapping[str, str]) -> None:
    """Write the file of tokens, for this user alone; a reader sees the old or the new one.

    Raises:
        InputError: It cannot be written.
    """
    from tradewind.errors import InputError
    from tradewind.whole import write_whole

    file = tokens_file()
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(file, json.dumps(dict(kept), indent=1), mode=0o600)
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error.strerror or error}") from error


def plain_address(url: str) -> str:
    """A server's address as tokens are kept by it."""
    return url.strip().rstrip("/")


def open_client(server: str) -> Client:
    """A client of a server, with the token of the environment or of the login.

    Raises:
        SignInError: There is no token.
        InputError: The address is none.
    """
    from tradewind.client import Client
    from tradewind.errors import SignInError

    address = plain_address(server)
    token = os.environ.get(TOKEN, "") or tokens().get(address, "")
    if not token:
        raise SignInError(
            f"there is no token for {address}", hint=f"tradewind login {address}, or set {TOKEN} in the environment"
        )
    return Client(address, token)


@contextmanager
def opened(server: str | None, database: str | None, user: str = "") -> Iterator[Client | Here]:
    """What requests are made with: a client of a server, or the functions on this machine's store.

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
    from tradewind.cli.service.here import open_here

    with open_here(database, user) as here:
        yield here


def emit(found: Any) -> None:
    """Print something of the client as JSON."""
    from dataclasses import asdict, is_dataclass

    from tradewind.cli.common import emit_json

    def document(value: Any) -> Any:
        return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value

    emit_json([document(one) for one in found] if isinstance(found, list) else document(found))


def printable(text: str) -> str:
    """Text of others without what would move the cursor or colour the terminal."""
    return "".join(c if c.isprintable() else " " for c in text)
