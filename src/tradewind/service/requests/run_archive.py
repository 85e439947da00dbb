"""Archives of results, sent while they are made: neither in memory nor on a disk as a whole."""

from __future__ import annotations

import io
import os
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import BinaryIO

from tradewind.errors import NotFoundError, UnreachableError
from tradewind.service.requests.run_files import RunFileEntry

LEFT_OUT = "LEFT-OUT.txt"
"""Name of the file that says what could not be put into an archive."""

_PIECE = 256 * 1024
_FIRST_YEAR, _LAST_YEAR = 1980, 2107  # of dates in a zip file


class _Pipe(io.RawIOBase):
    """Keeps what a zip file writes until it is sent."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self._pieces.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        """Return what was written since the last time."""
        found = b"".join(self._pieces)
        self._pieces.clear()
        return found


def archive_pieces(entries: Sequence[RunFileEntry], open_file: Callable[[str], BinaryIO]) -> Iterator[bytes]:
    """Yield the pieces of a zip file.

    Args:
        entries: The files of a run that its user may have, and no others.
        open_file: Opens one of them by its path; it follows no link.
    """
    pipe = _Pipe()
    left_out: list[str] = []
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for entry in entries:
            try:
                source = open_file(entry.path)
            except (NotFoundError, UnreachableError) as error:  # removed meanwhile, or too large on another server
                left_out.append(f"{entry.path}: {error.message}")
                continue
            with source:
                for _ in _add(archive, source, entry.path):
                    yield pipe.take()
        if left_out:
            archive.writestr(LEFT_OUT, "\n".join([*left_out, ""]))
    yield pipe.take()


def _add(archive: zipfile.ZipFile, source: BinaryIO, path: str) -> Iterator[None]:
    """Add a file; it is as long as it was when it was opened, for a program may still write."""
    about = os.fstat(source.fileno())
    made = time.gmtime(about.st_mtime)[:6]
    date = made if _FIRST_YEAR <= made[0] <= _LAST_YEAR else (_FIRST_YEAR, 1, 1, 0, 0, 0)
    info = zipfile.ZipInfo(name_in_archive(path), date)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o100644 << 16
    left = about.st_size
    with archive.open(info, "w", force_zip64=True) as target:
        while left > 0 and (piece := source.read(min(left, _PIECE))):
            left -= len(piece)
            target.write(piece)
            yield
    yield


def name_in_archive(path: str) -> str:
    """Return a name that leads out of no folder, also not where a backslash separates folders."""
    pieces = PurePosixPath(path.replace("\\", "_")).parts
    return "/".join(piece for piece in pieces if piece not in ("/", "..", ".")) or "file"
