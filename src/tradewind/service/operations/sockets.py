"""Where the server listens: its socket, its certificate, and the address that people type."""

from __future__ import annotations

import contextlib
import errno
import socket
import ssl
from pathlib import Path

from tradewind.errors import InputError, ServiceError
from tradewind.service.settings import ServiceSettings


def open_listening_socket(settings: ServiceSettings) -> socket.socket:
    """Take the port; nobody is answered yet.

    Raises:
        ServiceError: It is taken, or may not be used.
        InputError: The host is none of this machine.
    """
    host, port = settings.host, settings.port
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise InputError(
            f"host {host!r} is no address of this machine: {error.strerror}", hint="write --host 127.0.0.1 or 0.0.0.0"
        ) from None
    taken = socket.socket(family, kind, protocol)
    try:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            with contextlib.suppress(OSError):
                taken.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        taken.bind(address)
        taken.listen(2048)
    except OSError as error:
        taken.close()
        raise _bind_error(error, host, port) from None
    taken.set_inheritable(False)
    return taken


def _bind_error(error: OSError, host: str, port: int) -> ServiceError | InputError:
    if error.errno == errno.EADDRINUSE:
        return ServiceError(
            f"port {port} of {host} is in use by another program",
            hint=f"end that one, or write --port {port + 1 if port < 65535 else 0}; --port 0 takes a free one",
        )
    if error.errno == errno.EACCES:
        return ServiceError(
            f"port {port} may not be used by this user", hint="take one above 1023, and a proxy before it"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return InputError(f"host {host!r} is no address of this machine", hint="write --host 127.0.0.1 or 0.0.0.0")
    return ServiceError(f"cannot listen on {host}:{port}: {error.strerror or error}")


def tls_context(settings: ServiceSettings) -> ssl.SSLContext | None:
    """The certificate and its key, read and found to belong together; None for plain HTTP.

    Raises:
        InputError: One is missing, cannot be read, or they do not match.
    """
    certificate, key = settings.tls_certificate, settings.tls_key
    if certificate is None:
        if key is not None:
            raise InputError("there is a tls_key but no tls_certificate", hint="write --tls-certificate FILE too")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    load_certificate(context, certificate, key)
    return context


def load_certificate(context: ssl.SSLContext, certificate: Path, key: Path | None) -> None:
    """Give a context a certificate, also while it is in use: later connections see the new one.

    Raises:
        InputError: It cannot be used.
    """
    for path in (certificate, key):
        try:
            if path is not None:
                path.open("rb").close()
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise InputError(
                f"the key {key or certificate} does not belong to the certificate {certificate}",
                hint="the file of the chain begins with the server's own certificate",
            ) from None
        named = f"{certificate}" if key is None else f"{certificate} with the key {key}"
        why = str(error.reason or error).replace("_", " ").lower()
        raise InputError(f"{named} cannot be used: {why}", hint="both are PEM files") from None


def _no_password() -> str:
    raise InputError("the TLS key is locked by a password", hint="openssl pkey -in KEY -out OPEN-KEY unlocks a copy")


def server_url(settings: ServiceSettings, listening: socket.socket) -> str:
    """What people of this machine type to come to the server, as ``http://127.0.0.1:8765``."""
    host, port = listening.getsockname()[:2]
    if host in ("0.0.0.0", "::"):  # noqa: S104  (nothing is bound here)
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"  # noqa: S104
    scheme = "http" if settings.tls_certificate is None else "https"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
