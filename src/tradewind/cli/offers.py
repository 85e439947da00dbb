"""``tradewind offers``: what the catalogues sell, and ``tradewind offers refresh``: today's prices."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tradewind.cli import completion
from tradewind.cli.common import command_group

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tradewind.problem import Offer

offers_app = command_group("offers", "List what the catalogues sell, filtered and sorted.", bare=True)

_WORDS = ("provider", "region", "type", "category", "arch", "priced on")
"""Columns with words in them; the others have figures."""

_SORTS = ("price", "vcpu", "memory", "name", "price-per-vcpu")


@offers_app.callback()
def offers(
    context: typer.Context,
    provider: Annotated[list[str] | None, typer.Option(help="Catalogue or provider; repeatable.")] = None,
    region: Annotated[list[str] | None, typer.Option(help="Region; repeatable.")] = None,
    type_: Annotated[list[str] | None, typer.Option("--type", help="Instance type, * and ? match; repeatable.")] = None,
    category: Annotated[
        list[str] | None,
        typer.Option(help="general, compute, memory, storage, burstable or accelerated; repeatable."),
    ] = None,
    family: Annotated[list[str] | None, typer.Option(help="The provider's family; repeatable.")] = None,
    arch: Annotated[
        list[str] | None, typer.Option(help="x86_64 or arm64, by any usual name (AMD64, aarch64); repeatable.")
    ] = None,
    vcpu: Annotated[str | None, typer.Option(help="vCPU of a node: 8, 4..16, 4.. or ..16.")] = None,
    memory: Annotated[str | None, typer.Option(help="Memory of a node: 8GiB.., 4..16 (GiB).")] = None,
    max_price: Annotated[str | None, typer.Option(help="Most USD per node and hour.")] = None,
    gpus: Annotated[str | None, typer.Option(help="Accelerators of a node: 1.., 4.")] = None,
    spot: Annotated[bool, typer.Option("--spot", help="Spot offers instead of on demand.")] = False,
    sort: Annotated[str, typer.Option(help=f"One of {', '.join(_SORTS)}.")] = "price",
    limit: Annotated[int | None, typer.Option(min=1, help="Show this many.")] = None,
    csv: Annotated[str | None, typer.Option(help="A CSV of your own offers, besides or instead.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="A catalogue's setting: local.price_per_vcpu=0.05; repeatable."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List what the catalogues sell, filtered and sorted: the cheapest first."""
    if context.invoked_subcommand is not None:
        return
    from tradewind.cli.common import emit_json
    from tradewind.errors import InputError
    from tradewind.problem import OfferQuery
    from tradewind.selector.offer_search import require_offers
    from tradewind.utils.paths import data_folder
    from tradewind.utils.units import parse_money

    if sort not in _SORTS:
        raise InputError(f"--sort {sort!r} is not known", hint=f"one of {', '.join(_SORTS)}")
    query = OfferQuery(
        provider=catalogue_names(provider, csv),
        region=tuple(region or ()),
        types=tuple(type_ or ()),
        category=tuple(category or ()),
        family=tuple(family or ()),
        arch=tuple(arch or ()),
        vcpu=_range(vcpu, "--vcpu"),
        memory=_range(memory, "--memory", memory=True),
        price=(None, parse_money(max_price) if max_price is not None else None),
        gpus=_range(gpus, "--gpus"),
        spot=spot,
    )
    found = _sorted(require_offers(query, data_folder(), catalogue_settings(set_, csv)), sort)
    shown = found if limit is None else found[:limit]
    if as_json:
        emit_json([offer.to_json() for offer in shown])
    else:
        _show(shown, len(found), limited=limit is not None)


