"""Searches sets of several kinds of machines, beside the sets of one kind; a plan is made on each."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tradewind.problem import COST, Offer, TrialState
from tradewind.workflow.advice.offers import (
    MachineAssumptions,
    amounts_of_all,
    billable_seconds,
    fitting_power,
    kept_cost,
    probable_makespan,
    worth_trying,
)
from tradewind.workflow.advice.runner import simulate_planner
from tradewind.workflow.advice.set_search import AdviceRequest, SetSearchResult
from tradewind.workflow.graph import MOST, Numbers, Workflow
from tradewind.workflow.planner.base import Planner

_MOST = 200_000
"""Sets whose bounds are computed at most; of more than these, so many are drawn."""

_ENOUGH = 5
"""Plans on mixed sets after which only they say how plans compare with the two parts of the bound."""

TRIFLE = 1e-4
"""The share by which a set must be better than another one to be worth more types of machines."""

_CLOSE = 1e-9

_WORST = (math.inf, math.inf, math.inf)

CountMatrix = NDArray[np.int32]
VmCounts = tuple[tuple[int, int], ...]
"""A set: the numbers of its kinds, ascending, each with its count of machines."""


@dataclass(frozen=True)
class PlannedMachineSet:
    """A set of machines with what a plan on it takes and costs.

    Attributes:
        offers: Its kinds, each with its number of nodes, the fastest first.
        makespan: Seconds from the order of the machines to the end.
        cost: USD for all machines, kept to the end.
    """

    offers: tuple[Offer, ...]
    makespan: float
    cost: float

    @property
    def key(self) -> str:
        """Key that is equal for equal sets of machines."""
        return key_of(self.offers)


@dataclass(frozen=True)
class MixedSearchResult:
    """Result of a search over mixed sets.

    Attributes:
        planned: The sets that were planned, in order.
        sets: Number of mixed sets whose bounds were computed.
        proven: True when no mixed set of one provider, region and architecture can be better by more than a trifle,
            whoever plans.
    """

    planned: tuple[PlannedMachineSet, ...] = ()
    sets: int = 0
    proven: bool = True


def key_of(offers: Sequence[Offer]) -> str:
    """Key that is equal for equal sets of machines."""
    return " + ".join(sorted(offer.key for offer in offers))


def mix_sets(
    request: AdviceRequest, offers: Sequence[Offer], pure: SetSearchResult, planner: Planner, seconds: float
) -> MixedSearchResult:
    """Look for a mixed set that is better than all sets of one kind that were tried.

    The machines of a mixed set are of one provider, one region and one architecture, and each task fits one of them.
    What every mixed set must take and cost at least is computed for all of them, or for many where there are too many.
    Those that could be better than the best known set are planned: in turn the one that is expected to be the best, and
    the best expected neighbour of the best known set (a machine added, taken away or exchanged).

    Args:
        request: The workflow with its limits; its `mix` is the most kinds in one set.
        offers: The machine types to choose from, one node each.
        pure: The search over sets of one kind.
        planner: Planner that is run on each set.
        seconds: Processor time that it may take.
    """
    search = _MixedSearch(request, offers, pure)
    until = time.process_time() + seconds
    while len(search.planned) < request.trials and time.process_time() < until:
        row = search.next()
        if row is None:
            return MixedSearchResult(tuple(search.planned), search.sets, search.complete)
        chosen = search.offers(row)
        platform = request.terms.together(chosen, request.flow)
        makespan = simulate_planner(request.flow, platform, planner).makespan
        search.tell(row, PlannedMachineSet(chosen, makespan, kept_cost(platform, makespan)))
        if not pure.trials and len(search.planned) == 1:  # which may have waited for a compiler
            until = time.process_time() + seconds
    return MixedSearchResult(tuple(search.planned), search.sets, search.complete and search.next() is None)


def kinds_of(offers: Sequence[Offer], flow: Workflow, terms: MachineAssumptions) -> list[list[Offer]]:
    """The kinds of machines that are worth mixing, by where they are; the place with the cheapest work first.

    A kind that another one of its place replaces (as fast, with as many slots and GPUs and as much memory, for the same
    tasks, not dearer) is left out: any schedule on it runs on the other one as well. A kind may be there for some tasks
    only.

    Args:
        offers: One node each.
        flow: The workflow.
        terms: Assumptions that turn offers into machines.
    """
    places: dict[tuple[str, str, str], list[Offer]] = {}
    for offer in offers:
        places.setdefault((offer.provider, offer.region, offer.arch), []).append(offer)

    def rate(offer: Offer) -> float:
        return offer.price_per_hour / (terms.some_room(offer, flow) * terms.speed(offer))

    found = []
    for here in places.values():
        kept = _unreplaced(worth_trying(here, flow, terms, partly=True), flow, terms)
        kept.sort(key=lambda each: (-terms.speed(each), -terms.some_room(each, flow), each.key))
        if len(kept) > 1 and np.array([terms.takes(each, flow) for each in kept]).any(axis=0).all():
            found.append(kept)
    return sorted(found, key=lambda kept: min(rate(offer) for offer in kept))


def _unreplaced(offers: Sequence[Offer], flow: Workflow, terms: MachineAssumptions) -> list[Offer]:
    """The offers that no other one replaces."""
    good = np.array([(terms.speed(each), terms.some_room(each, flow), -each.price_per_hour) for each in offers])
    takes = np.array([terms.fitting(each, flow) for each in offers])
    amounts = np.array([terms.amounts(each, flow) for each in offers])
    used = np.minimum([terms.size(each)[1:] for each in offers], amounts_of_all(flow))
    kept = []
    for place, offer in enumerate(offers):
        better = (good >= good[place]).all(axis=1) & (takes >= takes[place]).all(axis=1)
        better &= (amounts >= used[place]).all(axis=1)
        better[place] = False
        if not better.any():
            kept.append(offer)
    return kept


@dataclass(frozen=True)
class _MachineSets:
    """Sets of machines as arrays: the numbers of their kinds, ascending, and the count of each.

    Unused columns have kind 0 and count 0.

    Attributes:
        kinds: Shape (sets, most kinds of a set).
        counts: Machines of each kind; the same shape.
    """

    kinds: CountMatrix
    counts: CountMatrix

    def __len__(self) -> int:
        return len(self.kinds)

    def of(self, chosen: Any) -> _MachineSets:
        return _MachineSets(self.kinds[chosen], self.counts[chosen])

    def key(self, row: int) -> VmCounts:
        pairs = zip(self.kinds[row].tolist(), self.counts[row].tolist(), strict=True)
        return tuple((kind, count) for kind, count in pairs if count)


class _MixedSearch:
    """Chooses the mixed set to plan next, by bounds and expectations."""

    def __init__(self, request: AdviceRequest, offers: Sequence[Offer], pure: SetSearchResult) -> None:
        self._request, self._set_bounds = request, pure.set_bounds
        places = kinds_of(offers, request.flow, request.terms)
        self._offers = [offer for here in places for offer in here]
        self._place = np.repeat(np.arange(len(places)), [len(here) for here in places])
        self._speeds = np.array([request.terms.speed(offer) for offer in self._offers])
        self._slots = np.array([request.terms.some_room(offer, request.flow) for offer in self._offers], dtype=float)
        counted = [request.terms.amounts(offer, request.flow) for offer in self._offers]
        sizes = np.array([request.terms.size(offer)[1:] for offer in self._offers], dtype=float).reshape(-1, 3)
        sizes[sizes >= MOST] = math.inf
        self._amounts = {
            place: sizes[:, place] for place in range(3) if any(each[place] < math.inf for each in counted)
        }
        self._takes = np.array([request.terms.takes(offer, request.flow) for offer in self._offers], dtype=np.bool_)
        self._prices = np.array([offer.price_per_hour for offer in self._offers])
        self.planned: list[PlannedMachineSet] = []
        self._tried: set[VmCounts] = set()
        self._parts: list[tuple[float, float, float]] = []  # path, work and seconds of each plan
        self._best, self._best_row = self._start(pure)
        rows, self.complete = _every(places, request.mix, request.max_vms, request.seed)
        rows = self._whole(rows)
        self.sets = len(rows)
        self._power = self._fitted()
        self._pool = self._hopeful(rows)
        self._order = self._sorted(self._pool)
        self._nearby: _MachineSets | None = None

    def _start(self, pure: SetSearchResult) -> tuple[tuple[float, float, float], VmCounts]:
        """The best set of one kind, as a value to beat, and as a row where mixed sets can begin from it."""
        best, near = _WORST, _WORST
        row: VmCounts = ()
        numbers = {offer.key: number for number, offer in enumerate(self._offers)}
        for trial in pure.trials:
            seen = trial.observation
            if trial.state is not TrialState.SUCCEEDED or seen is None:
                continue
            value = self._value(seen.runtime, seen.cost)
            best = min(best, value)
            number = numbers.get(trial.offer.times(1).key)
            if number is not None and value < near:
                near, row = value, ((number, trial.offer.nodes),)
            self._parts.append((*self._set_bounds.parts(trial.offer), seen.runtime))
        return best, row

    def _value(self, makespan: float, cost: float) -> tuple[float, float, float]:
        """Rank of a set by its excess over the limits, then by its objective; less is better."""
        return (max(self._over(makespan, cost), 1.0), *self._objectives(makespan, cost))

    def _over(self, makespan: Any, cost: Any) -> Any:
        deadline, budget = self._request.deadline or math.inf, self._request.budget or math.inf
        return np.maximum(makespan / deadline, cost / budget)

    def _objectives(self, makespan: Any, cost: Any) -> tuple[Any, Any]:
        return (cost, makespan) if self._request.metric == COST else (makespan, cost)

    def offers(self, row: VmCounts) -> tuple[Offer, ...]:
        """The machines of a row."""
        return tuple(replace(self._offers[kind], nodes=count) for kind, count in row)

    def tell(self, row: VmCounts, planned: PlannedMachineSet) -> None:
        """Take note of the plan on a set."""
        rows = _rows([row], self._request.mix)
        path, work = self._bounds(rows)
        self.planned.append(planned)
        self._parts.append((float(path[0]), float(work[0]), planned.makespan))
        self._tried.add(row)
        value = self._value(planned.makespan, planned.cost)
        power = self._fitted()
        if value < self._best:
            self._best, self._best_row = value, row
            self._nearby = None
            self._pool = self._hopeful(self._pool)
            self._power = power
            self._order = self._sorted(self._pool)
        elif power != self._power:
            self._power = power
            self._order = self._sorted(self._pool)

    def next(self) -> VmCounts | None:
        """The set to plan next, or None where none can be better."""
        if len(self.planned) % 2 and (row := self._neighbour()):
            return row
        for place in self._order:
            row = self._pool.key(int(place))
            if row not in self._tried:
                return row
        return self._neighbour()

    def _neighbour(self) -> VmCounts | None:
        if self._nearby is None:
            near = self._hopeful(self._whole(_rows(self._changed(), self._request.mix)))
            self._nearby = near.of(self._sorted(near))
        return next((row for row in map(self._nearby.key, range(len(self._nearby))) if row not in self._tried), None)

    def _changed(self) -> list[VmCounts]:
        """The mixed sets that differ from the best one by a machine added, taken away or exchanged."""
        if not self._best_row:
            return []
        best = dict(self._best_row)
        here = np.flatnonzero(self._place == self._place[self._best_row[0][0]]).tolist()
        found = set()
        for less in (None, *best):
            for more in (None, *here):
                counts = dict(best)
                if less is not None:
                    counts[less] -= 1
                if more is not None:
                    counts[more] = counts.get(more, 0) + 1
                row = tuple(sorted((kind, count) for kind, count in counts.items() if count))
                if 1 < len(row) <= self._request.mix and sum(counts.values()) <= self._request.max_vms:
                    found.add(row)
        return sorted(found - self._tried - {self._best_row})

    def _whole(self, rows: _MachineSets) -> _MachineSets:
        """Pick the sets on which every task fits some machine."""
        if self._takes.all() or not len(rows):
            return rows
        taken = self._takes[rows.kinds] & (rows.counts > 0)[:, :, None]
        return rows.of(np.all(np.any(taken, axis=1), axis=1))

    def _bounds(self, rows: _MachineSets) -> tuple[Numbers, Numbers]:
        """Path and work of some sets, in seconds without boot."""
        counts = rows.counts.astype(float)
        amounts = {
            place: np.where(rows.counts > 0, has[rows.kinds], 0.0) * counts for place, has in self._amounts.items()
        }
        return self._set_bounds.parts_together(self._speeds[rows.kinds], self._slots[rows.kinds] * counts, amounts)

    def _cost(self, rows: _MachineSets, seconds: Numbers) -> Numbers:
        hourly = (self._prices[rows.kinds] * rows.counts).sum(axis=1)
        return np.asarray(billable_seconds(self._request.terms.billing, seconds) / 3600.0 * hourly)

    def _hopeful(self, rows: _MachineSets) -> _MachineSets:
        """Pick the sets that keep the limits and are better than the best one, by their bounds."""
        if not len(rows):
            return rows
        seconds = self._set_bounds.boot + np.maximum(*self._bounds(rows))
        money = self._cost(rows, seconds)
        possible = self._over(seconds, money) <= 1.0 + _CLOSE
        if self._best[0] <= 1.0 + _CLOSE:
            possible &= self._objectives(seconds, money)[0] < self._best[1] * (1.0 - TRIFLE)
        return rows.of(possible)

    def _sorted(self, rows: _MachineSets) -> NDArray[np.intp]:
        """Sets in the order of what is expected of them: those within the limits first, the best of them first."""
        if not len(rows):
            return np.zeros(0, dtype=np.intp)
        seconds = self._set_bounds.boot + probable_makespan(*self._bounds(rows), self._power)
        money = self._cost(rows, seconds)
        first, second = self._objectives(seconds, money)
        return np.lexsort((second, first, np.maximum(self._over(seconds, money), 1.0)))

    def _fitted(self) -> float:
        parts = self._parts[-len(self.planned) :] if len(self.planned) >= _ENOUGH else self._parts
        path, work, seconds = np.array(parts).reshape(-1, 3).T
        return fitting_power(path, work, seconds, self._set_bounds.boot)


def _rows(sets: Sequence[VmCounts], width: int) -> _MachineSets:
    table = np.zeros((len(sets), width, 2), dtype=np.int32)
    for place, pairs in enumerate(sets):
        table[place, : len(pairs)] = pairs
    return _MachineSets(table[:, :, 0], table[:, :, 1])


def _every(places: Sequence[Sequence[Offer]], most: int, machines: int, seed: int) -> tuple[_MachineSets, bool]:
    """All mixed sets, or so many drawn from them as are looked at, and whether these are all."""
    chance = np.random.default_rng(seed)
    found, left, complete, first = [], _MOST, True, 0
    for here in places:
        sizes = range(2, min(most, len(here), machines) + 1)
        count = sum(math.comb(len(here), size) * math.comb(machines, size) for size in sizes)
        if count <= left:
            found += [_all_of(len(here), size, machines, most, first) for size in sizes]
        elif left:
            found.append(_drawn(len(here), left, most, machines, first, chance))
            complete = False
        else:
            complete = False
        left = max(0, left - count)
        first += len(here)
    empty = np.zeros((0, most), dtype=np.int32)
    return _MachineSets(*(np.concatenate([empty, *[rows[part] for rows in found]]) for part in (0, 1))), complete


def _all_of(kinds: int, size: int, machines: int, width: int, first: int) -> tuple[CountMatrix, CountMatrix]:
    """All sets of exactly so many kinds."""
    # Cuts of a row of machines are where the machines of one kind end; what is behind the last cut is not taken.
    cuts = np.array(list(itertools.combinations(range(1, machines + 1), size)), dtype=np.int32)
    counts = np.diff(cuts, axis=1, prepend=0)
    chosen = np.array(list(itertools.combinations(range(first, first + kinds), size)), dtype=np.int32)
    wide = ((0, 0), (0, width - size))
    return (
        np.pad(np.repeat(chosen, len(counts), axis=0), wide),
        np.pad(np.tile(counts, (len(chosen), 1)), wide).astype(np.int32),
    )


def _drawn(
    kinds: int, number: int, width: int, machines: int, first: int, chance: np.random.Generator
) -> tuple[CountMatrix, CountMatrix]:
    """Some sets: kinds as they come, small numbers of machines as often as large ones."""
    width_here = min(width, kinds, machines)
    order = chance.random((number, kinds)).argpartition(width_here - 1, axis=1)[:, :width_here] + first
    counts = np.exp(chance.uniform(0.0, math.log(machines + 1), order.shape)).astype(np.int32)
    counts *= np.arange(width_here) < chance.integers(2, width_here + 1, number)[:, None]
    kept = counts.sum(axis=1) <= machines
    order, counts = order[kept], counts[kept]
    by_kind = np.where(counts > 0, order, np.iinfo(np.int32).max).argsort(axis=1)
    order, counts = np.take_along_axis(order, by_kind, 1), np.take_along_axis(counts, by_kind, 1)
    wide = ((0, 0), (0, width - width_here))
    return (
        np.pad(np.where(counts > 0, order, 0), wide).astype(np.int32),
        np.pad(counts, wide).astype(np.int32),
    )
