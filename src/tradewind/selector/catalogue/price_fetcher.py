"""Reads price endpoints: time limits, retries where they help, and one clear line where they do not."""

from __future__ import annotations

import email.utils
import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from tradewind.errors import FetchError
from tradewind.utils.units import count

_LONGEST_WAIT = 120.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PriceFetcher:
    """Fetches prices from the endpoint of one provider.

    Attributes:
        who: The provider's name, for error lines.
        timeout: Seconds without a byte after which an answer is given up.
        retries: Attempts after the first, for rate limits, the server's own faults and cut connections.
        wait: Seconds before the first retry; it doubles each time, unless the server says how long to wait.
        sleep: Function that waits some seconds; tests put a clock of their own here.
    """

    who: str
    timeout: float = 30.0
    retries: int = 4
    wait: float = 1.0
    sleep: Callable[[float], None] = time.sleep

    def json(self, url: str) -> dict[str, Any]:
        """Fetch the JSON object at an address.

        Raises:
            FetchError: The endpoint did not answer, or not with a JSON object.
        """
        text = self._retried(url, self._whole)
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            raise FetchError(
                f"{self.who}: {without_query(url)} did not answer with JSON but with {_glimpse(text)}",
                hint="try again later",
            ) from None
        if not isinstance(document, dict):
            raise FetchError(
                f"{self.who}: {without_query(url)} answered with a JSON {type(document).__name__}, not an object"
            )
        return document

    @contextmanager
    def lines(self, url: str) -> Iterator[Iterator[str]]:
        """Stream the lines of a text that is too large to hold, as they arrive.

        Raises:
            FetchError: The endpoint did not answer, was cut, or is no UTF-8 text.
        """
        response = self._retried(url, self._open)
        with response:
            yield self._decoded(url, response)

    def _decoded(self, url: str, response: http.client.HTTPResponse) -> Iterator[str]:
        length = response.headers.get("Content-Length")
        got = 0
        try:
            for raw in response:
                got += len(raw)
                yield raw.decode()
        except (OSError, http.client.HTTPException) as error:
            raise FetchError(
                f"{self.who}: {without_query(url)} was cut after {got:,} bytes: {_reason(error)}"
            ) from None
        except UnicodeDecodeError:
            raise FetchError(f"{self.who}: {without_query(url)} is not UTF-8 text") from None
        # Reading lines from a connection that closes too early raises nothing: only the count shows it.
        if length is not None and length.isdigit() and got < int(length):
            raise FetchError(f"{self.who}: {without_query(url)} was cut after {got:,} of {int(length):,} bytes")

    def _whole(self, url: str) -> bytes:
        with self._open(url) as response:
            return response.read()

    def _open(self, url: str) -> http.client.HTTPResponse:
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise FetchError(f"{self.who}: {without_query(url)!r} is no http or https address", hint="check base_url")
        request = urllib.request.Request(url, headers={"User-Agent": "tradewind", "Accept": "*/*"})  # noqa: S310
        response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=self.timeout)  # noqa: S310
        return response

    def _retried(self, url: str, read: Callable[[str], T]) -> T:
        """Read, again after a pause where another attempt may succeed; a 4xx other than 429 never does."""
        pause = self.wait
        for attempt in range(self.retries + 1):
            asked_pause: float | None = None
            try:
                return read(url)
            except urllib.error.HTTPError as error:
                with error:
                    asked_pause = _retry_after(error.headers.get("Retry-After"))
                problem = f"answered {error.code} {error.reason}"
                if error.code != 429 and error.code < 500:
                    raise FetchError(f"{self.who}: {without_query(url)} {problem}", hint=_advice(error.code)) from None
            except (http.client.InvalidURL, ValueError) as error:
                raise FetchError(
                    f"{self.who}: {without_query(url)!r} is no address: {error}", hint="check base_url"
                ) from None
            except (OSError, http.client.HTTPException) as error:
                problem = f"did not answer: {_reason(error)}"
            delay = pause if asked_pause is None else asked_pause
            if delay > _LONGEST_WAIT:
                raise FetchError(
                    f"{self.who}: {without_query(url)} {problem} and asks to wait {delay:.0f} s", hint="try later"
                )
            if attempt < self.retries:
                self.sleep(delay)
                pause *= 2
        raise FetchError(
            f"{self.who}: {without_query(url)} {problem} ({count(self.retries + 1, 'attempt')})", hint="try again later"
        )


def without_query(url: str) -> str:
    """An address without its query: it may hold a key, and is long."""
    return url.partition("?")[0]


def _retry_after(text: str | None) -> float | None:
    """Seconds of a Retry-After header, which is a number or a date."""
    if not text:
        return None
    if text.strip().isdigit():
        return float(text)
    try:
        moment = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return None
    return max(0.0, moment.timestamp() - time.time())


def _advice(status: int) -> str:
    if status in (401, 403):
        return "the key is wrong, or may not read prices"
    return "the address has moved: check base_url" if status in (404, 410) else "the request was refused"


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None) or error
    if isinstance(reason, TimeoutError):
        return "timed out"
    if isinstance(reason, http.client.IncompleteRead):
        return "the connection was cut"
    return (str(reason) or type(reason).__name__).splitlines()[0]


def _glimpse(text: bytes) -> str:
    if not text.strip():
        return "nothing"
    start = text[:200].decode("utf-8", "replace").strip()
    if start.lower().startswith(("<!doctype html", "<html")):
        return "an HTML page"
    return "a JSON text that breaks off" if start.startswith(("{", "[")) else f"{start[:40]!r}"
