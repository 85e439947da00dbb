"""Object stores: what others leave in buckets, and whose keys requests carry."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import obstore
import pytest

from tradewind.deployer.storage import open_storage
from tradewind.deployer.storage.base import StorageAccess, StorageAddress, StorageLocation
from tradewind.deployer.storage.object_store import ObjectStorage
from tradewind.errors import DeployError, MissingProgramError

_ENTRY = (
    "<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>&quot;a&quot;</ETag>"
    "<Size>{size}</Size><StorageClass>STANDARD</StorageClass></Contents>"
)


class _Bucket(ThreadingHTTPServer):
    """A bucket ``b`` with objects by key, and the headers of all requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.objects: dict[str, bytes] = {}
        self.asked: list[dict[str, str]] = []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Bucket

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = parse_qs(url.query)
        if "list-type" in query:
            entries = "".join(
                _ENTRY.format(key=escape(key), size=len(body))
                for key, body in sorted(self.server.objects.items())
                if key.startswith(query.get("prefix", [""])[0])
            )
            self._answer(
                200, f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>".encode()
            )
            return
        body = self.server.objects.get(unquote(url.path).removeprefix("/b/"))
        self._answer(*((404, b"<Error><Code>NoSuchKey</Code></Error>") if body is None else (200, body)))

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.objects[unquote(urlsplit(self.path).path).removeprefix("/b/")] = body
        self._answer(200, b"")

    def _answer(self, status: int, body: bytes) -> None:
        self.server.asked.append({name.lower(): value for name, value in self.headers.items()})
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"a"')
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Bucket]:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OBJECTS_SECRET", "the secret of the place")
    server = _Bucket()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def opened(address: str, bucket: _Bucket) -> closing[StorageLocation]:
    access = {"user": "OWN", "password": "env:OBJECTS_SECRET", "endpoint": bucket.endpoint}
    return closing(open_storage(address, {"s3://b": access}))


def test_a_folder_with_marks_of_folders(bucket: _Bucket, tmp_path: Path) -> None:
    bucket.objects = {
        **dict.fromkeys(("data/", "data/sub/", "data/bare/", "data/old", "data/none.csv", "other/"), b""),
        "data/x.csv": b"1",
        "data/sub/y.csv": b"2",
        "data/old/z.csv": b"3",
    }
    with opened("s3://b/data", bucket) as place:
        place.fetch(tmp_path / "in")
    files = {path.relative_to(tmp_path / "in").as_posix() for path in (tmp_path / "in").rglob("*") if path.is_file()}
    assert files == {"x.csv", "sub/y.csv", "old/z.csv", "none.csv"}
    assert (tmp_path / "in" / "sub" / "y.csv").read_bytes() == b"2"
    assert not list((tmp_path / "in" / "bare").iterdir())


def test_a_whole_bucket_with_marks_of_folders(bucket: _Bucket, tmp_path: Path) -> None:
    bucket.objects = {"data/": b"", "data/x.csv": b"1"}
    with opened("s3://b/", bucket) as place:
        place.fetch(tmp_path / "in")
    assert [path.read_bytes() for path in (tmp_path / "in").rglob("*") if path.is_file()] == [b"1"]


def test_an_empty_folder_and_none(bucket: _Bucket, tmp_path: Path) -> None:
    bucket.objects = {"data/": b""}
    with opened("s3://b/data", bucket) as place:
        place.fetch(tmp_path / "in")
    assert not list((tmp_path / "in").iterdir())
    with opened("s3://b/elsewhere", bucket) as place, pytest.raises(DeployError, match="there is no s3://b/elsewhere"):
        place.fetch(tmp_path / "never")
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize(
    "variables",
    [
        {"AWS_ACCESS_KEY_ID": "SERVERS", "AWS_SECRET_ACCESS_KEY": "servers", "AWS_SESSION_TOKEN": "servers-session"},
        {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ENDPOINT": "http://127.0.0.1:9"},
        {"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9"},
        {"AWS_SKIP_SIGNATURE": "true"},
    ],
    ids=lambda variables: ",".join(variables),
)
def test_a_place_with_its_own_keys_uses_nothing_of_the_environments(
    variables: dict[str, str], bucket: _Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "x").write_text("results")
    with opened("s3://b/d", bucket) as place:
        place.put(tmp_path / "x", "x")
    assert bucket.objects == {"d/x": b"results"}
    (headers,) = bucket.asked
    assert "Credential=OWN/" in headers["authorization"]
    assert "x-amz-security-token" not in headers


def test_own_keys_without_an_endpoint_go_to_amazon(bucket: _Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.setenv(name, bucket.endpoint)
    monkeypatch.setenv("AWS_REGION", "eu-west-3")
    place = ObjectStorage(StorageAddress.parse("s3://b/d"), StorageAccess(user="OWN", password="env:OBJECTS_SECRET"))
    url = obstore.sign(place._bucket(), "GET", "d/x", timedelta(seconds=60))
    assert url.startswith("https://s3.eu-west-3.amazonaws.com/b/d/x?")


@pytest.mark.parametrize("package", ["obstore", "botocore"])
def test_without_a_package_it_is_one_line(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [
        name for name in sys.modules if name.startswith(f"{package}.") or name.endswith("storage.object_store")
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingProgramError, match=f"s3:// needs the package {package}") as caught:
        open_storage("s3://b/d", {})
    assert caught.value.hint == "pip install 'tradewind[files]'"


def test_amazons_own_credentials(bucket: _Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the user's profile, and their token, where the place has none of its own."""
    (tmp_path / "credentials").write_text(
        "[default]\naws_access_key_id = PROFILES\naws_secret_access_key = b\naws_session_token = t\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    bucket.objects = {"d/x": b"1"}
    with closing(open_storage("s3://b/d/x", {"s3://b": {"endpoint": bucket.endpoint}})) as place:
        place.fetch(tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == b"1"
    assert "Credential=PROFILES/" in bucket.asked[0]["authorization"]
    assert bucket.asked[0]["x-amz-security-token"] == "t"
