"""Speed of machines by benchmarks of them: one figure made of the scores of an offer."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from tradewind.problem import Offer
from tradewind.searcher.surrogate.gp import Array

_KNOWN_SHARE = 0.5
"""A score counts where at least this share of the machine types has it."""

_SINGLE, _WHOLE = 0.3, 0.8
"""Powers of the vCPUs with which a score grows: below, it is one of a single core; above, one of all vCPUs; between
them (the bandwidth of a memory) the power counts as it is."""

_LEAST_FAMILY = 0.5
"""Share of the variance of the score per vCPU that is between families, at least: sizes of one family have one kind of
core. It is 0.8 to 0.98 of recorded scores, and 0 of those that were dealt out anew."""

_FEWEST, _FEWEST_TYPES = 2, 6
"""Families of two types or more, and types in them, from which that can be seen."""

_MOST_SPREAD = 0.5
"""Without such families: standard deviation of ln(score per vCPU) up to which it is believed."""

_LEAST_FIT = 0.6
"""Share of a score's variance that the vCPUs explain, from which a wider spread is believed too."""


@dataclass(frozen=True, slots=True)
class _Score:
    """One score, and what is usual of it.

    Attributes:
        name: The fact.
        power: Of the vCPUs, with which it grows: 1 for a score of all of them together, 0 for one of a single core.
        usual: Mean of ln(score / vCPUs^power).
        tested: True where families of types show that it is one of these machines.
    """

    name: str
    power: float
    usual: float
    tested: bool

    def of(self, offer: Offer) -> float:
        """Compare a vCPU of an offer with the usual one: ln of the ratio; 0 where the offer has no such score."""
        score = offer.facts.get(self.name)  # not by `scores`, which looks at all facts each time
        if not isinstance(score, int | float) or score <= 0 or offer.vcpu <= 0:
            return 0.0
        return math.log(score) - self.power * math.log(offer.vcpu) - self.usual


@dataclass(frozen=True, slots=True)
class MachineSpeed:
    """Speed of a vCPU by the scores of some offers: the geometric mean of all that can be believed.

    A score that differs as much between the sizes of a family as between families cannot be one of these machines, and
    is left out: a column that slipped, or scores that were joined to other types. Where there are too few families, one
    that neither grows with the vCPUs nor is much the same for all types is.
    """

    scores: tuple[_Score, ...]

    @classmethod
    def of_offers(cls, offers: Sequence[Offer]) -> Self | None:
        """Read the scores of some offers; None where there are none that can be believed."""
        kinds = {(offer.provider, offer.instance_type): offer for offer in offers if offer.vcpu > 0}
        types = [(offer, offer.scores) for offer in kinds.values()]
        names = sorted({name for _, scores in types for name in scores})
        found = tuple(one for name in names if (one := _fitted(name, types)) is not None)
        return cls(found) if found else None

    @property
    def tested(self) -> bool:
        """True where families of types show that the scores are those of these machines."""
        return all(score.tested for score in self.scores)

    def of(self, offers: Sequence[Offer]) -> Array:
        """Compare the vCPUs of each offer with the usual ones: ln of the ratio, shape (n,)."""
        return np.array([sum(score.of(offer) for score in self.scores) / len(self.scores) for offer in offers])


def _fitted(name: str, types: Sequence[tuple[Offer, Mapping[str, float]]]) -> _Score | None:
    """A score, compared with the vCPUs of the types that have it; None where it cannot be believed."""
    known = [(offer, scores[name]) for offer, scores in types if name in scores]
    if len(known) < max(2.0, _KNOWN_SHARE * len(types)):
        return None
    size, score = np.log([offer.vcpu for offer, _ in known]), np.log([value for _, value in known])
    slope, explained = _line(size, score)
    alike = float(np.ptp(size)) < 1e-9
    power = 0.0 if slope < _SINGLE else 1.0 if slope > _WHOLE else slope
    each = score - power * size
    shares = [
        share
        for family in (lambda offer: offer.family, _family_of_name)
        if (share := _between(each, [f"{offer.provider}/{family(offer)}" for offer, _ in known])) is not None
    ]
    believed = (
        max(shares) >= _LEAST_FAMILY if shares else alike or each.std() <= _MOST_SPREAD or explained >= _LEAST_FIT
    )
    return _Score(name, power, float(each.mean()), bool(shares)) if believed else None


def _family_of_name(offer: Offer) -> str:
    """The name of a type without its size: ``c7i`` of ``c7i.large``, ``Standard_Dads_v6`` of ``Standard_D16ads_v6``."""
    name = offer.instance_type.partition("/")[0]
    if "." in name:
        return name.rpartition(".")[0]
    return re.sub(r"\d+", "", name, count=1) if name.startswith("Standard_") else re.sub(r"-\d+$", "", name)


def _between(values: Array, families: Sequence[str]) -> float | None:
    """Share of the variance that is between families, adjusted for their number; None for too few families."""
    groups: dict[str, list[float]] = {}
    for value, family in zip(values.tolist(), families, strict=True):
        groups.setdefault(family, []).append(value)
    several = [np.array(group) for group in groups.values() if len(group) > 1]
    if len(several) < _FEWEST or sum(map(len, several)) < _FEWEST_TYPES:
        return None
    together = np.concatenate(several)
    whole = float(together.var(ddof=1))
    if whole < 1e-12:
        return None
    within = sum(float(((group - group.mean()) ** 2).sum()) for group in several) / (len(together) - len(several))
    return 1.0 - within / whole


def _line(size: Array, score: Array) -> tuple[float, float]:
    """The power of the vCPUs with which a score grows, and the share of its variance that they explain.

    Where all types have as many vCPUs the scores may be of either kind, which then makes no difference.
    """
    away, other = size - size.mean(), score - score.mean()
    square, total = float(away @ away), float(other @ other)
    if square < 1e-9 or total < 1e-9:
        return 0.0, 0.0
    slope = float(away @ other) / square
    return slope, slope**2 * square / total
