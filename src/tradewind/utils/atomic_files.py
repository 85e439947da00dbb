"""Files that appear whole, or not at all: written aside under a name that nobody else has, and put in place."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_KEPT = 50
"""Characters of a file's name beside what is added: names end at 255 bytes, and a character has up to four."""


def write_atomically(path: Path, data: str | bytes, *, mode: int | None = None, durable: bool = False) -> None:
    """Write a file in one step: a reader sees the old content or the new one, never half of it.

    Args:
        path: The file; what is there is replaced.
        data: Its content, text as UTF-8.
        mode: Its permissions; what the umask leaves unless given.
        durable: Whether it shall outlast a power cut from the moment this returns.

    Raises:
        OSError: It cannot be written; what was there stays.
    """
    with atomic_path(path, mode=mode, durable=durable) as part:
        part.write_bytes(data.encode() if isinstance(data, str) else data)


@contextmanager
def atomic_path(path: Path, *, mode: int | None = None, durable: bool = False) -> Iterator[Path]:
    """An empty file in the same folder, to be written in the block; it takes the name of another one at the end.

    Whatever is raised in the block, it is gone and what was there stays.

    Args:
        path: As in `write_atomically`.
        mode: Permission bits, as for `write_atomically`.
        durable: Written through to the disk, as for `write_atomically`.

    Yields:
        The file to write; one that replaces it will do too.

    Raises:
        OSError: It cannot be made or put in place; it names the file that was wanted.
    """
    # Not the process id: threads write the same file at the same moment.
    part = path.with_name(f".{path.name[:_KEPT]}.{os.urandom(6).hex()}.part")
    try:
        handle = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666 if mode is None else mode & 0o700)
        try:
            if mode is not None:
                os.fchmod(handle, mode)
        finally:
            os.close(handle)
        yield part
        if durable:
            _settle(part)
        part.replace(path)
        if durable:
            _settle(path.parent)
    except BaseException as error:
        with suppress(OSError):
            part.unlink()
        if isinstance(error, OSError) and error.filename is not None and os.fspath(error.filename) == str(part):
            error.filename = str(path)  # the user knows of no other one
        raise


@contextmanager
def atomic_user_path(path: Path) -> Iterator[Path]:
    """As `atomic_path`, for a place that the user has named: a link stays one, and its target is replaced.

    What is no file (a pipe, a device such as ``/dev/stdout``) is written itself: replacing it would break it for all.

    Args:
        path: The place.

    Yields:
        The file to write.

    Raises:
        OSError: As in `atomic_path`.
    """
    if path.exists() and not path.is_file():
        yield path
    else:
        with atomic_path(path.resolve()) as part:
            yield part


def remove_empty(folders: Iterable[Path]) -> None:
    """Remove folders in which nothing is; the first one that has something, or is not ours to remove, ends it.

    Args:
        folders: The folders, each before the one that it is in.
    """
    with suppress(OSError):
        for each in folders:
            each.rmdir()


def _settle(path: Path) -> None:
    """Wait until a file or a folder is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
