"""``tradewind workflow advise``: which machines a workflow should run on, and with which plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tradewind.cli import completing
from tradewind.cli.workflow.common import File, Json, Lenient, Seed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tradewind.problem import Offer
    from tradewind.workflow.advice.advice import Advice, Choice
    from tradewind.workflow.advice.machines import Terms
    from tradewind.workflow.advice.study import Wanted


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
_Category = Annotated[_Texts, _listed("As in tradewind offers; all but burstable and accelerated without it")]
_Speed = Annotated[_Texts, _listed("Speed of a vCPU by type, family or pattern, 1 is that of the run times: c7i=1.3")]
_Slots = Annotated[int | None, typer.Option(min=1, help="Tasks that a VM runs at a time; its vCPUs without it.")]
_Boot = Annotated[str, typer.Option(help="Time from the order of a VM until it can run a task; it is paid.")]
_Minimum = Annotated[str, typer.Option("--billing-minimum", help="The least time that a VM is billed for.")]
_Granularity = Annotated[str, typer.Option(help="Billed time is rounded up to a multiple of this.")]
_Storage = Annotated[str, typer.Option(help="Where files are: none (they cost nothing), shared or local.")]
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


def advise(
    file: File,
    deadline: _Deadline = None,
    budget: _Budget = None,
    max_vms: Annotated[int, typer.Option(min=1, max=1000, help="VMs of a set at most.")] = 16,
    mix: Annotated[int, typer.Option(min=1, max=4, help="Types of VMs in one set at most.")] = 2,
    provider: Annotated[_Texts, _listed("Catalogue or provider")] = None,
    region: Annotated[_Texts, _listed("Region")] = None,
    types: _Types = None,
    category: _Category = None,
    arch: Annotated[_Texts, _listed("x86_64 or arm64")] = None,
    spot: Annotated[bool, typer.Option("--spot", help="Spot offers instead of on demand.")] = False,
    speed: _Speed = None,
    slots: _Slots = None,
    boot: _Boot = "60s",
    minimum: _Minimum = "60s",
    granularity: _Granularity = "1s",
    storage: _Storage = "none",
    bandwidth: Annotated[float, typer.Option(help="MB/s at which a VM reads files.")] = 15.0,
    latency: Annotated[str, typer.Option(help="Time for each file that is read.")] = "0s",
    planner: Annotated[
        str, typer.Option(help="The planner while sets are compared.", autocompletion=completing.parts("planner"))
    ] = "heft",
    searcher: _Searcher = "bounds",
    trials: Annotated[int, typer.Option(min=1, help="Sets of one type to try at most, and as many mixed ones.")] = 300,
    seconds: Annotated[str, typer.Option(help="Processor time that the search may take.")] = "20s",
    refine: _Refine = "1s",
    seed: Seed = 0,
    csv: _Csv = None,
    set_: _Set = None,
    lenient: Lenient = False,
    out: _Out = None,
    vms_out: _VmsOut = None,
    as_json: Json = False,
    store: Annotated[str | None, typer.Option(help="Address of the store.", show_default=False)] = None,
) -> None:
    """Choose VMs for a workflow, and a plan on them, for a deadline and a budget; nothing is spent on it."""
    from tradewind.cli.offers import _names, _settings
    from tradewind.units import parse_duration, parse_money
    from tradewind.workflow.advice.study import Wanted
    from tradewind.workflow.files import read_workflow

    _check(out, vms_out, planner, searcher)
    wanted = Wanted(
        file=file,
        flow=read_workflow(file, lenient=lenient),
        terms=_terms(speed, slots, boot, storage, bandwidth, latency, minimum, granularity),
        deadline=None if deadline is None else _positive(parse_duration(deadline), "--deadline", deadline),
        budget=None if budget is None else _positive(parse_money(budget), "--budget", budget),
        max_vms=max_vms,
        mix=mix,
        planner=planner,
        searcher=searcher,
        trials=trials,
        seconds=_positive(parse_duration(seconds), "--seconds", seconds),
        refine=parse_duration(refine),
        seed=seed,
        lenient=lenient,
        catalogues=_settings(set_, csv),
    )
    offers = _offers(wanted, _names(provider, csv), region, types, category, arch, spot)
    _advise(wanted, offers, out, vms_out, as_json=as_json, store=store)


def _advise(
    wanted: Wanted, offers: list[Offer], out: Path | None, vms_out: Path | None, *, as_json: bool, store: str | None
) -> None:
    from tradewind.cli.common import emit_json, open_store
    from tradewind.paths import data_folder
    from tradewind.workflow.advice.advice import advise as advise_on
    from tradewind.workflow.advice.documents import to_json

    opened = open_store(store)
    try:
        advice = advise_on(wanted, offers, opened, data_folder())
    finally:
        opened.close()
    _write(advice, wanted, out, vms_out)
    if as_json:
        emit_json(to_json(advice, wanted))
    else:
        _show(advice, wanted, len(offers), out, vms_out)


def _check(out: Path | None, vms_out: Path | None, planner: str, searcher: str) -> None:
    """What would otherwise be wrong only at the end."""
    from tradewind import plugins
    from tradewind.cli.workflow.common import check_folder
    from tradewind.workflow.advice.study import BOUNDS

    check_folder("--out", out)
    check_folder("--vms-out", vms_out)
    plugins.load("planner", planner)
    if searcher != BOUNDS:
        plugins.load("searcher", searcher)


def _positive(value: float, option: str, text: str) -> float:
    from tradewind.errors import InputError

    if value <= 0:
        raise InputError(f"{option} {text!r} leaves nothing", hint="it is above 0")
    return value


def _terms(
    speed: Sequence[str] | None,
    slots: int | None,
    boot: str,
    storage: str,
    bandwidth: float,
    latency: str,
    minimum: str,
    granularity: str,
) -> Terms:
    from tradewind.errors import InputError
    from tradewind.problem import Billing
    from tradewind.units import parse_duration
    from tradewind.workflow.advice.machines import Terms

    if storage not in ("none", "shared", "local"):
        raise InputError(f"--storage {storage!r} is not known", hint="none, shared or local")
    if not 0 < bandwidth < float("inf"):
        raise InputError(f"--bandwidth {bandwidth:g} is none", hint="it is a number of MB/s above 0")
    step = _positive(parse_duration(granularity), "--granularity", granularity)
    return Terms(
        speeds=_speeds(speed or ()),
        slots=slots,
        boot_seconds=parse_duration(boot),
        storage=storage,  # type: ignore[arg-type]  # one of the three, as was just seen
        bandwidth=bandwidth,
        latency=parse_duration(latency),
        billing=Billing(minimum_seconds=parse_duration(minimum), granularity_seconds=step),
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


def _offers(
    wanted: Wanted,
    provider: tuple[str, ...],
    region: Sequence[str] | None,
    types: Sequence[str] | None,
    category: Sequence[str] | None,
    arch: Sequence[str] | None,
    spot: bool,
) -> list[Offer]:
    """The offers to choose from; burstable types are left out unless they are asked for by name or category."""
    from tradewind.errors import NoOfferError
    from tradewind.paths import data_folder
    from tradewind.problem import OfferQuery
    from tradewind.selector.market import require_offers

    query = OfferQuery(
        provider=provider,
        region=tuple(region or ()),
        types=tuple(types or ()),
        category=tuple(category or ()),
        arch=tuple(arch or ()),
        spot=spot,
    )
    found = require_offers(query, data_folder(), wanted.catalogues)
    if types or category:
        return found
    # Their credits run out within minutes of full load: at speed 1 they would win every comparison and miss every
    # deadline. And this machine, at stand-in prices, is no VM that could be had several times.
    steady = [offer for offer in found if offer.category != "burstable" and (provider or offer.provider != "local")]
    if not steady:
        raise NoOfferError("only burstable types are within the query", hint="take them with --category burstable")
    return steady


def _write(advice: Advice, wanted: Wanted, out: Path | None, vms_out: Path | None) -> None:
    from tradewind.workflow.advice.documents import vms_yaml
    from tradewind.workflow.files import Plan, folder_of, write_plan, write_text

    best = advice.best
    if out is not None:
        write_plan(out, Plan(wanted.flow, best.platform, best.schedule, best.planner, folder_of(wanted.file)))
    if vms_out is not None:
        write_text(vms_out, vms_yaml(best))


def _show(advice: Advice, wanted: Wanted, offers: int, out: Path | None, vms_out: Path | None) -> None:
    from tradewind.units import count, format_duration, format_money
    from tradewind.workflow.advice.runner import describe

    best, searched = advice.best, advice.searched
    found = best.figures
    typer.echo(f"{wanted.flow.name}: {count(len(wanted.flow), 'task')}")
    typer.echo(f"take {describe(best.offers)} ({_where(best.offers[0])}), planned by {best.planner}")
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
        typer.echo(reason)
    typer.echo("")
    _table(advice, wanted)
    typer.echo("")
    typer.echo(
        f"{len(searched.trials)} of {count(searched.sets, 'set')} tried, of types that differ in speed or size, each "
        f"the cheapest of its like among {count(offers, 'offer')} ({count(len(searched.offers), 'type')}); "
        f"study {searched.name} in the store"
    )
    for warning in advice.warnings:
        typer.echo(f"note: {warning}")
    for path in (out, vms_out):
        if path is not None:
            typer.echo(f"written: {path}")


def _where(offer: Offer) -> str:
    return " ".join(part for part in (offer.provider, offer.region) if part)


def _table(advice: Advice, wanted: Wanted) -> None:
    """The choice of time against money."""
    import shutil
    import sys

    from rich.console import Console
    from rich.table import Table

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 200
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("", "VMs", "where", "slots", "makespan", "gap", "utilisation", "cost", ""):
        words = name in ("", "VMs", "where")
        table.add_column(name, justify="left" if words else "right", no_wrap=True, overflow="ellipsis")
    for row in advice.front:
        table.add_row(*_cells(row, advice, wanted))
    Console(width=width, highlight=False, markup=False).print(table)


def _cells(row: Choice, advice: Advice, wanted: Wanted) -> tuple[str, ...]:
    from tradewind.units import format_duration, format_money
    from tradewind.workflow.advice.runner import describe

    found = row.figures
    broken = []
    if wanted.deadline is not None and found.makespan > wanted.deadline:
        broken.append("too slow")
    if wanted.budget is not None and found.cost > wanted.budget:
        broken.append("too dear")
    return (
        "*" if row.key == advice.best.key else "",
        describe(row.offers),
        _where(row.offers[0]),
        str(sum(vm.slots for vm in row.platform.vms)),
        format_duration(found.makespan),
        f"{found.gap:.1%}",
        f"{found.utilisation:.0%}",
        format_money(found.cost),
        ", ".join(broken),
    )
