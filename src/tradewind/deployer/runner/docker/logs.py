"""Reads what containers print, as a whole or from a byte on."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tradewind.deployer.runner.docker.names import engine_time

_PIECE_LIMIT = 4 << 20
_HEADER = struct.Struct(">BxxxL")


def _frames(client: Any, container: str, **given: Any) -> Iterator[tuple[int, bytes]]:
    """What a container printed: 0 and a piece of its standard output, or 1 and one of its standard error.

    The package reads one of the two at a time, and asks about the container before each.
    """
    import requests
    from docker.errors import create_api_error_from_http_exception

    address = f"{client.base_url}/v{client.api_version}/containers/{container}/logs"
    with closing(client.get(address, params=given, stream=True, timeout=client.timeout)) as answer:
        try:
            answer.raise_for_status()
        except requests.HTTPError as error:
            create_api_error_from_http_exception(error)
        while header := _exactly(answer.raw, _HEADER.size):
            kind, length = _HEADER.unpack(header)
            piece = _exactly(answer.raw, length)
            yield int(kind == 2), piece


def _exactly(raw: Any, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        piece = raw.read(size - len(found))
        if not piece:
            return b""
        found += piece
    return bytes(found)


def save_logs(client: Any, container: str, paths: tuple[Path, Path], limit: int | None) -> bool:
    """Write what a container printed into two files; a reader sees the old files or the whole new ones.

    Args:
        client: A ``docker.APIClient``.
        container: Its id.
        paths: The files for the standard output and for the standard error.
        limit: The most bytes that are kept of each, or None.

    Returns:
        True when there was more than that.
    """
    parts = [path.with_name(path.name + ".part") for path in paths]
    sizes = [0, 0]
    cut = False
    with parts[0].open("wb") as out, parts[1].open("wb") as err:
        for kind, piece in _frames(client, container, stdout=1, stderr=1):
            room = len(piece) if limit is None else max(0, limit - sizes[kind])
            cut = cut or len(piece) > room
            (err if kind else out).write(piece[:room])
            sizes[kind] += len(piece)
    for part, path in zip(parts, paths, strict=True):
        part.replace(path)
    return cut


@dataclass(frozen=True, slots=True)
class LogPosition:
    """Where reading a log stopped: engines count in time, readers in bytes.

    Attributes:
        offset: Bytes before it.
        time: The time of the last entry, as the engine writes it.
        seen: How many entries of that time were read.
    """

    offset: int = 0
    time: str = ""
    seen: int = 0


def read_container_log(
    client: Any, container: str, stream: str, offset: int, place: LogPosition
) -> tuple[bytes, LogPosition]:
    """What a container printed from a byte on, and where that ends.

    Args:
        client: A ``docker.APIClient``.
        container: Its id.
        stream: ``stdout`` or ``stderr``.
        offset: The first byte that is wanted.
        place: Where an earlier call ended, if that was at this byte; else the log is read from its beginning.
    """
    if place.offset != offset:
        place = LogPosition()
    position, last, seen, skip = place.offset, place.time, place.seen, place.seen
    since = {"since": f"{engine_time(last) - 1e-5:.6f}"} if last else {}
    found = bytearray()
    with closing(_frames(client, container, **{stream: 1}, timestamps=1, **since)) as frames:  # type: ignore[type-var]
        for _, piece in frames:
            stamp, _, text = piece.partition(b" ")
            time = stamp.decode(errors="replace")
            if time < place.time or (time == place.time and skip > 0):
                skip -= time == place.time
                continue
            seen = seen + 1 if time == last else 1
            last = time
            found += text[max(0, offset - position) :]
            position += len(text)
            if len(found) >= _PIECE_LIMIT:
                break
    return bytes(found), LogPosition(position, last, seen)
