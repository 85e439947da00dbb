"""Calls to the users' own programs: JSON, signed, to hosts of the open network, following no redirection.

A call has the headers::

    X-Tradewind-Event: request.finished
    X-Tradewind-Delivery: 0c1f...     the same for every attempt of one notice
    X-Tradewind-Signature: t=1795303674,v1=6f1e...

where ``v1`` is HMAC-SHA256, in hexadecimal, of the timestamp ``t``, a full stop, and the body, with the user's key. A
receiver compares it in constant time, refuses old timestamps, and keeps the deliveries that it has seen.
"""

from __future__ import annotations

import hmac
import json
import ssl
import time

from tradewind import __version__
from tradewind.service.http.outbound_requests import parse_outbound_url, post
from tradewind.service.notifications.refusal import DeliveryRefused
from tradewind.store.service.notices import NoticeRow

WEBHOOK_TIMEOUT_SECONDS = 10.0
"""How long each step of a call may take."""


def call_webhook(notice: NoticeRow, key: str, *, private: bool, tls: ssl.SSLContext | None = None) -> None:
    """Send a notice.

    Args:
        notice: The notice.
        key: What it is signed with.
        private: Whether the host may be inside.
        tls: What judges certificates; the system's authorities without it.

    Raises:
        InputError: The host may not be called.
        UnreachableError: It does not answer.
        NoticeRefused: It does not take the call.
    """
    target = parse_outbound_url(notice.target)
    body = json.dumps({"delivery": notice.delivery, **notice.document}, ensure_ascii=False).encode()
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"Tradewind/{__version__}",
        "X-Tradewind-Event": str(notice.document.get("event", "")),
        "X-Tradewind-Delivery": notice.delivery,
        "X-Tradewind-Signature": webhook_signature(key, body, time.time()),
    }
    status, words = post(target, body, headers, private=private, seconds=WEBHOOK_TIMEOUT_SECONDS, tls=tls)
    if status < 300:
        return
    if status < 400:
        raise DeliveryRefused(
            f"{target.shown} sends on to elsewhere (HTTP {status}), which is not followed", final=True
        )
    raise DeliveryRefused(f"{target.shown} answered HTTP {status} {words[:60]}".rstrip(), final=status == 410)


def webhook_signature(key: str, body: bytes, at: float) -> str:
    """The header that says who sends a call, and when.

    Args:
        key: The user's key.
        body: The body.
        at: Seconds since the epoch.
    """
    stamp = str(int(at))
    return f"t={stamp},v1={hmac.new(key.encode(), stamp.encode() + b'.' + body, 'sha256').hexdigest()}"