@offers_app.command()
def refresh(
    provider: Annotated[
        list[str] | None,
        typer.Argument(
            help="Catalogues; all that can, when none is named.", autocompletion=completion.parts("catalogue")
        ),
    ] = None,
    region: Annotated[list[str] | None, typer.Option(help="Region to read; repeatable.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A catalogue's setting: aws.timeout=60; repeatable.")
    ] = None,
) -> None:
    """Read today's prices from the providers' public endpoints; they are used from then on."""
    from tradewind import plugins
    from tradewind.errors import InputError, MissingProgramError, TradewindError
    from tradewind.selector.catalogue.base import Refreshable
    from tradewind.selector.offer_search import open_catalogue
    from tradewind.utils.paths import data_folder

    given = {name: dict(settings) for name, settings in catalogue_settings(set_, None).items()}
    able = [name for name, part in plugins.load_all("catalogue").items() if issubclass(part, Refreshable)]
    for name in provider or ():
        if name not in able:
            plugins.load("catalogue", name)
            raise InputError(f"the catalogue {name!r} has no prices to refresh", hint=f"one of {', '.join(able)}")
    if region and len(provider or ()) != 1:
        raise InputError("--region needs exactly one provider", hint="tradewind offers refresh aws --region eu-west-1")
    if region and provider:
        given.setdefault(provider[0], {})["regions"] = tuple(region)
    failed: list[TradewindError] = []
    for name in dict.fromkeys(provider or able):
        catalogue = open_catalogue(name, data_folder(), given)
        assert isinstance(catalogue, Refreshable)
        try:
            for line in catalogue.refresh():
                typer.echo(line)
        except MissingProgramError as error:
            if provider:
                raise
            typer.echo(f"left out: {error}", err=True)
        except TradewindError as error:
            # One provider that does not answer must not keep the others' prices old.
            failed.append(error)
            if len(failed) > 1:
                typer.echo(f"tradewind: {failed[-2]}", err=True)
    if failed:
        raise failed[-1]


def catalogue_names(provider: Sequence[str] | None, csv: str | None) -> tuple[str, ...]:
    """The providers to ask; a CSV alone means only the CSV."""
    return tuple(provider or ()) or (("csv",) if csv else ())


def catalogue_settings(pairs: Sequence[str] | None, csv: str | None) -> Mapping[str, Mapping[str, Any]]:
    """Settings by catalogue of ``catalogue.setting=value`` words.

    Raises:
        InputError: A word is not of that form.
    """
    from tradewind.cli.common import value_of
    from tradewind.errors import InputError

    # The catalogue that is named first decides: the user's own list before those of others.
    given: dict[str, dict[str, Any]] = {} if csv is None else {"csv": {}}
    for pair in pairs or ():
        place, equals, text = pair.partition("=")
        catalogue, dot, setting = place.partition(".")
        if not (equals and dot and catalogue and setting):
            raise InputError(f"--set {pair!r} is not understood", hint="write local.price_per_vcpu=0.05")
        given.setdefault(catalogue, {})[setting] = value_of(text)
    if csv is not None:
        given["csv"]["path"] = csv
    return given


def _range(text: str | None, option: str, *, memory: bool = False) -> tuple[float | None, float | None]:
    """The bounds of ``4..16``, ``4..``, ``..16`` or ``8`` (exactly that); memory in GiB.

    Raises:
        InputError: It is no range, or is upside down.
    """
    if text is None:
        return None, None
    from tradewind.errors import InputError

    parts = [part.strip() for part in text.split("..")]
    if len(parts) > 2 or not any(parts):
        raise InputError(f"{option} {text!r} is not a range", hint="write 8, 4..16, 4.. or ..16")
    bounds = [_bound(part, option, memory=memory) for part in parts]
    low, high = bounds[0], bounds[-1]
    if low is not None and high is not None and low > high:
        raise InputError(f"{option} {text!r} is upside down", hint=f"write {parts[1]}..{parts[0]}")
    return low, high


def _bound(text: str, option: str, *, memory: bool) -> float | None:
    from tradewind.errors import InputError
    from tradewind.utils.units import parse_memory

    if not text:
        return None
    if memory:
        return parse_memory(text) / (1 << 30)
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise InputError(f"{option} {text!r} is not a number", hint="write 8, 4..16, 4.. or ..16")
    return value


