"""Advice on a workflow's machines: the set to take with its plan, and what else was possible."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tradewind.errors import NoOfferError, NothingFeasibleError
from tradewind.problem import COST, Offer, Trial, TrialState
from tradewind.store.base import Store
from tradewind.utils.units import count, format_duration, format_money
from tradewind.workflow.advice.mixed_sets import TRIFLE, MixedSearchResult, PlannedMachineSet, key_of, mix_sets
from tradewind.workflow.advice.offers import kept_cost
from tradewind.workflow.advice.runner import offer_words, simulate_planner
from tradewind.workflow.advice.set_search import AdviceRequest, SetSearchResult, search_sets
from tradewind.workflow.bounds import lower_bound
from tradewind.workflow.job.preparation import make_planner
from tradewind.workflow.platform import Platform
from tradewind.workflow.schedule import Schedule, ScheduleFigures, figures

_NEAR = 4
"""Sets beside the best one for which a better plan is looked for."""

_NEAR_MIXED, _BETTER = 2, 1.1
"""Mixed sets for which one is looked for, and by which factor it may have to be better at most."""

_MOST_TYPES = 4
"""Types in one set that may be asked for at most."""

_NO_TYPE = "No type alone has room for every task."

_LONGER = "give the search longer: --seconds"

_SHOWN = 10
"""Sets of the table at most."""


@dataclass(frozen=True)
class MachineSetOption:
    """One set of machines with a plan.

    Attributes:
        offers: The machines: each kind with its number of nodes, the fastest first.
        platform: The same as machines of a workflow.
        schedule: The plan on these machines.
        planner: Name of the planner that made it.
        figures: Figures of the plan; the cost is that of all machines from their order to the end.
    """

    offers: tuple[Offer, ...]
    platform: Platform
    schedule: Schedule
    planner: str
    figures: ScheduleFigures

    @property
    def key(self) -> str:
        """Key that is equal for equal sets of machines."""
        return key_of(self.offers)


@dataclass(frozen=True)
class Advice:
    """The set of machines to take, its alternatives, and the reasons.

    Attributes:
        best: The set to take.
        front: Sets of which none is both quicker and cheaper than another one, the cheapest first; `best` is among
            them.
        searched: The search over sets of one type.
        mixing: The search over sets of several types.
        reasons: Reasons for the choice, in sentences.
        warnings: Assumptions that were made, in sentences.
    """

    best: MachineSetOption
    front: tuple[MachineSetOption, ...]
    searched: SetSearchResult
    mixing: MixedSearchResult
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]


def advise(request: AdviceRequest, offers: Sequence[Offer], store: Store, data_folder: Path) -> Advice:
    """Choose the machines of a workflow: which types, how many of each, and the plan on them.

    The sets are searched with a quick planner. For the best one, and for those that a better plan could put before it,
    such a plan is then looked for.

    Args:
        request: The workflow with its limits and the settings of the search.
        offers: The machine types to choose from, one node each.
        store: Store that the search is kept in.
        data_folder: Folder in which the runner may keep data.

    Raises:
        NoOfferError: A task, or all of them together, have no room on what is offered.
        NothingFeasibleError: No set keeps deadline and budget; with what comes closest.
    """
    searched = search_sets(request, offers, store, data_folder)
    made = _SetPlanner(request, data_folder)
    mixing = made.mixing(offers, searched)
    if not (searched.sets or mixing.sets):
        raise _no_room(request)
    tried = [trial for trial in searched.trials if trial.state is TrialState.SUCCEEDED]
    seen = [PlannedMachineSet((trial.offer,), trial.observation.runtime, trial.observation.cost)
            for trial in tried if trial.observation is not None]  # fmt: skip
    promising = [*_front(seen), *_front(mixing.planned)]
    rows = {planned.key: made.choice(planned.offers) for planned in promising}
    if request.refine > 0:
        for offer in _promising(request, searched, tried):
            _keep(rows, made.refined((offer,)))
        for machines in _near_mixed(request, mixing, _best(request, rows.values())):
            _keep(rows, made.refined(machines))
    every = _without_trifles(rows.values())
    best = _best(request, every)
    if best is None:
        raise _nothing(request, searched, mixing, every)
    front = [row for row in every if not any(_beats(other, row) for other in every)]
    shown = _thinned(sorted(front, key=lambda row: row.figures.cost), best)
    bounded = tuple(made.bounded(row) for row in shown)
    best = next(row for row in bounded if row.key == best.key)
    single = _best(request, (row for row in every if len(row.offers) == 1))
    reasons = (*_reasons(request, searched, best), *_mixed_reasons(request, searched, mixing, best, single))
    return Advice(best, bounded, searched, mixing, reasons, _warnings(request, searched, best))


def keeps_limits(request: AdviceRequest, choice: MachineSetOption) -> bool:
    """True where a set keeps the deadline and the budget."""
    in_time = request.deadline is None or choice.figures.makespan <= request.deadline
    return in_time and (request.budget is None or choice.figures.cost <= request.budget)


class _SetPlanner:
    """Plans sets of machines, and keeps the plans that were made."""

    def __init__(self, request: AdviceRequest, data_folder: Path) -> None:
        self._request, self._data_folder = request, data_folder
        self._planner = make_planner(request.planner, request.seed, data_folder)

    def mixing(self, offers: Sequence[Offer], searched: SetSearchResult) -> MixedSearchResult:
        """Search the sets of several types in the time that is left."""
        left = self._request.seconds - searched.seconds
        return (
            mix_sets(self._request, offers, searched, self._planner, left)
            if self._request.mix > 1
            else MixedSearchResult()
        )

    def choice(self, offers: tuple[Offer, ...]) -> MachineSetOption:
        """Make the set with the plan that the search found."""
        platform = self._request.terms.together(offers, self._request.flow)
        schedule = simulate_planner(self._request.flow, platform, self._planner)
        return self._with_figures(MachineSetOption(offers, platform, schedule, self._planner.name, _NONE))

    def refined(self, offers: tuple[Offer, ...]) -> MachineSetOption:
        """Make the set with the plan of a longer search, where that is better."""
        quick = self.choice(offers)
        planner = make_planner(
            {"use": "search", "seconds": self._request.refine}, self._request.seed, self._data_folder
        )
        schedule = simulate_planner(self._request.flow, quick.platform, planner)
        if schedule.makespan >= quick.schedule.makespan:
            return quick
        return self._with_figures(replace(quick, schedule=schedule, planner=planner.name))

    def bounded(self, choice: MachineSetOption) -> MachineSetOption:
        """Add the lower bound of its makespan to a set."""
        return self._with_figures(choice, lower_bound(self._request.flow, choice.platform))

    def _with_figures(self, choice: MachineSetOption, bound: float = 0.0) -> MachineSetOption:
        found = figures(self._request.flow, choice.platform, choice.schedule, bound)
        return replace(choice, figures=replace(found, cost=kept_cost(choice.platform, found.makespan)))


_NONE = ScheduleFigures(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def _keep(rows: dict[str, MachineSetOption], better: MachineSetOption) -> None:
    known = rows.get(better.key)
    if known is None or better.figures.makespan < known.figures.makespan:
        rows[better.key] = better


def _best(request: AdviceRequest, rows: Iterable[MachineSetOption]) -> MachineSetOption | None:
    return min((row for row in rows if keeps_limits(request, row)), key=lambda row: _order(request, row), default=None)


def _without_trifles(rows: Iterable[MachineSetOption]) -> list[MachineSetOption]:
    """Sets without those of several types that are better than one of a single type by a trifle at most."""

    def trifle(row: MachineSetOption, single: MachineSetOption) -> bool:
        a, b = single.figures, row.figures
        return a.cost * (1.0 - TRIFLE) <= b.cost and a.makespan * (1.0 - TRIFLE) <= b.makespan

    given = list(rows)
    singles = [row for row in given if len(row.offers) == 1]
    return [row for row in given if len(row.offers) == 1 or not any(trifle(row, single) for single in singles)]


def _front(seen: Sequence[PlannedMachineSet]) -> list[PlannedMachineSet]:
    """The sets of which no other is both quicker and cheaper."""
    kept, quickest = [], math.inf
    for planned in sorted(seen, key=lambda each: (each.cost, each.makespan)):
        if planned.makespan < quickest:
            kept.append(planned)
            quickest = planned.makespan
    return kept


def _promising(request: AdviceRequest, searched: SetSearchResult, tried: Sequence[Trial]) -> list[Offer]:
    """The best set, and those that a better plan could put before it, the most promising first."""
    set_bounds = searched.set_bounds
    by_cost = request.metric == COST

    def least(offer: Offer) -> float:
        return set_bounds.cost(offer) if by_cost else set_bounds.makespan(offer)

    good = [t for t in tried if t.observation and t.observation.feasible]
    best = min(good, key=lambda t: (t.observation.objective or 0.0, t.observation.runtime), default=None)  # type: ignore[union-attr]
    value = math.inf if best is None or best.observation is None else best.observation.objective or 0.0
    near = [
        trial.offer
        for trial in tried
        if trial is not best
        and least(trial.offer) < value
        and (request.deadline is None or set_bounds.makespan(trial.offer) <= request.deadline)
        and (request.budget is None or set_bounds.cost(trial.offer) <= request.budget)
    ]
    near.sort(key=least)
    return ([best.offer] if best else []) + near[:_NEAR]


def _near_mixed(
    request: AdviceRequest, mixing: MixedSearchResult, best: MachineSetOption | None
) -> list[tuple[Offer, ...]]:
    """The mixed sets that a slightly better plan would put first, the one that needs the least of it first."""
    least = math.inf if best is None else _order(request, best)[0]

    def needed(planned: PlannedMachineSet) -> float:
        value = planned.cost if request.metric == COST else planned.makespan
        over = planned.makespan / (request.deadline or math.inf), planned.cost / (request.budget or math.inf)
        return max(*over, value / least)

    near = sorted((planned for planned in mixing.planned if needed(planned) <= _BETTER), key=needed)
    return [planned.offers for planned in near[:_NEAR_MIXED]]


def _order(request: AdviceRequest, choice: MachineSetOption) -> tuple[float, float]:
    found = choice.figures
    return (found.cost, found.makespan) if request.metric == COST else (found.makespan, found.cost)


def _beats(one: MachineSetOption, other: MachineSetOption) -> bool:
    a, b = one.figures, other.figures
    return a.cost <= b.cost and a.makespan <= b.makespan and (a.cost, a.makespan) != (b.cost, b.makespan)


def _thinned(rows: Sequence[MachineSetOption], best: MachineSetOption) -> list[MachineSetOption]:
    """Some rows of a table that is too long: its ends, the best one, and others spread over the rest."""
    if len(rows) <= _SHOWN:
        return list(rows)
    places = {round(i * (len(rows) - 1) / (_SHOWN - 1)) for i in range(_SHOWN)}
    chosen = next(place for place, row in enumerate(rows) if row.key == best.key)
    return [rows[place] for place in sorted(places | {chosen})]


def limit_words(request: AdviceRequest) -> str:
    """Write deadline and budget in words, to follow a verb."""
    words = [f"within {format_duration(request.deadline)}"] if request.deadline is not None else []
    words += [f"for at most {format_money(request.budget)}"] if request.budget is not None else []
    return " and ".join(words)


def _reasons(request: AdviceRequest, searched: SetSearchResult, best: MachineSetOption) -> tuple[str, ...]:
    what = "cheapest" if request.metric == COST else "quickest"
    within = f" that ends {limit_words(request)}" if limit_words(request) else ""
    first = f"{offer_words(best.offers)} is the {what} set found{within}."
    left = searched.sets - len(searched.trials)
    if not searched.sets:
        return first, _NO_TYPE
    if not searched.proven:
        rest = "was not tried, and it" if left == 1 else "were not tried, and some of them"
        second = f"{left} of {count(searched.sets, 'set')} {rest} could be better: {searched.why}."
    elif left:
        better = "cheaper" if request.metric == COST else "quicker"
        none = (
            f"None of the {left} sets that were not tried can" if left > 1 else "The one set that was not tried cannot"
        )
        second = f"{none} be {better}, whoever plans: {'their bounds say' if left > 1 else 'its bound says'} so."
    else:
        second = f"All {searched.sets} sets were tried."
    return first, second


def _mixed_reasons(
    request: AdviceRequest,
    searched: SetSearchResult,
    mixing: MixedSearchResult,
    best: MachineSetOption,
    single: MachineSetOption | None,
) -> tuple[str, ...]:
    """Sentences about sets of several types; none where no such set could be made."""
    if not mixing.sets:
        return ()
    better = "cheaper" if request.metric == COST else "quicker"
    found = []
    if len(best.offers) > 1 and searched.sets:
        kind = "cheapest" if request.metric == COST else "quickest"
        found.append("No set of one type was found that does so." if single is None else
                     f"{_words(f'The {kind} set of one type found is', single)}.")  # fmt: skip
    types = "2" if request.mix == 2 else f"2 to {request.mix}"
    were = "was" if len(mixing.planned) == 1 else "were"
    tried = f"Of {count(mixing.sets, 'set')} of {types} types, {len(mixing.planned)} {were} planned"
    if mixing.proven:
        found.append(f"{tried}; none of the others can be {better}: their bounds say so.")
    else:
        found.append(f"{tried}; one of the others, or of those that were not looked at, could be {better}.")
    return tuple(found)


def _warnings(request: AdviceRequest, searched: SetSearchResult, best: MachineSetOption) -> tuple[str, ...]:
    terms = request.terms
    offers = searched.offers or best.offers
    unknown = [offer for offer in offers if not terms.known(offer)]
    found = []
    if unknown:
        every = len(unknown) == len(offers)
        which = (
            "every type counts"
            if every
            else f"{len(unknown)} of {len(offers)} types count{'s' if len(unknown) == 1 else ''}"
        )
        found.append(
            f"the catalogue does not say how fast a vCPU is: {which} as speed 1, the machine that the run times "
            "are for; say better with --speed c7i=1.3"
        )
    if best.offers[0].arch == "arm64":
        kind = " and ".join(offer.instance_type for offer in best.offers)
        verb = "has" if len(best.offers) == 1 else "have"
        found.append(
            f"{kind} {verb} arm64 processors: the programs must be built for them; --arch x86_64 leaves them out"
        )
    if note := best.platform.disk_note(request.flow):
        found.append(note)
    minimum = terms.billing.minimum_seconds
    paid = f"each VM is paid from its order to the end, {format_duration(terms.boot_seconds)} of boot included"
    found.append(paid + (f", and for {format_duration(minimum)} at least" if minimum else ""))
    return (*request.flow.warnings, *found)


def _nothing(
    request: AdviceRequest, searched: SetSearchResult, mixing: MixedSearchResult, rows: Sequence[MachineSetOption]
) -> NothingFeasibleError:
    """Make the error for the case that no set keeps the limits."""
    sets = f"no set of up to {count(request.max_vms, 'VM')}"
    message = f"{sets} was found that ends {limit_words(request)}" if limit_words(request) else f"{sets} was planned"
    if not rows and mixing.proven and not searched.sets:
        hint = f"{_NO_TYPE[:-1].lower()}, and lower bounds exclude the {count(mixing.sets, 'set')} of several types"
        return NothingFeasibleError(f"{sets} can end {limit_words(request)}", hint=hint)
    if not rows:
        refused = {trial.observation.reason: None for trial in searched.trials if trial.observation is not None}
        return NothingFeasibleError(message, hint=next((why for why in refused if why), searched.why or _LONGER))
    quick = min(rows, key=lambda row: (row.figures.makespan, row.figures.cost))
    cheap = min(rows, key=lambda row: (row.figures.cost, row.figures.makespan))
    words = [_words("the quickest found is", quick)]
    if request.budget is not None and cheap is not quick:
        words.append(_words("the cheapest", cheap))
    # A mixed set is planned only where its bounds leave room.
    if searched.proven and mixing.proven and not mixing.planned and not _possible(request, searched):
        message = f"{sets} can end {limit_words(request)}"
    return NothingFeasibleError(message, hint="; ".join(words))


def _no_room(request: AdviceRequest) -> NoOfferError:
    """Make the error for the case that each task has room on some type, and no set has room for all of them."""
    where = "" if request.mix == 1 else f", nor have {request.mix} types of one provider, region and architecture"
    more = f"--mix {request.mix + 1} looks for sets of more types" if request.mix < _MOST_TYPES else ""
    hint = ", or ".join(filter(None, ("allow larger types", more)))
    return NoOfferError(f"no type alone has room for every task{where}", hint=hint)


def _possible(request: AdviceRequest, searched: SetSearchResult) -> bool:
    """True where the bounds of a tried set leave room for a better plan that keeps the limits."""
    set_bounds = searched.set_bounds
    return any(
        (request.deadline is None or set_bounds.makespan(trial.offer) <= request.deadline)
        and (request.budget is None or set_bounds.cost(trial.offer) <= request.budget)
        for trial in searched.trials
    )


def _words(what: str, choice: MachineSetOption) -> str:
    found = choice.figures
    return f"{what} {offer_words(choice.offers)}: {format_duration(found.makespan)}, {format_money(found.cost)}"


def to_json(advice: Advice, request: AdviceRequest) -> dict[str, Any]:
    """Write advice as a JSON-able document."""
    searched = advice.searched
    return {
        "workflow": request.flow.name,
        "tasks": len(request.flow),
        "deadline": request.deadline,
        "budget": request.budget,
        "best": choice_to_json(advice.best, request),
        "front": [choice_to_json(row, request) for row in advice.front],
        "reasons": list(advice.reasons),
        "warnings": list(advice.warnings),
        "sets": searched.sets,
        "tried": len(searched.trials),
        "proven": searched.proven,
        "mixed": {
            "kinds": request.mix,
            "sets": advice.mixing.sets,
            "tried": len(advice.mixing.planned),
            "proven": advice.mixing.proven,
        },
        "study": None if searched.study is None else {"id": searched.study, "name": searched.name},
    }


def choice_to_json(choice: MachineSetOption, request: AdviceRequest) -> dict[str, Any]:
    """Write one set as a JSON-able document."""
    found = choice.figures
    machines = _machines(choice)
    single = machines[0] if len(machines) == 1 else dict.fromkeys(machines[0])
    return {
        **single,
        "machines": machines,
        "count": len(choice.platform.vms),
        "makespan": found.makespan,
        "lower_bound": found.lower_bound,
        "gap": found.gap,
        "serial": found.serial,
        "utilisation": found.utilisation,
        "cost": found.cost,
        "fits": keeps_limits(request, choice),
        "planner": choice.planner,
    }


def _machines(choice: MachineSetOption) -> list[dict[str, Any]]:
    """The kinds of machines of a set."""
    found, first = [], 0
    for offer in choice.offers:
        vm = choice.platform.vms[first]
        first += offer.nodes
        found.append(
            {
                "provider": offer.provider,
                "region": offer.region,
                "type": offer.instance_type,
                "count": offer.nodes,
                "slots": vm.slots,
                "speed": vm.speed,
                "price_per_hour": offer.price_per_hour,
            }
        )
    return found


def vms_yaml(choice: MachineSetOption) -> str:
    """Write the machines of a set as a file for ``--vms``, the offers in comments."""
    platform = choice.platform
    vm, billing = platform.vms[0], platform.billing
    kinds, first = [], 0
    for each in _machines(choice):
        one, first = platform.vms[first], first + each["count"]
        has = "" if one.memory_bytes is None else f", memory: {one.memory_bytes}B"
        has += f", gpus: {one.gpus}" if one.gpus else ""
        has += "" if one.disk_bytes is None else f", disk: {one.disk_bytes}B"
        where = ":".join(part for part in (each["provider"], each["region"], each["type"]) if part)
        kinds += [
            f"  # {each['count']} x {where}",
            f"  - {{kind: {_quoted(each['type'])}, count: {each['count']}, speed: {each['speed']!r}, "
            f"slots: {each['slots']}, price: {each['price_per_hour']!r}, boot: {vm.boot_seconds!r}s{has}}}",
        ]
    return "\n".join(
        [
            "vms:",
            *kinds,
            f"storage: {platform.storage}",
            f"bandwidth: {platform.bandwidth!r}",
            f"latency: {platform.latency!r}s",
            f"billing: {{setup: {billing.setup_seconds!r}s, minimum: {billing.minimum_seconds!r}s, "
            f"granularity: {billing.granularity_seconds!r}s}}",
            "",
        ]
    )


def _quoted(text: str) -> str:
    return json.dumps(text)
