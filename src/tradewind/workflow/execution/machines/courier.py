"""Takes files of tasks to a machine and brings them back, over one stream; it runs on both ends.

Like `agent`, beside which it lies on the machines, it has nothing but the standard library. What is sent is a tar
archive in frames, so that files and folders of any size go through in pieces. Nothing half-sent ever has its name.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import json
import os
import shutil
import struct
import sys
import tarfile
import tempfile
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

Document = dict[str, Any]

_LENGTH = struct.Struct(">I")
_PIECE = 1 << 18
_MOST = 1 << 24
"""Most bytes of one frame: more than that is not from us."""
_FULL = (errno.ENOSPC, errno.EDQUOT)
_NAME = "x"
"""Name of what is sent within its archive."""


class _Stream(Protocol):
    """A stream that frames go over."""

    def read(self, size: int) -> bytes:
        """Read so many bytes, or fewer at the end."""

    def write(self, data: bytes) -> object:
        """Write all of some bytes."""

    def flush(self) -> object:
        """Send what was written."""


class LostStreamError(OSError):
    """The stream has ended in the middle of something."""


class Frames:
    """Frames over a stream: documents, and content in pieces whose end is an empty frame.

    Args:
        reads: What is read.
        writes: What is written.
    """

    def __init__(self, reads: Any, writes: Any) -> None:
        self._reads: _Stream = reads
        self._writes: _Stream = writes

    def _take(self) -> bytes | None:
        head = self._reads.read(_LENGTH.size)
        if not head:
            return None
        if len(head) < _LENGTH.size:
            raise LostStreamError("the stream has ended early")
        (size,) = _LENGTH.unpack(head)
        data = self._reads.read(size) if size <= _MOST else b""
        if len(data) < size:
            raise LostStreamError("the stream has ended early")
        return data

    def say(self, document: Document) -> None:
        """Send a document."""
        self.put(json.dumps(document).encode())
        self._writes.flush()

    def hear(self) -> Document | None:
        """Receive a document; None at the end of the stream."""
        data = self._take()
        if data is None:
            return None
        found = json.loads(data)
        if not isinstance(found, dict):
            raise LostStreamError("it is no document")
        return found

    def answer(self) -> Document:
        """Receive a document that has to come.

        Raises:
            LostStreamError: The stream has ended.
        """
        found = self.hear()
        if found is None:
            raise LostStreamError("the stream has ended")
        return found

    def put(self, data: bytes) -> None:
        """Send a piece of content."""
        self._writes.write(_LENGTH.pack(len(data)) + data)

    def end(self) -> None:
        """Send the end of the content."""
        self.put(b"")
        self._writes.flush()

    def get(self) -> bytes:
        """Receive a piece of content; an empty one is its end."""
        data = self._take()
        if data is None:
            raise LostStreamError("the stream has ended early")
        return data


class _ContentWriter:
    """A file whose content goes into frames."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames

    def write(self, data: bytes) -> int:
        for place in range(0, len(data), _PIECE):
            self._frames.put(bytes(data[place : place + _PIECE]))
        return len(data)


class _ContentReader:
    """A file whose content comes from frames; at its end the stream stands behind the content."""

    def __init__(self, frames: Frames) -> None:
        self._frames, self._rest, self._ended = frames, b"", False

    def read(self, size: int) -> bytes:
        while len(self._rest) < size and not self._ended:
            piece = self._frames.get()
            self._ended = not piece
            self._rest += piece
        data, self._rest = self._rest[:size], self._rest[size:]
        return data

    def drain(self) -> None:
        """Read to the end."""
        self._rest = b""
        while not self._ended:
            self._ended = not self._frames.get()


def digest_of(path: Path) -> str:
    """Digest of a file or a folder: of contents, names, what may be executed, and where links within lead to.

    Raises:
        OSError: It cannot be read.
    """
    found = hashlib.sha256()
    _digest(path, found, follow=True)
    return found.hexdigest()


def _digest(path: Path, found: Any, *, follow: bool) -> None:
    if path.is_symlink() and not follow:
        found.update(b"l" + os.fsencode(path.readlink()) + b"\0")
    elif path.is_dir():
        found.update(b"d")
        for child in sorted(path.iterdir()):
            found.update(os.fsencode(child.name) + b"\0")
            _digest(child, found, follow=False)
        found.update(b".")
    else:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            executable = os.fstat(file.fileno()).st_mode & 0o100
            found.update(b"f%d %d\0" % (bool(executable), size))
            while piece := file.read(_PIECE):
                found.update(piece)