def _sorted(found: Sequence[Offer], sort: str) -> list[Offer]:
    def key(offer: Offer) -> tuple[Any, ...]:
        first: dict[str, Any] = {
            "price": offer.price_per_hour,
            "vcpu": offer.vcpu,
            "memory": offer.memory_gib,
            "name": offer.instance_type,
            "price-per-vcpu": offer.price_per_hour / offer.vcpu,
        }
        return first[sort], offer.price_per_hour, offer.key

    return sorted(found, key=key)


def _show(shown: Sequence[Offer], total: int, *, limited: bool) -> None:
    """Print a table that fits the terminal: the columns that matter least go first when it is narrow."""
    import shutil
    import sys

    from tradewind.cli.output import printable

    # A file or a pipe has no width: nothing is cut there.
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 200
    if not limited and sys.stdout.isatty():
        shown = shown[:50]
    columns = _columns(shown)
    # Not rich's table: it takes a millisecond a line, and all offers of a catalogue are thousands.
    padded = []
    for name in _fitting(columns, width):
        size = max(len(cell) for cell in (name, *columns[name]))
        pad = str.ljust if name in _WORDS else str.rjust
        padded.append([pad(cell, size) for cell in (name, *columns[name])])
    header, *lines = ("  ".join(row).rstrip() for row in zip(*padded, strict=True))
    typer.secho(_cut(header, width), bold=True)
    typer.echo("\n".join(printable(_cut(line, width)) for line in lines))
    if len(shown) < total:
        typer.echo(f"{len(shown)} of {total} offers; --limit {total} shows all", err=True)


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else f"{line[: width - 1]}…"


def _columns(shown: Sequence[Offer]) -> dict[str, list[str]]:
    from tradewind.utils.units import format_money

    today = datetime.datetime.now(datetime.UTC).date()
    columns = {
        "provider": [offer.provider for offer in shown],
        "region": [offer.region for offer in shown],
        "type": [offer.instance_type + (" (spot)" if offer.spot else "") for offer in shown],
        "vCPU": [f"{offer.vcpu:g}" for offer in shown],
        "GiB": [f"{offer.memory_gib:g}" for offer in shown],
        "GPUs": [str(offer.gpus) if offer.gpus else "" for offer in shown],
        "per hour": [format_money(offer.price_per_hour) for offer in shown],
        "interruptions": [_interruptions(offer) for offer in shown],
        "category": [offer.category for offer in shown],
        "arch": [offer.arch for offer in shown],
        "per vCPU hour": [format_money(offer.price_per_hour / offer.vcpu) for offer in shown],
        "priced on": [_dated(offer.price_date, today) for offer in shown],
    }
    return {name: cells for name, cells in columns.items() if any(cells)}


def _interruptions(offer: Offer) -> str:
    """The rate at which a spot machine is taken back: ``0.0012 per hour``; empty on demand."""
    if not offer.spot:
        return ""
    rate = offer.interruptions_per_hour
    return "unknown" if rate is None else f"{rate:.2g} per hour"


def _dated(date: str, today: datetime.date) -> str:
    """The date of a price (a day, or a month) and its age, from a month on."""
    from tradewind.utils.units import count

    try:
        read = datetime.date.fromisoformat(date if date.count("-") == 2 else f"{date}-01")
    except ValueError:
        return date
    months = int((today - read).days / 30.44)
    if months < 1:
        return date
    age = count(months, "month") if months < 24 else f"{months / 12:.1f} years"
    return f"{date} ({age} old)"


def _fitting(columns: Mapping[str, list[str]], width: int) -> list[str]:
    names = list(columns)
    for name in ("per vCPU hour", "priced on", "interruptions", "arch", "category", "GPUs", "region"):
        if sum(2 + max(len(cell) for cell in [shown, *columns[shown]]) for shown in names) <= width:
            break
        if name in names:
            names.remove(name)
    return names
