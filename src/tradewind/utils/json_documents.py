"""Reads files of JSON documents, one a line or all in one array, however large or damaged the file is."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from tradewind.errors import RecordError
from tradewind.utils.units import format_memory

LONGEST = 256 << 20
"""Bytes of the longest line, and of the largest array, that are read: both have to be in memory as a whole."""

_GZIP = b"\x1f\x8b"
_HINT = "tradewind export --format records writes some"


class JsonDocument(NamedTuple):
    """A document with its place.

    Attributes:
        line: Its line, from 1; None in an array.
        content: The JSON object.
    """

    line: int | None
    content: Mapping[str, Any]


def read_json_documents(path: Path) -> Iterator[JsonDocument]:
    """Read the JSON objects of a file: one a line, or an array of them; what gzip has packed is unpacked.

    The file is read once and from its beginning, so that it may be a pipe; of lines, one is in memory at a time.

    Args:
        path: The file.

    Raises:
        RecordError: It cannot be read, or has something else in it; with the line.
    """
    try:
        with path.open("rb") as file:
            packed = file.peek(2)[:2] == _GZIP
            source = cast("IO[bytes]", gzip.GzipFile(fileobj=file)) if packed else file
            yield from _documents(source, path)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise RecordError(f"what gzip has packed is damaged: {error}", file=str(path)) from None
    except OSError as error:
        raise RecordError(f"cannot be read: {error.strerror or error}", file=str(path)) from None


def _documents(source: IO[bytes], path: Path) -> Iterator[JsonDocument]:
    empty = True
    for number, text in _lines(source, path):
        if empty and text.startswith("["):
            yield from _array(text, source, path, number)
            return
        empty = False
        yield JsonDocument(number, _object(_parse(text, path, number), path, number))
    if empty:
        raise RecordError("there is nothing in it", hint=_HINT, file=str(path))


def _lines(source: IO[bytes], path: Path) -> Iterator[tuple[int, str]]:
    """The lines that have something in them, with their numbers."""
    number = 0
    while line := source.readline(LONGEST + 1):
        number += 1
        if len(line) > LONGEST:
            limit = format_memory(LONGEST)
            raise RecordError(f"a line is longer than {limit}: it is no record", file=str(path), line=number)
        if text := _text(line, path).removeprefix("\ufeff").strip():
            yield number, text


def _array(begin: str, source: IO[bytes], path: Path, line: int) -> Iterator[JsonDocument]:
    rest = source.read(LONGEST + 1)
    if len(rest) > LONGEST:
        hint = "write one record a line"
        raise RecordError(f"it is an array of more than {format_memory(LONGEST)}", hint=hint, file=str(path))
    found = _parse("\n" * (line - 1) + begin + "\n" + _text(rest, path), path, None)
    if not found:
        raise RecordError("there is no record in it", hint=_HINT, file=str(path))
    for place, entry in enumerate(found, start=1):
        yield JsonDocument(None, _object(entry, path, None, f"entry {place} "))


def _text(data: bytes, path: Path) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise RecordError("it is not UTF-8", hint="write it with tradewind export", file=str(path)) from None


def _parse(text: str, path: Path, line: int | None) -> Any:
    """Parse JSON; besides bad syntax, too many levels and too many digits are no surprise in a file from elsewhere."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        hint = "each line is one record, as tradewind export --format records writes it" if line else None
        raise RecordError(
            f"it is not JSON: {error.msg}", hint=hint, file=str(path), line=line or error.lineno
        ) from None
    except RecursionError:
        raise RecordError("it is no record: its JSON has too many levels", file=str(path), line=line) from None
    except ValueError as error:
        raise RecordError(f"it is no record: {error}", file=str(path), line=line) from None


def _object(document: Any, path: Path, line: int | None, where: str = "") -> Mapping[str, Any]:
    if not isinstance(document, Mapping):
        raise RecordError(f"{where}is no record: a JSON object is wanted", file=str(path), line=line)
    return document
