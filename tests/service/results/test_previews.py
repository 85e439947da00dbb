"""Previews of what anybody's program has left."""

from __future__ import annotations

import io
import struct

import pytest

from tradewind.service.results.file_types import picture_of
from tradewind.service.results.previews import MOST_TEXT, FilePreview, first_shown, preview_of

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 30, 20)
GIF = b"GIF89a" + struct.pack("<HH", 30, 20)
JPEG = b"\xff\xd8\xff\xe0\0\x04ab\xff\xc0\0\x11\x08" + struct.pack(">HH", 20, 30) + b"\0"
WEBP = b"RIFF\0\0\0\0WEBPVP8X" + b"\0" * 8 + b"\x1d\0\0\x13\0\0"


def shown(path: str, data: bytes, size: int | None = None) -> FilePreview:
    return preview_of(path, io.BytesIO(data), len(data) if size is None else size)


@pytest.mark.parametrize(
    ("data", "kind"), [(PNG, "image/png"), (GIF, "image/gif"), (JPEG, "image/jpeg"), (WEBP, "image/webp")]
)
def test_pictures_are_known_by_their_content(data: bytes, kind: str) -> None:
    picture = picture_of(data)
    assert picture is not None
    assert (picture.media_type, picture.width, picture.height) == (kind, 30, 20)
    assert shown("outputs/whatever.txt", data).kind == "picture"
    assert [picture_of(data[:cut]) for cut in range(8)] == [None] * 8


def test_a_picture_that_is_none_is_not_shown_as_one() -> None:
    svg = shown("outputs/x.png", b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>')
    assert svg.kind == "text"
    bomb = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 60_000, 60_000)
    found = shown("outputs/x.png", bomb)
    assert (found.kind, "60,000 × 60,000 points" in found.note) == ("none", True)
    assert shown("outputs/x.png", PNG, 10**9).kind == "none"


def test_a_table_with_curves() -> None:
    found = shown("outputs/heat.csv", b"time;heat;name\n0;1.5;a\n1;2.5;b\n2;4;c\n")
    assert (found.kind, found.note) == ("table", "")
    assert found.columns == ["time", "heat", "name"]
    assert found.rows[1] == ["1", "2.5", "b"]
    [chart] = found.charts
    assert (chart.title, chart.x.title, list(chart.layers[0].rows)) == ("heat", "time", [(0, 1.5), (1, 2.5), (2, 4)])


def test_tables_that_are_odd_are_shown_nevertheless() -> None:
    assert shown("a.csv", "größe,1\n".encode("latin-1")).note.startswith("It is not UTF-8")
    assert shown("a.csv", "\ufeffa,b\n1,2\n".encode()).columns == ["a", "b"]
    assert shown("a.csv", "a,b\n1,2\n".encode("utf-16")).columns == ["a", "b"]
    assert shown("a.csv", b"1,2\n3\n4,5,6\n").rows == [["1", "2", ""], ["3", "", ""], ["4", "5", "6"]]
    assert shown("a.csv", b"").kind == "text"
    assert shown("a.csv", b"a,b\0").kind == "none"
    assert shown("a.csv", b'"' + b"x" * 200_000).kind == "text", "a cell is longer than the reader takes"


def test_a_table_of_millions_of_rows_is_cut() -> None:
    row = b"".join(b"%d,%d\n" % (number, number % 7) for number in range(20_000))
    found = shown("a.csv", row, 10**10)
    assert len(found.rows) == 100
    assert "The first 100 rows" in found.note
    assert len(found.charts[0].layers[0].rows) <= 1000


def test_texts_are_cut() -> None:
    found = shown("outputs/a.log", b"x" * (2 * MOST_TEXT))
    assert (found.kind, len(found.text), found.note) == ("text", MOST_TEXT, "The beginning of 128 KiB.")
    assert shown("outputs/README.md", b"# Hello").kind == "markdown"
    assert shown("outputs/a.pdf", b"%PDF-1.7").kind == "pdf"


def test_the_page_begins_with_a_picture_or_a_table() -> None:
    assert first_shown(["stdout", "outputs/a.csv", "outputs/b.png", "outputs/c.bin"]) == "outputs/b.png"
    assert first_shown(["stdout", "outputs/c.bin"]) == ""
