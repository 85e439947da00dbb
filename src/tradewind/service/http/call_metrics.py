"""Middleware around every call: its id, access log line and latency, and the end of streams when the server ends."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import threading
import time
from collections import defaultdict
from typing import TYPE_CHECKING

from tradewind.service.operations.server_log import call_id

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the histogram of latencies, seconds."""

_CALL_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_log = logging.getLogger("tradewind.service")
_access = logging.getLogger("tradewind.service.access")


class CallMetrics:
    """Counts of the calls to a process since it started."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, str, int], int] = defaultdict(int)
        self._buckets: dict[str, list[int]] = defaultdict(lambda: [0] * (len(LATENCY_BUCKETS) + 1))
        self._sums: dict[str, float] = defaultdict(float)
        self._streams: set[asyncio.Task[object]] = set()

    @property
    def streams(self) -> int:
        """Number of event streams that are open now."""
        return len(self._streams)

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answered call.

        Args:
            method: HTTP method, such as ``GET``.
            route: The template of the path, so that there are not as many as there are requests.
            status: The HTTP status.
            seconds: Time from the call to the end of the answer.
        """
        place = next((i for i, bound in enumerate(LATENCY_BUCKETS) if seconds <= bound), len(LATENCY_BUCKETS))
        with self._lock:
            self._counts[method, route, status] += 1
            self._buckets[route][place] += 1
            self._sums[route] += seconds

    def counts(self) -> dict[tuple[str, str, int], int]:
        """Return the number of answers by method, route and status."""
        with self._lock:
            return dict(self._counts)

    def latencies(self) -> dict[str, tuple[list[int], float]]:
        """Return by route the answers within each of `LATENCY_BUCKETS` and beyond, and the sum of their seconds."""
        with self._lock:
            return {route: (list(found), self._sums[route]) for route, found in self._buckets.items()}

    def end_streams(self) -> None:
        """Let every event stream end properly, now and from now on; to be called in the server's own loop."""
        self.stopping.set()
        for task in list(self._streams):
            task.cancel()

    def opened(self, task: asyncio.Task[object]) -> None:
        """Register an open stream."""
        self._streams.add(task)
        if self.stopping.is_set():
            task.cancel()

    def closed(self, task: asyncio.Task[object]) -> None:
        """Unregister a stream."""
        self._streams.discard(task)


class CallMetricsMiddleware:
    """ASGI middleware that measures calls; see `CallMetrics`.

    Args:
        app: The application that answers.
        traffic: The counters.
        prefix: What the paths of included routers begin with: some versions of FastAPI leave it out of their routes.
    """

    def __init__(self, app: ASGIApp, traffic: CallMetrics, prefix: str) -> None:
        self._app = app
        self._traffic = traffic
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a call, and measure it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        call = _Call(scope, send, self._traffic, self._prefix)
        call_id.set(call.id)
        try:
            await self._app(scope, receive, call.send)
        except asyncio.CancelledError:
            if not self._traffic.stopping.is_set():
                raise
            if call.streams:
                await call.finish()
            else:
                _log.warning("%s %s was broken off: the server ends", scope["method"], scope["path"])
        finally:
            call.end()


class _Call:
    """One call, from its arrival to the end of its answer."""

    def __init__(self, scope: Scope, send: Send, traffic: CallMetrics, prefix: str) -> None:
        given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"").decode("latin-1")
        self.id = given if _CALL_ID.fullmatch(given) else secrets.token_hex(8)
        self.streams = False
        self._scope, self._send, self._traffic, self._prefix = scope, send, traffic, prefix
        self._status = 500  # what the server says where nothing else did
        self._bytes = 0
        self._over = False
        self._started = time.perf_counter()
        # Not that of `send`, which may be one of several within the call's own.
        self._task: asyncio.Task[object] | None = asyncio.current_task()

    async def send(self, message: Message) -> None:
        """Forward a part of the answer."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            headers = list(message.get("headers", ()))
            message = {**message, "headers": [*headers, (b"x-request-id", self.id.encode())]}
            if any(
                name.lower() == b"content-type" and value.startswith(b"text/event-stream") for name, value in headers
            ):
                self.streams = True
                if self._task is not None:
                    self._traffic.opened(self._task)
        elif message["type"] == "http.response.body":
            self._bytes += len(message.get("body", b""))
            self._over = not message.get("more_body", False)
        await self._send(message)

    async def finish(self) -> None:
        """End the answer of a stream, so that its reader sees an end and no broken connection."""
        if self._task is not None:
            self._task.uncancel()
        if not self._over:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    def end(self) -> None:
        """Count the call, and write its line to the access log."""
        if self._task is not None:
            self._traffic.closed(self._task)
        seconds = time.perf_counter() - self._started
        scope = self._scope
        template = self._template()
        if not self.streams:  # how long somebody watches says nothing of the server
            self._traffic.count(scope["method"], template, self._status, seconds)
        client = scope.get("client")
        # Without what stands behind "?", where programs put secrets.
        words = f"{scope['method']} {scope['path']} {self._status} {1000 * seconds:.1f} ms {self._bytes} B"
        facts = {
            "method": scope["method"],
            "path": scope["path"],
            "status": self._status,
            "seconds": round(seconds, 4),
            "bytes": self._bytes,
            "address": client[0] if client else "",
        }
        _access.info("%s %s", words, facts["address"], extra={"facts": facts, "call": self.id})

    def _template(self) -> str:
        path = getattr(self._scope.get("route"), "path", "")
        if not path:
            return "other"
        below = self._scope["path"].startswith(f"{self._prefix}/") and not path.startswith(f"{self._prefix}/")
        return f"{self._prefix}{path}" if below else str(path)
