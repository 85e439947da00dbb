from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from tradewind.reporting.text_layout import TableColumn, TextTable, below, sized


def printed(grid: TextTable, width: int = 80, *, colour: bool = False) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=colour, color_system="standard" if colour else None).print(grid)
    return out.getvalue().splitlines()


@pytest.mark.parametrize(
    ("text", "width", "wanted"),
    [("abc", 5, "abc  "), ("abcdef", 4, "abc…"), ("日本語", 6, "日本語"), ("日本語", 5, "日本…"), ("日本", 3, "日…")],
)
def test_a_text_takes_so_many_places(text: str, width: int, wanted: str) -> None:
    assert sized(text, width) == wanted
    assert sized("ab", 4, right=True) == "  ab"


def test_columns_are_below_their_headings_and_no_line_ends_in_spaces() -> None:
    grid = TextTable(
        [TableColumn("n", right=True), TableColumn("name")], [["7", "zlib"], ["12", "a\x1b[31m"]], [{}, {}], 40
    )
    assert printed(grid) == [" n  name", " 7  zlib", "12  a·[31m"]


def test_colours_are_only_where_a_style_is() -> None:
    lines = printed(TextTable([TableColumn("a"), TableColumn("b")], [["x", "y"]], [{1: "red"}], 40), colour=True)
    assert lines[0].startswith("\x1b[1ma")
    assert lines[1] == "x  \x1b[31my\x1b[0m"


def test_ten_thousand_lines_take_no_ten_seconds() -> None:
    rows = [[str(i), "succeeded", f"level={i} workers=2", "$0.10"] for i in range(10_000)]
    grid = TextTable(
        [TableColumn("n", right=True), TableColumn("state"), TableColumn("c", least=8), TableColumn("$")],
        rows,
        [{}] * 10_000,
        100,
    )
    began = time.process_time()
    assert len(printed(grid, 100)) == 10_001
    assert time.process_time() - began < 2.5, "rich's own table takes about 8 s"


@pytest.mark.parametrize("width", [26, 30, 40, 60])
def test_where_nothing_fits_figures_are_cut_last_and_no_line_is_too_long(width: int) -> None:
    columns = [TableColumn("trial", right=True), TableColumn("state"), TableColumn("configuration", least=16)]
    columns.append(TableColumn("cost, this run", right=True))
    lines = printed(TextTable(columns, [["14", "succeeded", "level=1 workers=12", "$0.0000100"]], [{}], width), width)
    assert len(lines) == 2
    assert max(map(len, lines)) <= width
    assert len(lines[0].split("  ")) >= 4
    assert ("$0.0000100" in lines[1]) == (width >= 40)


def test_what_must_not_be_cut_is_below_its_line_where_it_does_not_fit() -> None:
    columns = [
        TableColumn("n", right=True),
        TableColumn("configuration", least=8, below=True),
        TableColumn("$", 1, right=True),
    ]
    rows = [["7", "instance=us-east-1/c5.large level=1", "1.00"], ["12", "", "0.50"]]
    assert printed(TextTable(columns, rows, [{}, {}], 60), 60)[1] == " 7  instance=us-east-1/c5.large level=1  1.00"
    assert printed(TextTable(columns, rows, [{}, {}], 34), 34) == [
        " n     $",
        " 7  1.00",
        "    instance=us-east-1/c5.large",
        "    level=1",
        "12  0.50",
    ]


def test_lines_below_break_between_words() -> None:
    assert below("instance=us-east-1/c5.large level=1 codec=zstd", 44, 4) == [
        "    instance=us-east-1/c5.large level=1",
        "    codec=zstd",
    ]
    assert below("", 44, 4) == []
