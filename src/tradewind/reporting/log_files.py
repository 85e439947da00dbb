"""Reads log files that may be huge, may not be UTF-8, and may still grow; and files of records."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tradewind.errors import RecordError

_BLOCK = 1 << 16


def tail_offset(path: Path, lines: int) -> int:
    """Find the offset at which the last lines of a file begin; it is read from its end, block by block.

    Args:
        path: The file.
        lines: Number of lines to keep.

    Returns:
        The offset in bytes; 0 when the file has fewer lines.
    """
    with path.open("rb") as file:
        end = file.seek(0, 2)
        if lines <= 0:
            return end
        at, found = end, 0
        while at > 0:
            start = max(0, at - _BLOCK)
            file.seek(start)
            block = file.read(at - start)
            # A line break at the very end closes the last line and begins none.
            limit = len(block) - 1 if at == end else len(block)
            while (limit := block.rfind(b"\n", 0, limit)) >= 0:
                found += 1
                if found == lines:
                    return start + limit + 1
            at = start
        return 0


class LogFileReader:
    """Reads a file from an offset, as far as it has been written; bytes that are not UTF-8 become ``�``.

    Args:
        path: The file.
        offset: Bytes to skip at the beginning.
    """

    def __init__(self, path: Path, offset: int = 0) -> None:
        self._path = path
        self._offset = offset
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def read(self) -> Iterator[str]:
        """Yield the text that was written since the last call, in pieces of bounded size."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            if file.seek(0, 2) < self._offset:  # it was cut: begin again
                self._offset = 0
            file.seek(self._offset)
            while block := file.read(_BLOCK):
                self._offset += len(block)
                yield self._decoder.decode(block)

    def rest(self) -> str:
        """Return the replacement for an unfinished character at the end, once nothing more will come."""
        return self._decoder.decode(b"", final=True)


def read_records(path: Path) -> Iterator[Mapping[str, Any]]:
    """Read the records of a file: a JSON array, or one JSON object a line.

    Args:
        path: The file.

    Raises:
        RecordError: It cannot be read; with the line.
    """
    try:
        with path.open(encoding="utf-8") as file:
            first = file.read(1)
            while first and first.isspace():
                first = file.read(1)
            if not first:
                hint = "tradewind export --format records writes some"
                raise RecordError("there is nothing in it", hint=hint, file=str(path))
            file.seek(0)
            if first == "[":
                yield from _array(file.read(), path)
                return
            for line, text in enumerate(file, start=1):
                if text.strip():
                    yield _record(_parse(text, path, line), path, line)
    except UnicodeDecodeError:
        raise RecordError("it is not UTF-8", hint="write it with tradewind export", file=str(path)) from None
    except OSError as error:
        raise RecordError(f"cannot be read: {error.strerror}", file=str(path)) from None


def _array(text: str, path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise RecordError(f"it is not JSON: {error.msg}", file=str(path), line=error.lineno) from None
    if not document:
        hint = "tradewind export --format records writes some"
        raise RecordError("there is no record in it", hint=hint, file=str(path))
    for index, record in enumerate(document, start=1):
        yield _record(record, path, None, f"entry {index} ")


def _parse(text: str, path: Path, line: int) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        hint = "each line is one record, as tradewind export --format records writes it"
        raise RecordError(f"it is not JSON: {error.msg}", hint=hint, file=str(path), line=line) from None


def _record(document: Any, path: Path, line: int | None, where: str = "") -> Mapping[str, Any]:
    if not isinstance(document, Mapping):
        raise RecordError(f"{where}is no record: a JSON object is wanted", file=str(path), line=line)
    return document
