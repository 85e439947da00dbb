"""A question to the catalogue: which offers may be used."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass

from tradewind.problem.offer import Offer


@dataclass(frozen=True, slots=True)
class OfferQuery:
    """Bounds on offers; an empty tuple and None do not restrict.

    Attributes:
        provider: Names of catalogues to ask.
        region: Regions.
        types: Instance types, with ``*`` and ``?`` as wildcards.
        category: Categories.
        family: Families.
        arch: Processor architectures.
        vcpu: Least and greatest vCPU of a node.
        memory: Least and greatest memory of a node, GiB.
        price: Least and greatest USD per node and hour.
        gpus: Least and greatest number of accelerators of a node; without it, offers with accelerators are left out
            unless ``types`` or ``category`` names them.
        spot: True for spot offers only, False for on demand only, None for both.
        limit: Keep this many, the cheapest first.
    """

    provider: tuple[str, ...] = ()
    region: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    category: tuple[str, ...] = ()
    family: tuple[str, ...] = ()
    arch: tuple[str, ...] = ()
    vcpu: tuple[float | None, float | None] = (None, None)
    memory: tuple[float | None, float | None] = (None, None)
    price: tuple[float | None, float | None] = (None, None)
    gpus: tuple[float | None, float | None] = (None, None)
    spot: bool | None = False
    limit: int | None = None

    def matches(self, offer: Offer) -> bool:
        """True when the offer is within all bounds."""
        for wanted, got in (
            (self.provider, offer.provider),
            (self.region, offer.region),
            (self.category, offer.category),
            (self.family, offer.family),
            (self.arch, offer.arch),
        ):
            if wanted and got not in wanted:
                return False
        if self.types and not any(fnmatch.fnmatchcase(offer.instance_type, pattern) for pattern in self.types):
            return False
        if self.spot is not None and offer.spot != self.spot:
            return False
        if self.gpus == (None, None) and offer.gpus and not (self.types or "accelerated" in self.category):
            return False
        return all(
            (low is None or value >= low) and (high is None or value <= high)
            for value, (low, high) in (
                (offer.vcpu, self.vcpu),
                (offer.memory_gib, self.memory),
                (offer.price_per_hour, self.price),
                (float(offer.gpus), self.gpus),
            )
        )
