"""Places that somebody else names: connections go to the addresses that were judged, whatever the name says by then."""

from __future__ import annotations

import re
import socket
import ssl
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.engines.files import PASSWORD, USER, Process, Server, sftp, webdav
from tests.engines.ssh import Sshd
from tests.service.notification_receivers import certificate

from tradewind.deployer.storage import open_storage
from tradewind.deployer.storage.egress_proxy import EgressProxy
from tradewind.errors import CredentialsError, DeployError, UnreachableError
from tradewind.utils import ssrf_guard

__all__ = ["sftp", "webdav"]
pytestmark = pytest.mark.xdist_group("places")

NAME = "files.example.org"
OUTSIDE, INSIDE = "127.0.0.1", "127.0.0.2"
"""In these tests, the first stands for an address that everybody can reach."""


class Names:
    """A name server that says something else each time.

    Attributes:
        answers: What it says of `NAME`; the last one again and again.
        asked: How often it was asked.
    """

    def __init__(self) -> None:
        self.answers = [[OUTSIDE], [INSIDE]]
        self.asked = 0

    def next(self) -> list[str]:
        self.asked += 1
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    made, real = Names(), socket.getaddrinfo

    def answer(host: Any, port: Any, *more: Any, **named: Any) -> Any:
        if host != NAME:
            return real(host, port, *more, **named)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in made.next()]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    monkeypatch.setattr(ssrf_guard, "is_public", lambda address: address == OUTSIDE)
    return made


@contextmanager
def trap(port: int) -> Iterator[socket.socket]:
    """Something inside that listens at the same port; nothing may come."""
    with closing(socket.create_server((INSIDE, port))) as listening:
        listening.setblocking(False)
        yield listening
        with pytest.raises(BlockingIOError):
            listening.accept()


def pinned(address: str, **access: str) -> Any:
    return open_storage(address, {address: {**access, "reach": "public"}})


def check_rebinding(address: str, port: int, names: Names, tmp_path: Path, **access: str) -> None:
    """What is written goes outside; once the name points inside, nothing is connected to any more."""
    source = tmp_path / "source"
    source.write_text("results")
    with trap(port):
        with closing(pinned(address, **access)) as place:
            place.put(source, "a.txt")
            assert place.read("a.txt") == b"results"
        assert names.asked >= 1  # a client may begin a second connection that it then has no need of
        for answers in ([INSIDE], [OUTSIDE, INSIDE]):
            names.answers = [answers]
            with closing(pinned(address, **access)) as place:
                with pytest.raises(DeployError, match="inside this network") as caught:
                    place.put(source, "b.txt")
                assert not caught.value.retryable
                assert INSIDE not in str(caught.value)


