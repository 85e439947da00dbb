"""Reads files of a run's folder, and nothing else: no symbolic link is followed, no pipe is waited for."""

from __future__ import annotations

import codecs
import fnmatch
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from tradewind.deployer.result_folders import is_result, results_in
from tradewind.deployer.runner.log_limit import skip_hole
from tradewind.errors import NotFoundError

LOGS = ("stdout", "stderr", "application.stdout", "application.stderr", "hooks.log")
"""The logs that a run may have."""

_SHOWN = frozenset({*LOGS, "metrics.jsonl", "outputs"})
"""What users see of a run's folder; the rest is the runner's own."""

_MOST_FILES = 10_000


@dataclass(frozen=True, slots=True)
class RunLogPart:
    """A part of a log.

    Attributes:
        text: Text of the part; bytes that are not UTF-8 are shown as replacement characters.
        next: The offset in bytes to go on with.
        ended: True where nothing more will come after it.
        run: The run that it is of; empty before there is one.
        trial: Number of the trial, of a search.
    """

    text: str
    next: int
    ended: bool
    run: str = ""
    trial: int | None = None


@dataclass(frozen=True, slots=True)
class RunFileEntry:
    """A file that a run left.

    Attributes:
        path: Path below the run's folder, with ``/``.
        size: Length in bytes.
    """

    path: str
    size: int


def list_files(folder: Path) -> list[RunFileEntry]:
    """List the files of a run that its user may have, by path; at most 10,000."""
    found: list[RunFileEntry] = []
    for path, size in _walk(folder):
        if len(found) >= _MOST_FILES:
            break
        found.append(RunFileEntry(path, size))
    return sorted(found, key=lambda entry: entry.path)


def is_declared(path: str, patterns: Sequence[str]) -> bool:
    """Return True where a file is a result by the patterns of its application.

    Args:
        path: Path below the run's folder.
        patterns: Patterns of paths below ``outputs``; a folder stands for all that is in it. Without any, all is.
    """
    first, *pieces = PurePosixPath(path).parts or ("",)
    if not patterns or first != "outputs":
        return True
    return any(_matches(pieces, PurePosixPath(pattern).parts) for pattern in patterns)


def _matches(pieces: Sequence[str], pattern: Sequence[str]) -> bool:
    return len(pieces) >= len(pattern) and all(map(fnmatch.fnmatchcase, pieces, pattern))


def _walk(folder: Path) -> Iterator[tuple[str, int]]:
    if not folder.is_dir():
        return
    for place, folders, names, handle in os.fwalk(folder, follow_symlinks=False):
        below = PurePosixPath(os.path.relpath(place, folder))
        if str(below) == ".":
            folders[:] = [name for name in folders if name in _SHOWN]
            names = [name for name in names if name in _SHOWN]
        else:
            results = results_in({*folders, *names})
            folders[:] = [name for name in folders if name in results]
            names = [name for name in names if name in results]
        for name in names:
            try:
                about = os.stat(name, dir_fd=handle, follow_symlinks=False)
            except OSError:
                continue  # a running job may have removed it
            if stat.S_ISREG(about.st_mode) and _is_text(name):
                yield str(below / name), about.st_size


def _is_text(name: str) -> bool:
    """True for a name that can be written on a page: file systems take any bytes."""
    return name.isprintable()


def open_file(folder: Path, path: str) -> BinaryIO:
    """Open a file of a run.

    Args:
        folder: The run's folder.
        path: The file's path below it, as `list_files` says it.

    Raises:
        NotFoundError: There is no such file, or it is not one of those that the user may have.
    """
    pieces = PurePosixPath(path).parts
    plain = pieces and "\0" not in path and ".." not in pieces and not path.startswith("/") and pieces[0] in _SHOWN
    if not plain:
        raise _missing(path)
    try:
        handle = _descend(folder, pieces)
    except (OSError, UnicodeEncodeError):  # half of a surrogate pair is in no file's name
        raise _missing(path) from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise _missing(path)
    return os.fdopen(handle, "rb")


def _descend(folder: Path, pieces: tuple[str, ...]) -> int:
    """Open each folder within the one before it: a link that is put there meanwhile is met by `O_NOFOLLOW`."""
    here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    for index, piece in enumerate(pieces):
        last = index == len(pieces) - 1
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_NONBLOCK if last else os.O_DIRECTORY)
        try:
            if index and not is_result(here, piece):
                raise FileNotFoundError(piece)
            below = os.open(piece, flags, dir_fd=here)
        finally:
            os.close(here)
        here = below
    return here


def _missing(path: str) -> NotFoundError:
    shown = path if path.isprintable() and len(path) < 200 else "of this name"
    return NotFoundError(f"the run has no file {shown}", hint="the list of its files shows what there is")


def read_log(folder: Path, stream: str, offset: int, limit: int, *, over: bool) -> RunLogPart | None:
    """Read a part of a log on this machine; None when it is not there (yet).

    Args:
        folder: The run's folder.
        stream: One of `LOGS`.
        offset: Offset to begin at, in bytes.
        limit: Bytes at most.
        over: True where the run has ended, so that nothing will be added.
    """
    try:
        file = open_file(folder, stream)
    except NotFoundError:
        return None
    with file:
        size = os.fstat(file.fileno()).st_size
        start = file.seek(skip_hole(file, min(max(0, offset), size)))
        return log_part(file.read(limit), start, last=over and start + limit >= size)


def log_part(data: bytes, offset: int, *, last: bool) -> RunLogPart:
    """Decode a part of a log: a character that is cut at its end is left for the next part.

    Args:
        data: The bytes.
        offset: Offset of the first byte in the log.
        last: True where nothing will come after them.
    """
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    text = decoder.decode(data, final=last)
    rest = 0 if last else len(decoder.getstate()[0])
    return RunLogPart(text, offset + len(data) - rest, last)
