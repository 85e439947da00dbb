"""Preferences of a user for notices: occasions, e-mail and webhook."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tradewind.errors import InputError
from tradewind.service.http.outbound_requests import parse_outbound_url
from tradewind.store.service.accounts import UserRow

Occasion = Literal["submitted", "finished", "failed"]

OCCASIONS: tuple[Occasion, ...] = ("submitted", "finished", "failed")
"""Occasions of notices: a request was submitted, ended well (or was cancelled), or did not end well."""

PREFERENCES_KEY = "notices"
"""Name of the user's setting that holds them."""

_ENDINGS: tuple[Occasion, ...] = ("finished", "failed")


@dataclass(frozen=True, slots=True)
class NotificationPreferences:
    """Preferences of a user for notices.

    Attributes:
        email: Occasions on which an e-mail is sent.
        webhook: URL that is called; empty for none.
        calls: Occasions on which it is called.
        generation: Counts the keys that calls were signed with.
    """

    email: tuple[Occasion, ...] = _ENDINGS
    webhook: str = ""
    calls: tuple[Occasion, ...] = _ENDINGS
    generation: int = 1

    @classmethod
    def of(cls, user: UserRow) -> NotificationPreferences:
        """Read the preferences of a user."""
        kept = user.settings.get(PREFERENCES_KEY)
        if not isinstance(kept, Mapping):
            return cls()
        generation = kept.get("generation", 1)
        return cls(
            email=_known(kept.get("email", _ENDINGS)),
            webhook=str(kept.get("webhook", "")),
            calls=_known(kept.get("calls", _ENDINGS)),
            generation=generation if isinstance(generation, int) else 1,
        )

    def document(self) -> dict[str, Any]:
        """Write the preferences as a document, as the database keeps them."""
        kept = {"email": list(self.email), "webhook": self.webhook, "calls": list(self.calls)}
        return {**kept, "generation": self.generation}

    def of_request(self, document: Mapping[str, Any]) -> NotificationPreferences:
        """Combine the preferences with those of a request, which may have some of its own under ``notify``.

        Args:
            document: The request's document.
        """
        own = document.get("notify")
        if not isinstance(own, Mapping):
            return self
        email, webhook, calls = self.email, self.webhook, self.calls
        if (wanted := own.get("email")) is not None:
            email = () if not wanted else email or _ENDINGS
        if isinstance(url := own.get("webhook"), str):
            webhook, calls = url, calls or _ENDINGS  # who names one wants to hear, whatever holds for the others
        return NotificationPreferences(email, webhook, calls, self.generation)


def check_notify(notify: Any) -> None:
    """Check the block ``notify`` of a request, before the request is stored.

    Args:
        notify: The block as it was given.

    Raises:
        InputError: It is not valid.
    """
    if notify is None:
        return
    if not isinstance(notify, Mapping):
        raise InputError("notify: wanted a mapping", hint="write notify: {email: true, webhook: https://...}")
    for key in notify:
        if key not in ("email", "webhook"):
            raise InputError(f"notify: unknown key {str(key)[:40]!r}", hint="known keys: email, webhook")
    if not isinstance(notify.get("email", True), bool):
        raise InputError("notify.email: wanted true or false", hint="the address is that of your account")
    webhook = notify.get("webhook")
    if webhook is not None and not isinstance(webhook, str):
        raise InputError("notify.webhook: wanted a URL", hint="write one like https://example.org/hook")
    if webhook:
        parse_outbound_url(webhook)


def _known(given: Any) -> tuple[Occasion, ...]:
    return tuple(occasion for occasion in OCCASIONS if occasion in given) if isinstance(given, list | tuple) else ()
