"""``tradewind recommend``: which configuration to use for these job parameters, from the store alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tradewind.client.models import Proposal
    from tradewind.engine.recommend import Advice
    from tradewind.problem.spec import Spec

_UNLIKELY = 0.5
"""Below this chance of being feasible, the user is told that nothing that fits is known."""


def recommend(
    file: Annotated[
        Path,
        typer.Argument(help="The job YAML; with --server also an application: NAME or NAME@3.", show_default=False),
    ],
    param: Annotated[
        list[str] | None, typer.Option("--param", "-p", help="A job parameter's value, size=4000; repeatable.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Show this many configurations.")] = 5,
    deadline: Annotated[str | None, typer.Option(help="Time that one run may take: 30m.")] = None,
    searcher: Annotated[str | None, typer.Option(help="Who recommends, of the searchers that can.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    store: Annotated[str | None, typer.Option(help="Address of the store.", show_default=False)] = None,
    server: Annotated[
        str | None, typer.Option(help="Ask this server, of which login keeps a token.", show_default=False)
    ] = None,
) -> None:
    """Say which configuration to use for these job parameters, from earlier runs; nothing is run."""
    from contextlib import closing

    from tradewind.cli.common import load_job, open_store
    from tradewind.engine.recommend import advise
    from tradewind.errors import NoHistoryError, StudyNotFoundError
    from tradewind.paths import data_folder

    if server is not None:
        _ask(server, file, param, top, deadline, as_json=as_json)
        return
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


def _ask(
    server: str, what: Path, param: Sequence[str] | None, count: int, deadline: str | None, *, as_json: bool
) -> None:
    """The same from a server, which knows the runs of everybody whose runs we may know."""
    from tradewind.cli.common import pairs
    from tradewind.cli.service.places import emit, open_client
    from tradewind.problem.spec import load_spec

    application = load_spec(what).name if what.is_file() else str(what)
    given = pairs(param, "--param", "size=4000")
    with open_client(server) as client:
        found = client.propose(application, given, deadline=deadline, count=count)
    if as_json:
        emit(found)
    else:
        _show_proposal(found)


def _show_proposal(found: Proposal) -> None:
    typer.echo(f"{found.application}{_given(found.parameters)} on {found.backend}: predicted, not run")
    bound = found.deadline is not None and found.best.chance is not None
    lines = [
        _Line(
            ", ".join(f"{name}={value}" for name, value in one.configuration.items()),
            one.runtime,
            (one.runtime_low, one.runtime_high),
            one.cost,
            (one.cost_low, one.cost_high),
            one.chance if bound else None,
            one.reason,
        )
        for one in found.candidates
    ]
    _print(lines, list(found.basis), bound=bound)
    if found.advice:
        typer.echo(f"- {found.advice}")


def _show(spec: Spec, advice: Advice) -> None:
    typer.echo(f"{spec.name}{_given(advice.parameters)}: predicted, not run")
    bound = spec.constraints.deadline is not None or bool(spec.constraints.thresholds)
    lines = [
        _Line(
            str(one.configuration),
            one.runtime,
            (one.runtime_low, one.runtime_high),
            one.cost,
            (one.cost_low, one.cost_high),
            one.probability_feasible if bound else None,
            one.reason,
        )
        for one in advice.recommendations
    ]
    _print(lines, list(advice.basis), bound=bound)


class _Line(NamedTuple):
    """A configuration on the screen."""

    words: str
    runtime: float | None
    runtimes: tuple[float | None, float | None]
    cost: float | None
    costs: tuple[float | None, float | None]
    chance: float | None
    reason: str


def _given(parameters: Mapping[str, Any]) -> str:
    words = ", ".join(f"{name}={value}" for name, value in parameters.items())
    return f" with {words}" if words else ""


def _print(lines: Sequence[_Line], basis: Sequence[str], *, bound: bool) -> None:
    import shutil
    import sys

    from rich.console import Console
    from rich.table import Table

    from tradewind.units import format_duration, format_money

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("", "configuration", "time", "90 % range", "cost", "90 % range", *(["fits"] if bound else []), "why"):
        table.add_column(name, justify="left" if name in ("configuration", "why") else "right", overflow="fold")
    for place, one in enumerate(lines, 1):
        table.add_row(
            str(place),
            one.words,
            format_duration(one.runtime),
            " to ".join(format_duration(each) for each in one.runtimes) if one.runtimes[0] is not None else "-",
            format_money(one.cost),
            " to ".join(format_money(each) for each in one.costs) if one.costs[0] is not None else "-",
            *([f"{one.chance:.0%}" if one.chance is not None else "-"] if bound else []),
            one.reason,
        )
    # A file or a pipe has no width: nothing is cut there.
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 200
    Console(width=width, highlight=False, markup=False).print(table)
    for line in basis:
        typer.echo(f"- {line}")
    if bound and lines[0].chance is not None and lines[0].chance < _UNLIKELY:
        typer.echo("None is likely to keep deadline and bounds; those that come nearest are shown.")
