"""Keeps the beginning and the end of a log that is longer than its limit, with a line between them about the rest.

The metric of a run is mostly on its last lines, and what went wrong at first on its first. What lies between is left
out: on the disk while the program still writes, where its file system can make holes in files, else by taking it away.

The standard library is enough here: the warden uses this module on any machine.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections import deque
from typing import BinaryIO

MOST_TAIL = 16 << 20
"""The most that is kept of the end: whoever keeps it in memory, as ``tail`` does, needs so much."""

_GAP_BYTES = 100
_LINE = 1 << 20
_PAGE = 4096
_KEEP_SIZE, _PUNCH_HOLE = 1, 2


def shares(limit: int) -> tuple[int, int]:
    """Split the limit of a log: bytes kept of its beginning, and of its end; there is room for the line between."""
    tail = min(limit // 2, MOST_TAIL, max(0, limit - _GAP_BYTES))
    return max(0, limit - tail - _GAP_BYTES), tail


def log_words(limit: int | None) -> str:
    """The limit and its `shares`, as the words that a shell on another machine gets; empty without a limit."""
    return "" if limit is None else " ".join(map(str, (limit, *shares(limit))))


def gap_line(left_out: int) -> bytes:
    """The line that stands for what is left out; `tradewind.utils.log_copies.GAP_LINES` matches it."""
    return f"[{left_out} bytes are left out here: more than deploy.log_limit]\n".encode()


def shorten_log(path: str | os.PathLike[str], limit: int | None, written: int | None = None) -> bool:
    """Keep the beginning and the end of a log that is over its limit; both end, and begin, at whole lines.

    Args:
        path: The file. Nothing is done to what is no plain file: the job may have left anything there.
        limit: Bytes that are kept, with the line between; None for all.
        written: Bytes that the program has written, where the file has only the beginning and the end of them, each
            at least as much as `shares` says, one right behind the other.

    Returns:
        True when something is left out.

    Raises:
        OSError: The file cannot be read or written.
    """
    if limit is None:
        return False
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    try:
        found = os.fstat(fd)
        size = found.st_size
        head, tail = shares(limit)
        if not stat.S_ISREG(found.st_mode) or (size if written is None else written) <= limit:
            return False
        head = min(head, size)
        end = _read(fd, max(head, size - tail), tail)
        # Half of a number would be read as another number.
        end = end[_after_first_line(end) :]
        before = _read(fd, max(0, head - _LINE), min(head, _LINE))
        head -= len(before) - (_after_last_line(before) or len(before))
        left_out = (size if written is None else written) - head - len(end)
        glue = b"" if head == 0 or _read(fd, head - 1, 1) == b"\n" else b"\n"
        os.ftruncate(fd, head)  # first: on a full disk there is room for the end then
        os.lseek(fd, head, os.SEEK_SET)
        _write(fd, glue + gap_line(left_out) + end)
        return True
    finally:
        os.close(fd)


def _after_first_line(text: bytes) -> int:
    """The place behind the first end of a line that something follows; 0 without one."""
    places = [place for place in (text.find(b"\n", 0, -1), text.find(b"\r", 0, -1)) if place >= 0]
    return min(places) + 1 if places else 0


def _after_last_line(text: bytes) -> int:
    return max(text.rfind(b"\n"), text.rfind(b"\r")) + 1


def _read(fd: int, offset: int, size: int) -> bytes:
    pieces = []
    while size > 0 and (piece := os.pread(fd, size, offset)):
        pieces.append(piece)
        offset += len(piece)
        size -= len(piece)
    return b"".join(pieces)


def _write(fd: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(fd, rest) :]


class GrowingLog:
    """A log that a program appends to by itself, held near its limit on the disk.

    Args:
        path: The file.
        limit: Bytes that are kept of it.
    """

    def __init__(self, path: str, limit: int) -> None:
        self._path = path
        self._limit = limit
        self._head, self._tail = shares(limit)
        self._hole_end = self._head
        self._taken = 0  # bytes that were taken away where no holes can be made
        self._end = b""  # the last of them

    def trim(self) -> None:
        """Give the disk back what is too much: to be called again and again while the program writes."""
        try:
            size = os.stat(self._path).st_size  # noqa: PTH116  (no pathlib in the warden)
            # A piece as long as the tail gathers first: not every look has to make a hole.
            if size <= self._limit or size <= self._hole_end + 2 * self._tail:
                return
            fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:  # the job removed its own log
            return
        try:
            if self._taken or not _punch(fd, max(self._head, self._hole_end - _PAGE), size - self._tail):
                self._take(fd)
            else:
                self._hole_end = size - self._tail
        except OSError:
            return
        finally:
            os.close(fd)

    def _take(self, fd: int) -> None:
        """Keep the end in memory and cut the file. What is written in between is lost: at most a few lines."""
        place = max(self._head, os.fstat(fd).st_size - self._tail)
        skipped = place - self._head
        pieces = []
        while piece := _read(fd, place, max(1, self._tail)):  # up to what was written meanwhile
            pieces.append(piece)
            place += len(piece)
        os.ftruncate(fd, self._head)
        last = b"".join(pieces)
        self._taken += skipped + len(last)
        self._end = (self._end + last)[-self._tail :] if self._tail else b""

    def finish(self) -> bool:
        """Leave the beginning, the line about the rest, and the end; True when something is left out.

        Raises:
            OSError: The file cannot be read or written.
        """
        if not self._taken:
            return shorten_log(self._path, self._limit)
        fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            size = os.fstat(fd).st_size
            end = self._end + _read(fd, max(self._head, size - self._tail), self._tail)
            end = end[-self._tail :] if self._tail else b""
            os.ftruncate(fd, min(self._head, size))
            os.lseek(fd, 0, os.SEEK_END)
            _write(fd, end)
        finally:
            os.close(fd)
        return shorten_log(self._path, self._limit, self._taken + size)


def _punch(fd: int, start: int, end: int) -> bool:
    """Make a hole in a file; False where the file system cannot."""
    if end <= start:
        return True
    fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return bool(fallocate(fd, _KEEP_SIZE | _PUNCH_HOLE, start, end - start) == 0)


class CappedLogFile:
    """Writes a log that comes in pieces: its beginning at once, its end when it is complete.

    Args:
        file: The file, opened for writing in binary.
        limit: Bytes that are kept, or None for all.
    """

    def __init__(self, file: BinaryIO, limit: int | None) -> None:
        self._file = file
        self._limit = limit
        self._tail = 0 if limit is None else shares(limit)[1]
        self._written = 0
        self._pieces: deque[bytes] = deque()
        self._waiting = 0

    def write(self, piece: bytes) -> None:
        """Take the next piece."""
        room = len(piece) if self._limit is None else max(0, self._limit - self._written)
        self._file.write(piece[:room])
        self._written += len(piece)
        if room < len(piece):
            self._pieces.append(piece[room:])
            self._waiting += len(piece) - room
            while self._waiting - len(self._pieces[0]) >= self._tail:
                self._waiting -= len(self._pieces.popleft())

    def close(self) -> bool:
        """Write the end and close the file; True when something is left out."""
        end = b"".join(self._pieces)
        self._file.write(end[max(0, len(end) - self._tail) :])
        self._file.close()
        return shorten_log(self._file.name, self._limit, self._written)


def skip_hole(file: BinaryIO, offset: int) -> int:
    """The place, from an offset on, at which a file has something: a log that grows over its limit has a hole."""
    try:
        return max(offset, os.lseek(file.fileno(), offset, os.SEEK_DATA))
    except OSError:  # the end of the file, or a file system that does not say
        return offset
