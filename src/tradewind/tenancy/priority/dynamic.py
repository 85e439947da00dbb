"""Paper 4's dynamic priority: a search that has stopped improving gives way."""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field

from tradewind.plugins import Settings
from tradewind.tenancy.priority.base import Priority
from tradewind.tenancy.views import JobView

_REMEMBERED = ("results", "fallen", "idle")


class DynamicSettings(Settings):
    """Settings of paper 4's Algorithm 1; the paper gives none of the values."""

    sample: int = Field(5, ge=2, description="m: how many of the best results the gaps are taken between")
    multiple: float = Field(2.0, ge=0, description="k: the rule begins after more than k times m results")
    threshold: float = Field(0.01, ge=0, description="G_0: a gap below it means that the search stands still")
    shrink: float = Field(0.5, gt=0, le=1, description="G_j is G_0 times this to the power of j")
    tolerance: float = Field(
        0.1, ge=0, description="Share within which a gap is about equal to the mean of earlier ones"
    )
    window: int | None = Field(None, ge=1, description="Earlier rounds whose gaps make the mean; all without it")
    declines: int = Field(1, ge=0, description="d: offers that a search declines for each step that its priority fell")
    idle_rounds: int = Field(3, ge=1, description="So many offers in a row that nobody took raise the priority again")
    lowest: int = Field(5, ge=0, description="Steps by which a priority falls at most")


@dataclass(slots=True)
class _Round:
    """The state of a search: P, j, the gaps of earlier rounds, the results best first, and idle offers.

    What is recalled are the results before a restart, and P and idle offers at that time.
    """

    fallen: int = 0
    step: int = 0
    gaps: list[float] = field(default_factory=list)
    best: list[float] = field(default_factory=list)
    results: int = 0
    idle: int = 0
    recalled: tuple[int, int, int] | None = None


class DynamicPriority(Priority):
    """Algorithm 1 of paper 4: a search whose best results lie close together falls in priority, and declines offers.

    With n results, n > k·m, the smallest gap g between neighbours among the m best is compared with the threshold G_j
    and with the mean g' of earlier rounds: g < G_j or g ≈ g' lowers the priority by one step and moves on to the next
    threshold. Each search has a falling priority P of its own: one P for all, as the paper writes it, would punish the
    search that improves. A search declines ``declines`` offers for each step; when nobody takes what was declined, the
    priority rises again by one step, and where nobody else waits who would take it, the search has its first place
    again at once: machines do not stand idle out of politeness. Nothing that runs is touched. How far it has fallen is
    stored: after a restart it has the place that it had.

    The rule predicts nothing about random search, where records do not depend on past values; see `gain`.
    """

    name = "dynamic"
    Settings = DynamicSettings
    settings: DynamicSettings

    def __init__(self, *, settings: DynamicSettings) -> None:
        super().__init__(settings=settings)
        self._rounds: dict[str, _Round] = {}

    def key(self, job: JobView) -> tuple[float, ...]:
        """See `Priority.key`."""
        return float(self._round(job).fallen), float(job.number)

    def told(self, job: JobView) -> None:
        """One step of Algorithm 1."""
        it = self._round(job)
        it.results += 1
        self._round_of(it, job.values[-1])
        self._take_recalled(it)

    def _round_of(self, it: _Round, value: float) -> None:
        given = self.settings
        if math.isfinite(value):
            bisect.insort(it.best, value)
            del it.best[given.sample :]
        if it.results <= given.multiple * given.sample or len(it.best) < given.sample:
            return
        gap = min(b - a for a, b in zip(it.best, it.best[1:], strict=False))
        earlier = it.gaps if given.window is None else it.gaps[-given.window :]
        mean = sum(earlier) / len(earlier) if earlier else None
        alike = mean is not None and abs(gap - mean) <= given.tolerance * mean
        if gap < given.threshold * given.shrink**it.step or alike:
            it.fallen = min(it.fallen + 1, self.settings.lowest)
            it.step += 1
        it.gaps.append(gap)

    def remembered(self, job: JobView) -> dict[str, Any]:
        """The steps by which the search has fallen, and after how many results."""
        it = self._round(job)
        if it.recalled is not None:  # not all results are told again so far
            return dict(zip(_REMEMBERED, it.recalled, strict=True))
        return dict(zip(_REMEMBERED, (it.results, it.fallen, it.idle), strict=True))

    def recall(self, job: JobView, document: Mapping[str, Any]) -> None:
        """See `Priority.recall`: it has fallen as far as before once as many results are told as were then."""
        known = [each for name in _REMEMBERED if isinstance(each := document.get(name), int) and each >= 0]
        if len(known) == len(_REMEMBERED):
            it, (results, fallen, idle) = self._round(job), known
            it.recalled = results, min(fallen, self.settings.lowest), idle
            self._take_recalled(it)

    @staticmethod
    def _take_recalled(it: _Round) -> None:
        if it.recalled is not None and it.results >= it.recalled[0]:
            _, it.fallen, it.idle = it.recalled
            it.recalled = None

    def declines(self, job: JobView) -> int:
        """See `Priority.declines`."""
        return self.settings.declines * self._round(job).fallen

    def declined(self, job: JobView, *, taken: bool) -> None:
        """Raise the priority after some offers in a row that nobody took."""
        it = self._round(job)
        it.idle = 0 if taken else it.idle + 1
        if it.idle >= self.settings.idle_rounds:
            it.idle = 0
            it.fallen = max(0, it.fallen - 1)

    def unopposed(self, job: JobView) -> None:
        """Give the search its first place again."""
        it = self._round(job)
        it.fallen = it.idle = 0

    def forget(self, job: JobView) -> None:
        """See `Priority.forget`."""
        self._rounds.pop(job.job, None)

    def _round(self, job: JobView) -> _Round:
        return self._rounds.setdefault(job.job, _Round())
