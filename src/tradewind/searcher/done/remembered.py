"""What a model chose before its weights, kept for the next one of the same job."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from tradewind.searcher.done.fitting import Shape


@dataclass(frozen=True, slots=True)
class Remembered:
    """Scale, penalty and inputs of a model of run times.

    Attributes:
        sigma: σ_ω of every input that is not dropped.
        penalty: λ.
        dropped: Job parameters that do not matter.
        helping: Low-level metrics that do.
    """

    sigma: float
    penalty: float
    dropped: frozenset[str]
    helping: frozenset[str]

    @classmethod
    def of(cls, shape: Shape, profiles: Collection[str]) -> Remembered:
        """What a fitted shape says; ``profiles`` are the metrics that it could have used."""
        metrics = frozenset(profiles)
        return cls(shape.sigma, shape.penalty, shape.dropped - metrics, metrics - shape.dropped)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Remembered | None:
        """That of a document that `to_json` made; None for any other."""
        try:
            sigma, penalty = float(document["sigma"]), float(document["penalty"])
            names = frozenset(map(str, document["dropped"])), frozenset(map(str, document["helping"]))
        except (KeyError, TypeError, ValueError):
            return None
        return cls(sigma, penalty, *names) if 0 < sigma <= 100 and 0 < penalty <= 1000 else None

    def to_json(self) -> dict[str, Any]:
        """A JSON-able document."""
        return {
            "sigma": self.sigma,
            "penalty": self.penalty,
            "dropped": sorted(self.dropped),
            "helping": sorted(self.helping),
        }

    def without(self, parameters: Collection[str], profiles: Collection[str]) -> frozenset[str]:
        """The inputs of another model that are left out; a parameter that did not vary before is kept."""
        return (self.dropped & frozenset(parameters)) | (frozenset(profiles) - self.helping)

    def shape(self, dropped: frozenset[str]) -> Shape:
        """The shape of another model."""
        return Shape(self.sigma, self.penalty, dropped)
