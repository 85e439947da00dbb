"""The callers' own keys: what is asked for again after an answer that was lost is not done twice."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from tradewind.errors import InputError
from tradewind.service.people import Principal
from tradewind.service.requests.request_document import document_digest

SENT_DIGEST = "sent"
"""In a request's plan: the digest of what was sent with its key."""

_RETRIES = "retries"
"""In a request's plan: the marks of the keys that it was retried with, the newest last."""

_LONGEST_KEY = 200
_MOST_MARKS = 50  # nobody asks again for the answer of fifty attempts ago


def check_idempotency_key(key: str | None) -> str | None:
    """A caller's own key, or None.

    Raises:
        InputError: It is none.
    """
    if key is not None and not (0 < len(key) <= _LONGEST_KEY and key.isprintable()):
        raise InputError(f"key: 1 to {_LONGEST_KEY} characters, none of them a control character")
    return key


def digest_of_changes(number: int, changes: Mapping[str, Any]) -> str:
    """What tells a request like another one, with changes, from every other call.

    Raises:
        InputError: The changes are no JSON document, or too large.
    """
    return document_digest({"resubmit": number, "changes": changes})


def was_retried(plan: Mapping[str, Any], who: Principal, key: str | None) -> bool:
    """Whether a request was retried by this user with this key."""
    return key is not None and _key_mark(who, key) in plan.get(_RETRIES, ())


def with_retry(plan: Mapping[str, Any], who: Principal, key: str | None) -> dict[str, Any]:
    """The plan of a request that is retried with a key."""
    if key is None:
        return dict(plan)
    return {**plan, _RETRIES: [*plan.get(_RETRIES, ()), _key_mark(who, key)][-_MOST_MARKS:]}


def _key_mark(who: Principal, key: str) -> str:
    """A key without its words: whoever sees the request sees its plan."""
    return hashlib.sha256(f"{who.user_id}:{key}".encode()).hexdigest()[:32]
