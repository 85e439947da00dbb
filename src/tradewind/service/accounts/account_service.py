"""Operations of a user on the own account, called by REST, XML-RPC, the pages and the command line."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from tradewind.errors import ConflictError, InputError, NotFoundError, SignInError, StoreError, TradewindError
from tradewind.service.accounts import credentials, identity
from tradewind.service.accounts.audit_log import AuditLog
from tradewind.service.accounts.credentials import TOKEN_PREFIX, new_secret, secret_digest
from tradewind.service.accounts.identity import ROLES, Principal
from tradewind.service.accounts.sessions import BrowserSession, SessionManager, csrf_token_of
from tradewind.service.document_limits import check_document
from tradewind.service.notifications.preferences import PREFERENCES_KEY as NOTICES
from tradewind.service.results.result_storage import RESULTS_KEY as RESULTS
from tradewind.service.settings import ServiceSettings
from tradewind.store.service.accounts import AccountStore, Role, SessionRow, TokenRow, UserRow
from tradewind.store.sql.database import Database

_LOG = logging.getLogger("tradewind.service.accounts")

MOST_TOKENS = 100
"""Tokens that a user may have."""

_TOUCH = 60.0  # seconds: not every call of a program is a write
_CHECKED_ELSEWHERE = {NOTICES: "/api/v1/me/notices", RESULTS: "/api/v1/me/places"}
"""Settings that other functions of the server go by, with the route that looks at what they say."""


class AccountService:
    """User accounts with their passwords, sessions and tokens.

    Args:
        database: The open database.
        settings: The server's settings.
        audit: The audit log.
    """

    def __init__(
        self, database: Database, settings: ServiceSettings | None = None, audit: AuditLog | None = None
    ) -> None:
        settings = settings or ServiceSettings()
        self.store = AccountStore(database)
        self.audit = audit or AuditLog(database, settings.audit_days)
        self._sessions = SessionManager(database, settings)
        self._noted: dict[str, float] = {}  # when the use of tokens that are known was noted, by digest

    def add_user(
        self, name: str, *, role: Role = "user", tenant: str = "", email: str = "", password: str | None = None
    ) -> UserRow:
        """Add a user, in a tenant of the same name unless another is given.

        Args:
            name: The name to sign in with; kept in small letters.
            role: What the user may do.
            tenant: Tenant whose requests the user sees and makes.
            email: Address that notices go to.
            password: To sign in with; without one, the user has only tokens.

        Raises:
            InputError: The name or the password is none.
            ConflictError: The name is taken.
        """
        name = identity.check_name(name)
        tenant = identity.check_name(tenant, "tenant") if tenant else name
        if role not in ROLES:
            raise InputError(f"{role!r} is no role", hint=f"write {' or '.join(ROLES)}")
        kept = None if password is None else self.digest(password, name)
        return self.store.add_user(UserRow(0, name, role, tenant, kept, identity.check_email(email)))

    # ------------------------------------------------------------------ sessions

    def sign_in(self, name: str, password: str, address: str, agent: str = "") -> BrowserSession:
        """Begin a session of a browser.

        Args:
            name: As the user typed it.
            password: The password as typed.
            address: Network address of the caller.
            agent: What the browser calls itself.

        Raises:
            SignInError: The name or the password is wrong, or the account is locked.
            TooManyError: Too many attempts.
        """
        try:
            session, user = self._sessions.sign_in(name, password, address, agent)
        except TradewindError as error:
            # A name that nobody has may be a password that was typed into the wrong field.
            known = self.store.find(identity.lookup_name(name))
            typed = known.name if known is not None else "(unknown name)"
            self.audit.record_of("", "", address, "account.sign-in", typed, "refused", {"why": error.code})
            raise
        self.audit.record_of(user.name, user.tenant, address, "account.sign-in", user.name, "done", {})
        return session

    def by_session(self, secret: str, address: str = "") -> tuple[Principal, str]:
        """Find the user and the CSRF token of a session's cookie.

        Raises:
            SignInError: The session does not exist, or has ended.
        """
        return self._sessions.find(secret, address), csrf_token_of(secret)

    def sign_out(self, secret: str) -> None:
        """End a session; no error is raised for one that is over already."""
        self._sessions.end(secret)

    def sessions(self, who: Principal) -> list[SessionRow]:
        """List the sessions of the user who asks, the newest first; a session's ``digest`` is what ends it."""
        return self._sessions.of_user(who.user_id)

    def end_session(self, who: Principal, start: str) -> None:
        """End a session of the user who asks.

        Args:
            who: The user who asks.
            start: First characters of its digest, twelve at least.

        Raises:
            NotFoundError: There is none.
        """
        for row in self._sessions.of_user(who.user_id):
            if len(start) >= 12 and row.digest.startswith(start):
                self._sessions.delete(row.digest)
                self.audit.record(who, "account.end-session", who.name)
                return
        raise NotFoundError("there is no such session")

    def change_password(self, who: Principal, old: str, new: str, *, session: str = "") -> None:
        """Set another password; all other sessions of the user end.

        Args:
            who: The user who changes the own password.
            old: The password until now.
            new: The password from now on.
            session: The session that goes on.

        Raises:
            InputError: The old password is wrong, or the new one is no good.
            TooManyError: Too many attempts.
        """
        user = self.store.user(who.user_id)
        try:
            self._sessions.confirm(user, old, who.address)
        except TradewindError as error:
            self.audit.record(who, "account.password", user.name, outcome="refused", why=error.code)
            raise
        self.store.change(user.id, password=self.digest(new, user.name))
        self._sessions.end_all(user.id, but=session)
        self.audit.record(who, "account.password", user.name)

    def end_sessions(self, user: UserRow) -> int:
        """End all sessions of a user.

        Returns:
            The number of sessions that were ended.
        """
        return self._sessions.end_all(user.id)

    def digest(self, password: str, name: str) -> str:
        """Check a password and hash it for storage.

        Raises:
            InputError: It is too short, or one of those that attackers try first.
        """
        credentials.check_password(password, name=name)
        return credentials.hash_password(password)

    # ------------------------------------------------------------------ tokens

    def make_token(self, user_id: int, name: str, *, days: float | None = None) -> str:
        """Make a token; it is shown this once.

        Args:
            user_id: Whose it is.
            name: What the user calls it.
            days: Days until it runs out; without it, it does not.

        Raises:
            InputError: The name is empty or too long, or the days are none.
            ConflictError: The user has too many.
        """
        return self._make_token(user_id, name, days)[1]

    def new_token(self, who: Principal, name: str, *, days: float | None = None) -> tuple[TokenRow, str]:
        """Make a token of the user who asks; the secret is shown this once.

        Raises:
            InputError: The name is empty or too long, or the days are none.
            ConflictError: The user has too many.
        """
        row, secret = self._make_token(who.user_id, name, days)
        self.audit.record(who, "token.make", f"token {row.id} ({row.name})")
        return row, secret

    def _make_token(self, user_id: int, name: str, days: float | None) -> tuple[TokenRow, str]:
        name = check_token_request(name, days)
        if len(self.store.tokens_of(user_id)) >= MOST_TOKENS:
            raise ConflictError(f"there are {MOST_TOKENS} tokens already", hint="take some away that nobody uses")
        secret, now = new_secret(), time.time()
        row = TokenRow(0, user_id, name, now, None, None if days is None else now + 86400 * days)
        return self.store.add_token(row, secret_digest(secret)), secret

    def tokens(self, who: Principal) -> list[TokenRow]:
        """List the tokens of the user who asks, the newest first."""
        return self.store.tokens_of(who.user_id)

    def revoke_token(self, who: Principal, number: int) -> None:
        """Take a token of the user who asks away; it opens nothing from now on.

        Raises:
            NotFoundError: The user has none of that number.
        """
        gone = self.store.delete_token(who.user_id, number)
        self.audit.record(who, "token.revoke", f"token {gone.id} ({gone.name})")

    def by_token(self, secret: str, address: str = "") -> Principal:
        """Find the user who shows a token.

        Raises:
            SignInError: The token is not valid.
        """
        found = self.store.user_of_token(secret_digest(secret)) if secret.startswith(TOKEN_PREFIX) else None
        if found is None or found[1].state != "active":
            raise SignInError(
                "this token is not known, or has run out",
                hint="make another one on the page, or with tradewind user token",
            )
        token, user = found
        now = time.time()
        if token.used is not None and now - token.used <= _TOUCH:
            self._noted[secret_digest(secret)] = token.used
        else:
            try:
                self.store.touch_token(token.id, now)
            except StoreError as error:  # a disk that is full is no reason to refuse what only reads
                _LOG.warning("the last use of token %d was not kept: %s", token.id, error)
        return Principal(user.id, user.name, user.role, user.tenant, address)

    def only_reads(self, secret: str) -> bool:
        """True where `by_token` writes nothing: the token was seen, and its last use noted, a moment ago."""
        noted = self._noted.get(secret_digest(secret))
        return noted is not None and 0.0 <= time.time() - noted < _TOUCH - 1.0

    # ------------------------------------------------------------------ one's own

    def me(self, who: Principal) -> UserRow:
        """Return the account of the user who asks."""
        return self.store.user(who.user_id)

    def change_me(
        self, who: Principal, *, email: str | None = None, settings: Mapping[str, Any] | None = None
    ) -> UserRow:
        """Change where notices go, or what the user has set.

        Raises:
            InputError: It is no e-mail address, or the settings are too large, cannot be stored, or have a route of
                their own.
        """
        fields: dict[str, Any] = {}
        if email is not None:
            fields["email"] = identity.check_email(email)
        if settings is not None:
            kept = self.store.user(who.user_id).settings
            for name, route in _CHECKED_ELSEWHERE.items():
                if name in settings and settings[name] != kept.get(name):  # what was read may be sent back
                    raise InputError(f"settings.{name} is not set here", hint=f"use {route}")
            fields["settings"] = {**kept, **check_document(dict(settings))}
            if len(str(fields["settings"])) > 20_000:
                raise InputError("the settings are too large", hint="at most 20,000 characters")
        return self.store.change(who.user_id, **fields)


def check_token_request(name: str, days: float | None = None) -> str:
    """Check the name and the days of a token to make; return the name as it is kept.

    Raises:
        InputError: It is empty or too long, or the days that the token is to last are none.
    """
    kept = identity.clean_text(name).strip()
    if not 1 <= len(kept) <= 100:
        raise InputError("a token has a name of 1 to 100 characters", hint="say where it is used")
    if days is not None and not 0 < days <= 36525:
        raise InputError(f"a token cannot last {days:g} days", hint="write from 1 to 36525, or leave it out")
    return kept
