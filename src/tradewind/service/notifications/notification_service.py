"""Operations on notices, called by REST, XML-RPC, the pages and the command line."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tradewind.errors import ConflictError, InputError, NotFoundError, QuotaError, UnreachableError
from tradewind.service.accounts.audit_log import AuditLog
from tradewind.service.accounts.identity import Principal
from tradewind.service.applications.application_service import ApplicationService
from tradewind.service.applications.parameter_words import RequestWords
from tradewind.service.http.outbound_requests import parse_outbound_url
from tradewind.service.notifications.preferences import (
    OCCASIONS,
    PREFERENCES_KEY,
    NotificationPreferences,
    Occasion,
    check_notify,
)
from tradewind.service.requests.request_service import RequestService
from tradewind.service.secret_vault import SecretVault
from tradewind.service.settings import ServiceSettings
from tradewind.store.service.accounts import AccountStore
from tradewind.store.service.notices import NoticeKind, NoticeRow, NoticeStore
from tradewind.store.service.shared_values import SharedValueStore
from tradewind.store.sql.database import Database
from tradewind.utils.ssrf_guard import resolve_addresses

# Within the class `list` may be a function of its own.
NoticeRows = list[NoticeRow]

_MOST_TESTS = 5


@dataclass(frozen=True, slots=True)
class NotificationChannels:
    """The ways in which a user gets notices.

    Attributes:
        address: The user's e-mail address; empty for none.
        mail: True where this server sends e-mails at all.
        preferences: The occasions on which the user wants notices.
    """

    address: str
    mail: bool
    preferences: NotificationPreferences


class NotificationService:
    """Notices, for the users who get them.

    Args:
        database: The open database.
        settings: The server's settings.
        requests: The requests that they are about.
        applications: The applications, whose forms have the words of parameters.
        sealer: Derives the keys that calls are signed with.
        audit: The audit log.
    """

    def __init__(
        self,
        database: Database,
        settings: ServiceSettings,
        requests: RequestService,
        applications: ApplicationService,
        sealer: SecretVault,
        audit: AuditLog,
    ) -> None:
        self.store = NoticeStore(database)
        self._accounts = AccountStore(database)
        self._values = SharedValueStore(database)
        self._settings = settings
        self._requests = requests
        self._applications = applications
        self._sealer = sealer
        self._audit = audit

    @property
    def mails(self) -> bool:
        """True where this server sends e-mails at all."""
        return bool(self._settings.smtp_host and self._settings.mail_from)

    def ways(self, who: Principal) -> NotificationChannels:
        """Return the ways in which the user who asks gets notices."""
        user = self._accounts.user(who.user_id)
        return NotificationChannels(user.email, self.mails, NotificationPreferences.of(user))

    def change(
        self,
        who: Principal,
        *,
        email: Sequence[str] | None = None,
        webhook: str | None = None,
        calls: Sequence[str] | None = None,
    ) -> NotificationChannels:
        """Change the notices that the user who asks gets; what is None stays as it is.

        Args:
            who: The user who asks.
            email: Those of `OCCASIONS` on which an e-mail is sent.
            webhook: URL that is called; empty for none.
            calls: Occasions on which it is called.

        Raises:
            InputError: There is no such occasion, or calls cannot go there.
        """
        preferences = self.ways(who).preferences
        if email is not None:
            preferences = replace(preferences, email=_occasions(email))
        if calls is not None:
            preferences = replace(preferences, calls=_occasions(calls))
        if webhook is not None:
            if webhook:
                self.check_webhook(webhook)
            preferences = replace(preferences, webhook=webhook)
        self._values.change_user(who.user_id, PREFERENCES_KEY, preferences.document())
        self._audit.record(who, "notices.change", who.name)
        return self.ways(who)

    def check_webhook(self, url: str) -> None:
        """Check that a webhook may be called.

        Raises:
            InputError: It is no URL, or of a host that has no address, or one inside.
        """
        target = parse_outbound_url(url)
        try:
            resolve_addresses(target.host, target.port, private=self._settings.private_addresses)
        except UnreachableError as error:
            raise InputError(error.message, hint="is its name right?") from None

    def check_notify(self, notify: Any) -> None:
        """Check the block ``notify`` of a request, before the request is stored.

        Raises:
            InputError: It is not valid, or no notice could be sent that way.
        """
        check_notify(notify)
        if notify and notify.get("webhook"):
            self.check_webhook(notify["webhook"])

    def key(self, who: Principal) -> str:
        """Make a new key to sign the webhook calls of the user who asks; an older one no longer counts.

        It is derived anew each time that it is asked for, so that it is shown once and kept nowhere.
        """
        preferences = self.ways(who).preferences
        changed = replace(preferences, generation=preferences.generation + 1)
        self._values.change_user(who.user_id, PREFERENCES_KEY, changed.document())
        self._audit.record(who, "notices.key", who.name)
        return self.signing_key(who.user_id, changed.generation)

    def signing_key(self, user_id: int, generation: int) -> str:
        """Derive the key that signs the webhook calls of a user."""
        key = self._sealer.derive(f"webhook:{user_id}:{generation}")
        return "twh_" + base64.urlsafe_b64encode(key).decode().rstrip("=")

    def test(self, who: Principal, kind: NoticeKind) -> NoticeRow:
        """Send the user who asks a notice that says nothing, to see whether it arrives.

        Raises:
            InputError: There is nowhere to send it to.
            ConflictError: This server sends no e-mails.
            QuotaError: Several are on their way already.
        """
        ways = self.ways(who)
        if kind == "email" and not self.mails:
            raise ConflictError("this server sends no e-mails", hint="the administrator sets smtp_host and mail_from")
        target = ways.address if kind == "email" else ways.preferences.webhook
        if not target:
            missing = "no e-mail address" if kind == "email" else "no webhook"
            raise InputError(f"your account has {missing}", hint="write it there first")
        waiting = [row for row in self.store.of_user(who.user_id, 50) if row.state in ("waiting", "sending")]
        if len([row for row in waiting if row.request_id is None]) >= _MOST_TESTS:
            raise QuotaError("several tests are on their way already", hint="wait until they have arrived")
        return self.store.add(NoticeRow(0, who.user_id, kind, target, {"event": "test"}))

    def words(self, notice: NoticeRow) -> RequestWords:
        """Describe the request of a notice, with the words of its page; none where it is gone."""
        if notice.request_id is None:
            return RequestWords()
        try:
            row = self._requests.store.get(notice.request_id)
        except NotFoundError:
            return RequestWords()
        return self._applications.describe([row])[row.id]

    def recent(self, who: Principal, limit: int = 20) -> NoticeRows:
        """List the last notices to the user who asks, the newest first, with how they went."""
        return self.store.of_user(who.user_id, max(1, min(limit, 200)))

    def of_request(self, who: Principal, number: int) -> NoticeRows:
        """List the notices of a request, the oldest first.

        Raises:
            NotFoundError: There is no such request that this user may see.
        """
        self._requests.get(who, number)
        return self.store.of_request(number)


def _occasions(given: Sequence[str]) -> tuple[Occasion, ...]:
    for word in given:
        if word not in OCCASIONS:
            raise InputError(f"there is no occasion {word[:40]!r}", hint=f"known: {', '.join(OCCASIONS)}")
    return tuple(occasion for occasion in OCCASIONS if occasion in given)
