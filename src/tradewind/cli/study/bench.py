"""``tradewind bench``: compare searchers on a table of measured runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tradewind.testing.searcher_benchmark import Benchmark, SearcherChoice, Summary


SearchersOption = Annotated[
    list[str],
    typer.Argument(help="Searchers to compare, the first with all others: gp, or cherrypick:starts=1,stop=false."),
]
TableOption = Annotated[Path, typer.Option("--table", help="CSV with one measured run a row.", metavar="FILE")]
SeedsOption = Annotated[int, typer.Option("--seeds", min=1, help="Searches of each kind.")]
BudgetsOption = Annotated[str, typer.Option("--budgets", help="Money of a search, in mean costs of a configuration.")]
ProtocolOption = Annotated[
    str,
    typer.Option(
        "--protocol",
        help="engine: as Tradewind searches. obol: as its paper compares, all runs end.",
    ),
]
ObjectiveOption = Annotated[str, typer.Option("--objective", help="cost or runtime, to make small.")]
DeadlineOption = Annotated[
    str | None, typer.Option("--deadline", help="Time that a run may take; the median of the table without it.")
]
TimeOption = Annotated[str, typer.Option("--time", help="Column of the run time.", metavar="COLUMN")]
UnitOption = Annotated[str, typer.Option("--unit", help="Unit of that column: s, ms, min or h.")]
MachineOption = Annotated[
    str,
    typer.Option("--machine", help="Column of the instance type, where it has no usual name.", metavar="COLUMN"),
]
NodesOption = Annotated[str, typer.Option("--nodes", help="Column of the number of machines.", metavar="COLUMN")]
PriceOption = Annotated[
    str, typer.Option("--price", help="Column of USD per machine and hour; without one, 1 USD.", metavar="COLUMN")
]
CostOption = Annotated[str, typer.Option("--cost", help="Column of USD per run.", metavar="COLUMN")]
StatusOption = Annotated[
    str, typer.Option("--status", help="Column that says whether a run went well.", metavar="COLUMN")
]
ParametersOption = Annotated[
    str, typer.Option("--parameters", help="Columns that can be chosen; all that vary without it.", metavar="A,B")
]
MetricsOption = Annotated[
    str, typer.Option("--metrics", help="Columns that a run measures, which are no parameters.", metavar="A,B")
]
WhereOption = Annotated[
    list[str] | None, typer.Option("--where", help="Read these rows only; may be repeated.", metavar="COLUMN=VALUE")
]
OutOption = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="CSV of all searches; what is there is not repeated.", metavar="FILE"),
]
PlotOption = Annotated[
    Path | None, typer.Option("--plot", help="Draw them: a .png or .svg; needs the extra plots.", metavar="FILE")
]
ProcessesOption = Annotated[
    int | None, typer.Option("--processes", min=1, help="Searches at the same time; one a core without it.")
]
AsJsonOption = Annotated[bool, typer.Option("--json", help="Print the summaries as JSON.")]


def bench(
    searchers: SearchersOption,
    table: TableOption,
    seeds: SeedsOption = 10,
    budgets: BudgetsOption = "8,10,15,20",
    protocol: ProtocolOption = "engine",
    objective: ObjectiveOption = "cost",
    deadline: DeadlineOption = None,
    time: TimeOption = "runtime",
    unit: UnitOption = "s",
    machine: MachineOption = "",
    nodes: NodesOption = "",
    price: PriceOption = "",
    cost: CostOption = "",
    status: StatusOption = "",
    parameters: ParametersOption = "",
    metrics: MetricsOption = "",
    where: WhereOption = None,
    out: OutOption = None,
    plot: PlotOption = None,
    processes: ProcessesOption = None,
    as_json: AsJsonOption = False,
) -> None:
    """Compare searchers on a table of measured runs: distance from the optimum, and money until it is found."""
    import os

    from tradewind.cli.common import pair
    from tradewind.testing.recorded_tables import TableColumns
    from tradewind.testing.searcher_benchmark import PROTOCOLS, Benchmark
    from tradewind.utils.units import parse_duration

    choices = [_choice(text) for text in searchers]
    columns = TableColumns(
        time=time,
        unit=parse_duration(f"1 {unit}"),
        machine=machine,
        nodes=nodes,
        price=price,
        cost=cost,
        status=status,
        parameters=_names(parameters),
        metrics=_names(metrics),
        where=tuple(pair(word, "--where", "job=sort") for word in where or ()),
    )
    benchmark = Benchmark(
        table=table.absolute(),
        columns=columns,
        deadline=None if deadline is None else parse_duration(deadline),
        quantile=0.5 if deadline is None else None,
        objective=_one_of(objective, "--objective", ("cost", "runtime")),
        protocol=_one_of(protocol, "--protocol", list(PROTOCOLS)),
        budgets=_budgets(budgets),
        seeds=seeds,
    )
    found = _compared(benchmark, choices, out, plot, processes or os.cpu_count() or 1)
    _show(benchmark, found, as_json=as_json)


def _compared(
    benchmark: Benchmark, choices: Sequence[SearcherChoice], out: Path | None, plot: Path | None, processes: int
) -> list[Summary]:
    from tradewind.testing.searcher_benchmark import check_plot, draw_results, run_benchmark, summarise

    if plot is not None:
        check_plot(plot)  # a comparison may take hours
    results = run_benchmark(benchmark, choices, out, processes, _progress)
    found = summarise(results, [choice.label for choice in choices])
    if plot is not None:
        draw_results(results, found, plot)
    return found


def _show(benchmark: Benchmark, found: Sequence[Summary], *, as_json: bool) -> None:
    from dataclasses import asdict

    from tradewind.cli.common import emit_json
    from tradewind.utils.units import json_safe

    if as_json:
        summaries = [asdict(each) for each in found]
        document = {"table": str(benchmark.table), "protocol": benchmark.protocol, "summaries": summaries}
        emit_json(json_safe(document))
        return
    for line in _lines(benchmark, found):
        typer.echo(line)


def _choice(text: str) -> SearcherChoice:
    from tradewind import plugins
    from tradewind.cli.common import pairs
    from tradewind.errors import InputError
    from tradewind.testing.searcher_benchmark import SearcherChoice
    from tradewind.utils.suggestions import did_you_mean

    name, _, words = text.partition(":")
    known = plugins.names("searcher")
    if name not in known:
        raise InputError(f"there is no searcher named {name!r}", hint=did_you_mean(name, known, "installed:"))
    settings = pairs([word for word in words.split(",") if word], f"the searcher {name}:", "gp:starts=3")
    plugins.settings_for(plugins.load("searcher", name), settings, where=f"searcher {name}")
    return SearcherChoice(text, name, settings)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _one_of(word: str, option: str, known: Sequence[str]) -> str:
    from tradewind.errors import InputError
    from tradewind.utils.suggestions import did_you_mean

    if word not in known:
        raise InputError(f"{option} cannot be {word!r}", hint=did_you_mean(word, known, "known:"))
    return word


def _budgets(text: str) -> tuple[float, ...]:
    import math

    from tradewind.errors import InputError

    try:
        found = tuple(sorted({float(part) for part in text.split(",")}))
    except ValueError:
        found = ()
    if not found or not all(0 < each < math.inf for each in found):
        raise InputError(f"--budgets {text!r} are no numbers above zero", hint="write --budgets 8,10,15,20")
    return found


def _progress(done: int, whole: int) -> None:
    import sys

    if sys.stderr.isatty():
        typer.echo(f"\r{done} of {whole} searches", err=True, nl=done == whole)


def _lines(benchmark: Benchmark, found: Sequence[Summary]) -> list[str]:
    """The table: a line for each searcher under each budget."""
    import math

    from tradewind.utils.units import count, format_duration

    table = benchmark.problem()
    deadline = table.problem.constraints.deadline
    lines = [
        f"{benchmark.table.name}: {count(len(table.problem.candidates), 'configuration')}, deadline "
        f"{format_duration(deadline)}; protocol {benchmark.protocol}, {count(benchmark.seeds, 'seed')}",
        "",
        f"{'budget':>6}  {'searcher':<28} {'DOPT':>6} {'9 in 10':>8} {'exact':>6} {'in 5 %':>6} {'NEX':>5} "
        f"{'to 5 %':>7}  against the first",
    ]

    def share(value: float) -> str:
        return "never" if math.isinf(value) else f"{value:.0%}"

    until = " until the optimum" if benchmark.protocol == "engine" else ""
    for each in found:
        ratio = "" if each.ratio is None else f"{each.ratio:.2f} [{each.low:.2f}, {each.high:.2f}]"
        money = "never" if math.isinf(each.to_close) else f"{each.to_close:.2f}"
        lines.append(
            f"{each.budget:>6g}  {each.searcher[:28]:<28} {share(each.dopt):>6} {share(each.dopt90):>8} "
            f"{each.exact:>6.0%} {each.close:>6.0%} {each.nex:>5g} {money:>7}  {ratio}"
        )
    return [
        *lines,
        "",
        "Budgets and money are in mean costs of a configuration. DOPT: distance from the optimum, median, and what",
        f"one search in ten exceeds. NEX: runs{until}. to 5 %: median money until within 5 % of the",
        "optimum. Against the first: ratio of that money on the same seeds, geometric mean, with its 95 % interval.",
    ]
