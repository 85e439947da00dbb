"""What a model chose before its weights, kept for the next one of the same job."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tradewind.searcher.done.regression import ExpansionShape


@dataclass(frozen=True, slots=True)
class SavedFit:
    """Scale, penalty and inputs of a model of run times.

    Attributes:
        sigma: σ_ω of every input that is not dropped.
        penalty: λ.
        dropped: Job parameters that do not matter.
        helping: Low-level metrics that do.
        evidence: Logarithm of how likely it makes the runs, less that of the likeliest.
        others: Less likely ones that are used beside it.
        lawful: True for a law of the time, False for straight lines.
    """

    sigma: float
    penalty: float
    dropped: frozenset[str]
    helping: frozenset[str]
    evidence: float = 0.0
    others: tuple[SavedFit, ...] = ()
    lawful: bool = False

    @classmethod
    def of(cls, shapes: Sequence[ExpansionShape], profiles: Collection[str]) -> SavedFit:
        """What fitted shapes say, the likeliest first; ``profiles`` are the metrics that they could have used."""
        metrics = frozenset(profiles)
        found = [
            cls(
                one.sigma,
                one.penalty,
                one.dropped - metrics,
                metrics - one.dropped,
                one.evidence - shapes[0].evidence,
                lawful=one.lawful,
            )
            for one in shapes
        ]
        return replace(found[0], others=tuple(found[1:]))

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> SavedFit | None:
        """That of a document that `to_json` made; None for any other."""
        try:
            sigma, penalty = float(document["sigma"]), float(document["penalty"])
            names = frozenset(map(str, document["dropped"])), frozenset(map(str, document["helping"]))
            evidence = float(document.get("evidence", 0.0))
            lawful = bool(document.get("law", False))
            others = [cls.from_json(one) for one in document.get("others", ())]
        except (AttributeError, KeyError, TypeError, ValueError):
            return None
        if not (0 < sigma <= 100 and 0 < penalty <= 1000 and evidence <= 0):
            return None
        return cls(sigma, penalty, *names, evidence, tuple(one for one in others if one is not None), lawful)

    def to_json(self) -> dict[str, Any]:
        """A JSON-able document."""
        document: dict[str, Any] = {
            "sigma": self.sigma,
            "penalty": self.penalty,
            "dropped": sorted(self.dropped),
            "helping": sorted(self.helping),
        }
        if self.evidence:
            document["evidence"] = self.evidence
        if self.lawful:
            document["law"] = True
        if self.others:
            document["others"] = [one.to_json() for one in self.others]
        return document

    def without(self, parameters: Collection[str], profiles: Collection[str]) -> frozenset[str]:
        """The inputs of another model that are left out; a parameter that did not vary before is kept."""
        return (self.dropped & frozenset(parameters)) | (frozenset(profiles) - self.helping)

    def shapes(
        self, parameters: Collection[str], profiles: Collection[str], *, laws: bool = True
    ) -> list[ExpansionShape]:
        """The shapes of another model, the likeliest first, with laws where these may be; see `without`."""
        every = ((one, one.without(parameters, profiles)) for one in (self, *self.others))
        return [ExpansionShape(one.sigma, one.penalty, gone, one.evidence, one.lawful and laws) for one, gone in every]
