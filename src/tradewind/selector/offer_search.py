"""Searches the installed catalogues for offers within a query."""

from __future__ import annotations

import difflib
import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tradewind import plugins
from tradewind.errors import NoOfferError, PluginError
from tradewind.problem import Offer, OfferQuery
from tradewind.problem.columns.table_offers import OfferKind, TableOffers
from tradewind.selector.canonical_words import canonical_arch, canonical_category, canonical_provider
from tradewind.selector.catalogue.base import Catalogue, DescribesOffers
from tradewind.selector.catalogue.price_table import PriceTableCatalogue
from tradewind.utils.machine.gpus import gpus_here, why_none
from tradewind.utils.suggestions import did_you_mean
from tradewind.utils.units import format_money
from tradewind.utils.user_functions import is_reference

_log = logging.getLogger("tradewind.selector")

GivenSettings = Mapping[str, Mapping[str, Any]]
"""Settings by catalogue and name."""


def find_offers(
    query: OfferQuery, data_folder: Path, catalogue_settings: GivenSettings | None = None
) -> Sequence[Offer]:
    """Find the offers within a query, the cheapest first, each once.

    Without a provider in the query all catalogues are asked, but for those that need a setting (the ``path`` of
    ``csv``) or are asked on request only (`Catalogue.on_request`), where no settings are given for them. A named
    provider is a catalogue's name, or one that the rows of a catalogue with given settings name: a catalogue that is
    named sells all it has, whatever provider its rows say.

    A catalogue that `DescribesOffers` adds facts to what the others sell.

    Where catalogues have the same machines, the first one counts: those with given settings come in the order in
    which they are given, and before the others. A difference is logged, in one line.

    Args:
        query: Bounds on the offers.
        data_folder: Folder of refreshed prices.
        catalogue_settings: Settings by catalogue and name.

    Raises:
        PluginError: A named catalogue is not installed or does not load.
        SpecError: A setting is wrong.
        CatalogueError: A catalogue cannot be read.
    """
    found, conflicts = _find(query, data_folder, catalogue_settings or {})
    if conflicts:
        _log.warning("%s", next(iter(conflicts.values())).words(len(conflicts)))
    return found


@dataclass(frozen=True, slots=True)
class _Conflict:
    """One offer of which two catalogues say different things."""

    catalogue: str
    kept: Offer
    other: str
    dropped: Offer

    def words(self, count: int) -> str:
        """One line on this conflict, where so many offers have one."""
        offer = self.kept
        name = "/".join(part for part in (offer.provider, offer.region, offer.instance_type) if part)
        more = f" and {count - 1} more" if count > 1 else ""
        return (
            f"catalogues differ on {name}{more}: {_said(self.kept)} by {self.catalogue} counts, not "
            f"{_said(self.dropped)} by {self.other}; the catalogue that is named first decides"
        )


def _said(offer: Offer) -> str:
    date = f" of {offer.price_date}" if offer.price_date else ""
    return f"{offer.vcpu:g} vCPU, {offer.memory_gib:g} GiB, {format_money(offer.price_per_hour)}{date}"


def _differ(one: Offer, other: Offer) -> bool:
    """True where two offers of the same machines are not the same but for rounding."""
    return not (
        one.vcpu == other.vcpu
        and math.isclose(one.memory_gib, other.memory_gib, rel_tol=0.01)
        and math.isclose(one.price_per_hour, other.price_per_hour, rel_tol=0.001)
    )


