"""Lays out text in a given width: tables, shortened names, and curves drawn with braille dots.

A table leaves out its least important columns and cuts those that may be cut, so that no line wraps; what must not be
cut is below its line instead. It is not rich's table, which takes a millisecond a line: ten thousand trials are shown
in a second, not in ten.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tradewind.utils.units import printable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.segment import Segment


_BETWEEN = "  "
_BELOW = 16
"""Characters of text that a line below a table's line has at least."""

_NARROW, _NARROWEST = 8, 4
"""Places of a column that is cut where nothing fits: of names and configurations, and of others."""


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table.

    Attributes:
        title: Heading of the column.
        rank: 0 is never left out; of the others the greatest goes first.
        right: True for figures.
        least: Characters to which it may be cut, or None when it is shown whole or not at all.
        below: True for what is on lines of its own below the others where it would be cut.
    """

    title: str
    rank: int = 0
    right: bool = False
    least: int | None = None
    below: bool = False


@dataclass(slots=True)
class TextTable:
    """A table, to be printed by rich's console.

    Attributes:
        columns: The columns, with what may be cut or left out.
        rows: A text for each column.
        styles: Of each row, by column.
        width: Characters that it may take.
    """

    columns: list[TableColumn]
    rows: list[list[str]]
    styles: list[Mapping[int, str]] = field(default_factory=list)
    width: int = 80

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        from rich.segment import Segment
        from rich.style import Style

        rows = [[printable(text) for text in row] for row in self.rows]
        shown, under = self._arranged(rows)
        indent = next(iter(shown.values()), 0) + len(_BETWEEN)
        bold, end = Style(bold=True), Segment.line()
        known: dict[str, Style] = {"": Style.null()}
        for row, styles in [([column.title for column in self.columns], None), *zip(rows, self.styles, strict=True)]:
            for place, (i, width) in enumerate(shown.items()):
                name = "" if styles is None else styles.get(i, "")
                if name not in known:
                    known[name] = console.get_style(name)
                text = sized(row[i], width, right=self.columns[i].right)
                last = place == len(shown) - 1
                yield Segment(text.rstrip() if last else text + _BETWEEN, bold if styles is None else known[name])
            yield end
            for i in under if styles is not None else ():
                for line in below(row[i], self.width, indent):
                    yield Segment(line)
                    yield end

    def _arranged(self, rows: Sequence[Sequence[str]]) -> tuple[dict[int, int], list[int]]:
        """The columns that are shown side by side, with their widths, and those that are below them."""
        shown = self._shown(rows, ())
        movable = [i for i, column in enumerate(self.columns) if column.below]
        under = [i for i in movable if shown.get(i, 0) < max((cells(row[i]) for row in rows), default=0)]
        return (self._shown(rows, under), under) if under else (shown, [])

    def _shown(self, rows: Sequence[Sequence[str]], under: Sequence[int]) -> dict[int, int]:
        """The columns that are shown side by side, with their widths; without some that are below."""
        widths = [max(map(cells, [column.title, *(row[i] for row in rows)])) for i, column in enumerate(self.columns)]
        kept = _chosen(self.columns, widths, self.width, under)
        shown = {i: widths[i] for i in kept}
        spare = self.width - sum(widths[i] + 2 for i in kept)
        cuttable = [i for i in kept if self.columns[i].least is not None]
        for i in sorted(cuttable, key=lambda i: -widths[i]):
            if spare < 0:
                least = max(self.columns[i].least or 1, len(self.columns[i].title))
                cut = min(-spare, max(0, widths[i] - least))
                shown[i] -= cut
                spare += cut
        if spare < -len(_BETWEEN):  # behind the last column nothing stands
            self._squeeze(shown, rows)
        return shown

    def _squeeze(self, shown: dict[int, int], rows: Sequence[Sequence[str]]) -> None:
        """Cut what is usually shown whole, where there is no other way: figures last of all."""
        room = self.width - len(_BETWEEN) * (len(shown) - 1)
        bodies = {i: max((cells(row[i]) for row in rows), default=0) for i in shown}
        figures = {i for i in shown if self.columns[i].right}
        words = {i for i in shown if self.columns[i].least is not None}
        # The titles of figures, then texts that may be cut anyhow, other texts, and figures.
        for chosen, floor in ((figures, bodies), (words, {}), (shown.keys() - figures, {}), (shown.keys(), {})):
            least = {i: max(_NARROW if i in words else _NARROWEST, floor.get(i, 0)) for i in chosen}
            while sum(shown.values()) > room:
                widest = max(chosen, key=lambda i: shown[i] - least[i], default=None)
                if widest is None or shown[widest] <= least[widest]:
                    break
                shown[widest] -= 1


def _chosen(columns: Sequence[TableColumn], widths: Sequence[int], width: int, under: Sequence[int]) -> list[int]:
    """Columns that fit when all that may be cut are cut to their least; without some that are below."""

    def needed(kept: Sequence[int]) -> int:
        cut = [min(widths[i], max(columns[i].least or widths[i], len(columns[i].title))) for i in kept]
        return sum(cut) + 2 * len(kept)

    kept = [i for i in range(len(columns)) if i not in under]
    while needed(kept) > width and any(columns[i].rank for i in kept):
        kept.remove(max(kept, key=lambda i: (columns[i].rank, i)))
    return kept


def below(words: str, width: int, indent: int) -> list[str]:
    """Wrap a text that has no room in a line of a table into lines below it; only overlong words are broken.

    Args:
        words: A text.
        width: Characters a line.
        indent: Characters that are left free at the beginning of each line.
    """
    import textwrap

    start = " " * indent
    return textwrap.wrap(
        words, max(width, indent + _BELOW), initial_indent=start, subsequent_indent=start, break_on_hyphens=False
    )


def cells(text: str) -> int:
    """Count the cells of a terminal that a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def sized(text: str, width: int, *, right: bool = False) -> str:
    """A text of exactly so many places: filled up with spaces, or cut with an ellipsis."""
    room = width - cells(text)
    if room >= 0:
        return " " * room + text if right else text + " " * room
    from rich.cells import set_cell_size

    return set_cell_size(text, max(0, width - 1)) + "…"


