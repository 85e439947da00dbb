"""Names of the offers of an instance parameter: its values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tradewind.errors import NoOfferError
from tradewind.problem.offer import Offer, OfferColumns, OfferQuery, attributes_of, describe_query, keys_of

Places = NDArray[np.intp]


class NamedOffers(Mapping[str, Offer]):
    """Offers by value name, each made when it is asked for.

    Args:
        source: The offers in any order.
        places: The place of each name's offer among them.

    Attributes:
        source: The offers in any order.
    """

    def __init__(self, source: OfferColumns, places: Mapping[str, int]) -> None:
        self.source = source
        self._places = places

    def __getitem__(self, name: str) -> Offer:
        return self.source[self._places[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    @cached_property
    def places(self) -> Places:
        """The place of each offer in `source`, in the order of the names."""
        return np.fromiter(self._places.values(), dtype=np.intp, count=len(self._places))

    def of(self, names: Sequence[str]) -> OfferColumns:
        """The offers of some names, in that order."""
        return self.source.take([self._places[name] for name in names])


def offers_named(offers: Mapping[str, Offer], names: Sequence[str]) -> Sequence[Offer]:
    """The offers of some names, in that order: columns where they are kept as such."""
    return offers.of(names) if isinstance(offers, NamedOffers) else [offers[name] for name in names]


def named_offers(parameter: str, query: OfferQuery, offers: Sequence[Offer]) -> Mapping[str, Offer]:
    """The offers by value name, from small to large machines.

    Args:
        parameter: The parameter's name, for errors.
        query: The question that the offers answer.
        offers: The answer, one node each.

    Raises:
        NoOfferError: There are none, or none of a type that the query names.
    """
    if not offers:
        raise NoOfferError(
            f"{parameter}: no offer matches {describe_query(query)}",
            hint="loosen it; tradewind offers lists what there is",
        )
    sold = set(attributes_of(offers, "instance_type"))
    for name in query.types:
        if not any(sign in name for sign in "*?[") and name not in sold and query.limit is None:
            raise NoOfferError(
                f"{parameter}: no offer of {name!r} matches {describe_query(query)}",
                hint="tradewind offers lists what there is",
            )
    if not isinstance(offers, OfferColumns):
        different = {offer.key: offer for offer in offers}
        if len(different) < len(offers):
            different = {offer.key: offer for offer in sorted(offers, key=lambda o: -o.price_per_hour)}
        offers = list(different.values())
    order = _small_to_large(offers)
    places = dict(zip(_names(offers, order), order.tolist(), strict=True))
    if isinstance(offers, OfferColumns):
        return NamedOffers(offers, places)
    return {name: offers[place] for name, place in places.items()}


def _small_to_large(offers: Sequence[Offer]) -> Places:
    """The places of some offers by vCPU, memory and key."""
    if isinstance(offers, OfferColumns):
        ranks = offers.key_ranks()
    else:
        ranks = np.empty(len(offers), dtype=np.int64)
        keys = keys_of(offers)
        ranks[sorted(range(len(keys)), key=keys.__getitem__)] = np.arange(len(keys))
    vcpu, memory = (_numbers(*coded(offers, name)) for name in ("vcpu", "memory_gib"))
    return np.lexsort((ranks, memory, vcpu))


def _numbers(values: Sequence[float | str | None], places: Places) -> NDArray[np.float64]:
    found: NDArray[np.float64] = np.array(values, dtype=float)[places]
    return found


def _names(offers: Sequence[Offer], order: Places) -> list[str]:
    """The name of each offer: its type alone where one provider sells that in one region, and no other spot."""
    types, of_type = _different(*coded(offers, "instance_type"))
    providers, of_provider = _different(*coded(offers, "provider"))
    regions, of_region = _different(*coded(offers, "region"))
    of_place = of_provider * len(regions) + of_region
    places = len(providers) * len(regions)
    sold_in = np.bincount(np.unique(of_type * places + of_place) // places, minlength=len(types)).tolist()
    starts = [
        "".join(f"{part}/" for part in (provider, region) if part) for provider in providers for region in regions
    ]
    full = [
        types[kind] if sold_in[kind] == 1 else f"{starts[place]}{types[kind]}" if types[kind] else starts[place][:-1]
        for place, kind in zip(of_place[order].tolist(), of_type[order].tolist(), strict=True)
    ]
    spot = _numbers(*coded(offers, "spot"))[order] > 0
    if not spot.any():
        return full
    times = Counter(full)
    return [f"{name}/spot" if on_spot and times[name] > 1 else name for name, on_spot in zip(full, spot, strict=True)]


def _different(values: Sequence[float | str | None], places: Places) -> tuple[list[str], Places]:
    """The different ones of some words, and the place of each offer's among them."""
    found: dict[str, int] = {}
    of_value = np.array([found.setdefault(str(value), len(found)) for value in values], dtype=np.intp)
    return list(found), of_value[places]


def coded(offers: Sequence[Offer], name: str) -> tuple[list[float | str | None], Places]:
    """Values of a fact, and the place of each offer's among them.

    Args:
        offers: The offers.
        name: The fact's name.
    """
    if isinstance(offers, OfferColumns):
        return offers.coded(name)
    return attributes_of(offers, name), np.arange(len(offers))