def send_content(frames: Frames, path: Path) -> None:
    """Send a file or a folder, and the end of it whatever happens.

    Raises:
        OSError: It cannot be read; what was sent has another digest then.
    """
    try:
        with tarfile.open(fileobj=_ContentWriter(frames), mode="w|", format=tarfile.PAX_FORMAT) as tar:  # type: ignore[call-overload]
            tar.add(path.resolve(), _NAME, filter=_anybodys)
    finally:
        frames.end()


def _anybodys(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def keep_content(frames: Frames, target: Path, spare: Path) -> str:
    """Receive a file or a folder, and put it in its place when it is whole.

    Args:
        frames: What it comes over.
        target: Its place.
        spare: A folder for what has not come as a whole yet, on the same disk.

    Returns:
        Its digest.

    Raises:
        LostStreamError: The stream has ended before.
        OSError: It cannot be written; the content was read to its end.
    """
    content = _ContentReader(frames)
    part: Path | None = None
    try:
        spare.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(dir=spare))
        with tarfile.open(fileobj=content, mode="r|") as tar:  # type: ignore[call-overload]
            for member in tar:
                _extract(tar, member, part)
        content.drain()
        found = digest_of(part / _NAME)
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_dir() and not target.is_symlink():  # one folder does not replace another
            target.replace(part / "old")
        (part / _NAME).replace(target)
        return found
    except tarfile.TarError as error:
        content.drain()
        raise OSError(errno.EIO, str(error)) from None
    except LostStreamError:
        raise
    except OSError:
        content.drain()
        raise
    finally:
        if part is not None:
            shutil.rmtree(part, ignore_errors=True)


def _extract(tar: tarfile.TarFile, member: tarfile.TarInfo, part: Path) -> None:
    """Write one member; one that would leave the folder is refused, whoever sent it."""
    name, link = PurePosixPath(member.name), PurePosixPath(member.linkname)
    leads = PurePosixPath(os.path.normpath(name.parent / link)) if member.issym() else name
    inside = name.parts[:1] == leads.parts[:1] == (_NAME,) and ".." not in name.parts
    # Behind a link, .. leads elsewhere than its text says.
    inside &= (part / name.parent).resolve() == part.resolve() / name.parent
    inside &= not member.issym() or ".." not in tuple(itertools.dropwhile("..".__eq__, link.parts))
    if not inside or not (member.isreg() or member.isdir() or member.issym()):
        raise OSError(errno.EPERM, f"{member.name!r} is no plain file, folder or link within", member.name)
    place = part / name
    if member.isdir():
        place.mkdir(exist_ok=True)
    elif member.issym():
        place.symlink_to(member.linkname)
    else:
        source = tar.extractfile(member)
        assert source is not None
        with place.open("wb") as file:
            shutil.copyfileobj(source, file, _PIECE)
        place.chmod(0o755 if member.mode & 0o100 else 0o644)


def is_full(error: OSError) -> bool:
    """True for an error that says that a disk is full, or a quota used up."""
    return error.errno in _FULL


def serve(frames: Frames, root: Path) -> None:
    """Answer requests until the stream ends.

    Args:
        frames: What they come over.
        root: The run's folder on this machine.
    """
    while (request := frames.hear()) is not None:
        place = root / request["name"]
        try:
            if request["op"] == "put":
                _put(frames, place, request["digest"], root)
            else:
                _get(frames, place)
        except LostStreamError:
            raise
        except OSError as error:
            frames.say({"error": error.strerror or str(error), "full": is_full(error)})


def _put(frames: Frames, place: Path, digest: str, root: Path) -> None:
    there = ""
    with contextlib.suppress(OSError):
        there = digest_of(place)
    frames.say({"have": there == digest})
    if there == digest:
        return
    found = keep_content(frames, place, root / ".parts")
    frames.say({"digest": found})


def _get(frames: Frames, place: Path) -> None:
    there = os.path.lexists(place)
    frames.say({"there": there})
    if there:
        send_content(frames, place)
        frames.say({"digest": digest_of(place)})


def main() -> int:
    """Serve the run's folder on this machine, which lies beside this program."""
    with contextlib.suppress(BrokenPipeError, LostStreamError):
        serve(Frames(sys.stdin.buffer, sys.stdout.buffer), Path(__file__).resolve().parent / "run")
    return 0


if __name__ == "__main__":
    sys.exit(main())
