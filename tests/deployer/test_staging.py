"""Inputs and outputs."""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.deployer.helpers import request_for

from tradewind.deployer.staging import RunInput, check_inputs, stage_in, stage_out
from tradewind.errors import DeployError, PrerequisiteError
from tradewind.problem import RunRequest

CONTENT = b"some data\n" * 1000
SHA = hashlib.sha256(CONTENT).hexdigest()


class _Server(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        name = self.path.strip("/")
        if name.isdigit():
            self.send_error(int(name))
            return
        if name == "nonsense":
            self.wfile.write(b"nonsense\r\n\r\n")
            return
        self.send_response(200)
        if name == "cut":
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"ff\r\nhalf")
            return
        self.send_header("Content-Length", str(len(CONTENT) * (2 if name == "short" else 1)))
        self.end_headers()
        self.wfile.write(CONTENT)

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Server)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def with_inputs(folder: Path, *inputs: str) -> RunRequest:
    return request_for(folder, ("true",), inputs=inputs)


def test_what_is_looked_at_before_machines_are_made(tmp_path: Path) -> None:
    check_inputs(with_inputs(tmp_path))
    with pytest.raises(PrerequisiteError, match=r"working folder .* does not exist"):
        check_inputs(request_for(tmp_path, ("true",), workdir=tmp_path / "gone"))
    with pytest.raises(PrerequisiteError, match=r"input .* does not exist"):
        check_inputs(with_inputs(tmp_path, "gone.csv"))


def test_local_files_and_folders_are_linked(tmp_path: Path) -> None:
    request = with_inputs(tmp_path, "data.txt#name=in.txt", f"file://{tmp_path}/more%20data/", f"data.txt#sha256={SHA}")
    (request.workdir / "data.txt").write_bytes(CONTENT)
    (tmp_path / "more data").mkdir()
    (tmp_path / "more data" / "x").write_text("x")
    for _ in range(2):  # a second time, after a restart, changes nothing
        stage_in(request)
    inputs = request.folder / "inputs"
    assert (inputs / "in.txt").is_symlink()
    assert (inputs / "in.txt").read_bytes() == (inputs / "data.txt").read_bytes() == CONTENT
    assert (inputs / "more data" / "x").read_text() == "x"


def test_downloads(tmp_path: Path, address: str) -> None:
    request = with_inputs(tmp_path, f"{address}/data#sha256={SHA.upper()}&size={len(CONTENT)}", f"{address}/b#name=c")
    stage_in(request)
    assert (request.folder / "inputs" / "data").read_bytes() == CONTENT
    assert sorted(path.name for path in (request.folder / "inputs").iterdir()) == ["c", "data"]


@pytest.mark.parametrize(
    ("text", "words", "retryable"),
    [
        ("{}/404", "HTTP 404", False),
        ("{}/503", "HTTP 503", True),
        ("{}/429", "HTTP 429", True),
        ("{}/short", "of 20000 bytes", True),
        ("{}/data#size=5", "not 5", True),
        ("{}/data#sha256=00", "wrong checksum", True),
        ("http://127.0.0.1:9/x", "refused", True),
        ("gone.txt", "does not exist", False),
        ("work.txt#size=1", "has 4 bytes, not 1", False),
        ("folder#size=1", "is a folder", False),
        ("ftp://host/x", "not understood", False),
        ("x#colour=red", "not understood", False),
        ("x#size=big", "not understood", False),
        ("{}/", "no usable name", False),
        ("{}/cut", "the connection was cut", True),
        ("{}/nonsense", "nonsense", False),
        ("http://host:port/x", "is no address", False),
        ("http://[::1/x", "is no address", False),
        ("http:///x", "is no address", False),
        ("http://me:hunter2@host/x", "an input of host has a user or password in its address", False),
        ("x#name=../y", "no usable name", False),
    ],
)
def test_inputs_that_cannot_be_staged(tmp_path: Path, address: str, text: str, words: str, retryable: bool) -> None:
    request = with_inputs(tmp_path, text.format(address))
    (request.workdir / "work.txt").write_text("work")
    (request.workdir / "folder").mkdir()
    with pytest.raises(DeployError, match=words) as caught:
        stage_in(request)
    assert caught.value.retryable is retryable
    assert "hunter2" not in str(caught.value)
    inputs = request.folder / "inputs"
    assert not inputs.exists() or not list(inputs.iterdir())


def test_inputs_into_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    request = with_inputs(tmp_path, "data.txt")
    (request.workdir / "data.txt").write_text("")
    request.folder.parent.mkdir(parents=True)
    request.folder.write_text("in the way")
    with pytest.raises(DeployError, match=r"data\.txt"):
        stage_in(request)


def test_an_input_is_parsed() -> None:
    assert RunInput.parse("https://host/a/b%20c?x=1").name == "b c"
    assert RunInput.parse("dir/").name == "dir"
    assert RunInput.parse("http://host/a b/ü?q=ä b").place == "http://host/a%20b/%C3%BC?q=%C3%A4%20b"


