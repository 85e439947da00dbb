"""``tradewind login`` and ``logout``: which servers this user of the machine is known to."""

from __future__ import annotations

from typing import Annotated

import typer

Url = Annotated[str, typer.Argument(help="The server's address: https://tradewind.example.org", show_default=False)]


def login(
    url: Url,
    token_stdin: Annotated[bool, typer.Option("--token-stdin", help="Read the token from standard input.")] = False,
) -> None:
    """Keep a token for a server, in a file that only you can read; --server then needs no more.

    The token is asked for; the server's page about your account makes one, or an administrator with
    ``tradewind user token``.
    """
    import getpass
    import sys

    from tradewind.client import Client
    from tradewind.client.tokens import keep_tokens, kept_tokens, plain_address, tokens_file
    from tradewind.errors import InputError

    address = plain_address(url)
    kept = kept_tokens()
    if not token_stdin and not sys.stdin.isatty():
        raise InputError("there is no terminal to ask for the token on", hint="write --token-stdin")
    token = (sys.stdin.readline() if token_stdin else getpass.getpass("Token: ")).strip()
    if not token:
        raise InputError("there is no token", hint="copy the whole of it, tw_...")
    with Client(address, token) as client:
        user = client.me()
    keep_tokens({**kept, address: token})
    typer.echo(f"{address} knows you as {user.name} ({user.role}) of {user.tenant}; the token is in {tokens_file()}")
    if address.startswith("http://") and not _is_near(address):
        typer.echo("This address is not encrypted: whoever carries the calls can read the token.", err=True)


def logout(url: Url) -> None:
    """Forget the token of a server; it opens the server until it is revoked there."""
    from tradewind.client.tokens import keep_tokens, kept_tokens, plain_address
    from tradewind.errors import NotFoundError

    kept, address = kept_tokens(), plain_address(url)
    if address not in kept:
        hint = f"known: {', '.join(sorted(kept))}" if kept else "no token is kept"
        raise NotFoundError(f"there is no token for {address}", hint=hint)
    keep_tokens({server: token for server, token in kept.items() if server != address})
    typer.echo(f"the token for {address} is forgotten here; the account's page revokes it")


def _is_near(address: str) -> bool:
    from urllib.parse import urlsplit

    return (urlsplit(address).hostname or "") in ("localhost", "127.0.0.1", "::1")
