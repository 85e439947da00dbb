"""WebDAV servers that do not behave."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.deployer.helpers import request_for

from tradewind.deployer.staging import stage_in
from tradewind.deployer.storage import open_storage
from tradewind.errors import DeployError, UnreachableError

_LIST = b"""<?xml version="1.0"?><multistatus xmlns="DAV:"><response><href>/d/x.csv</href>
<propstat><prop><resourcetype/></prop></propstat></response></multistatus>"""
_PROMISED, _SENT = 1_000_000, 1000


class _Cuts(BaseHTTPRequestHandler):
    """Promises a file and closes the connection long before its end: by its length, or in chunks."""

    protocol_version = "HTTP/1.1"

    def do_PROPFIND(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(207)
        self.send_header("Content-Length", str(len(_LIST)))
        self.end_headers()
        self.wfile.write(_LIST)

    def do_GET(self) -> None:
        self.send_response(200)
        if self.server.chunked:  # type: ignore[attr-defined]
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"%x\r\n" % _PROMISED)
        else:
            self.send_header("Content-Length", str(_PROMISED))
            self.end_headers()
        self.wfile.write(b"x" * _SENT)
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture(params=[False, True], ids=["length", "chunked"])
def cut(request: pytest.FixtureRequest) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Cuts)
    server.chunked = request.param  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"webdav://127.0.0.1:{server.server_port}/d"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_file_that_is_cut_short_is_not_whole(cut: str, tmp_path: Path) -> None:
    with closing(open_storage(f"{cut}/x.csv", {})) as place:
        with pytest.raises(UnreachableError, match="was cut") as caught:
            place.fetch(tmp_path / "x.csv")
        assert caught.value.retryable
    with closing(open_storage(cut, {})) as place, pytest.raises(UnreachableError, match="was cut"):
        place.read("x.csv")


_FOLDERS = {"/my%20data/": ("sub/", "a.csv"), "/my%20data/sub/": ("b.csv",)}


class _Slashes(BaseHTTPRequestHandler):
    """Has a folder in a folder, and sends who asks for one without its slash to the one with it, as Apache does."""

    protocol_version = "HTTP/1.1"

    def answer(self, status: int, body: bytes = b"", location: str = "") -> None:
        self.send_response(status)
        if location:
            self.send_header("Location", location)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_PROPFIND(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if f"{self.path}/" in _FOLDERS:
            where = self.server.location.format(host=self.headers["Host"])  # type: ignore[attr-defined]
            self.answer(self.server.status, location=f"{where}{self.path}/")  # type: ignore[attr-defined]
            return
        listed = (self.path, *(self.path + name for name in _FOLDERS[self.path]))
        entries = "".join(
            f"<response><href>{name}</href><propstat><prop><resourcetype>"
            f"{'<collection/>' if name.endswith('/') else ''}</resourcetype></prop></propstat></response>"
            for name in listed
        )
        self.answer(207, f'<multistatus xmlns="DAV:">{entries}</multistatus>'.encode())

    def do_GET(self) -> None:
        self.answer(200, self.path.encode())

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def slashes() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Slashes)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("status", [301, 308])
@pytest.mark.parametrize("location", ["", "http://{host}", "https://127.0.0.1"])
def test_a_folder_whose_server_wants_a_slash(
    slashes: ThreadingHTTPServer, status: int, location: str, tmp_path: Path
) -> None:
    slashes.status, slashes.location = status, location  # type: ignore[attr-defined]
    with closing(open_storage(f"webdav://127.0.0.1:{slashes.server_port}/my data/", {})) as place:
        place.fetch(tmp_path / "data")
    files = {path.name: path.read_text() for path in (tmp_path / "data").rglob("*") if path.is_file()}
    assert files == {"a.csv": "/my%20data/a.csv", "b.csv": "/my%20data/sub/b.csv"}


@pytest.mark.parametrize("location", ["http://elsewhere.example", "/other"])
def test_other_redirections_are_not_followed(slashes: ThreadingHTTPServer, location: str, tmp_path: Path) -> None:
    slashes.status, slashes.location = 301, location  # type: ignore[attr-defined]
    with closing(open_storage(f"webdav://127.0.0.1:{slashes.server_port}/my data", {})) as place:
        with pytest.raises(DeployError, match="is elsewhere now") as caught:
            place.fetch(tmp_path / "data")
        assert location in str(caught.value)


def test_an_input_that_is_cut_short_does_not_appear(cut: str, tmp_path: Path) -> None:
    request = request_for(tmp_path, ("true",), inputs=(f"{cut}/x.csv",))
    with pytest.raises(UnreachableError, match=r"input webdav.* was cut") as caught:
        stage_in(request)
    assert caught.value.retryable
    assert not list((request.folder / "inputs").iterdir())
