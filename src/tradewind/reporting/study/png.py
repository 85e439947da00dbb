"""The main charts of a study as PNG files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from tradewind.errors import InputError
from tradewind.reporting.charts.document import Chart
from tradewind.reporting.charts.picture import draw_chart, write_chart, write_picture
from tradewind.reporting.study.charts import front_chart, level_charts, map_chart, progress_chart
from tradewind.reporting.study.data import StudyData
from tradewind.reporting.study.effects import parameter_effects
from tradewind.reporting.study.pareto import front

_PARAMETERS = 6


def write_pngs(data: StudyData, folder: Path) -> list[Path]:
    """Write the charts that have something to show.

    Args:
        data: The study.
        folder: Folder for the files; it is made.

    Returns:
        The files: ``best-so-far.png``, ``cost-time.png``, ``parameters.png``, and ``trade-off.png`` where the study has
        several objectives.

    Raises:
        MissingProgramError: matplotlib is not installed.
        InputError: The folder cannot be written.
    """
    traded = front(data)
    charts = {
        "best-so-far.png": progress_chart(data, words=False),
        "cost-time.png": map_chart(data, words=False),
        "trade-off.png": front_chart(data, traded, words=False) if traded.wanted else None,
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write charts into {folder}: {error.strerror}", hint="choose another folder") from None
    written = [
        write_chart(chart, folder / name, f"{data.study.name}: {chart.title[:1].lower()}{chart.title[1:]}")
        for name, chart in charts.items()
        if chart is not None
    ]
    levels = list(level_charts(data, parameter_effects(data)).values())[:_PARAMETERS]
    if levels:
        written.append(_write_levels(levels, folder / "parameters.png"))
    return sorted(written)


def _write_levels(levels: Sequence[Chart], path: Path) -> Path:
    """Boxes by level for the parameters with the largest effects, side by side."""
    columns = min(3, len(levels))
    rows = -(-len(levels) // columns)

    def draw(figure: Any) -> None:
        for place, chart in enumerate(levels, 1):
            title = f"{chart.title}\n{fill(chart.note, 48)}".strip()
            axes = figure.add_subplot(rows, columns, place)
            draw_chart(chart, axes, title, size=8.5, legend=False)

    return write_picture(path, (max(7.5, 4.2 * columns + 0.5), max(4.2, 3.6 * rows)), draw)
