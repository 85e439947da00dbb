"""How learning went, as a picture: the makespan of each episode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tradewind.errors import InputError, MissingProgramError
from tradewind.reporting.study.png import STYLE, words_axis
from tradewind.reporting.textplot import step_plot
from tradewind.utils.dependencies import install_command
from tradewind.utils.units import format_duration

_COLOURS = ("#c1440e", "#007d5a", "#7a828c")


def learning_curve_lines(makespans: Sequence[float], width: int) -> list[str]:
    """The makespans of episodes as lines of text."""
    places = [float(place) for place in range(1, len(makespans) + 1)]
    return step_plot(places, makespans, width=width, y_words=format_duration, x_words=lambda at: f"{at:.0f}")


def draw_learning_curve(
    title: str, makespans: Sequence[float], lines: Mapping[str, float], path: Path, *, best: bool = True
) -> None:
    """Draw the makespans of episodes, the best so far, and what they are compared with.

    Args:
        title: Of the picture.
        makespans: Seconds of each episode.
        lines: Seconds of other ways, by their names.
        path: The PNG file.
        best: Draw the best so far: where episodes meet different worlds, it would show their luck.

    Raises:
        MissingProgramError: matplotlib is not installed.
        InputError: The file cannot be written.
    """
    try:
        import matplotlib as mpl
    except ImportError:
        raise MissingProgramError("PNG charts need matplotlib", hint=install_command("plots")) from None
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9, 5.2), dpi=130)
        FigureCanvasAgg(figure)
        _draw_learning(figure, title, makespans, lines, best)
        try:
            figure.savefig(path, format="png")
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror}", hint="name a file in another folder") from None


def _draw_learning(figure: Any, title: str, makespans: Sequence[float], lines: Mapping[str, float], best: bool) -> None:
    axes = figure.add_subplot()
    episodes = range(1, len(makespans) + 1)
    axes.scatter(episodes, makespans, s=12, c="#0072b2", alpha=0.5, linewidths=0, label="episode")
    if best:
        least = [min(makespans[: at + 1]) for at in range(len(makespans))]
        axes.step(episodes, least, where="post", color="#0072b2", linewidth=2, label="best so far")
    for colour, (name, length) in zip(_COLOURS, lines.items(), strict=False):
        axes.axhline(length, color=colour, linewidth=1.5, linestyle="--", label=f"{name}: {format_duration(length)}")
    axes.set_title(title)
    axes.set_xlabel("episode")
    axes.set_ylabel("makespan")
    axes.set_xlim(0.5, len(makespans) + 0.5)
    words_axis(axes.yaxis, format_duration, log=False)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
