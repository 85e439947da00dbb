"""Hosts that users name and this server talks to: those that everybody can reach, unless the administrator says so.

A name is looked up once, all its addresses are judged, and the connection goes to the very address that was judged:
a name that points elsewhere a moment later changes nothing (Jackson et al., Protecting browsers from DNS rebinding
attacks, CCS 2007).
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import socket
import ssl
import threading
from dataclasses import dataclass
from urllib.parse import urlsplit

from tradewind.errors import InputError, UnreachableError

_LONGEST_URL = 2000
_STEPS = 3
# Services below 1024 that are not HTTP could be made to obey what stands in a body.
_LOW_PORTS = (80, 443)
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


@dataclass(frozen=True, slots=True)
class Target:
    """Where a call goes.

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
        """It for people and logs: without the path, which may have a secret in it."""
        return f"{self.scheme}://{self.host}" + ("" if self.port in (80, 443) else f":{self.port}")


def parse_url(url: str) -> Target:
    """Read the URL of a server of a user.

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
    return Target(parts.scheme, parts.hostname, port, path)


def is_public(address: str) -> bool:
    """Whether an address is one of the open network: none of this machine, of its network, or of a cloud's inside."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv6Address):
        inner = parsed.ipv4_mapped or parsed.sixtofour
        if inner is None and parsed in _NAT64:
            inner = ipaddress.IPv4Address(int(parsed) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
        if parsed.teredo is not None:
            return False
    return parsed.is_global and not parsed.is_multicast and not parsed.is_reserved


def addresses_of(host: str, port: int, *, private: bool) -> list[str]:
    """The addresses of a host, all of them judged.

    Args:
        host: Its name or address.
        port: The port.
        private: Whether addresses inside are allowed, too.

    Raises:
        UnreachableError: It has none.
        InputError: One of them is inside.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise UnreachableError(f"{host} has no address: {why}") from None
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    if not private and not all(is_public(address) for address in addresses):
        # Which address it is would tell of the network inside.
        raise InputError(
            f"{host} is an address inside this network, which users may not name",
            hint="the administrator can allow it: private_addresses",
        )
    return addresses


def post(
    target: Target,
    body: bytes,
    headers: dict[str, str],
    *,
    private: bool,
    seconds: float,
    tls: ssl.SSLContext | None = None,
) -> tuple[int, str]:
    """Send a call; no redirection is followed.

    Args:
        target: Where it goes.
        body: What is sent.
        headers: With it.
        private: Whether addresses inside are allowed, too.
        seconds: How long each step may take; all together three times as long.
        tls: What judges certificates; the system's authorities without it.

    Returns:
        The status and its words.

    Raises:
        InputError: The host is inside.
        UnreachableError: It does not answer.
    """
    address = addresses_of(target.host, target.port, private=private)[0]
    connection: _Pinned | _PinnedTls
    if target.scheme == "https":
        connection = _PinnedTls(target, address, seconds, tls or ssl.create_default_context())
    else:
        connection = _Pinned(target, address, seconds)
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


def _abort(connection: http.client.HTTPConnection) -> None:
    with contextlib.suppress(OSError, AttributeError):  # it may be closed at this moment
        connection.sock.shutdown(socket.SHUT_RDWR)


class _Pinned(http.client.HTTPConnection):
    """A connection to one address of a host, whatever its name points at by then."""

    def __init__(self, target: Target, address: str, seconds: float) -> None:
        super().__init__(target.host, target.port, timeout=seconds)
        self._address = address

    def connect(self) -> None:
        """Connect to the address."""
        self.sock = socket.create_connection((self._address, self.port), self.timeout)

    def abort(self) -> None:
        """End it, from another thread."""
        _abort(self)


class _PinnedTls(http.client.HTTPSConnection):
    """Likewise over TLS: the certificate is that of the name."""

    def __init__(self, target: Target, address: str, seconds: float, context: ssl.SSLContext) -> None:
        super().__init__(target.host, target.port, timeout=seconds, context=context)
        self._address = address
        self._tls = context

    def connect(self) -> None:
        """Connect to the address."""
        plain = socket.create_connection((self._address, self.port), self.timeout)
        try:
            self.sock = self._tls.wrap_socket(plain, server_hostname=self.host)
        except BaseException:
            plain.close()
            raise

    def abort(self) -> None:
        """End it, from another thread."""
        _abort(self)
