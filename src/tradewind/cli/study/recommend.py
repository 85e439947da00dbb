"""``tradewind recommend``: which configuration to use for these job parameters, from the store alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tradewind.cli import completion

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tradewind.cli.predictions import PredictionRow
    from tradewind.client.models import ProposalInfo
    from tradewind.engine.recommendations import RecommendationSet
    from tradewind.problem.job_spec.spec import JobSpec

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
    searcher: Annotated[
        str | None,
        typer.Option(help="Who recommends, of the searchers that can.", autocompletion=completion.parts("searcher")),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    store: Annotated[str | None, typer.Option(help="Address of the store.", metavar="URL", show_default=False)] = None,
    server: Annotated[
        str | None, typer.Option(help="Ask this server, of which login keeps a token.", show_default=False)
    ] = None,
) -> None:
    """Say which configuration to use for these job parameters, from earlier runs; nothing is run."""
    from contextlib import closing

    from tradewind.cli.common import load_job, open_store
    from tradewind.engine.recommendations import recommend_configurations
    from tradewind.errors import InputError, NoHistoryError, StudyNotFoundError
    from tradewind.utils.paths import data_folder

    if server is not None:
        for option, given in (("--searcher", searcher), ("--store", store)):
            if given is not None:
                raise InputError(f"{option} is for this machine's store", hint="a server decides this by itself")
        _ask(server, file, param, top, deadline, as_json=as_json)
        return
    spec = load_job(file, {"constraints.deadline": deadline} if deadline is not None else {}, param)
    try:
        opened = open_store(store, must_exist=True)
    except StudyNotFoundError as error:
        raise NoHistoryError(error.message, hint=f"tradewind tune {file} makes one") from None
    with closing(opened):
        advice = recommend_configurations(spec, opened, data_folder(), top, searcher)
    if as_json:
        from tradewind.cli.common import emit_json

        emit_json(_document(spec, advice))
    else:
        _show(spec, advice)


def _document(spec: JobSpec, advice: RecommendationSet) -> dict[str, Any]:
    from dataclasses import asdict

    found = zip(advice.recommendations, advice.offers, strict=True)
    return {
        "job": spec.name,
        "parameters": dict(advice.parameters),
        "objective": {"metric": spec.objective.metric, "goal": spec.objective.goal},
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
    from tradewind.cli.service.connection import emit_dataclasses, open_client
    from tradewind.problem.job_spec.spec import load_spec

    application = load_spec(what).name if what.is_file() else str(what)
    given = pairs(param, "--param", "size=4000")
    with open_client(server) as client:
        found = client.propose(application, given, deadline=deadline, count=count)
    if as_json:
        emit_dataclasses(found)
    else:
        _show_proposal(found)


def _show_proposal(found: ProposalInfo) -> None:
    from tradewind.cli.predictions import PredictedRange, PredictionRow

    typer.echo(f"{found.application}{_given(found.parameters)} on {found.backend}: predicted, not run")
    bound = found.deadline is not None and found.best.chance is not None
    lines = [
        PredictionRow(
            ", ".join(f"{name}={value}" for name, value in one.configuration.items()),
            PredictedRange(one.runtime, one.runtime_low, one.runtime_high),
            PredictedRange(one.cost, one.cost_low, one.cost_high),
            one.chance if bound else None,
            one.reason,
            PredictedRange(one.objective, one.objective_low, one.objective_high),
        )
        for one in found.candidates
    ]
    known = found.best.objective is not None
    _print(lines, list(found.basis), bound=bound, metric=_named(found.metric) if known else None)
    if found.advice:
        typer.echo(f"- {found.advice}")


def _show(spec: JobSpec, advice: RecommendationSet) -> None:
    from tradewind.cli.predictions import PredictedRange, PredictionRow

    typer.echo(f"{spec.name}{_given(advice.parameters)}: predicted, not run")
    bound = spec.constraints.deadline is not None or bool(spec.constraints.thresholds)
    lines = [
        PredictionRow(
            str(one.configuration),
            PredictedRange(one.runtime, one.runtime_low, one.runtime_high),
            PredictedRange(one.cost, one.cost_low, one.cost_high),
            one.probability_feasible if bound else None,
            one.reason,
            PredictedRange(one.objective, one.objective_low, one.objective_high),
        )
        for one in advice.recommendations
    ]
    _print(lines, list(advice.basis), bound=bound, metric=_named(spec.objective.metric))


def _named(metric: str) -> str | None:
    """The objective where it is a metric of its own; time and cost have columns anyway."""
    from tradewind.problem import COST, RUNTIME

    return None if metric in (COST, RUNTIME) else metric


def _given(parameters: Mapping[str, Any]) -> str:
    words = ", ".join(f"{name}={value}" for name, value in parameters.items())
    return f" with {words}" if words else ""


def _print(lines: Sequence[PredictionRow], basis: Sequence[str], *, bound: bool, metric: str | None = None) -> None:
    from tradewind.cli.predictions import print_predictions

    print_predictions(lines, bound=bound, metric=metric)
    for line in basis:
        typer.echo(f"- {line}")
    if bound and lines[0].chance is not None and lines[0].chance < _UNLIKELY:
        typer.echo("None is likely to keep deadline and bounds; those that come nearest are shown.")