def _find(query: OfferQuery, data_folder: Path, given: GivenSettings) -> tuple[Sequence[Offer], dict[str, _Conflict]]:
    """The offers within a query, and by key those of which catalogues say different things."""
    query = _usual(query)
    asked = [(name, open_catalogue(name, data_folder, given)) for name in _asked(query, given)]
    name, catalogue = asked[0] if len(asked) == 1 else ("", None)
    if isinstance(catalogue, PriceTableCatalogue):
        # A table has each offer once: there is nothing to compare, and only those that are looked at need be made.
        ordered = catalogue.matching(_of_catalogue(query, name)).cheapest_first()
        return (ordered if query.limit is None else balanced(ordered, query.limit)), {}
    found: dict[str, tuple[str, Offer]] = {}
    conflicts: dict[str, _Conflict] = {}
    earlier: list[Catalogue] = []
    for name, catalogue in asked:
        within = _of_catalogue(query, name)
        to_measure = [offer for offer in catalogue.made_to_measure(query.types) if within.matches(offer)]
        fresh: dict[str, Offer] = {}
        for offer in (*catalogue.matching(within), *to_measure):
            key = offer.key  # made of many words each time: there may be a hundred thousand offers
            if key not in found:
                fresh.setdefault(key, offer)
            elif _differ(found[key][1], offer):
                conflicts.setdefault(key, _Conflict(*found[key], name, offer))
        for other in earlier:
            # What the first catalogue says of an offer counts, also where that is outside of the query.
            for key in other.also_sells(list(fresh.values())):
                fresh.pop(key, None)
        found.update((key, (name, offer)) for key, offer in fresh.items())
        earlier.append(catalogue)
    places = sorted((offer.price_per_hour, key) for key, (_, offer) in found.items())
    cheapest_first = [found[key][1] for _, key in places]
    kept = cheapest_first if query.limit is None else balanced(cheapest_first, query.limit)
    for catalogue in earlier:
        if isinstance(catalogue, DescribesOffers):
            kept = list(catalogue.describe(kept))
    return kept, conflicts


def _of_catalogue(query: OfferQuery, name: str) -> OfferQuery:
    """The query for one catalogue: one that is named sells all it has, whatever provider its rows say."""
    return replace(query, provider=() if name in query.provider else query.provider, limit=None)


def balanced(offers: Sequence[Offer], limit: int) -> list[Offer]:
    """Keep some offers: different types before the same one in another region, and as many of each provider.

    Args:
        offers: Offers of any providers, the cheapest first.
        limit: Offers to keep, at most.

    Returns:
        The kept ones, the cheapest first.
    """
    regions: Counter[OfferKind] = Counter()
    taken: Counter[tuple[str, int]] = Counter()
    ranked: list[tuple[int, int, int]] = []
    kinds = offers.kinds() if isinstance(offers, TableOffers) else [_kind(offer) for offer in offers]
    for place, kind in enumerate(kinds):
        again = regions[kind]
        ranked.append((again, taken[kind[0], again], place))
        regions[kind] += 1
        taken[kind[0], again] += 1
    kept = sorted(ranked)[:limit]
    return [offers[place] for place in sorted(place for _, _, place in kept)]


def _kind(offer: Offer) -> OfferKind:
    return offer.provider, offer.instance_type, offer.spot


def require_offers(
    query: OfferQuery, data_folder: Path, catalogue_settings: GivenSettings | None = None, *, bounds: str = "the query"
) -> Sequence[Offer]:
    """Find offers as `find_offers` does, where at least one is needed.

    Args:
        query: Bounds on the offers.
        data_folder: Folder of refreshed prices.
        catalogue_settings: Settings by catalogue and name.
        bounds: Name of the query for the error text.

    Raises:
        NoOfferError: Nothing is within the query; the hint says which bound leaves nothing.
    """
    query = _usual(query)
    require_gpus(query, bounds=bounds)
    found = find_offers(query, data_folder, catalogue_settings)
    if not found:
        raise NoOfferError(f"no offer is within {bounds}", hint=_blame(query, data_folder, catalogue_settings))
    return found


def require_gpus(query: OfferQuery, *, bounds: str) -> None:
    """Refuse a query for offers of this machine with GPUs where it has none.

    Args:
        query: Bounds on the offers.
        bounds: Name of the query for the error text.

    Raises:
        NoOfferError: This machine has no GPU.
    """
    if query.provider == ("local",) and query.gpus[0] and not gpus_here():
        hint = f"{why_none() or 'tradewind doctor says where it looks'}; without gpus it runs on processors"
        raise NoOfferError(f"{bounds}: this machine has no GPU", hint=hint)


