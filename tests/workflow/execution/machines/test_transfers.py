"""Files between a run's folder and machines that do not see it, over a stream within this process."""

from __future__ import annotations

import io
import os
import queue
import socket
import tarfile
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tradewind.errors import UnreachableError
from tradewind.workflow.execution.machines import courier
from tradewind.workflow.execution.machines.courier import Frames, digest_of, keep_content, serve
from tradewind.workflow.execution.machines.transfers import FileHub, FilesMoved


class Machine:
    """A machine whose folder is another one of this machine."""

    def __init__(self, folder: Path) -> None:
        self.here, self.there = folder / "here", folder / "there"
        self.asked: list[str] = []
        self.refuse = 0
        self.reports: queue.SimpleQueue[FilesMoved] = queue.SimpleQueue()
        self.hub = FileHub(self.here, self.open, ["vm-1"], self.reports.put)

    def open(self, vm: int) -> socket.socket:
        if self.refuse:
            self.refuse -= 1
            raise UnreachableError("nobody answers")
        ours, theirs = socket.socketpair()

        def work() -> None:
            with theirs, theirs.makefile("rb") as reads, theirs.makefile("wb") as writes:
                serve(Notes(reads, writes, self.asked), self.there)

        threading.Thread(target=work, daemon=True).start()
        return ours

    def move(self, *, send: tuple[str, ...] = (), fetch: tuple[str, ...] = ()) -> str:
        """Move files; returns the trouble."""
        if send:
            self.hub.send(0, send, "sent")
        else:
            self.hub.fetch(0, fetch, "fetched")
        return self.reports.get(timeout=20).trouble


class Notes(Frames):
    """Notes what is asked for and whether content follows."""

    def __init__(self, reads: object, writes: object, asked: list[str]) -> None:
        super().__init__(reads, writes)
        self._asked = asked

    def say(self, document: courier.Document) -> None:
        self._asked += ["kept" if document["have"] else "sent"] if "have" in document else []
        super().say(document)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    (made.here / "files").mkdir(parents=True)
    yield made
    made.hub.close()


def test_files_and_folders_go_there_and_come_back_as_they_are(machine: Machine) -> None:
    tool, tree = machine.here / "files/bin/tool", machine.here / "files/tree"
    tool.parent.mkdir()
    tool.write_bytes(os.urandom(700_000))
    tool.chmod(0o755)
    (tree / "deep").mkdir(parents=True)
    (tree / "deep/a").write_text("a")
    (tree / "link").symlink_to("deep/a")
    names = ("files/bin/tool", "files/tree", "files/missing")
    assert machine.move(send=names) == ""
    assert (machine.there / "files/bin/tool").stat().st_mode & 0o111
    assert digest_of(machine.there / "files/tree") == digest_of(tree)
    (machine.there / "files/bin/tool").write_text("new")
    (machine.there / "files/tree/deep/a").write_text("b")
    assert machine.move(fetch=names) == ""
    assert tool.read_text() == "new"
    assert (tree / "link").read_text() == "b"
    assert not list((machine.there / ".parts").iterdir()), "nothing half-sent is left"


def test_what_is_there_already_is_not_sent_again(machine: Machine) -> None:
    (machine.here / "files/x").write_text("one")
    assert machine.move(send=("files/x",)) == machine.move(send=("files/x",)) == ""
    assert machine.asked == ["sent"], "the second time it is not even asked for"
    machine.hub.leave(0)  # as another controller, which does not know what is there
    assert machine.move(send=("files/x",)) == ""
    assert machine.asked == ["sent", "kept"]
    (machine.there / "files/y").write_text("made there")
    assert machine.move(fetch=("files/y",)) == machine.move(send=("files/y",)) == ""
    assert machine.asked == ["sent", "kept"]
    (machine.here / "files/x").write_text("two!")
    assert machine.move(send=("files/x",)) == ""
    assert machine.asked == ["sent", "kept", "sent"]
    assert (machine.there / "files/x").read_text() == "two!"


def test_a_stream_that_is_lost_is_opened_again_and_then_given_up(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tradewind.workflow.execution.machines.transfers._PAUSE_SECONDS", 0.0)
    (machine.here / "files/x").write_text("x")
    machine.refuse = 2
    assert machine.move(send=("files/x",)) == ""
    machine.hub.leave(0)
    machine.refuse = 3
    assert machine.move(send=("files/x",)) == "the way of files to vm-1 is lost: nobody answers"


def test_what_cannot_be_written_is_said_and_the_next_file_goes_through(machine: Machine) -> None:
    (machine.there).mkdir()
    (machine.there / "files").write_text("in the way")
    (machine.here / "files/x").write_text("x" * 600_000)
    assert machine.move(send=("files/x",)).startswith("x cannot be written on vm-1: ")
    (machine.there / "files").unlink()
    assert machine.move(send=("files/x",)) == ""


def test_a_full_disk_there_and_here(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> str:
        raise OSError(28, "No space left on device")

    (machine.here / "files/x").write_text("x")
    monkeypatch.setattr(tempfile, "mkdtemp", full)
    assert machine.move(send=("files/x",)) == "the disk of vm-1 is full: there is no room for x"
    (machine.there / "files").mkdir()
    (machine.there / "files/y").write_text("y")
    assert machine.move(fetch=("files/y",)) == "the disk of this machine is full: there is no room for y"
    monkeypatch.undo()
    assert machine.move(send=("files/x",)) == machine.move(fetch=("files/y",)) == ""


def _content(*members: tuple[str, bytes, str]) -> Frames:
    """Frames with an archive as somebody else might make it: name, kind, target of the link."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, kind, target in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, target
            tar.addfile(info)
    sent = io.BytesIO()
    frames = Frames(sent, sent)
    frames.put(archive.getvalue())
    frames.end()
    sent.seek(0)
    return frames


@pytest.mark.parametrize(
    "members",
    [
        [("../evil", tarfile.REGTYPE, "")],
        [("x/../../evil", tarfile.REGTYPE, "")],
        [("/evil", tarfile.REGTYPE, "")],
        [("x", tarfile.SYMTYPE, "/etc/passwd")],
        [("x", tarfile.DIRTYPE, ""), ("x/l", tarfile.SYMTYPE, "../..")],
        [("x", tarfile.DIRTYPE, ""), ("x/a", tarfile.SYMTYPE, "."), ("x/a/b", tarfile.REGTYPE, "")],
        [("x", tarfile.DIRTYPE, ""), ("x/a", tarfile.SYMTYPE, "b/../c")],
        [("x", tarfile.LNKTYPE, "/etc/passwd")],
        [("x", tarfile.FIFOTYPE, "")],
    ],
)
def test_a_machine_cannot_write_elsewhere(tmp_path: Path, members: list[tuple[str, bytes, str]]) -> None:
    with pytest.raises(OSError, match="is no plain file, folder or link within"):
        keep_content(_content(*members), tmp_path / "files/x", tmp_path / ".parts")
    assert [path.name for path in tmp_path.rglob("*")] == [".parts"]
