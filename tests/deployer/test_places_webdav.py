"""WebDAV servers that do not behave."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.deployer.helpers import request_for

from tradewind.deployer.places import open_place
from tradewind.deployer.staging import stage_in
from tradewind.errors import UnreachableError

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
    with closing(open_place(f"{cut}/x.csv", {})) as place:
        with pytest.raises(UnreachableError, match="was cut") as caught:
            place.fetch(tmp_path / "x.csv")
        assert caught.value.retryable
    with closing(open_place(cut, {})) as place, pytest.raises(UnreachableError, match="was cut"):
        place.read("x.csv")


def test_an_input_that_is_cut_short_does_not_appear(cut: str, tmp_path: Path) -> None:
    request = request_for(tmp_path, ("true",), inputs=(f"{cut}/x.csv",))
    with pytest.raises(UnreachableError, match=r"input webdav.* was cut") as caught:
        stage_in(request)
    assert caught.value.retryable
    assert not list((request.folder / "inputs").iterdir())
