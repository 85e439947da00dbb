"""HTTP calls to servers that users name: only public addresses, unless the administrator allows others.

`tradewind.utils.ssrf_guard` judges their addresses.
"""

from __future__ import annotations

import http.client
import ssl
import threading
from dataclasses import dataclass
from urllib.parse import urlsplit

from tradewind.errors import InputError, UnreachableError
from tradewind.utils.ssrf_guard import PinnedHttpConnection, PinnedHttpsConnection, resolve_addresses

_LONGEST_URL = 2000
_STEPS = 3
# Services below 1024 that are not HTTP could be made to obey what stands in a body.
_LOW_PORTS = (80, 443)


@dataclass(frozen=True, slots=True)
class OutboundTarget:
    """The parsed URL of a call to another server.

    Attributes:
        scheme: ``http`` or ``https``.
        host: The name, as it was written.
        port: The port.
        path: The path with what stands behind ``?``.
    """

    scheme: str
    host: str
    port: int
    path: str

    @property
    def shown(self) -> str:
        """The target for people and logs: without the path, which may have a secret in it."""
        return f"{self.scheme}://{self.host}" + ("" if self.port in (80, 443) else f":{self.port}")


def parse_outbound_url(url: str) -> OutboundTarget:
    """Parse the URL of a server that a user names.

    Raises:
        InputError: It is none, or one that no call goes to.
    """
    if len(url) > _LONGEST_URL or not url.isascii() or any(not c.isprintable() or c == " " for c in url):
        raise InputError("this is no URL", hint="write one like https://example.org/hook, of at most 2000 characters")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise InputError("this is no URL", hint="write one like https://example.org/hook") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError("a webhook is an http:// or https:// URL", hint="write one like https://example.org/hook")
    if parts.username is not None or parts.password is not None:
        raise InputError("a webhook's URL has no user or password in it", hint="the signature says who sends it")
    port = port or (443 if parts.scheme == "https" else 80)
    if port < 1024 and port not in _LOW_PORTS:
        raise InputError(f"a webhook does not go to port {port}", hint="80, 443 and those above 1023 are allowed")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return OutboundTarget(parts.scheme, parts.hostname, port, path)


def post(
    target: OutboundTarget,
    body: bytes,
    headers: dict[str, str],
    *,
    private: bool,
    seconds: float,
    tls: ssl.SSLContext | None = None,
) -> tuple[int, str]:
    """Send a POST request; no redirection is followed.

    Args:
        target: The parsed URL to call.
        body: The body of the call.
        headers: Headers of the call.
        private: True where addresses inside the server's network are allowed, too.
        seconds: Time limit of each step; all together may take three times as long.
        tls: Context that checks certificates; the system's authorities without it.

    Returns:
        The HTTP status and its reason phrase.

    Raises:
        InputError: The host is inside the server's network.
        UnreachableError: It does not answer.
    """
    addresses = resolve_addresses(target.host, target.port, private=private)
    connection: PinnedHttpConnection | PinnedHttpsConnection
    if target.scheme == "https":
        context = tls or ssl.create_default_context()
        connection = PinnedHttpsConnection(target.host, target.port, addresses, seconds, context)
    else:
        connection = PinnedHttpConnection(target.host, target.port, addresses, seconds)
    # A receiver that sends a byte now and then would not run into the time that each step has.
    patience = threading.Timer(_STEPS * seconds, connection.abort)
    patience.daemon = True
    patience.start()
    try:
        connection.request("POST", target.path, body=body, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.reason
    except ssl.SSLCertVerificationError as error:
        raise UnreachableError(f"{target.shown}: its certificate is not trusted: {error.verify_message}") from None
    except TimeoutError:
        raise UnreachableError(f"{target.shown} did not answer within {seconds:.0f} s") from None
    except http.client.HTTPException as error:
        raise UnreachableError(f"{target.shown} does not speak HTTP: {type(error).__name__}") from None
    except OSError as error:
        raise UnreachableError(f"{target.shown} cannot be reached: {error.strerror or error}") from None
    finally:
        patience.cancel()
        connection.close()
