"""Predicted figures of configurations as a table that fits the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import typer

_NOTHING_CUT = 200
"""Characters a line where the output is a file or a pipe, which have no width."""


@dataclass(frozen=True, slots=True)
class PredictedRange:
    """A predicted figure with its 90 % range, in its own unit."""

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class PredictionRow:
    """A configuration and what is expected of it.

    Attributes:
        words: The configuration.
        runtime: Seconds.
        cost: USD, this run.
        chance: That it fits; None where nothing bounds it.
        reason: What the figures rest on.
        objective: The figure that is ranked by, where it is neither time nor cost.
    """

    words: str
    runtime: PredictedRange
    cost: PredictedRange
    chance: float | None
    reason: str
    objective: PredictedRange = PredictedRange(None)


def print_predictions(lines: Sequence[PredictionRow], *, bound: bool, metric: str | None = None) -> None:
    """Print them, the best first.

    Args:
        lines: The configurations.
        bound: Whether deadline or bounds may be missed, so that the chance is worth a column.
        metric: What they are ranked by, as a column of its own; None where that is time or cost.
    """
    import shutil
    import sys

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _NOTHING_CUT
    head, *body = prediction_lines(lines, width, bound=bound, metric=metric)
    typer.echo(typer.style(head, bold=True))
    for line in body:
        typer.echo(line)


def prediction_lines(
    lines: Sequence[PredictionRow], width: int, *, bound: bool, metric: str | None = None
) -> list[str]:
    """The table, heading first: a line each where that fits, otherwise each configuration below its figures.

    Where the figures are too wide by themselves, the range of the cost is left out.

    Args:
        lines: As for `print_predictions`.
        width: Characters a line.
        bound: As for `print_predictions`.
        metric: As for `print_predictions`.
    """
    from tradewind.reporting.text_layout import below

    names = [*([metric, "90 % range"] if metric else []), "time", "90 % range", "cost", "90 % range"]
    names += ["fits"] if bound else []
    rows: list[list[str]] = [names, *(_cells(one, bound=bound, metric=metric) for one in lines)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    place = len(str(len(lines)))
    longest = max(len("configuration"), *(len(one.words) for one in lines))
    whys = max(len("why"), *(len(one.reason) for one in lines))
    if place + longest + whys + sum(widths) + 2 * (len(widths) + 2) <= width:
        firsts = ["configuration", *(one.words for one in lines)]
        lasts = ["why", *(one.reason for one in lines)]
        return [
            f"{_number(number, place)}  {first:<{longest}}  {_row(row, widths, 2)}  {last}".rstrip()
            for number, (first, row, last) in enumerate(zip(firsts, rows, lasts, strict=True))
        ]
    if place + 1 + sum(widths) + len(widths) > width:
        # The range of the cost goes first: on given machines it is as wide as that of the time.
        gone = -2 if bound else -1
        widths.pop(gone)
        for cells in rows:
            cells.pop(gone)
    gap = 2 if place + sum(widths) + 2 * len(widths) <= width else 1
    found = [f"{_number(0, place)}  {_row(names, widths, gap)}"]
    for number, (one, row) in enumerate(zip(lines, rows[1:], strict=True), 1):
        found.append(f"{_number(number, place)}  {_row(row, widths, gap)}")
        words = f"{one.words}  ({one.reason})" if one.reason else one.words
        found += below(words, width, place + 2)
    return found


def _number(number: int, width: int) -> str:
    return f"{number or '':>{width}}"


def _row(cells: Sequence[str], widths: Sequence[int], gap: int) -> str:
    return (" " * gap).join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))


def _cells(one: PredictionRow, *, bound: bool, metric: str | None) -> list[str]:
    from tradewind.utils.units import format_duration, format_money

    cells = []
    if metric is not None:
        value = one.objective.value
        cells += ["-" if value is None else f"{value:.4g}", _between(one.objective)]
    cells += [format_duration(one.runtime.value), _durations(one.runtime)]
    cells += [format_money(one.cost.value), _money(one.cost)]
    if bound:
        cells.append("-" if one.chance is None else f"{one.chance:.0%}")
    return cells


def _between(figure: PredictedRange) -> str:
    if figure.low is None or figure.high is None:
        return "-"
    return f"{figure.low:.3g}..{figure.high:.3g}"


def _durations(figure: PredictedRange) -> str:
    """``0.08..0.13 s``: a unit that both have is written once."""
    from tradewind.utils.units import format_duration

    if figure.low is None or figure.high is None:
        return "-"
    low, high = format_duration(figure.low), format_duration(figure.high)
    return f"{low.removesuffix(' s') if high.endswith(' s') else low}..{high}"


def _money(figure: PredictedRange) -> str:
    """``$0.038..0.047``: two digits tell as much of a range as three; outwards, so that the figure lies within."""
    from decimal import ROUND_CEILING, ROUND_FLOOR

    if figure.low is None or figure.high is None:
        return "-"
    return f"${_two_digits(figure.low, ROUND_FLOOR)}..{_two_digits(figure.high, ROUND_CEILING)}"


def _two_digits(usd: float, rounding: str) -> str:
    import math
    from decimal import Decimal

    if usd == 0 or usd >= 1:
        return f"{usd:,.2f}"
    digits = min(9, max(2, 1 - math.floor(math.log10(usd))))
    return f"{Decimal(str(usd)).quantize(Decimal(1).scaleb(-digits), rounding):f}"