def open_catalogue(name: str, data_folder: Path, catalogue_settings: GivenSettings | None = None) -> Catalogue:
    """Open one catalogue with its settings.

    Raises:
        PluginError: The catalogue is not installed or does not load.
        SpecError: A setting is wrong.
    """
    given = (catalogue_settings or {}).get(name, {})
    catalogue: Catalogue = plugins.create("catalogue", name, given, data_folder=data_folder)
    return catalogue


def _usual(query: OfferQuery) -> OfferQuery:
    """A query whose providers, categories and architectures are called as in offers; a catalogue's own name stays."""
    catalogues = plugins.names("catalogue")
    return replace(
        query,
        provider=tuple(name if name in catalogues else canonical_provider(name) for name in query.provider),
        category=tuple(canonical_category(name) for name in query.category),
        arch=tuple(canonical_arch(name) for name in query.arch),
    )


def _asked(query: OfferQuery, given: GivenSettings) -> list[str]:
    """The catalogues to ask: first those that the user has given settings, in that order."""
    order = {name: place for place, name in enumerate(given)}
    return sorted(_asked_names(query, given), key=lambda name: order.get(name, len(order)))


def _asked_names(query: OfferQuery, given: GivenSettings) -> list[str]:
    # A misspelt one would otherwise be left out without a word.
    parts = {name: plugins.load("catalogue", name) for name in given}
    known = plugins.names("catalogue")
    own = [name for name in known if name in parts and _on_request(parts[name])]
    own += [name for name in given if is_reference(name)]
    if query.provider:
        named = [name for name in known if name in query.provider]
        sellers = [name for name in own if not issubclass(plugins.load("catalogue", name), DescribesOffers)]
        if not sellers and len(named) < len(set(query.provider)):
            for name in query.provider:
                _require(name, known)
        return own + [name for name in named if name not in own]
    return own + [name for name, part in plugins.load_all("catalogue").items() if not _on_request(part)]


def _require(name: str, known: list[str]) -> None:
    if name not in known:
        hint = did_you_mean(name, known, "installed:")
        raise PluginError(f"there is no provider {name!r} in any catalogue", hint=hint)


def _on_request(part: type[plugins.Plugin]) -> bool:
    """True for a catalogue that is asked only where it is named, or has settings that it cannot do without."""
    return bool(getattr(part, "on_request", False)) or any(
        field.is_required() for field in part.Settings.model_fields.values()
    )


def _blame(query: OfferQuery, data_folder: Path, given: GivenSettings | None) -> str:
    """Name the single bound of a query that leaves nothing, and the values that there are instead."""
    for name in ("region", "types", "category", "family", "arch"):
        values = getattr(query, name)
        if not values:
            continue
        others, _ = _find(OfferQuery(provider=query.provider, spot=None, types=("*",)), data_folder, given or {})
        attribute = "instance_type" if name == "types" else name
        known = sorted({str(getattr(offer, attribute)) for offer in others} - {""})
        if any(value in known or "*" in value or "?" in value for value in values):
            continue
        near = difflib.get_close_matches(values[0], known, n=3, cutoff=0.5)
        return f"nobody sells {name} {values[0]!r}; there is {', '.join(near or known[:6]) or 'nothing'}"
    for name in ("price", "memory", "vcpu", "gpus", "category", "family", "arch", "region", "types"):
        default = OfferQuery.__dataclass_fields__[name].default
        if getattr(query, name) != default:
            wider: dict[str, Any] = {name: default, "limit": 1}
            if _find(replace(query, **wider), data_folder, given or {})[0]:
                return f"without the bound on {name} there would be some"
    if query.spot:
        return "no spot prices are kept: tradewind offers refresh reads them where the catalogue's setting 'spot' is on"
    return "loosen several bounds"