def test_webdav(webdav: tuple[Server, Process], names: Names, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server, process = webdav
    monkeypatch.setenv("WEBDAV_PASSWORD", PASSWORD)
    address = f"webdav://{NAME}:{process.port}/pinned"
    check_rebinding(address, process.port, names, tmp_path, user=USER, password="env:WEBDAV_PASSWORD")
    assert server.folder is not None
    assert [path.name for path in (server.folder / "pinned").iterdir()] == ["a.txt"]


def test_webdav_with_nothing_of_the_servers_own(
    webdav: tuple[Server, Process], names: Names, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The netrc file of whoever runs this is for nobody else."""
    _, process = webdav
    (tmp_path / ".netrc").write_text(f'machine {NAME} login {USER} password "{PASSWORD}"\n')
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    names.answers = [[OUTSIDE]]
    with closing(pinned(f"webdav://{NAME}:{process.port}")) as place, pytest.raises(CredentialsError, match="401"):
        place.read("a.txt")
    with closing(open_storage(f"webdav://{NAME}:{process.port}", {})) as place:
        assert place.read("not-there.txt") is None


def test_sftp(sftp: tuple[Server, Sshd], names: Names, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host's key is that of the name, and the configuration of whoever runs this does not count."""
    server, daemon = sftp
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    hosts = tmp_path / "hosts"
    hosts.write_text(f"[{NAME}]:{daemon.port} {daemon.keys.public}\n")
    address = server.address.replace("127.0.0.1", NAME) + "/pinned"
    check_rebinding(address, daemon.port, names, tmp_path, identity=server.access["identity"], known_hosts=str(hosts))
    hosts.write_text(f"[{OUTSIDE}]:{daemon.port} {daemon.keys.public}\n")
    names.answers = [[OUTSIDE]]
    access = {"identity": server.access["identity"], "known_hosts": str(hosts)}
    with closing(pinned(address, **access)) as place, pytest.raises(CredentialsError, match="does not let us in"):
        place.read("a.txt")


class Bucket(BaseHTTPRequestHandler):
    """A bucket, as far as a few small objects need one."""

    protocol_version = "HTTP/1.1"
    objects: dict[str, bytes] = {}  # noqa: RUF012
    elsewhere = ""

    def answer(self, status: int, body: bytes = b"", **fields: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), "ETag": '"1"', **fields}.items():
            self.send_header(name, value)
        self.send_header("Last-Modified", "Sun, 22 Nov 2026 00:00:00 GMT")
        self.end_headers()
        self.wfile.write(body)

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.elsewhere:
            self.answer(307, Location=self.elsewhere)
            return
        self.objects[self.path] = body
        self.answer(200)

    def do_GET(self) -> None:
        found = self.objects.get(self.path)
        self.answer(404 if found is None else 200, found or b"")

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The port of a bucket whose certificate is that of `NAME`."""
    chain, key = certificate(tmp_path / "tls", NAME)
    monkeypatch.setenv("SSL_CERT_FILE", str(chain))
    monkeypatch.setenv("BUCKET_SECRET", "secret")
    # A proxy of the environment, and what it is not for, change nothing.
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.3:9")
    monkeypatch.setattr(Bucket, "objects", {})
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(chain, key)
    server = ThreadingHTTPServer((OUTSIDE, 0), Bucket)
    server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()
    thread.join(5.0)


def in_bucket(port: int, host: str = NAME) -> dict[str, str]:
    return {"user": "key", "password": "env:BUCKET_SECRET", "endpoint": f"https://{host}:{port}"}


def test_bucket(bucket: int, names: Names, tmp_path: Path) -> None:
    check_rebinding("s3://things/pinned", bucket, names, tmp_path, **in_bucket(bucket))
    assert Bucket.objects == {"/things/pinned/a.txt": b"results"}


def test_a_bucket_that_sends_us_inside(
    bucket: int, names: Names, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A redirection is a connection as any other: its name is judged, too."""
    names.answers = [[OUTSIDE]]
    source = tmp_path / "source"
    source.write_text("results")
    with trap(bucket), closing(pinned("s3://things/pinned", **in_bucket(bucket))) as place:
        for elsewhere in (f"https://{INSIDE}:{bucket}/x", f"http://{INSIDE}:{bucket}/x"):
            monkeypatch.setattr(Bucket, "elsewhere", elsewhere)
            with pytest.raises(DeployError):
                place.put(source, "a.txt")


def test_a_bucket_in_the_clear_is_not_talked_to(names: Names) -> None:
    names.answers = [[OUTSIDE]]
    with closing(socket.create_server((OUTSIDE, 0))) as listening:
        port = listening.getsockname()[1]
        listening.setblocking(False)
        access = {**in_bucket(port), "endpoint": f"http://{NAME}:{port}"}
        with closing(pinned("s3://things/pinned", **access)) as place, pytest.raises(DeployError):
            place.read("a.txt")
        with pytest.raises(BlockingIOError):
            listening.accept()


def test_a_certificate_is_that_of_the_name(bucket: int, names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    names.answers = [[OUTSIDE]]
    monkeypatch.setattr(ssrf_guard, "is_public", lambda address: True)
    with closing(pinned("s3://things/pinned", **in_bucket(bucket, OUTSIDE))) as place:
        assert place.read("a.txt") is None  # 127.0.0.1 stands in it as well
    monkeypatch.setattr(socket, "getaddrinfo", _all_here)
    place = pinned("s3://things/pinned", **in_bucket(bucket, "other.example.org"))
    with closing(place), pytest.raises(UnreachableError, match="cannot be reached"):
        place.read("a.txt")


def _all_here(host: Any, port: Any, *_: Any, **__: Any) -> Any:
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (OUTSIDE, int(port)))]


def test_a_proxy_is_for_whom_it_was_made(names: Names) -> None:
    names.answers = [[OUTSIDE]]
    with closing(EgressProxy("s3://things")) as proxy, closing(socket.create_server((OUTSIDE, 0))) as listening:
        port = int(proxy.url.rpartition(":")[2])
        secret = re.findall(r"proxy:([^@]+)@", proxy.url)[0]
        target = f"{NAME}:{listening.getsockname()[1]}"
        import base64

        known = base64.b64encode(f"proxy:{secret}".encode()).decode()
        for head, status in (
            (f"CONNECT {target} HTTP/1.1\r\n\r\n", 407),
            (f"CONNECT {target} HTTP/1.1\r\nProxy-Authorization: Basic Z2F0ZTp4\r\n\r\n", 407),
            (f"GET http://{target}/ HTTP/1.1\r\nProxy-Authorization: Basic {known}\r\n\r\n", 407),
            (f"CONNECT {NAME}:25 HTTP/1.1\r\nProxy-Authorization: Basic {known}\r\n\r\n", 502),
            (f"CONNECT {INSIDE}:9999 HTTP/1.1\r\nProxy-Authorization: Basic {known}\r\n\r\n", 502),
            ("nonsense\r\n\r\n", 407),
            (f"CONNECT {target} HTTP/1.1\r\nproxy-authorization: Basic {known}\r\n\r\n", 200),
        ):
            with socket.create_connection(("127.0.0.1", port), 5.0) as client:
                client.sendall(head.encode())
                assert int(client.recv(1000).split()[1]) == status, head
        with socket.create_connection(("127.0.0.1", port), 5.0) as client:
            client.sendall(20_000 * b"x")
            client.settimeout(5.0)
            assert b"407" in client.recv(1000)
        names.answers = [[INSIDE]]
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=2)
