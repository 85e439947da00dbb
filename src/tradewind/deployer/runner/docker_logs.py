"""Reads what containers print, as a whole or from a byte on."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tradewind.deployer.runner.docker_names import instant

_PIECE_LIMIT = 4 << 20


def save_log(client: Any, container: str, stream: str, path: Path, limit: int | None) -> bool:
    """Write what a container printed into a file; a reader sees the old file or the whole new one.

    Args:
        client: A ``docker.APIClient``.
        container: Its id.
        stream: ``stdout`` or ``stderr``.
        path: The file.
        limit: The most bytes that are kept, or None.

    Returns:
        True when there was more than that.
    """
    out = stream == "stdout"
    pieces = client.logs(container, stdout=out, stderr=not out, stream=True, follow=False)
    part = path.with_name(path.name + ".part")
    left = limit
    cut = False
    with part.open("wb") as file:
        for piece in pieces:
            cut = cut or (left is not None and len(piece) > left)
            file.write(piece if left is None else piece[:left])
            left = None if left is None else max(0, left - len(piece))
    part.replace(path)
    return cut


@dataclass(frozen=True, slots=True)
class Place:
    """Where reading a log stopped: engines count in time, readers in bytes.

    Attributes:
        offset: Bytes before it.
        time: The time of the last entry, as the engine writes it.
        seen: How many entries of that time were read.
    """

    offset: int = 0
    time: str = ""
    seen: int = 0


def read_from(client: Any, container: str, stream: str, offset: int, place: Place) -> tuple[bytes, Place]:
    """What a container printed from a byte on, and where that ends.

    Args:
        client: A ``docker.APIClient`` of the caller's own; it is not usable afterwards.
        container: Its id.
        stream: ``stdout`` or ``stderr``.
        offset: The first byte that is wanted.
        place: Where an earlier call ended, if that was at this byte; else the log is read from its beginning.
    """
    if place.offset != offset:
        place = Place()
    position, last, seen = place.offset, place.time, place.seen
    skip = seen
    out = stream == "stdout"
    since = {"since": instant(last) - 1e-5} if last else {}
    pieces = client.logs(container, stdout=out, stderr=not out, stream=True, follow=False, timestamps=True, **since)
    found = bytearray()
    with closing(pieces):
        for piece in pieces:
            stamp, _, text = piece.partition(b" ")
            time = stamp.decode(errors="replace")
            if time < place.time or (time == place.time and skip > 0):
                skip -= time == place.time
                continue
            seen = seen + 1 if time == last else 1
            last = time
            begins = max(0, offset - position)
            found += text[begins:]
            position += len(text)
            if len(found) >= _PIECE_LIMIT:
                break
    return bytes(found), Place(position, last, seen)
