"""A curve drawn with braille dots: eight dots to a character."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

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
    """Lines of text with a curve that keeps its value until the next point.

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
