"""Receivers of notices: a real mail server that keeps what it gets, and an HTTP server that does."""

from __future__ import annotations

import datetime
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, Session
from tests.engines.ssh import free_port

USER, PASSWORD = "tradewind", "sesame"


def certificate(folder: Path, name: str = "127.0.0.1") -> tuple[Path, Path]:
    """A certificate that signs itself, for this machine and a name, and its key."""
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    here = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    names = x509.SubjectAlternativeName([here, x509.DNSName("localhost"), x509.DNSName(name)])
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
    )
    folder.mkdir(exist_ok=True)
    chain, secret = folder / "chain.pem", folder / "key.pem"
    chain.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    secret.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    return chain, secret


@dataclass
class Mails:
    """What a mail server got.

    Attributes:
        port: Where it listens.
        got: The messages.
        to: Whom each was handed in for.
        refuse: What it answers after the data instead of taking it; empty to take it.
        unknown: Addresses that it does not take mail for.
        logins: The users who signed in.
    """

    port: int = 0
    got: list[EmailMessage] = field(default_factory=list)
    to: list[list[str]] = field(default_factory=list)
    refuse: str = ""
    unknown: set[str] = field(default_factory=set)
    logins: list[str] = field(default_factory=list)

    async def handle_RCPT(self, _s: SMTP, _n: Session, envelope: Envelope, address: str, _o: list[str]) -> str:
        if address in self.unknown:
            return "550 no such user here"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: SMTP, _session: Session, envelope: Envelope) -> str:
        if self.refuse:
            return self.refuse
        assert isinstance(envelope.content, bytes)
        message = message_from_bytes(envelope.content, policy=policy.default)
        assert isinstance(message, EmailMessage)
        self.got.append(message)
        self.to.append(list(envelope.rcpt_tos))
        return "250 taken"


@contextmanager
def mail_server(tls: tuple[Path, Path] | None = None) -> Iterator[Mails]:
    """A mail server; with a certificate it demands STARTTLS and a login."""
    mails = Mails()

    def sign_in(_server: Any, _session: Any, _envelope: Any, _mechanism: str, data: Any) -> AuthResult:
        well = (data.login, data.password) == (USER.encode(), PASSWORD.encode())
        mails.logins.append(data.login.decode())
        return AuthResult(success=well, handled=well)

    options: dict[str, Any] = {}
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
        options = {"tls_context": context, "require_starttls": True, "authenticator": sign_in, "auth_required": True}
    controller = Controller(mails, hostname="127.0.0.1", port=free_port(), **options)
    controller.start()
    try:
        mails.port = controller.port
        yield mails
    finally:
        controller.stop()


@dataclass
class Call:
    """A call that an HTTP server got."""

    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass
class Calls:
    """What an HTTP server got.

    Attributes:
        url: Where it listens.
        got: The calls.
        answer: What it does with the n-th call, from 1: a status, with the address to go to where it has one.
    """

    url: str = ""
    got: list[Call] = field(default_factory=list)
    answer: Callable[[int], tuple[int, str]] = lambda _number: (204, "")


@contextmanager
def http_server(tls: tuple[Path, Path] | None = None) -> Iterator[Calls]:
    """An HTTP server that keeps what it gets."""
    calls = Calls()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            calls.got.append(Call(self.path, dict(self.headers.items()), body))
            status, place = calls.answer(len(calls.got))
            self.send_response(status)
            if place:
                self.send_header("Location", place)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *_args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        calls.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}"
        yield calls
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5.0)
