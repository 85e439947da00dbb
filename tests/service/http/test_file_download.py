"""Downloads: ranges, names, and what a browser must not do with them."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import Response
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from tradewind.service.http.responses import FileDownload, content_disposition

DATA = bytes(range(256)) * 5


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    """A server of one file."""
    file = tmp_path / "data"
    file.write_bytes(DATA)
    app = FastAPI()

    @app.get("/file")
    def download(request: Request) -> Response:
        return FileDownload(request, file.open("rb"), "outputs/data.bin")

    return TestClient(app)


@pytest.mark.parametrize(
    ("wanted", "status", "start", "end"),
    [
        ("", 200, 0, 1280),
        ("bytes=0-9", 206, 0, 10),
        ("bytes=10-", 206, 10, 1280),
        ("bytes=-10", 206, 1270, 1280),
        ("bytes=-99999", 206, 0, 1280),
        ("bytes=1270-99999", 206, 1270, 1280),
        ("bytes=0-0", 206, 0, 1),
        ("bytes=9-0", 200, 0, 1280),
        ("bytes=-", 200, 0, 1280),
        ("bytes=0-1,3-4", 200, 0, 1280),
        ("lines=0-1", 200, 0, 1280),
        ("bytes=1-" + "9" * 30, 200, 0, 1280),
    ],
)
def test_ranges(client: TestClient, wanted: str, status: int, start: int, end: int) -> None:
    answer = client.get("/file", headers={"Range": wanted} if wanted else {})
    assert (answer.status_code, answer.content) == (status, DATA[start:end])
    assert answer.headers["content-length"] == str(end - start)
    assert answer.headers["accept-ranges"] == "bytes"
    if status == 206:
        assert answer.headers["content-range"] == f"bytes {start}-{end - 1}/1280"


def test_a_part_that_is_not_there(client: TestClient) -> None:
    for wanted in ("bytes=1280-", "bytes=5000-6000", "bytes=-0"):
        answer = client.get("/file", headers={"Range": wanted})
        assert (answer.status_code, answer.headers["content-range"], answer.content) == (416, "bytes */1280", b"")


def test_a_part_is_of_the_same_file(client: TestClient) -> None:
    tag = client.get("/file").headers["etag"]
    known = {"Range": "bytes=0-9", "If-Range": tag}
    assert client.get("/file", headers=known).status_code == 206
    assert client.get("/file", headers={**known, "If-Range": '"other"'}).status_code == 200
    again = client.get("/file", headers={"If-None-Match": tag})
    assert (again.status_code, again.content) == (304, b"")


def test_nothing_is_shown_as_a_page(client: TestClient) -> None:
    headers = client.get("/file").headers
    assert headers["content-type"] == "application/octet-stream"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-disposition"] == "attachment; filename=\"data.bin\"; filename*=UTF-8''data.bin"


@pytest.mark.slow
@given(st.text(st.characters(codec="utf-8"), max_size=50))
def test_no_name_ends_the_header_or_names_a_folder(path: str) -> None:
    header = content_disposition(path)
    assert header.isascii()
    assert header.isprintable()
    plain = header.partition('filename="')[2].partition('"')[0]
    assert plain
    assert not set(plain) & set('/\\";\r\n')
    assert not plain.startswith(".")
    assert header.count('"') == 2
    encoded = header.partition("filename*=UTF-8''")[2]
    assert not set(encoded) & set('/\\"; \r\n')
