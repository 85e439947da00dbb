"""Checks of every call before anything else: host, origin, size of the body; and security headers of answers.

And what every answer gets: the headers that tell browsers what they must not do with it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request

from tradewind.errors import ForbiddenError, ServiceError, SlowError, TooLargeError, TradewindError
from tradewind.service.accounts.identity import clean_text
from tradewind.service.http.responses import http_status, problem_document
from tradewind.service.http.session_cookies import SAFE_METHODS
from tradewind.service.settings import ServiceSettings

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_LOG = logging.getLogger("tradewind.service.guard")

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""The policy of pages: what a browser loads and runs for them comes from this server."""

# Files of users go out below these: a page that is one of them runs no scripts, and is nobody's origin.
_DATA_POLICY = "default-src 'none'; frame-ancestors 'none'; sandbox"
_DATA = ("/api/", "/r/", "/RPC2")
_ALWAYS = (
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
)
_PROBES = frozenset({"/healthz", "/readyz", "/metrics"})  # they are asked by address, and tell nothing of anybody
_HERE = frozenset({"localhost", "127.0.0.1", "[::1]"})
_BODY_SECONDS = 30.0
_SLOWEST = 16 * 1024.0  # bytes a second


class RequestGuard:
    """Refuses calls that are not meant for this server, come from another site, or bring too much or too slowly.

    Args:
        app: The application that answers.
        settings: The server's settings.
        refused: Called for each refusal with address, path and error.
        page: Makes the page of a refusal for a browser; None for a program, which gets a document.
        seconds: Time for a small body to arrive; a large one gets more.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: ServiceSettings,
        refused: Callable[[str, str, TradewindError], None] | None = None,
        page: Callable[[Request, TradewindError], Response | None] | None = None,
        *,
        seconds: float = _BODY_SECONDS,
    ) -> None:
        self._app = app
        self._refused = refused
        self._page = page
        self._most = round(settings.max_body_mib * 2**20)
        self._seconds = seconds
        public = urlsplit(settings.public_url)
        self._public = public.netloc.lower()
        self._secure = public.scheme == "https"
        self._hosts = _HERE | {_name(self._public)} if self._public else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a call, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        host = headers.get("host", "").lower()
        if self._secure and host == self._public:
            scope["scheme"] = "https"  # the proxy before us has it, whether or not it says so
        answer = _Answer(scope, send)
        if scope["method"] == "HEAD":  # every address that answers GET answers HEAD, with the same headers
            scope = {**scope, "method": "GET"}
        try:
            self._check(scope, headers, host)
        except TradewindError as error:
            await self._refuse(scope, answer, error)
            return
        body = _Body(receive, self._most, self._seconds)
        answer.broken = body.problem
        try:
            await self._app(scope, answer.receive(body.receive), answer.send)
        except Exception:
            if body.error is None:
                raise
        if body.error is not None and not answer.started:
            await self._refuse(scope, answer, body.error)

    def _check(self, scope: Scope, headers: Headers, host: str) -> None:
        if self._hosts is not None and _name(host) not in self._hosts and scope["path"] not in _PROBES:
            if scope["path"].startswith("/static/"):
                return  # style of the page that says so
            raise ServiceError("this server has another name", hint=f"it is {self._public}")
        if scope["method"] not in SAFE_METHODS and not self._is_ours(headers, host):
            raise ForbiddenError(
                "another site asked for this",
                hint="use the pages of this server; behind a proxy, set public_url to what users type",
            )
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length[:20]) > self._most:
            raise TooLargeError(self._most)

    def _is_ours(self, headers: Headers, host: str) -> bool:
        """True where a change comes from a page of this server, or from no page at all."""
        origin = headers.get("origin")
        if origin is not None:
            return urlsplit(origin).netloc.lower() in {host, self._public} - {""} if origin != "null" else False
        return headers.get("sec-fetch-site", "none") in ("none", "same-origin")

    async def _refuse(self, scope: Scope, answer: _Answer, error: TradewindError) -> None:
        client = scope.get("client")
        address = client[0] if client else ""
        path = clean_text(f"{scope['method']} {scope['path']}")
        _LOG.warning("refused %s from %s: %s", path, address, error.code)
        if self._refused is not None:
            await asyncio.to_thread(self._refused, address, path, error)
        answer.broken = lambda: False
        page = await asyncio.to_thread(self._page, Request(scope), error) if self._page is not None else None
        if page is not None:
            page.headers["Connection"] = "close"
            await page(scope, _nothing, answer.send)
            return
        content = json.dumps(problem_document(error)).encode()
        headers = [
            (b"content-type", b"application/problem+json"),
            (b"content-length", str(len(content)).encode()),
            (b"connection", b"close"),  # what is still on its way is not worth reading
        ]
        await answer.send({"type": "http.response.start", "status": http_status(error), "headers": headers})
        await answer.send({"type": "http.response.body", "body": content})


async def _nothing() -> Message:
    return {"type": "http.disconnect"}


class _Body:
    """The body of a call, until it is too large or too slow."""

    def __init__(self, receive: Receive, most: int, seconds: float) -> None:
        self.error: TradewindError | None = None
        self._receive = receive
        self._most = most
        self._seconds = seconds
        self._size = 0
        self._waited = 0.0
        self._whole = False

    def problem(self) -> bool:
        """The error of the body that makes the call fail, or None."""
        return self.error is not None

    async def receive(self) -> Message:
        """Return the next part; a disconnection once something is wrong with the body."""
        if self._whole:
            return await self._receive()
        if self.error is not None:
            return {"type": "http.disconnect"}
        started = time.monotonic()
        left = self._seconds + self._size / _SLOWEST - self._waited
        try:
            async with asyncio.timeout(max(0.0, left)):
                message = await self._receive()
        except TimeoutError:
            self.error = SlowError("the body of the call did not arrive in time", hint="send it again")
            return {"type": "http.disconnect"}
        self._waited += time.monotonic() - started  # what the server does meanwhile is not the client's fault
        self._size += len(message.get("body", b""))
        if self._size > self._most:
            self.error = TooLargeError(self._most)
            return {"type": "http.disconnect"}
        self._whole = not message.get("more_body", False)
        return message


class _Answer:
    """Response to a call, with the headers that every one gets."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self.started = False
        self.broken: Callable[[], bool] = lambda: False
        self._send = send
        self._path = scope["path"]
        self._secure = scope["scheme"] == "https"
        self._head = scope["method"] == "HEAD"
        self._over = False

    def receive(self, receive: Receive) -> Receive:
        """Make the other side of a call: once a call for headers alone has them, nobody is there any more."""
        if not self._head:
            return receive

        async def gone() -> Message:
            return {"type": "http.disconnect"} if self._over else await receive()

        return gone

    async def send(self, message: Message) -> None:
        """Forward a part, unless the body made the call fail: then that error is the answer."""
        if self._over or (self.broken() and not self.started):
            return
        if message["type"] == "http.response.start":
            self.started = True
            self._add(MutableHeaders(scope=message))
        await self._send(message)
        if self._head and message["type"] == "http.response.start":
            self._over = True
            await self._send({"type": "http.response.body", "body": b""})

    def _add(self, headers: MutableHeaders) -> None:
        for name, value in _ALWAYS:
            headers.setdefault(name, value)
        data = self._path.startswith(_DATA)
        headers.setdefault("Content-Security-Policy", _DATA_POLICY if data else PAGE_POLICY)
        # What says nothing belongs to somebody: no cache keeps it.
        headers.setdefault("Cache-Control", "no-store")
        if self._secure:
            headers.setdefault("Strict-Transport-Security", "max-age=31536000")


def _name(host: str) -> str:
    """Return a host without its port."""
    name, sign, port = host.rpartition(":")
    return name if sign and port.isdecimal() else host
