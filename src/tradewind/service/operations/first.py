"""What a server says when it starts, and how its first administrator comes in."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

from tradewind.errors import ConflictError
from tradewind.service.context import Context
from tradewind.store.service.operations import OperationsStore

FIRST_ADMINISTRATOR = "admin"
"""The first administrator's name."""

_PASSWORD_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"  # none that is taken for another one


def start_messages(context: Context, address: str, *, terminal: bool) -> Iterator[str]:
    """The lines to print: the address, and on a database without users how the first one is made.

    On a terminal an administrator is made, and the password shown this once; elsewhere it would end in a log.

    Args:
        context: What the server's parts share.
        address: Where it listens.
        terminal: Whether somebody sits before it.
    """
    yield f"Tradewind is at {context.settings.public_url or address} (Ctrl-C ends it)"
    if OperationsStore(context.database).has_users():
        return
    if not terminal:
        yield f"There is no user yet: tradewind user add {FIRST_ADMINISTRATOR} --role admin, on this machine and with this database"
        return
    password = random_password()
    try:
        context.accounts.add_user(FIRST_ADMINISTRATOR, role="admin", password=password)
    except ConflictError:  # another server of this database was quicker
        return
    yield "There was no user yet. Sign in as the administrator; the password is shown this once:"
    yield f"  name      {FIRST_ADMINISTRATOR}"
    yield f"  password  {password}"


def random_password() -> str:
    """A password that is easy to type: 16 characters, 79 random bits."""
    return "-".join("".join(secrets.choice(_PASSWORD_LETTERS) for _ in range(4)) for _ in range(4))
