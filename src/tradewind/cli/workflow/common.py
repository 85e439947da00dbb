"""Helpers that the workflow commands share: options, settings of planners, tables of figures, and pictures."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tradewind.workflow.execution.results import RuntimeChange
    from tradewind.workflow.graph import Workflow
    from tradewind.workflow.planner.base import Planner
    from tradewind.workflow.schedule import ScheduleFigures

_ACTIVITIES = 6
"""Activities whose run times are named as changed."""

_NO_DEFAULT: dict[str, Any] = {"show_default": False}

File = Annotated[
    Path,
    typer.Argument(
        help="The workflow: Pegasus, WfFormat, Nextflow, DAGMan, Snakemake, Makeflow, CWL, STG, own YAML, or a plan; "
        ".gz too.",
        **_NO_DEFAULT,
    ),
]
Lenient = Annotated[
    bool, typer.Option("--lenient", help="Accept sizes and run times below zero: sizes without sign, times as 0 s.")
]
DeclaredEdges = Annotated[
    bool,
    typer.Option(
        "--declared-edges",
        help="Keep the edges that the file declares; without it, a task waits for those that write what it reads.",
    ),
]
Vms = Annotated[
    str | None, typer.Option("--vms", help="The machines: a YAML file, or a set such as paper3:16.", **_NO_DEFAULT)
]
Set = Annotated[
    list[str] | None, typer.Option("--set", help="A setting of the planner: seconds=5; repeatable.", **_NO_DEFAULT)
]
Seed = Annotated[int, typer.Option(help="Of all chance.")]
Gantt = Annotated[
    list[Path] | None, typer.Option(help="Draw the schedule there, .html or .png; repeatable.", **_NO_DEFAULT)
]
Measured = Annotated[
    list[Path] | None,
    typer.Option(help="Run times as measured: a results.json or a folder of workflow run; repeatable.", **_NO_DEFAULT),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def with_measured(flow: Workflow, measured: Sequence[Path] | None) -> Workflow:
    """A workflow with the run times that real runs have measured, if there are any.

    Raises:
        WorkflowError: Results cannot be read, or are of other activities.
    """
    if not measured:
        return flow
    from tradewind.workflow.execution.results import measured_runtimes, read_results

    return measured_runtimes(flow, [read_results(path) for path in measured])


def describe_changes(changes: Sequence[RuntimeChange], flow: Workflow) -> str:
    """Say which run times were replaced by measured ones, in one line; empty where none was."""
    from tradewind.utils.units import count, format_duration

    if not changes:
        return ""
    said = []
    for each in sorted(changes, key=lambda change: -abs(change.after - change.before)):
        times = f"{format_duration(each.before)} -> {format_duration(each.after)}"
        several = f" in sum ({count(each.tasks, 'task')})" if each.tasks > 1 else ""
        said.append(f"{each.activity} {times}{several}")
    most = _ACTIVITIES if len(said) > _ACTIVITIES + 1 else len(said)
    more = f" and {len(said) - most} more activities" if len(said) > most else ""
    others = len(flow) - sum(each.tasks for each in changes)
    rest = f"; those of {count(others, 'other task')} stay" if others else ""
    return f"{', '.join(said[:most])}{more}{rest}"


def check_pictures(option: str, paths: Sequence[Path] | None) -> None:
    """See that pictures can be written before anything is computed.

    Raises:
        InputError: One is neither HTML nor PNG, or its folder is not there.
        MissingProgramError: One is a PNG, and matplotlib is not installed.
    """
    from tradewind.errors import InputError
    from tradewind.utils.dependencies import require_package

    for path in paths or ():
        if path.suffix not in (".html", ".png"):
            raise InputError(f"{option} {path}: it is neither .html nor .png")
        check_folder(option, path)
        if path.suffix == ".png":
            require_package("matplotlib", "PNG pictures", "plots")


def check_folder(option: str, path: Path | None) -> None:
    """See that a file can be written.

    Raises:
        InputError: Its folder is not there, or it is a folder itself.
    """
    from tradewind.errors import InputError

    if path is None:
        return
    if path.is_dir():
        raise InputError(f"{option} {path}: it is a folder", hint="name a file in it")
    if not path.absolute().parent.is_dir():
        raise InputError(f"{option} {path}: there is no folder {path.parent}", hint="make it, or name another file")


def draw_gantt(paths: Sequence[Path] | None, document: Mapping[str, Any]) -> None:
    """Draw a schedule into each file."""
    from tradewind.reporting.workflow.html import gantt_html
    from tradewind.reporting.workflow.plots import draw_gantt as draw_gantt_png
    from tradewind.workflow.files import write_text

    for path in paths or ():
        if path.suffix == ".png":
            draw_gantt_png(document, path)
        else:
            write_text(path, gantt_html(document))


def make_planner(name: str, settings: Sequence[str] | None, seed: int) -> Planner:
    """A planner with its settings; names may be written in capitals.

    Raises:
        PluginError: There is none of that name.
        InputError: A setting is not written as one, or is wrong.
    """
    from tradewind import plugins
    from tradewind.cli.common import pairs
    from tradewind.utils.paths import data_folder

    plain = name if name in plugins.names("planner") else name.lower()
    given = pairs(settings, "--set", "seconds=5")
    planner: Planner = plugins.create("planner", plain, given, seed=seed, data_folder=data_folder())
    return planner


def figure_rows(found: ScheduleFigures, *, whole: bool = True) -> list[tuple[str, str]]:
    """The figures of a schedule in words.

    Args:
        found: The figures.
        whole: False where tasks failed for good: what compares the whole workflow is then left out.
    """
    from tradewind.utils.units import format_money

    took = f"{found.makespan:,.3f} s" + _also(found.makespan)
    return [
        ("makespan", took if whole else f"{took} until nothing more could run"),
        *([("lower bound", f"{found.lower_bound:,.3f} s")] if whole else []),
        *([("gap", f"{100 * found.gap:.1f} % above the bound")] if whole else []),
        ("serial time", f"{found.serial:,.1f} s" + _also(found.serial)),
        *([("speed-up", f"{found.speedup:.2f} over the fastest machine alone")] if whole else []),
        ("utilisation", f"{100 * found.utilisation:.1f} % of the slots"),
        ("cost", f"{format_money(found.cost)} this run"),
    ]


def _also(seconds: float) -> str:
    from tradewind.utils.units import format_duration

    return f" ({format_duration(seconds)})" if seconds >= 180 else ""


def tiles(found: ScheduleFigures, *, whole: bool = True) -> list[tuple[str, str]]:
    """The figures of a schedule, short, for a picture; see `figure_rows`."""
    from tradewind.utils.units import format_duration, format_money

    return [
        ("makespan", format_duration(found.makespan)),
        *([("lower bound", format_duration(found.lower_bound))] if whole else []),
        *([("gap", f"{100 * found.gap:.1f} %")] if whole else []),
        ("serial time", format_duration(found.serial)),
        ("utilisation", f"{100 * found.utilisation:.1f} %"),
        ("cost", format_money(found.cost)),
    ]


def show_rows(rows: Sequence[tuple[str, str]]) -> None:
    """Print names and values below each other."""
    from tradewind.cli.output import printable

    widest = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        typer.echo(f"{name:<{widest}}  {printable(value)}")


def width() -> int:
    """Columns of the terminal; a file or a pipe has room for all."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 200


