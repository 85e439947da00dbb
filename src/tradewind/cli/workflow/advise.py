"""``tradewind workflow advise``: which machines a workflow should run on, and with which plan."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from tradewind.cli import completion
from tradewind.cli.workflow.common import DeclaredEdges, File, Json, Lenient, Measured, Seed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tradewind.problem import Offer
    from tradewind.workflow.advice.advice import Advice, MachineSetOption
    from tradewind.workflow.advice.offers import MachineAssumptions
    from tradewind.workflow.advice.set_search import AdviceRequest
    from tradewind.workflow.graph import Workflow


def group_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command for typer: each parameter that is a dataclass is replaced by the fields of that dataclass.

    Args:
        command: The function. Fields are annotated, and have defaults, as typer's parameters are and have; names of
            fields and of the other parameters differ from each other.

    Returns:
        A function that takes every option by itself, in the order in which they stand, and calls the command.
    """
    hints = get_type_hints(command, include_extras=True)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, tuple[type, list[str]]] = {}
    for name, one in inspect.signature(command).parameters.items():
        kind = hints[name]
        if not dataclasses.is_dataclass(kind):
            parameters.append(one.replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        assert isinstance(kind, type)
        types = get_type_hints(kind, include_extras=True)
        groups[name] = kind, [each.name for each in dataclasses.fields(kind)]
        for each in dataclasses.fields(kind):
            default = inspect.Parameter.empty if each.default is dataclasses.MISSING else each.default
            parameters.append(
                inspect.Parameter(
                    each.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=types[each.name]
                )
            )

    def call(**given: Any) -> None:
        made = {group: kind(**{name: given.pop(name) for name in names}) for group, (kind, names) in groups.items()}
        command(**made, **given)

    call.__name__, call.__doc__, call.__module__ = command.__name__, command.__doc__, command.__module__
    call.__annotations__ = {one.name: one.annotation for one in parameters}
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call


class StorageOption(StrEnum):
    """Places of the files of a workflow."""

    NONE = "none"
    SHARED = "shared"
    LOCAL = "local"


def _listed(words: str) -> Any:
    return typer.Option(help=f"{words}; repeatable.")


_NO_DEFAULT: dict[str, Any] = {"show_default": False}

_Texts = list[str] | None
_Deadline = Annotated[str | None, typer.Option(help="Time from the order of the VMs to the end: 30m.", **_NO_DEFAULT)]
_Budget = Annotated[
    str | None,
    typer.Option(
        help="USD that one execution may cost: 2, or '$2' (in quotes, for the shell). Looking for it costs nothing.",
        **_NO_DEFAULT,
    ),
]
_Types = Annotated[_Texts, typer.Option("--type", "--types", help="Instance type, * and ? match; repeatable.")]
_Category = Annotated[
    _Texts, _listed("As in tradewind offers; without it all but burstable, accelerated only for tasks with GPUs")
]
_Speed = Annotated[_Texts, _listed("Speed of a vCPU by type, family or pattern, 1 is that of the run times: c7i=1.3")]
_Slots = Annotated[int | None, typer.Option(min=1, help="Tasks that a VM runs at a time; its vCPUs without it.")]
_Boot = Annotated[str, typer.Option(help="Time from the order of a VM until it can run a task; it is paid.")]
_Minimum = Annotated[str, typer.Option("--billing-minimum", help="The least time that a VM is billed for.")]
_Granularity = Annotated[str, typer.Option(help="Billed time is rounded up to a multiple of this.")]
_Storage = Annotated[StorageOption, typer.Option(help="Where files are: none (they cost nothing), shared or local.")]
_Planner = Annotated[
    str, typer.Option(help="The planner while sets are compared.", autocompletion=completion.parts("planner"))
]
_Searcher = Annotated[
    str, typer.Option(help="Who proposes sets: bounds knows the workflow; tradewind plugins lists others.")
]
_Refine = Annotated[
    str, typer.Option(help="Processor time to look for a better plan on each of the best sets; 0 for none.")
]
_Csv = Annotated[str | None, typer.Option(help="A CSV of your own offers, besides or instead.")]
_Set = Annotated[_Texts, typer.Option("--set", help="A catalogue's setting: local.price_per_vcpu=0.05; repeatable.")]
_Out = Annotated[Path | None, typer.Option(help="Write the plan there, for workflow run.", **_NO_DEFAULT)]
_VmsOut = Annotated[Path | None, typer.Option(help="Write the VMs there, for --vms.", **_NO_DEFAULT)]


@dataclass(frozen=True, slots=True)
class GoalOptions:
    """Options for the goal: deadline, budget and size of a set of VMs."""

    deadline: _Deadline = None
    budget: _Budget = None
    max_vms: Annotated[int, typer.Option(min=1, max=1000, help="VMs of a set at most.")] = 16
    mix: Annotated[int, typer.Option(min=1, max=4, help="Types of VMs in one set at most.")] = 2


@dataclass(frozen=True, slots=True)
class MarketOptions:
    """Options for the offers that are looked at."""

    provider: Annotated[_Texts, _listed("Catalogue or provider")] = None
    region: Annotated[_Texts, _listed("Region")] = None
    types: _Types = None
    category: _Category = None
    arch: Annotated[_Texts, _listed("x86_64 or arm64")] = None
    spot: Annotated[bool, typer.Option("--spot", help="Spot offers instead of on demand.")] = False


@dataclass(frozen=True, slots=True)
class MachineOptions:
    """Options for the VMs: their speed, their billing, and access to files."""

    speed: _Speed = None
    slots: _Slots = None
    boot: _Boot = "60s"
    minimum: _Minimum = "60s"
    granularity: _Granularity = "1s"
    storage: _Storage = StorageOption.NONE
    bandwidth: Annotated[float, typer.Option(help="MB/s at which a VM reads files.")] = 15.0
    latency: Annotated[str, typer.Option(help="Time for each file that is read.")] = "0s"


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Options for the search over sets."""

    planner: _Planner = "heft"
    searcher: _Searcher = "bounds"
    trials: Annotated[int, typer.Option(min=1, help="Sets of one type to try at most, and as many mixed ones.")] = 300
    seconds: Annotated[str, typer.Option(help="Processor time that the search may take.")] = "20s"
    refine: _Refine = "1s"
    seed: Seed = 0


@dataclass(frozen=True, slots=True)
class PriceOptions:
    """Options for the sources of prices."""

    csv: _Csv = None
    set_: _Set = None


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """Options for the files that are written."""

    out: _Out = None
    vms_out: _VmsOut = None


@group_options
def advise(
    file: File,
    goal: GoalOptions,
    market: MarketOptions,
    machines: MachineOptions,
    looking: SearchOptions,
    prices: PriceOptions,
    *,
    measured: Measured = None,
    lenient: Lenient = False,
    declared_edges: DeclaredEdges = False,
    files: OutputOptions,
    as_json: Json = False,
    store: Annotated[str | None, typer.Option(help="Address of the store.", metavar="URL", show_default=False)] = None,
) -> None:
    """Choose VMs for a workflow, and a plan on them, for a deadline and a budget; nothing is spent on it."""
    from tradewind.cli.offers import catalogue_names, catalogue_settings
    from tradewind.utils.units import parse_duration, parse_money
    from tradewind.workflow.advice.set_search import AdviceRequest

    _check(files, looking)
    flow, said = _flow(file, measured, lenient=lenient, declared_edges=declared_edges)
    deadline, budget = goal.deadline, goal.budget
    wanted = AdviceRequest(
        file=file,
        flow=flow,
        terms=_terms(machines),
        deadline=None if deadline is None else _positive(parse_duration(deadline), "--deadline", deadline),
        budget=None if budget is None else _positive(parse_money(budget), "--budget", budget),
        max_vms=goal.max_vms,
        mix=goal.mix,
        planner=looking.planner,
        searcher=looking.searcher,
        trials=looking.trials,
        seconds=_positive(parse_duration(looking.seconds), "--seconds", looking.seconds),
        refine=parse_duration(looking.refine),
        seed=looking.seed,
        lenient=lenient,
        declared_edges=declared_edges,
        measured=tuple(measured or ()),
        catalogues=catalogue_settings(prices.set_, prices.csv),
    )
    offers = _offers(wanted, market, catalogue_names(market.provider, prices.csv))
    _advise(wanted, offers, files, said, as_json=as_json, store=store)


def _flow(file: Path, measured: list[Path] | None, *, lenient: bool, declared_edges: bool) -> tuple[Workflow, str]:
    """The workflow, whose run times decide among machines, and which of these were measured."""
    from tradewind.cli.workflow.common import describe_changes, with_measured
    from tradewind.errors import WorkflowError
    from tradewind.workflow.execution.results import runtime_changes
    from tradewind.workflow.files import read_workflow

    stated = read_workflow(file, lenient=lenient, declared_edges=declared_edges)
    flow = with_measured(stated, measured)
    if not flow.runtimes.any():
        raise WorkflowError(
            "no task has a run time, and machines are compared by these",
            file=str(file),
            hint="write them into the file, or give the trace of a run; --measured takes those of workflow run",
        )
    return flow, describe_changes(runtime_changes({task.id: task.runtime for task in stated.tasks}, flow), flow)


def _advise(
    wanted: AdviceRequest, offers: list[Offer], files: OutputOptions, said: str, *, as_json: bool, store: str | None
) -> None:
    from tradewind.cli.common import emit_json, open_store
    from tradewind.utils.paths import data_folder
    from tradewind.workflow.advice.advice import advise as advise_on
    from tradewind.workflow.advice.advice import to_json

    opened = open_store(store)
    try:
        advice = advise_on(wanted, offers, opened, data_folder())
    finally:
        opened.close()
    _write(advice, wanted, files)
    if as_json:
        emit_json(to_json(advice, wanted))
    else:
        _show(advice, wanted, len(offers), files, said)


def _check(files: OutputOptions, looking: SearchOptions) -> None:
    """Refuse at once what would otherwise be wrong only at the end."""
    from tradewind import plugins
    from tradewind.cli.workflow.common import check_folder
    from tradewind.workflow.advice.set_search import BOUNDS

    check_folder("--out", files.out)
    check_folder("--vms-out", files.vms_out)
    plugins.load("planner", looking.planner)
    if looking.searcher != BOUNDS:
        plugins.load("searcher", looking.searcher)


def _positive(value: float, option: str, text: str) -> float:
    from tradewind.errors import InputError

    if value <= 0:
        raise InputError(f"{option} {text!r} leaves nothing", hint="it is above 0")
    return value


def _terms(given: MachineOptions) -> MachineAssumptions:
    from tradewind.errors import InputError
    from tradewind.problem import Billing
    from tradewind.utils.units import parse_duration
    from tradewind.workflow.advice.offers import MachineAssumptions

    if not 0 < given.bandwidth < float("inf"):
        raise InputError(f"--bandwidth {given.bandwidth:g} is none", hint="it is a number of MB/s above 0")
    step = _positive(parse_duration(given.granularity), "--granularity", given.granularity)
    return MachineAssumptions(
        speeds=_speeds(given.speed or ()),
        slots=given.slots,
        boot_seconds=parse_duration(given.boot),
        storage=given.storage.value,
        bandwidth=given.bandwidth,
        latency=parse_duration(given.latency),
        billing=Billing(minimum_seconds=parse_duration(given.minimum), granularity_seconds=step),
    )


def _speeds(words: Sequence[str]) -> dict[str, float]:
    from tradewind.errors import InputError

    found: dict[str, float] = {}
    for word in words:
        pattern, equals, text = word.partition("=")
        try:
            factor = float(text)
        except ValueError:
            factor = 0.0
        if not (equals and pattern and 0 < factor < float("inf")):
            raise InputError(f"--speed {word!r} is not understood", hint="write --speed c7i=1.3, a factor above 0")
        found[pattern] = factor
    return found


def _offers(wanted: AdviceRequest, market: MarketOptions, provider: tuple[str, ...]) -> list[Offer]:
    """The offers to choose from; burstable types are left out unless they are asked for by name or category."""
    from tradewind.errors import NoOfferError
    from tradewind.problem import OfferQuery
    from tradewind.selector.offer_search import require_offers
    from tradewind.utils.paths import data_folder

    query = OfferQuery(
        provider=provider,
        region=tuple(market.region or ()),
        types=tuple(market.types or ()),
        category=tuple(market.category or ()),
        arch=tuple(market.arch or ()),
        # Machines with GPUs are dear, and left out of a list; a task that needs one runs nowhere else.
        gpus=(0, None) if wanted.flow.needs[2] else (None, None),
        spot=market.spot,
    )
    found = require_offers(query, data_folder(), wanted.catalogues)
    if market.types or market.category:
        return list(found)
    # Their credits run out within minutes of full load: at speed 1 they would win every comparison and miss every
    # deadline. And this machine, at stand-in prices, is no VM that could be had several times.
    steady = [offer for offer in found if offer.category != "burstable" and (provider or offer.provider != "local")]
    if not steady:
        raise NoOfferError("only burstable types are within the query", hint="take them with --category burstable")
    return steady


def _write(advice: Advice, wanted: AdviceRequest, files: OutputOptions) -> None:
    from tradewind.workflow.advice.advice import vms_yaml
    from tradewind.workflow.files import Plan, folder_of, write_plan, write_text

    best = advice.best
    if files.out is not None:
        write_plan(files.out, Plan(wanted.flow, best.platform, best.schedule, best.planner, folder_of(wanted.file)))
    if files.vms_out is not None:
        write_text(files.vms_out, vms_yaml(best))


def _show(advice: Advice, wanted: AdviceRequest, offers: int, files: OutputOptions, measured: str) -> None:
    from tradewind.cli.workflow.common import say
    from tradewind.utils.units import count, format_duration, format_money
    from tradewind.workflow.advice.runner import offer_words

    best, searched = advice.best, advice.searched
    found = best.figures
    say(f"{wanted.flow.name}: {count(len(wanted.flow), 'task')}")
    if measured:
        say(f"Run times as measured: {measured}.", indent="  ")
    typer.echo(f"take {offer_words(best.offers)} ({_where(best.offers[0])}), planned by {best.planner}")
    rows = {
        "makespan": f"{format_duration(found.makespan)}, from the order of the VMs to the end",
        "lower bound": f"{format_duration(found.lower_bound)}; the plan is {found.gap:.1%} above it",
        "serial time": format_duration(found.serial),
        "utilisation": f"{found.utilisation:.0%}",
        "cost": f"{format_money(found.cost)} for one execution",
    }
    for name, text in rows.items():
        typer.echo(f"  {name:<12} {text}")
    for reason in advice.reasons:
        say(reason)
    typer.echo("")
    _table(advice, wanted)
    typer.echo("")
    if searched.sets:
        say(
            f"{len(searched.trials)} of {count(searched.sets, 'set')} tried, of types that differ in speed or size, "
            f"each the cheapest of its like among {count(offers, 'offer')} ({count(len(searched.offers), 'type')}); "
            f"study {searched.name} in the store"
        )
    for warning in advice.warnings:
        say(f"note: {warning}", indent="  ")
    for path in (files.out, files.vms_out):
        if path is not None:
            typer.echo(f"written: {path}")


def _where(offer: Offer) -> str:
    return " ".join(part for part in (offer.provider, offer.region) if part)


_HEADER = ("", "VMs", "where", "slots", "makespan", "gap", "utilisation", "cost", "")
_DISPENSABLE = ("utilisation", "gap", "slots", "where")
"""Columns that a narrow terminal is spared, in this order; figures are never cut."""


def _table(advice: Advice, wanted: AdviceRequest) -> None:
    """The choice of time against money."""
    from tradewind.cli.workflow.common import width
    from tradewind.reporting.text_layout import shortened_names

    rows = [_HEADER, *(_cells(row, advice, wanted) for row in advice.front)]
    columns = [list(column) for column in zip(*rows, strict=True)]
    room = width()

    def excess() -> int:
        return sum(max(map(len, column)) for column in columns) + 2 * (len(columns) - 1) - room

    for name in _DISPENSABLE:
        if excess() <= 0:
            break
        columns = [column for column in columns if column[0] != name]
    sets = columns[1]
    short = shortened_names(sets, max(12, max(map(len, sets)) - max(0, excess())))
    columns[1] = [short[each] for each in sets]
    widths = [max(map(len, column)) for column in columns]
    words = {0, 1, len(columns) - 1} | {place for place, column in enumerate(columns) if column[0] == "where"}
    for row in zip(*columns, strict=True):
        cells = [
            cell.ljust(size) if place in words else cell.rjust(size)
            for place, (cell, size) in enumerate(zip(row, widths, strict=True))
        ]
        typer.echo("  ".join(cells).rstrip())


def _cells(row: MachineSetOption, advice: Advice, wanted: AdviceRequest) -> tuple[str, ...]:
    from tradewind.utils.units import format_duration, format_money
    from tradewind.workflow.advice.runner import offer_words

    found = row.figures
    broken = []
    if wanted.deadline is not None and found.makespan > wanted.deadline:
        broken.append("too slow")
    if wanted.budget is not None and found.cost > wanted.budget:
        broken.append("too dear")
    return (
        "*" if row.key == advice.best.key else "",
        offer_words(row.offers),
        _where(row.offers[0]),
        str(sum(vm.slots for vm in row.platform.vms)),
        format_duration(found.makespan),
        f"{found.gap:.1%}",
        f"{found.utilisation:.0%}",
        format_money(found.cost),
        ", ".join(broken),
    )
