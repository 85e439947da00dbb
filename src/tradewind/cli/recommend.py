"""``tradewind recommend``: which configuration to use for these job parameters, from the store alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tradewind.engine.recommend import Advice
    from tradewind.problem.spec import Spec

_UNLIKELY = 0.5
"""Below this chance of being feasible, the user is told that nothing that fits is known."""


def recommend(
    file: Annotated[Path, typer.Argument(help="The job YAML.", show_default=False)],
    param: Annotated[
        list[str] | None, typer.Option("--param", "-p", help="A job parameter's value, size=4000; repeatable.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Show this many configurations.")] = 5,
    deadline: Annotated[str | None, typer.Option(help="Time that one run may take: 30m.")] = None,
    searcher: Annotated[str | None, typer.Option(help="Who recommends, of the searchers that can.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    store: Annotated[str | None, typer.Option(help="Address of the store.", show_default=False)] = None,
) -> None:
    """Say which configuration to use for these job parameters, from earlier runs; nothing is run."""
    from contextlib import closing

    from tradewind.cli.common import load_job, open_store
    from tradewind.engine.recommend import advise
    from tradewind.errors import NoHistoryError, StudyNotFoundError
    from tradewind.paths import data_folder

    spec = load_job(file, {"constraints.deadline": deadline} if deadline is not None else {}, param)
    try:
        opened = open_store(store, must_exist=True)
    except StudyNotFoundError as error:
        raise NoHistoryError(error.message, hint=f"tradewind tune {file} makes one") from None
    with closing(opened):
        advice = advise(spec, opened, data_folder(), top, searcher)
    if as_json:
        from tradewind.cli.common import emit_json

        emit_json(_document(spec, advice))
    else:
        _show(spec, advice)


def _document(spec: Spec, advice: Advice) -> dict[str, Any]:
    from dataclasses import asdict

    found = zip(advice.recommendations, advice.offers, strict=True)
    return {
        "job": spec.name,
        "parameters": dict(advice.parameters),
        "searcher": advice.searcher,
        "runs": advice.runs,
        "basis": list(advice.basis),
        "recommendations": [
            {**asdict(one), "configuration": dict(one.configuration), "offer": offer.to_json()} for one, offer in found
        ],
    }


def _show(spec: Spec, advice: Advice) -> None:
    import shutil
    import sys

    from rich.console import Console
    from rich.table import Table

    from tradewind.units import format_duration, format_money

    given = ", ".join(f"{name}={value}" for name, value in advice.parameters.items())
    typer.echo(f"{spec.name}{f' with {given}' if given else ''}: predicted, not run")
    bound = spec.constraints.deadline is not None or bool(spec.constraints.thresholds)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("", "configuration", "time", "90 % range", "cost", "90 % range", *(["fits"] if bound else []), "why"):
        table.add_column(name, justify="left" if name in ("configuration", "why") else "right", overflow="fold")
    for place, one in enumerate(advice.recommendations, 1):
        table.add_row(
            str(place),
            str(one.configuration),
            format_duration(one.runtime),
            f"{format_duration(one.runtime_low)} to {format_duration(one.runtime_high)}",
            format_money(one.cost),
            f"{format_money(one.cost_low)} to {format_money(one.cost_high)}",
            *([f"{one.probability_feasible:.0%}"] if bound else []),
            one.reason,
        )
    # A file or a pipe has no width: nothing is cut there.
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 200
    Console(width=width, highlight=False, markup=False).print(table)
    for line in advice.basis:
        typer.echo(f"- {line}")
    if bound and advice.recommendations[0].probability_feasible < _UNLIKELY:
        typer.echo("None is likely to keep deadline and bounds; those that come nearest are shown.")
