"""Tenants and searches as policies see them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field


def valid_chance(said: float | None) -> float | None:
    """A probability as a searcher said it; None where it is none."""
    return said if said is not None and 0.0 <= said <= 1.0 else None


def valid_seconds(said: float | None) -> float | None:
    """A run time as a searcher said it; None where it is none."""
    return said if said is not None and 0.0 < said < math.inf else None


@dataclass(slots=True)
class TenantView:
    """A tenant as a rule between tenants sees it.

    Attributes:
        name: The tenant's name.
        weight: Its share against others: with weight 2 it is due twice what weight 1 is.
        priority: Its priority; larger goes first where priorities count.
        share: Its dominant share: the largest share of any resource of the cluster that its runs and Cores use.
        oldest: Number, by submission, of the search that it would start next; the oldest of several demands.
    """

    name: str
    weight: float = 1.0
    priority: int = 0
    share: float = 0.0
    oldest: int = 0


@dataclass(slots=True)
class JobView:
    """A search as a priority within its tenant sees it.

    Attributes:
        job: The search's id in the cluster.
        number: Its number by submission.
        values: Objective of each result in the order of arrival; smaller is better, infinite for a failed trial.
        seconds: How long each of these runs took.
        attained: What its ended runs have used: dominant share of the cluster times seconds.
        running: How many of its runs run now.
        share: Dominant share of the cluster that its next run takes.
        chance: How likely its next run is, by its searcher's model, to bring what it is after; None where not said.
        expected: Seconds that the model expects of its next run; None where not said.
        promised: Sum of the chances that were said of its runs, those with a result and those that run now.
        promises: Of how many of them a chance was said.
        earlier: How many results each search took that was like it and is over.
        usual_seconds: How long a run of those took in the mean; None where there is none.
    """

    job: str
    number: int
    values: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    attained: float = 0.0
    running: int = 0
    share: float = 0.0
    chance: float | None = None
    expected: float | None = None
    promised: float = 0.0
    promises: int = 0
    earlier: tuple[int, ...] = ()
    usual_seconds: float | None = None

    def tell(self, value: float, seconds: float, chance: float | None) -> None:
        """A result has come."""
        self.values.append(value)
        self.seconds.append(seconds)
        self.promise(chance)

    def precede(self, results: Sequence[int], seconds: float) -> None:
        """Take how many results similar searches took, and how long their runs; what is no number counts as unknown."""
        self.earlier = tuple(each for each in results if each > 0)
        self.usual_seconds = valid_seconds(seconds) if self.earlier else None

    def promise(self, chance: float | None, sign: int = 1) -> None:
        """Count what was said of a run, or, with -1, count it no more."""
        if chance is not None:
            self.promises += sign
            self.promised = self.promised + sign * chance if self.promises else 0.0

    def forget(self) -> None:
        """Forget all results: they are reported again."""
        self.values.clear()
        self.seconds.clear()
        self.attained = 0.0
        self.promised, self.promises = 0.0, 0
