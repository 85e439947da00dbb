"""What can be done with accounts: REST, XML-RPC, the pages and the command line call these functions."""

from __future__ import annotations

import time

from tradewind.errors import SignInError
from tradewind.service.accounts.tokens import digest_of, new_secret
from tradewind.service.people import Principal, Role
from tradewind.store.accounts import AccountStore, UserRow
from tradewind.store.database import Database


class Accounts:
    """Users and what they prove to be themselves with.

    Args:
        database: The open database.
    """

    def __init__(self, database: Database) -> None:
        self.store = AccountStore(database)

    def add_user(self, name: str, *, role: Role = "user", tenant: str = "", email: str = "") -> UserRow:
        """Add a user, in a tenant of the same name unless another is given."""
        return self.store.add_user(UserRow(0, name, role, tenant or name, email=email))

    def make_token(self, user_id: int, name: str, *, days: float | None = None) -> str:
        """Make a token; it is shown this once.

        Args:
            user_id: Whose it is.
            name: What the user calls it.
            days: Days until it runs out; without it, it does not.
        """
        secret = new_secret()
        self.store.add_token(user_id, name, digest_of(secret), None if days is None else time.time() + 86400 * days)
        return secret

    def by_token(self, secret: str, address: str = "") -> Principal:
        """Who shows a token.

        Raises:
            SignInError: Nobody whom we know.
        """
        user = self.store.user_of_token(digest_of(secret))
        if user is None or user.state != "active":
            raise SignInError(
                "this token is not known, or has run out",
                hint="make another one on the page, or with tradewind user token",
            )
        return Principal(user.id, user.name, user.role, user.tenant, address)  # type: ignore[arg-type]
