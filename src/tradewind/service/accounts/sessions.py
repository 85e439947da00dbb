"""Sessions of browsers: made when a user signs in, found by the cookie, ended by signing out or by time."""

from __future__ import annotations

import hashlib
import hmac
import logging
import time
from dataclasses import dataclass

from tradewind.errors import InputError, SignInError, StoreError, TooManyError
from tradewind.service.accounts import credentials, identity
from tradewind.service.accounts.credentials import new_secret, secret_digest
from tradewind.service.accounts.identity import Principal
from tradewind.service.settings import ServiceSettings
from tradewind.store.service.accounts import AccountStore, SessionRow, SessionStore, UserRow
from tradewind.store.sql.database import Database

_LOG = logging.getLogger("tradewind.service.accounts")

SESSION_PREFIX = "tw_session_"
"""Begins the secret of every session."""

ATTEMPT_WINDOW = 900.0
"""Seconds over which attempts to sign in are counted."""

_PER_USER_AND_ADDRESS = 10
_PER_ADDRESS = 100  # an institute behind one address
_PER_USER = 100  # from addresses that the user has no session at
_TOUCH = 60.0  # seconds: not every call of a page is a write


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """A new session, for the browser whose user signed in.

    Attributes:
        secret: The value of the cookie; it is known to the browser alone.
        csrf: What pages of this session send along with each change; another site cannot know it.
        expires: When the session ends unless it is used, seconds since the epoch.
    """

    secret: str
    csrf: str
    expires: float


def csrf_token_of(secret: str) -> str:
    """Derive the CSRF token of a session from its secret, which it does not reveal."""
    return hmac.new(secret.encode("utf-8", "surrogatepass"), b"csrf", hashlib.sha256).hexdigest()


class SessionManager:
    """Signing in and out, with limits on attempts.

    Args:
        database: The open database.
        settings: The server's settings.
    """

    def __init__(self, database: Database, settings: ServiceSettings) -> None:
        self._settings = settings
        self._users = AccountStore(database)
        self._store = SessionStore(database)

    def sign_in(self, name: str, password: str, address: str, agent: str = "") -> tuple[BrowserSession, UserRow]:
        """Begin a session.

        Args:
            name: As the user typed it.
            password: The password as typed.
            address: Network address of the caller.
            agent: What the browser calls itself.

        Raises:
            SignInError: The name or the password is wrong, or the account is locked.
            TooManyError: Too many attempts.
        """
        user = self._users.find(identity.lookup_name(name))
        keys = self._count(name, user, address)
        right = credentials.verify_password(user.password if user else None, password)
        if user is None or not right:
            raise SignInError("the name or the password is wrong", hint="an administrator can set another password")
        if user.state != "active":
            raise SignInError("this account is locked", hint="ask an administrator of this server")
        if user.password and credentials.needs_rehash(user.password):
            self._users.change(user.id, password=credentials.hash_password(password))
        self._store.forgive(keys)
        now, secret = time.time(), new_secret(SESSION_PREFIX)
        row = SessionRow(
            secret_digest(secret), user.id, now, now, self._end(now, now), address, identity.clean_text(agent)
        )
        self._store.add(row)
        return BrowserSession(secret, csrf_token_of(secret), row.expires), user

    def find(self, secret: str, address: str = "") -> Principal:
        """Find the user of a session's cookie.

        Raises:
            SignInError: The session does not exist, or has ended.
        """
        found = self._store.find(secret_digest(secret)) if secret.startswith(SESSION_PREFIX) else None
        if found is None or found[1].state != "active":
            raise SignInError("you are not signed in, or were away for too long", hint="sign in again")
        session, user = found
        now = time.time()
        if now - session.seen > _TOUCH:
            try:
                self._store.touch(session.digest, now, self._end(session.created, now))
            except StoreError as error:  # likewise for tokens: what only reads goes on
                _LOG.warning("the last use of a session was not kept: %s", error)
        return Principal(user.id, user.name, user.role, user.tenant, address)

    def confirm(self, user: UserRow, password: str, address: str) -> None:
        """Ask for the password once more, before something that a borrowed browser must not do.

        Raises:
            InputError: It is wrong.
            TooManyError: Too many attempts.
        """
        keys = self._count(user.name, user, address)
        if not credentials.verify_password(user.password, password):
            raise InputError("the old password is wrong", hint="type the one that you sign in with")
        self._store.forgive(keys)

    def of_user(self, user_id: int) -> list[SessionRow]:
        """List the sessions of a user, the newest first."""
        return self._store.of_user(user_id)

    def end(self, secret: str) -> None:
        """End a session by its cookie."""
        self._store.delete(secret_digest(secret))

    def delete(self, digest: str) -> None:
        """End a session by the stored digest of its cookie."""
        self._store.delete(digest)

    def end_all(self, user_id: int, *, but: str = "") -> int:
        """End all sessions of a user except one, given by its cookie.

        Returns:
            The number of sessions that were ended.
        """
        return self._store.delete_of(user_id, but=secret_digest(but) if but else "")

    def _end(self, created: float, used: float) -> float:
        return min(used + 3600 * self._settings.session_hours, created + 86400 * self._settings.session_days)

    def _count(self, name: str, user: UserRow | None, address: str) -> list[str]:
        """Count an attempt; return the keys that a success forgives."""
        place = identity.network_of(address)
        typed = secret_digest(identity.normalize_name(name[: identity.MAX_NAME_LENGTH]))[
            :32
        ]  # it may be a password, typed into the wrong field
        mine, whole = f"sign-in:{typed}@{place}", f"sign-in:{typed}"
        limits = {mine: _PER_USER_AND_ADDRESS, f"sign-in@{place}": _PER_ADDRESS}
        # It is asked for somebody who is not there as well, so that it takes as long.
        known = any(row.address == address for row in self._store.of_user(user.id if user else 0))
        if not known:
            limits[whole] = _PER_USER
        wait = self._store.attempt(limits, ATTEMPT_WINDOW)
        if wait > 0:
            minutes = max(1, round(wait / 60))
            raise TooManyError(
                "too many attempts to sign in",
                hint=f"try again in {minutes} minute{'s' if minutes > 1 else ''}",
                wait=wait,
            )
        return [mine]
