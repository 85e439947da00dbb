"""Types of files by their content: pictures that a browser may show as they are, and PDF."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from tradewind.utils.units import format_memory

PDF = "application/pdf"

_MOST_BYTES = 16 * 2**20
_MOST_PIXELS = 50_000_000
_JPEG_SIZES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
"""Segments of a JPEG that say how large it is."""

_STANDALONE = frozenset({0x01, *range(0xD0, 0xD9)})


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture of points, known by its content; one that is drawn by instructions (SVG) is none.

    Attributes:
        media_type: Its type.
        width: Points across.
        height: Points upwards.
    """

    media_type: str
    width: int
    height: int

    def trouble(self, size: int) -> str:
        """Return why a browser should not show it; empty where it may.

        Args:
            size: Length of the file in bytes.
        """
        if size > _MOST_BYTES:
            return f"A picture of {format_memory(size)} is too large to be shown here: download it."
        if not 0 < self.width * self.height <= _MOST_PIXELS:
            return f"A picture of {self.width:,} × {self.height:,} points is not shown here: download it."
        return ""


def is_pdf(data: bytes) -> bool:
    """Return True for the beginning of a PDF."""
    return data.startswith(b"%PDF-")


def picture_of(data: bytes) -> Picture | None:
    """Return what picture a file is by its beginning; None for any other file."""
    try:
        if data.startswith(b"\x89PNG\r\n\x1a\n") and data[12:16] == b"IHDR":
            return Picture("image/png", *struct.unpack(">II", data[16:24]))
        if data.startswith((b"GIF87a", b"GIF89a")):
            return Picture("image/gif", *struct.unpack("<HH", data[6:10]))
        if data.startswith(b"\xff\xd8\xff"):
            return _jpeg(data)
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            return _webp(data)
    except struct.error:
        pass  # it is cut: no picture
    return None


def _jpeg(data: bytes) -> Picture | None:
    place = 2
    while place + 9 <= len(data) and data[place] == 0xFF:
        kind = data[place + 1]
        if kind == 0xFF or kind in _STANDALONE:
            place += 1 if kind == 0xFF else 2
            continue
        if kind in _JPEG_SIZES:
            height, width = struct.unpack(">HH", data[place + 5 : place + 9])
            return Picture("image/jpeg", width, height)
        place += 2 + struct.unpack(">H", data[place + 2 : place + 4])[0]
    return None


def _webp(data: bytes) -> Picture | None:
    kind = data[12:16]
    if kind == b"VP8X":
        width, height = (1 + int.from_bytes(data[at : at + 3], "little") for at in (24, 27))
        return Picture("image/webp", width, height)
    if kind == b"VP8L":
        bits = struct.unpack("<I", data[21:25])[0]
        return Picture("image/webp", 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF))
    if kind == b"VP8 ":
        width, height = struct.unpack("<HH", data[26:30])
        return Picture("image/webp", width & 0x3FFF, height & 0x3FFF)
    return None
