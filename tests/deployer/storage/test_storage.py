"""Inputs from, and results to, real servers of three kinds, and folders of this machine."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.deployer.helpers import request_for
from tests.engines.files import Process, Server, objects, sftp, webdav
from tests.engines.ssh import Sshd

from tradewind.deployer.staging import stage_in
from tradewind.deployer.storage import open_storage
from tradewind.deployer.storage.base import StorageAccess, StorageAddress, StorageLocation, safe_join
from tradewind.deployer.storage.object_store import http_status
from tradewind.errors import CredentialsError, DeployError, UnreachableError

__all__ = ["objects", "sftp", "webdav"]
pytestmark = pytest.mark.xdist_group("places")

KINDS = ("local", "webdav", "sftp", "objects")
ODD = (
    "plain.txt",
    "with space.txt",
    "é ü.txt",
    "brackets[1]*?.txt",
    "semi;colon'quote.txt",
    'double"quote.txt',
    "-dash",
)


@pytest.fixture
def server(kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    if kind == "local":
        return Server(str(tmp_path / "here"), folder=tmp_path / "here")
    found: Server = request.getfixturevalue(kind)[0]
    for name, value in found.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return found


@contextlib.contextmanager
def opened(server: Server, below: str = "") -> Iterator[StorageLocation]:
    place = open_storage(server.address + (f"/{below}" if below else ""), server.places)
    try:
        yield place
    finally:
        place.close()


@pytest.mark.parametrize("kind", KINDS)
def test_files_go_there_and_come_back(server: Server, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"first\n" * 50_000)
    with opened(server, "round trip/deep") as place:
        assert place.read("a.txt") is None
        place.remove("a.txt")
        for _ in range(2):
            place.put(source, "a.txt")
        place.put(source, "er/b.txt")
        source.write_bytes(b"second")
        place.put(source, "a.txt")
        assert place.read("a.txt") == b"second"
        place.fetch(tmp_path / "all")
        assert {path.relative_to(tmp_path / "all").as_posix() for path in (tmp_path / "all").rglob("*.txt")} == {
            "a.txt",
            "er/b.txt",
        }
        place.remove("a.txt")
        assert place.read("a.txt") is None
    with opened(server, "round trip/deep/er/b.txt") as one:
        one.fetch(tmp_path / "one")
    assert (tmp_path / "one").read_bytes() == b"first\n" * 50_000


@pytest.mark.parametrize("kind", KINDS)
def test_odd_names(server: Server, tmp_path: Path) -> None:
    with opened(server, "odd") as place:
        for name in ODD:
            (tmp_path / name).write_text(name)
            place.put(tmp_path / name, name)
        for name in ODD:
            assert place.read(name) == name.encode(), name
        place.fetch(tmp_path / "back")
    assert {path.name: path.read_text() for path in (tmp_path / "back").iterdir()} == {name: name for name in ODD}


@pytest.mark.parametrize("kind", KINDS)
def test_inputs(kind: str, server: Server, tmp_path: Path) -> None:
    import hashlib

    (tmp_path / "data").write_bytes(b"some data")
    digest = hashlib.sha256(b"some data").hexdigest()
    with opened(server, "inputs") as place:
        place.put(tmp_path / "data", "sub/data.bin")
        place.put(tmp_path / "data", "sub/more/data.bin")
    if kind == "local":
        return
    at = f"{server.address}/inputs/sub"
    request = request_for(
        tmp_path, ("true",), inputs=(f"{at}/data.bin#sha256={digest}&size=9", f"{at}#name=all"), places=server.places
    )
    for _ in range(2):  # a second time, after a restart, changes nothing
        stage_in(request)
    inputs = request.folder / "inputs"
    assert (inputs / "data.bin").read_bytes() == b"some data"
    assert (inputs / "all" / "more" / "data.bin").read_bytes() == b"some data"
    assert sorted(path.name for path in inputs.iterdir()) == ["all", "data.bin"]
    for wrong, words, retryable in (
        (f"{at}/nothing.bin", "there is no", False),
        (f"{at}/data.bin#size=8&name=x", "has 9 bytes, not 8", True),
        (f"{at}/data.bin#sha256=00&name=y", "wrong checksum", True),
        (f"{at}#size=8&name=z", "is a folder", False),
    ):
        with pytest.raises(DeployError, match=words) as caught:
            stage_in(request_for(tmp_path, ("true",), inputs=(wrong,), places=server.places))
        assert caught.value.retryable is retryable
        assert str(caught.value).startswith("input ")
    assert sorted(path.name for path in inputs.iterdir()) == ["all", "data.bin"]


@pytest.mark.parametrize("kind", ["webdav", "sftp"])
def test_who_is_not_let_in(kind: str, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind == "sftp":
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "other"], check=True, timeout=30
        )
        access = {**server.access, "identity": str(tmp_path / "other")}
    else:
        monkeypatch.setenv("WEBDAV_PASSWORD", "not the battery staple")
        access = server.access
    place = open_storage(server.address, {server.address: access})
    with pytest.raises(CredentialsError) as caught:
        place.read("x")
    assert "battery" not in str(caught.value)
    place.close()


def test_a_server_whose_key_is_not_known_is_refused(sftp: tuple[Server, Sshd], tmp_path: Path) -> None:
    server = sftp[0]
    (tmp_path / "known").write_text("")
    place = open_storage(server.address, {server.address: {**server.access, "known_hosts": str(tmp_path / "known")}})
    with pytest.raises(CredentialsError, match="host"):
        place.read("x")


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("Error performing GET http://127.0.0.1:34049/x in 403.1ms, after 3 retries - HTTP error: error sending", ""),
        ("Error performing GET http://h:9000/x in 2ms - Server returned non-2xx status code: 404 Not Found: ", "404"),
        ("Client error with status 403 Forbidden: No Body", "403"),
    ],
)
def test_a_port_is_no_status(words: str, status: str) -> None:
    assert http_status(RuntimeError(words)) == status


@pytest.mark.parametrize("kind", ["webdav", "sftp", "objects"])
def test_a_server_that_is_down(kind: str, server: Server, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    process: Process | Sshd = request.getfixturevalue(kind)[1]
    process.stop()
    try:
        with opened(server) as place, pytest.raises(UnreachableError) as caught:
            place.read("x")
        assert caught.value.retryable
        assert "\n" not in str(caught.value)
    finally:
        process.start()
        if kind == "objects":  # it keeps nothing
            import urllib.request

            make = urllib.request.Request(f"{server.access['endpoint']}/bucket", method="PUT")
            urllib.request.urlopen(make, timeout=10).close()


def test_a_bucket_that_is_not_there(objects: tuple[Server, Process], monkeypatch: pytest.MonkeyPatch) -> None:
    server = objects[0]
    monkeypatch.setenv("OBJECTS_SECRET", "secret")
    place = open_storage("s3://nobody/x", {"s3://nobody": server.access})
    with pytest.raises(DeployError, match="there is no s3://nobody"):
        place.fetch(Path("never"))


def test_a_login_in_the_usual_file(
    webdav: tuple[Server, Process], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login ada password 'correct horse'\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "f").write_text("x")
    place = open_storage(f"{webdav[0].address}/netrc", {})
    with pytest.raises(CredentialsError):  # netrc has no quotes
        place.put(tmp_path / "f", "f")
    place.close()
    (tmp_path / ".netrc").write_text('machine 127.0.0.1 login ada password "correct horse"\n')
    place = open_storage(f"{webdav[0].address}/netrc", {})
    place.put(tmp_path / "f", "f")
    assert place.read("f") == b"x"
    place.close()


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "source").write_text("x")
    place = open_storage(str(tmp_path / "file"), {})
    with pytest.raises(DeployError, match="file"):
        place.put(tmp_path / "source", "x")
    with pytest.raises(DeployError, match="there is no"):
        open_storage(str(tmp_path / "nowhere"), {}).fetch(tmp_path / "target")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("s3://Bucket.x/a%20b/c", StorageAddress("s3", "Bucket.x", "/a b/c")),
        ("sftp://me@host:22/~/x", StorageAddress("sftp", "host", "/~/x", "me", 22)),
        ("webdavs://host", StorageAddress("webdavs", "host", "/")),
        ("file:///a%20b", StorageAddress("file", "", "/a b")),
        ("/a b", StorageAddress("file", "", "/a b")),
    ],
)
def test_addresses(text: str, address: StorageAddress) -> None:
    assert StorageAddress.parse(text) == address


@pytest.mark.parametrize("text", ["ftp://host/x", "s3:///x", "sftp://host:port/x", "sftp://me:secret@host/x"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(DeployError) as caught:
        StorageAddress.parse(text)
    assert "secret" not in str(caught.value)
    assert not caught.value.retryable


def test_the_longest_beginning_counts() -> None:
    given = {"s3://a": {"user": "1"}, "s3://a/b": {"user": "2"}, "s3://ab": {"user": "3"}}
    users = [
        StorageAccess.of(StorageAddress.parse(text), given).user
        for text in ("s3://a/x", "s3://a/b/x", "s3://ab/x", "s3://b")
    ]
    assert users == ["1", "2", "3", ""]


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../../x", "", "a\0b"])
def test_names_that_lead_elsewhere(name: str) -> None:
    with pytest.raises(DeployError, match="leads out"):
        safe_join(Path("folder"), name)


def test_no_variable_of_ours_is_left(tmp_path: Path) -> None:
    assert "WEBDAV_PASSWORD" not in os.environ
