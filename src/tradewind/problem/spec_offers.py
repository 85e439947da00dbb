"""Gives the offers that a query found the names by which an instance parameter lists them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields

from tradewind.errors import NoOfferError
from tradewind.problem.offer import Offer
from tradewind.problem.query import OfferQuery


def named_offers(parameter: str, query: OfferQuery, offers: Sequence[Offer]) -> dict[str, Offer]:
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
    sold = {offer.instance_type for offer in offers}
    for name in query.types:
        if not any(sign in name for sign in "*?[") and name not in sold and query.limit is None:
            raise NoOfferError(
                f"{parameter}: no offer of {name!r} matches {describe_query(query)}",
                hint="tradewind offers lists what there is",
            )
    different = {offer.key: offer for offer in sorted(offers, key=lambda o: -o.price_per_hour)}
    ordered = sorted(different.values(), key=lambda offer: (offer.vcpu, offer.memory_gib, offer.key))
    places = Counter(kind for kind, _, _ in {(o.instance_type, o.provider, o.region) for o in ordered})
    full = [o.instance_type if places[o.instance_type] == 1 else _qualified(o) for o in ordered]
    names = Counter(full)
    return {
        f"{name}/spot" if names[name] > 1 and offer.spot else name: offer
        for name, offer in zip(full, ordered, strict=True)
    }


def _qualified(offer: Offer) -> str:
    return "/".join(part for part in (offer.provider, offer.region, offer.instance_type) if part)


def _memory(gib: float) -> str:
    """GiB in the unit in which it is short, which is that of the user: 59.6046 is what 64GB come to."""
    for unit, size in (("GiB", 2**30), ("GB", 10**9), ("MiB", 2**20), ("MB", 10**6)):
        number = gib * 2**30 / size
        shown = round(number, 2)
        # What was written has been cut to whole bytes.
        if shown >= 1 and abs(number - shown) * size < 1:
            return f"{shown:.10g}{unit}"
    return f"{gib:.3g}GiB"


def describe_query(query: OfferQuery) -> str:
    """A query as the user would write it."""
    words = []
    for one in fields(query):
        value = getattr(query, one.name)
        if one.name == "spot":
            words += [] if value is False else [f"spot={'any' if value is None else 'true'}"]
        elif isinstance(value, tuple) and one.name in ("vcpu", "memory", "price", "gpus"):
            written = _memory if one.name == "memory" else "{:g}".format
            low, high = ("" if end is None else written(end) for end in value)
            words += [f"{one.name}={low if low == high else f'{low}..{high}'}"] if low or high else []
        elif isinstance(value, tuple):
            words += [f"{one.name}={','.join(value)}"] if value else []
        elif value is not None:
            words.append(f"{one.name}={value}")
    return " ".join(words) or "the query"
