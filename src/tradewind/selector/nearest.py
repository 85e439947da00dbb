"""The selector that takes the machine most like the one asked for."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field, field_validator

from tradewind import plugins
from tradewind.problem import Offer, Space
from tradewind.selector.attributes import AttributeSelector, Mask, WantedAttributes, canonical_attribute, nearest_offer


class NearestSettings(plugins.Settings):
    """Settings of nearest match; distances of numbers are in doublings, of words 0 (equal) or 1."""

    must: tuple[str, ...] = Field(default=(), description="Attributes that must be equal, or nobody sells it.")
    priorities: tuple[str, ...] = Field(
        default=(), description="Attributes whose distance decides first, in this order; the others add up."
    )
    weights: dict[str, float] = Field(
        default_factory=dict, description="Factor of an attribute's distance; 1 where not given, 0 to leave it out."
    )

    @field_validator("weights")
    @classmethod
    def _not_negative(cls, weights: dict[str, float]) -> dict[str, float]:
        for name, weight in weights.items():
            if not 0 <= weight < float("inf"):
                raise ValueError(f"the weight of {name} must be zero or more")
        return weights


class NearestSelector(AttributeSelector):
    """Takes the offer nearest to what is asked for; ties go to the cheapest, then by name.

    With it a search may move through vCPU and memory freely, although providers sell only certain pairs. Two
    configurations that come to the same offer are one trial.
    """

    Settings = NearestSettings
    settings: NearestSettings

    def __init__(self, *, settings: NearestSettings, offers: Sequence[Offer], space: Space) -> None:
        super().__init__(settings=settings, offers=offers, space=space)
        self._must = tuple(canonical_attribute(name) for name in settings.must)
        self._priorities = tuple(canonical_attribute(name) for name in settings.priorities)
        self._weights = {canonical_attribute(name): weight for name, weight in settings.weights.items()}
        for name in (*self._must, *self._priorities, *self._weights):
            if name not in self._attributes.values():
                raise self._unknown("selector nearest: no parameter has the attribute", name)

    def choose(self, asked: WantedAttributes, among: Mask) -> Offer | None:
        """Choose the nearest offer among those that have the attributes that must be equal."""
        for attribute in self._must:
            if attribute in asked:
                among = among & self.table.equal(attribute, asked[attribute])
        if not among.any():
            return None
        return nearest_offer(self.table, asked, among, priorities=self._priorities, weights=self._weights)
