"""``tradewind recommend``: which configuration to use for these job parameters, from the store alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tradewind.cli import completion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tradewind.client.models import CandidateInfo, ProposalInfo
    from tradewind.engine.recommendations import RecommendationSet
    from tradewind.problem.job_spec.spec import JobSpec
    from tradewind.searcher.base import Recommendation


_NOTHING_CUT = 200
"""Characters a line where the output is a file or a pipe, which have no width."""


@dataclass(frozen=True, slots=True)
class PredictedRange:
    """A predicted figure with its 90 % range, in its own unit."""

    value: float | None
    low: float | None = None
    high: float | None = None

    def times(self, count: int) -> PredictedRange:
        """The same for so many runs."""
        return PredictedRange(*(None if one is None else one * count for one in (self.value, self.low, self.high)))


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
    from tradewind.utils.units import runs_of_unit

    runs = runs_of_unit(min((one.cost.value for one in lines if one.cost.value is not None), default=None))
    cost = "cost" if runs == 1 else f"cost, {runs:,} runs"
    lines = [replace(one, cost=one.cost.times(runs)) for one in lines]
    names = [*([metric, "90 % range"] if metric else []), "time", "90 % range", cost, "90 % range"]
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
    known = one.runtime.value is not None
    cells += [format_duration(one.runtime.value) if known else "not known yet", _durations(one.runtime)]
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


_UNLIKELY = 0.5
"""Below this chance of being feasible, the command says that nothing that fits is known."""


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
        _show(spec, advice, file, param or ())


def _document(spec: JobSpec, advice: RecommendationSet) -> dict[str, Any]:
    found = zip(advice.recommendations, advice.offers, strict=True)
    return {
        "job": spec.name,
        "parameters": dict(advice.parameters),
        "objective": {"metric": spec.objective.metric, "goal": spec.objective.goal},
        "searcher": advice.searcher,
        "runs": advice.runs,
        "basis": list(advice.basis),
        "recommendations": [{**_figures(one), "offer": offer.to_json()} for one, offer in found],
        "try": None if advice.following is None else _figures(advice.following),
    }


def _figures(one: Recommendation) -> dict[str, Any]:
    """Figures expected of a configuration, JSON-able: null where a figure is not known yet."""
    from dataclasses import asdict

    found = asdict(one)
    if not one.known:
        found |= dict.fromkeys(name for name, value in found.items() if isinstance(value, float))
        found["probability_feasible"] = one.probability_feasible
    return {**found, "configuration": dict(one.configuration), "known": one.known}


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
    from tradewind.reporting.proposal_words import why_words

    several = len({one.offer.key for one in found.candidates}) > 1
    typer.echo(f"{found.application}{_given(found.parameters)} on {found.backend}: predicted, not run")
    bound = found.deadline is not None and found.best.chance is not None
    lines = [
        PredictionRow(
            _proposed(one, several=several),
            PredictedRange(one.runtime, one.runtime_low, one.runtime_high),
            PredictedRange(one.cost, one.cost_low, one.cost_high),
            one.chance if bound else None,
            why_words(one.marks, one.difference, one.reason),
            PredictedRange(one.objective, one.objective_low, one.objective_high),
        )
        for one in found.candidates
    ]
    known = found.best.objective is not None
    _print(lines, list(found.basis), bound=bound, metric=_named(found.metric) if known else None)
    if found.candidates[0].trying:
        typer.echo(
            "- 1 is to try: not yet known; a run of it teaches later ones more than it may cost. 2 is the best known."
        )
    if found.advice:
        typer.echo(f"- {found.advice}")


def _proposed(one: CandidateInfo, *, several: bool) -> str:
    """A configuration in words, behind its machines where there are several that it does not name by itself."""
    from tradewind.problem import MachineParameters
    from tradewind.reporting.words import machine_words

    words = ", ".join(f"{name}={value}" for name, value in one.configuration.items())
    any_name = MachineParameters(tuple(one.configuration))
    named = any(any_name.said_by(one.offer, name, value) for name, value in one.configuration.items())
    return words if named or not several else f"{machine_words(one.offer)}: {words}"


def _show(spec: JobSpec, advice: RecommendationSet, file: Path, param: Sequence[str]) -> None:
    from tradewind.reporting.proposal_words import why_words
    from tradewind.reporting.words import configuration_words

    typer.echo(f"{spec.name}{_given(advice.parameters)}: predicted, not run")
    bound = spec.constraints.deadline is not None or bool(spec.constraints.thresholds)
    lines = [
        PredictionRow(
            configuration_words(one.configuration, offer, spec.machine_parameters),
            PredictedRange(one.runtime, one.runtime_low, one.runtime_high) if one.known else PredictedRange(None),
            PredictedRange(one.cost, one.cost_low, one.cost_high) if one.known else PredictedRange(None),
            one.probability_feasible if bound else None,
            why_words(_marks(one, advice), "", one.reason),
            PredictedRange(one.objective, one.objective_low, one.objective_high) if one.known else PredictedRange(None),
        )
        for one, offer in zip(advice.recommendations, advice.offers, strict=True)
    ]
    _print(lines, list(advice.basis), bound=bound, metric=_named(spec.objective.metric))
    if advice.following is not None:
        typer.echo(f"Try this, not yet known: {_run_command(file, param, advice.following)}")


def _marks(one: Recommendation, advice: RecommendationSet) -> list[str]:
    """By what a recommendation stands out."""
    best = ["best"] if one == advice.recommendations[0] and one.known else []
    return best + [name for name, extreme in advice.extremes.items() if extreme.configuration == one.configuration]


def _run_command(file: Path, param: Sequence[str], one: Recommendation) -> str:
    """The command that runs a configuration."""
    from shlex import join

    words = ["tradewind", "run", str(file)]
    for option, pairs in (
        ("--param", param),
        ("--set", [f"{name}={value}" for name, value in one.configuration.items()]),
    ):
        for pair in pairs:
            words += [option, pair]
    return join(words)


def _named(metric: str) -> str | None:
    """The objective where it is a metric of its own; time and cost have columns anyway."""
    from tradewind.problem import COST, RUNTIME

    return None if metric in (COST, RUNTIME) else metric


def _given(parameters: Mapping[str, Any]) -> str:
    words = ", ".join(f"{name}={value}" for name, value in parameters.items())
    return f" with {words}" if words else ""


def _print(lines: Sequence[PredictionRow], basis: Sequence[str], *, bound: bool, metric: str | None = None) -> None:

    print_predictions(lines, bound=bound, metric=metric)
    for line in basis:
        typer.echo(f"- {line}")
    if bound and lines[0].chance is not None and lines[0].chance < _UNLIKELY:
        typer.echo("None is likely to keep deadline and bounds; those that come nearest are shown.")