def show_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, words: int = 1) -> None:
    """Print a table that fits the terminal: names are cut, and columns at the right are left out, where it is narrow.

    Args:
        header: The columns' names.
        rows: The cells.
        words: How many columns at the left are words; the others are numbers.
    """
    from tradewind.cli.output import printable
    from tradewind.reporting.text_layout import shortened_names

    rows = [[*map(printable, row)] for row in rows]
    columns = [[name, *(row[place] for row in rows)] for place, name in enumerate(header)]
    widths = [max(len(cell) for cell in column) for column in columns]
    room = width()
    while sum(widths) + 2 * (len(widths) - 1) > room and len(widths) > 2 and widths[0] <= 24:
        widths.pop()
    widths[0] = max(8, min(widths[0], room - sum(widths[1:]) - 2 * (len(widths) - 1)))
    while sum(widths) + 2 * (len(widths) - 1) > room and len(widths) > 2:
        widths.pop()
    short = [shortened_names(column, size) for column, size in zip(columns[:words], widths, strict=False)]
    for row in (header, *rows):
        cells = [
            short[place][cell].ljust(size) if place < words else cell.rjust(size)
            for place, (cell, size) in enumerate(zip(row, widths, strict=False))
        ]
        typer.echo("  ".join(cells).rstrip())


def say(text: str, *, indent: str = "") -> None:
    """Print a text between words into lines that fit the terminal; a file or a pipe gets it as one line.

    Args:
        text: The text.
        indent: What its second and further lines begin with.
    """
    import textwrap

    from tradewind.cli.output import printable

    text = printable(text)
    room = max(40, width() - 1) if sys.stdout.isatty() else max(1, len(text))
    wrapped = textwrap.wrap(text, room, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    typer.echo("\n".join(wrapped) or text)