def _end(name: str, most: int) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def _beginning(name: str, most: int) -> str:
    return name if len(name) <= most else "…" + name[len(name) - most + 1 :]


def _middle(name: str, most: int) -> str:
    if len(name) <= most:
        return name
    keep = most - 1
    return name[: (keep + 1) // 2] + "…" + name[len(name) - keep // 2 :]


CUTS: tuple[Callable[[str, int], str], ...] = (_end, _beginning, _middle)
"""Functions that shorten a name at its end, its beginning or its middle, with a mark where something is missing."""


def shortened_names(names: Collection[str], most: int) -> dict[str, str]:
    """Shorten names to a number of columns, so that most of them stay distinct.

    Names that one workflow engine makes often begin alike (``NFCORE_RNASEQ.RNASEQ.ALIGN_STAR.STAR_ALIGN``), others end
    alike: all are cut at the end, or all at the beginning, or all in the middle, whichever leaves most of them apart.

    Args:
        names: The names; those that fit stay.
        most: Columns for each name, at least 3.
    """
    return max(({name: cut(name, most) for name in names} for cut in CUTS), key=lambda found: len(set(found.values())))


_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


def step_plot(
    x: Sequence[float],
    y: Sequence[float],
    *,
    width: int,
    height: int = 8,
    end: float | None = None,
    x_words: Callable[[float], str] = "{:g}".format,
    y_words: Callable[[float], str] = "{:g}".format,
    log: bool = False,
) -> list[str]:
    """Draw a curve that keeps its value until the next point, in braille dots, eight to a character.

    Args:
        x: Places of the changes, increasing.
        y: The value from each on.
        width: Columns in all, labels included.
        height: Lines of the curve; one more has the labels of x.
        end: Where the x axis ends; the last x when None.
        x_words: Writes a label of the x axis.
        y_words: Writes a label of the y axis.
        log: True for a logarithmic y axis.

    Returns:
        The lines, or none where there is no point or no room.
    """
    if not x:
        return []
    last = max(end if end is not None else x[-1], x[-1])
    low, high = min(y), max(y)
    top, bottom = y_words(high), y_words(low)
    margin = max(len(top), len(bottom)) + 1
    columns = width - margin - 1
    if columns < 8 or height < 2:
        return []
    # The difference of the two greatest numbers there are is infinite, that of their quarters is not.
    scale = (lambda v: math.log(v)) if log and low > 0 else (lambda v: v / 4.0)
    span = scale(high) - scale(low)
    dots = _draw(x, [(scale(high) - scale(v)) / span if span else 0.5 for v in y], last, columns, height)
    lines = []
    for row in range(height):
        label = top if row == 0 else bottom if row == height - 1 and span else ""
        body = "".join(chr(0x2800 + dots[row][column]) for column in range(columns))
        lines.append(f"{label:>{margin - 1}} {'┤' if label else '│'}{body}")
    first, final = x_words(0.0), x_words(last)
    gap = max(1, columns - len(first) - len(final))
    lines.append(" " * margin + "└" + first + "─" * gap + final)
    return lines


def _draw(x: Sequence[float], depth: Sequence[float], last: float, columns: int, height: int) -> list[list[int]]:
    """Bit patterns of the characters; ``depth`` is 0 at the top and 1 at the bottom."""
    dots = [[0] * columns for _ in range(height)]

    def dot(across: int, down: int) -> None:
        dots[down // 4][across // 2] |= _DOTS[down % 4][across % 2]

    wide, tall = 2 * columns - 1, 4 * height - 1
    before: int | None = None
    at = 0
    start = round(x[0] / last * wide) if last > 0 else 0
    for across in range(start, wide + 1):
        place = across / wide * last
        while at + 1 < len(x) and x[at + 1] <= place + 1e-12:
            at += 1
        down = round(depth[at] * tall)
        for middle in range(min(down, down if before is None else before), max(down, before or 0) + 1):
            if before is not None or middle == down:
                dot(across, middle)
        before = down
    return dots