def test_outputs_are_copied_and_nothing_escapes(tmp_path: Path) -> None:
    request = request_for(tmp_path, ("true",), outputs=("*.txt", "deep/**", "link*", "folder"))
    work, outside = request.workdir, tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (work / "a.txt").write_text("a")
    (work / "deep" / "er").mkdir(parents=True)
    (work / "deep" / "er" / "b").write_text("b")
    (work / "folder").mkdir()
    (work / "folder" / "c").write_text("c")
    (work / "link.txt").symlink_to("a.txt")
    (work / "link-out").symlink_to(outside / "secret")
    (work / "link-folder").symlink_to(outside)
    (work / "deep" / "hole").symlink_to(outside)
    kept = stage_out(request)
    outputs = request.folder / "outputs"
    found = sorted(str(path.relative_to(outputs)) for path in outputs.rglob("*") if path.is_file())
    assert found == ["a.txt", "deep/er/b", "folder/c", "link.txt"]
    assert {path.resolve() for path in kept} == {(outputs / name).resolve() for name in found}
    assert not [path for path in outputs.rglob("*") if path.is_file() and "secret" in path.read_text()]


def test_links_in_the_outputs_folder_are_not_followed(tmp_path: Path) -> None:
    request = request_for(tmp_path, ("true",), outputs=("a.txt", "sub/b"))
    (request.workdir / "sub").mkdir()
    (request.workdir / "a.txt").write_text("new")
    (request.workdir / "sub" / "b").write_text("new")
    target = tmp_path / "target"
    target.mkdir()
    (target / "file").write_text("old")
    outputs = request.folder / "outputs"
    outputs.mkdir(parents=True)
    (outputs / "a.txt").symlink_to(target / "file")
    (outputs / "sub").symlink_to(target)
    with pytest.raises(DeployError, match="outside"):
        stage_out(request)
    assert (outputs / "a.txt").read_text() == "new"
    assert [path.read_text() for path in target.iterdir()] == ["old"]


@pytest.mark.parametrize("pattern", ["/etc/*", "../*", "a/../../b"])
def test_patterns_that_leave_the_working_folder(tmp_path: Path, pattern: str) -> None:
    with pytest.raises(DeployError, match="leaves the working folder") as caught:
        stage_out(request_for(tmp_path, ("true",), outputs=(pattern,)))
    assert not caught.value.retryable


def test_the_run_folder_itself_is_no_output(tmp_path: Path) -> None:
    request = request_for(tmp_path, ("true",), outputs=("**",), folder=tmp_path / "work" / "runs" / "r")
    request.folder.mkdir(parents=True)
    (request.folder / "stdout").write_text("log")
    (request.workdir / "x").write_text("x")
    stage_out(request)
    outputs = request.folder / "outputs"
    assert [path.name for path in outputs.rglob("*") if path.is_file()] == ["x"]


def test_an_output_that_vanishes_meanwhile_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = request_for(tmp_path, ("true",), outputs=("*.txt",))
    for name in ("a.txt", "b.tmp.txt", "c.txt"):
        (request.workdir / name).write_text(name)
    copy = shutil.copy2

    def vanishing(source: Path, target: Path) -> None:
        if source.name == "b.tmp.txt":
            source.unlink()
        copy(source, target)

    monkeypatch.setattr(shutil, "copy2", vanishing)
    assert [path.name for path in stage_out(request)] == ["a.txt", "c.txt"]
    assert sorted(path.name for path in (request.folder / "outputs").iterdir()) == ["a.txt", "c.txt"]


def test_a_folder_that_vanishes_meanwhile_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = request_for(tmp_path, ("true",), outputs=("**/*.txt",))
    (request.workdir / "a.txt").write_text("a")
    (request.workdir / "scratch").mkdir()
    look = os.scandir

    def vanishing(place: Any) -> Any:
        if Path(place).name == "scratch" and Path(place).exists():
            Path(place).rmdir()
        return look(place)

    monkeypatch.setattr(os, "scandir", vanishing)
    assert [path.name for path in stage_out(request)] == ["a.txt"]


def test_an_output_that_may_not_be_read_is_no_reason_to_repeat_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = request_for(tmp_path, ("true",), outputs=("*.txt",))
    (request.workdir / "a.txt").write_text("a")

    def closed(source: Path, target: Path) -> None:
        raise PermissionError(13, "Permission denied", str(source))

    monkeypatch.setattr(shutil, "copy2", closed)
    with pytest.raises(DeployError, match=r"output .*a\.txt cannot be kept: Permission denied") as caught:
        stage_out(request)
    assert not caught.value.retryable


def test_a_copy_that_has_no_place_is_no_vanished_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = request_for(tmp_path, ("true",), outputs=("*.txt",))
    (request.workdir / "a.txt").write_text("a")

    def homeless(source: Path, target: Path) -> None:
        raise FileNotFoundError(2, "No such file or directory", str(target))

    monkeypatch.setattr(shutil, "copy2", homeless)
    with pytest.raises(DeployError, match="cannot be kept: No such file") as caught:
        stage_out(request)
    assert caught.value.retryable
