"""Connections to hosts that somebody else names: to the very address that was judged, and to none inside.

A name is looked up once, all its addresses are judged, and the connection goes to one that was judged: a name that
points elsewhere a moment later changes nothing (Jackson et al., Protecting browsers from DNS rebinding attacks, CCS
2007).
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import socket
import ssl
from collections.abc import Sequence

from tradewind.errors import InputError, UnreachableError

_NAT64 = ipaddress.ip_network("64:ff9b::/96")


def is_public(address: str) -> bool:
    """True for an address of the open network: none of this machine, of its network, or of a cloud's inside."""
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


def resolve_addresses(host: str, port: int, *, private: bool) -> list[str]:
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


class PinnedHttpConnection(http.client.HTTPConnection):
    """A connection to addresses of a host, whatever its name points at by then.

    Args:
        host: The name.
        port: The port.
        addresses: The addresses that were judged, tried in their order.
        seconds: How long each step may take.
    """

    def __init__(self, host: str, port: int, addresses: Sequence[str], seconds: float) -> None:
        super().__init__(host, port, timeout=seconds)
        self._addresses = addresses

    def connect(self) -> None:
        """Connect to the address."""
        self.sock = connect_pinned(self._addresses, self.port, self.timeout)

    def abort(self) -> None:
        """End it, from another thread."""
        _abort(self)


class PinnedHttpsConnection(http.client.HTTPSConnection):
    """A pinned connection over TLS: the certificate is that of the name.

    Args:
        host: The name.
        port: The port.
        addresses: The addresses that were judged, tried in their order.
        seconds: How long each step may take.
        tls: What judges certificates.
    """

    def __init__(self, host: str, port: int, addresses: Sequence[str], seconds: float, tls: ssl.SSLContext) -> None:
        super().__init__(host, port, timeout=seconds, context=tls)
        self._addresses = addresses
        self._tls = tls

    def connect(self) -> None:
        """Connect to the address."""
        plain = connect_pinned(self._addresses, self.port, self.timeout)
        try:
            self.sock = self._tls.wrap_socket(plain, server_hostname=self.host)
        except BaseException:
            plain.close()
            raise

    def abort(self) -> None:
        """End it, from another thread."""
        _abort(self)


def connect_pinned(addresses: Sequence[str], port: int, seconds: float | None) -> socket.socket:
    """A connection to the first of the addresses that takes one.

    Args:
        addresses: The addresses.
        port: The port.
        seconds: How long each may take.

    Raises:
        OSError: None of them does; why the last one does not.
    """
    for address in addresses[:-1]:
        with contextlib.suppress(OSError):
            return socket.create_connection((address, port), seconds)
    return socket.create_connection((addresses[-1], port), seconds)


def _abort(connection: http.client.HTTPConnection) -> None:
    with contextlib.suppress(OSError, AttributeError):  # it may be closed at this moment
        connection.sock.shutdown(socket.SHUT_RDWR)
