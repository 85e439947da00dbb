"""The calls: one connection pool, errors as exceptions, and streams of events."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tradewind import __version__, errors
from tradewind.client.tokens import plain_address, token_for
from tradewind.errors import (
    AwayError,
    BusyError,
    InputError,
    MissingProgramError,
    ServiceError,
    StoreError,
    StoreLockedError,
    TradewindError,
)
from tradewind.utils.dependencies import install_command

if TYPE_CHECKING:
    import httpx2


def _kinds() -> dict[str, type[TradewindError]]:
    found = [TradewindError]
    for kind in found:
        found += kind.__subclasses__()
    return {kind.code: kind for kind in found if "code" in vars(kind) and kind.__module__ == errors.__name__}


_OF_HTTP = {401: errors.SignInError, 403: errors.ForbiddenError, 404: errors.NotFoundError, 409: errors.ConflictError}


def error_of(status: int, document: Mapping[str, Any], wait: float = 0.0) -> TradewindError:
    """The error that a problem document tells of.

    Args:
        status: The HTTP status.
        document: The problem document; empty where the answer was none.
        wait: Seconds after which it may be tried again.
    """
    kind = _kind(str(document.get("code", "")), status)
    # Some kinds are made of other things than their message; what they were made of is not sent.
    error = kind.__new__(kind)
    message = str(document.get("title") or f"the server answered with HTTP status {status}")
    TradewindError.__init__(error, message, hint=document.get("hint"))
    if isinstance(error, errors.InputError):
        error.file, error.line = None, document.get("line")
    if isinstance(error, errors.FormError):
        error.fields = dict(document.get("fields", {}))
    if isinstance(error, errors.ServiceError):
        error.wait = wait
    if isinstance(error, errors.InterpretationError):
        error.reason = ""
    if isinstance(error, errors.DeployError):
        error.retryable = False
    return error


def _kind(code: str, status: int) -> type[TradewindError]:
    """The class of a code; of one that a newer server has, that of the nearest kind above it."""
    known = _kinds()
    while code:
        if code in known:
            return known[code]
        code = code.rpartition(".")[0]
    return _OF_HTTP.get(status, ServiceError)


PREFIX = "/api/v1"
_PAGE = 100
SILENCE = 50.0
"""Seconds of silence after which a stream is taken for dead: the server says every 15 that it is there."""

PATIENCE = 60.0
"""Seconds for which a server that was there may be away: it is started anew in a few."""

_LONGEST_WAIT, _PAUSE = 30.0, 2.0
_RUNS = "see that tradewind serve runs there"
_PROXY = (502, 503, 504)  # what a proxy says of a server that does not answer


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """An event of a stream.

    Attributes:
        kind: Its type: ``message`` where the server names none.
        id: What to come back with; empty where there is none.
        data: What it says.
    """

    kind: str
    id: str
    data: Any


class Transport:
    """A connection to a server.

    Args:
        url: Where the server is: ``https://tradewind.example.org``.
        token: A token of the user; empty for none, None for the one that this machine has for the server.
        timeout: Seconds that an answer may take.
        tries: How often a call that changes nothing, or that may be repeated, is tried.
        patience: Seconds for which such a call waits for a server that has answered before, or that has broken it off.
        verify: Whether the server's certificate is checked, or the path of the PEM file to check it with.
        transport: What carries the calls; for tests.

    Attributes:
        patience: See above.
        answered: Whether the server has ever answered, or begun to.

    Raises:
        InputError: The address is none.
        SignInError: This machine has no token for the server.
        MissingProgramError: httpx2 is not installed.
    """

    def __init__(
        self,
        url: str,
        token: str | None,
        *,
        timeout: float,
        tries: int,
        patience: float = PATIENCE,
        verify: bool | str = True,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        try:
            import httpx2
        except ImportError:
            raise MissingProgramError("the client needs the package httpx2", hint=install_command("client")) from None
        parts = urlsplit(url.strip())
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise InputError(f"{url!r} is no address of a server", hint="write https://host or http://host:8765")
        self.url = plain_address(url)
        headers = {"User-Agent": f"tradewind/{__version__}"}
        if token is None:
            token = token_for(self.url)
        if token:
            if not token.isascii() or not token.isprintable() or " " in token:
                raise InputError("the token has characters that no token has", hint="copy the whole of it, tw_...")
            headers["Authorization"] = f"Bearer {token}"
        self._http = httpx2
        # Who breaks off has been there, and may have done what it was asked. A call that cannot be sent (a header that
        # is none, a proxy that refuses) says nothing of the server.
        self._broken = (
            httpx2.ReadError,
            httpx2.WriteError,
            httpx2.ReadTimeout,
            httpx2.WriteTimeout,
            httpx2.RemoteProtocolError,
        )
        self._tries = tries
        self.patience = patience
        self.answered = False
        # A redirect could lead the token elsewhere.
        self._client = httpx2.Client(
            base_url=self.url + PREFIX,
            headers=headers,
            timeout=timeout,
            verify=_context(verify) if isinstance(verify, str) else verify,
            transport=transport,
            follow_redirects=False,
        )

    def close(self) -> None:
        """Give back connections."""
        self._client.close()

    def call(
        self, method: str, path: str, *, again: bool | None = None, patience: float | None = None, **options: Any
    ) -> httpx2.Response:
        """Make a call.

        Args:
            method: ``GET`` and the like.
            path: Below the server's ``/api/v1``.
            again: Whether it may be repeated; by default one that changes nothing.
            patience: Seconds for which it waits for a server that was there; None for the usual ones.
            options: For httpx2: ``params``, ``json``, ``content``, ``headers``.

        Raises:
            TradewindError: What the server refused it with.
            AwayError: The server does not answer.
            ServiceError: It answers what it should not.
        """
        again = method == "GET" if again is None else again
        tries, done = self._tries if again else 1, 0
        until = time.monotonic() + (self.patience if patience is None else patience)
        while True:
            done += 1
            try:
                return self._once(method, path, options)
            except (ServiceError, StoreError) as error:
                away = is_away(error)
                # Where nobody has ever answered, nobody may be there: no reason to wait for long.
                waits = again and away and self.answered and time.monotonic() < until
                if not waits and not (done < tries and (away or isinstance(error, BusyError))):
                    raise
                pause = min(0.2 * done, _PAUSE) if away else min(getattr(error, "wait", 0.0) or 1.0, _LONGEST_WAIT)
            time.sleep(pause)

    def _once(self, method: str, path: str, options: Mapping[str, Any]) -> httpx2.Response:
        try:
            response = self._client.request(method, path, **options)
        except self._http.TransportError as error:
            self.answered |= isinstance(error, self._broken)
            raise self._silent(error) from error
        self._check(response)
        self.answered = True
        return response

    @contextmanager
    def stream(self, path: str, *, silence: float = SILENCE, **options: Any) -> Iterator[httpx2.Response]:
        """Open an answer and read it as it comes.

        Args:
            path: Below the server's ``/api/v1``.
            silence: Seconds without a byte after which it is over.
            options: For httpx2.

        Raises:
            TradewindError: What the server refused it with.
            AwayError: The server does not answer.
        """
        timeout = self._http.Timeout(self._client.timeout.connect, read=silence)
        try:
            with self._client.stream("GET", path, timeout=timeout, **options) as response:
                if response.status_code >= 300:
                    response.read()
                    self._check(response)
                self.answered = True
                yield response
        except self._http.TransportError as error:
            raise self._silent(error) from error

    def messages(
        self, path: str, *, since: str = "", silence: float = SILENCE, **options: Any
    ) -> Iterator[ServerSentEvent]:
        """The events of a stream, until the server ends it.

        Args:
            path: Below the server's ``/api/v1``.
            since: The id of the last event that is known.
            silence: Seconds without a byte after which it is over.
            options: For httpx2.

        Raises:
            TradewindError: What the server refused it with.
            AwayError: The server does not answer any more.
        """
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": since} if since else {})}
        with self.stream(path, silence=silence, headers=headers, **options) as response:
            if response.status_code == 204:
                return
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                raise ServiceError(f"{self.url} has no streams of events")
            yield from _parse(response.iter_lines())

    def _check(self, response: httpx2.Response) -> None:
        if response.status_code < 300 or response.status_code == 304:
            return
        if response.status_code < 400:
            place = response.headers.get("location", "somewhere else")
            raise ServiceError(f"{self.url} sends calls on to {place}", hint="use that address")
        try:
            document = response.json()
        except ValueError:
            document = {}
        after = response.headers.get("retry-after", "")
        known = document if isinstance(document, dict) else {}
        if response.status_code in _PROXY and "code" not in known:
            raise AwayError(
                f"{self.url} does not answer: HTTP status {response.status_code} of a proxy before it", hint=_RUNS
            )
        self.answered = True
        raise error_of(response.status_code, known, float(after) if after.isdecimal() else 0.0)

    def _silent(self, error: Exception) -> AwayError:
        why = " ".join(str(error).split()) or type(error).__name__
        return AwayError(f"{self.url} does not answer: {why}", hint=_RUNS)


def is_away(error: TradewindError) -> bool:
    """True if the server, or the database behind it, is not there at this moment, and may be in the next."""
    return isinstance(error, AwayError) or type(error) in (StoreError, StoreLockedError)


def _parse(lines: Iterator[str]) -> Iterator[ServerSentEvent]:
    """Events out of the lines of a stream (WHATWG HTML, section 9.2.6)."""
    kind, last = "", ""
    data: list[str] = []
    for line in lines:
        if not line:
            if data:
                yield ServerSentEvent(kind or "message", last, json.loads("\n".join(data)))
            kind, data = "", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            data.append(value)
        elif name == "event":
            kind = value
        elif name == "id":
            last = value


def _context(file: str) -> Any:
    import ssl

    try:
        return ssl.create_default_context(cafile=file)
    except OSError as error:
        raise InputError(f"the certificates {file} cannot be read: {error}") from error


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that were given: None and what is empty are left out."""
    return {name: value for name, value in values.items() if value is not None and value not in ("", (), [])}


def as_json(document: Mapping[str, Any]) -> dict[str, Any]:
    """A document as it can be sent.

    Raises:
        InputError: It cannot.
    """
    try:
        sent: dict[str, Any] = json.loads(json.dumps(dict(document), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"the document cannot be sent as JSON: {error}") from None
    return sent


class ApiCalls:
    """Base of the groups of calls: the connection, and reading answers in pages.

    Args:
        wire: The connection.
    """

    def __init__(self, wire: Transport) -> None:
        self._transport = wire

    def _get(self, path: str, **options: Any) -> Any:
        return self._transport.call("GET", path, **options).json()

    def _post(self, path: str, **options: Any) -> Any:
        return self._transport.call("POST", path, **options).json()

    def _pages(self, path: str, given: Mapping[str, Any], limit: int | None) -> Iterator[Mapping[str, Any]]:
        left, before = limit, None
        while left is None or left > 0:
            size = _PAGE if left is None else min(_PAGE, left)
            page = self._get(path, params={**given, **plain({"before": before, "limit": size})})
            yield from page
            if len(page) < size:
                return
            before = page[-1]["id"]
            left = None if left is None else left - len(page)
