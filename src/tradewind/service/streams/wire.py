"""The format of server-sent events (WHATWG HTML, section 9.2)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

SSE_HEARTBEAT = b": still here\n\n"
"""A comment: it keeps proxies from closing a silent stream, and tells the server whether the client is still there."""

SSE_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"vary", b"Accept"),
    (b"x-accel-buffering", b"no"),  # nginx would keep events back until it has enough of them
]
"""The headers of a stream."""


def sse_message(document: Mapping[str, Any], *, number: int | str | None = None, kind: str = "") -> bytes:
    """One event.

    Args:
        document: What it says; JSON has no line breaks, which would end the event.
        number: What the client sends as ``Last-Event-ID`` when it comes back.
        kind: Its type; without one it is a ``sse_message``.
    """
    head = (f"id: {number}\n" if number is not None else "") + (f"event: {kind}\n" if kind else "")
    return f"{head}data: {json.dumps(document, separators=(',', ':'), allow_nan=False)}\n\n".encode()


def log_event_id(offset: int, run: str) -> str:
    """Where in a request's logs an event of theirs ends: the ``id`` of the event.

    Args:
        offset: In bytes, in the log of the run.
        run: The run; empty before there is one.
    """
    return f"{run}:{offset}" if run else str(offset)
