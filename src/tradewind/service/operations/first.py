"""What a server says when it starts, and how its first administrator comes in."""

from __future__ import annotations

from collections.abc import Iterator

from tradewind.errors import ConflictError
from tradewind.service.context import Context
from tradewind.store.operations import OperationsStore

_NAME = "admin"


def welcome(context: Context, address: str, *, terminal: bool) -> Iterator[str]:
    """The lines to print: the address, and on a database without users how the first one is made.

    On a terminal an administrator is made, and the secret shown this once; elsewhere it would end in a log.

    Args:
        context: What the server's parts share.
        address: Where it listens.
        terminal: Whether somebody sits before it.
    """
    yield f"Tradewind is at {context.settings.public_url or address} (Ctrl-C ends it)"
    if OperationsStore(context.database).has_users():
        return
    if not terminal:
        yield f"There is no user yet. Make the first: tradewind user add {_NAME} --role admin --database ADDRESS"
        return
    try:
        user = context.accounts.add_user(_NAME, role="admin")
    except ConflictError:  # another server of this database was quicker
        return
    yield f"There was no user yet: {_NAME} is an administrator, with this token, which is shown this once:"
    yield f"  {context.accounts.make_token(user.id, 'first', days=7)}"
