"""``tradewind report``: which configuration to use and why, on the terminal, as a web page and as pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tradewind.cli import completion

if TYPE_CHECKING:
    from tradewind.reporting.study.data import StudyData
    from tradewind.reporting.study.prediction_map import PredictedMap
    from tradewind.store.base import StudyRow


def report(
    study: Annotated[
        str | None,
        typer.Argument(
            help="A study's name, its id or a job.yaml; the newest study without it.", autocompletion=completion.studies
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write a web page that needs no network.", metavar="FILE")
    ] = None,
    png: Annotated[
        Path | None, typer.Option("--png", help="Write the charts as PNG files into a folder.", metavar="FOLDER")
    ] = None,
    map_: Annotated[
        bool, typer.Option("--map", help="Show what the searcher predicts of all configurations, tried or not.")
    ] = False,
    map_plot: Annotated[
        Path | None,
        typer.Option("--map-plot", help="Draw predicted cost against run time as .svg or .png.", metavar="FILE"),
    ] = None,
    also: Annotated[
        list[str] | None,
        typer.Option("--also", help="Show what is traded for the objective: runtime, max:accuracy.", metavar="METRIC"),
    ] = None,
    show: Annotated[bool, typer.Option("--open/--no-open", help="Open the web page in the browser.")] = False,
    store: Annotated[str | None, typer.Option("--store", help="Address of the store.", metavar="URL")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say which configuration to use and why, or how a workflow's run kept to its plan; --html and --png draw it."""
    from tradewind.cli.common import emit_json
    from tradewind.errors import InputError

    if show and html is None:
        raise InputError("--open needs a web page", hint="add --html report.html")
    mapped = map_ or map_plot is not None
    if (run := _workflow_run(store, study)) is not None:
        _report_run(store, run, html, png, searched="--also" if also else "--map" if mapped else "", as_json=as_json)
        if show and html is not None:
            typer.launch(html.absolute().as_uri())
        return
    data, predicted = _load(store, study, also or (), mapped=mapped)
    written = write_files(data, html, png, predicted)
    if predicted is not None and map_plot is not None:
        from tradewind.reporting.study.prediction_map import write_map

        written.append(write_map(predicted, map_plot))
    if as_json:
        from tradewind.reporting.study.documents import report_document

        added = {"map": predicted.document()} if predicted is not None else {}
        emit_json({**report_document(data), **added, "files": [str(path) for path in written]})
    else:
        if map_ or not written:
            _print(data, predicted if map_ else None)
        for path in written:
            typer.echo(f"wrote {path}")
    if show and html is not None:
        typer.launch(html.absolute().as_uri())


def _workflow_run(store: str | None, study: str | None) -> StudyRow | None:
    """The study that is meant, if it is a run of a workflow."""
    from contextlib import closing

    from tradewind.cli.common import find_study, open_store

    with closing(open_store(store, must_exist=True)) as opened:
        found = find_study(opened, study)
    return found if found.kind == "workflow" else None


def _report_run(
    store: str | None, run: StudyRow, html: Path | None, png: Path | None, *, searched: str, as_json: bool
) -> None:
    """Report on the run of a workflow; ``searched`` is an option that it cannot have."""
    from contextlib import closing

    from tradewind.cli.common import open_store
    from tradewind.cli.workflow.stored_runs import report_run
    from tradewind.errors import InputError

    if searched:
        raise InputError(f"{searched} is for searches, and {run.name} is a run of a workflow", hint="leave it out")
    with closing(open_store(store)) as opened:
        report_run(opened, run.id, html, png, as_json=as_json)


def _load(
    store: str | None, study: str | None, also: Sequence[str], *, mapped: bool
) -> tuple[StudyData, PredictedMap | None]:
    """A study's results, and the map of what its searcher predicts where that is wanted."""
    from contextlib import closing

    from tradewind.cli.common import find_study, open_store
    from tradewind.reporting.study.data import StudyData
    from tradewind.reporting.study.pareto import read_also

    with closing(open_store(store, must_exist=True)) as opened:
        found = find_study(opened, study).id
        data = StudyData.load(opened, found, read_also(also))
        if not mapped:
            return data, None
        from tradewind.reporting.study.prediction_map import PredictedMap
        from tradewind.utils.paths import data_folder

        return data, PredictedMap.load(opened, found, data_folder())


def _print(data: StudyData, predicted: PredictedMap | None) -> None:
    """Print the map, or without one the report."""
    from rich.console import Console

    from tradewind.reporting.study.prediction_map import print_map
    from tradewind.reporting.study.terminal import print_report

    if predicted is not None:
        print_map(predicted, Console(highlight=False))
    else:
        print_report(data, Console(highlight=False))


def write_files(
    data: StudyData, html: Path | None, png: Path | None, predicted: PredictedMap | None = None
) -> list[Path]:
    """Write the report as HTML and its plots as PNG, whichever is wanted; returns the files."""
    written = []
    if html is not None:
        from tradewind.reporting.study.html import render_html, write_html

        more = []
        if predicted is not None:
            from tradewind.reporting.study.prediction_map import map_chart

            more = [map_chart(predicted)]
        written.append(write_html(render_html(data, more), html))
    if png is not None:
        from tradewind.reporting.study.png import write_pngs

        written += write_pngs(data, png)
    return written
