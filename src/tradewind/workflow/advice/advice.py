"""Advice on a workflow's machines: the set to take with its plan, and what else was possible."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tradewind.errors import NothingFeasibleError
from tradewind.problem import COST, Offer, Trial, TrialState
from tradewind.store.base import Store
from tradewind.units import format_duration, format_money
from tradewind.workflow.advice.machines import kept_cost
from tradewind.workflow.advice.runner import carried_out, describe, make_planner
from tradewind.workflow.advice.study import Searched, Wanted, search_sets
from tradewind.workflow.bounds import lower_bound
from tradewind.workflow.plan import Figures, Schedule, figures
from tradewind.workflow.platform import Platform

_NEAR = 4
"""Sets beside the best one for which a better plan is looked for."""

_SHOWN = 10
"""Sets of the table at most."""


@dataclass(frozen=True)
class Choice:
    """One set of machines with a plan.

    Attributes:
        offer: The machines.
        platform: The same as machines of a workflow.
        schedule: The plan.
        planner: Who made it.
        figures: Its figures; the cost is that of all machines from their order to the end.
    """

    offer: Offer
    platform: Platform
    schedule: Schedule
    planner: str
    figures: Figures


@dataclass(frozen=True)
class Advice:
    """What is advised.

    Attributes:
        best: The set to take.
        front: Sets of which none is both quicker and cheaper than another one, the cheapest first; `best` is among
            them.
        searched: The search behind it.
        reasons: Why, in sentences.
        warnings: What was assumed, in sentences.
    """

    best: Choice
    front: tuple[Choice, ...]
    searched: Searched
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]


def advise(wanted: Wanted, offers: Sequence[Offer], store: Store, data_folder: Path) -> Advice:
    """Which machines, how many, and which plan on them.

    The sets are searched with a quick planner. For the best one, and for those that a better plan could put before it,
    such a plan is then looked for.

    Args:
        wanted: What is asked for.
        offers: What may be used, one node each.
        store: Where the search is kept.
        data_folder: For the runner.

    Raises:
        NoOfferError: No offer has room for the workflow's tasks.
        NothingFeasibleError: No set keeps deadline and budget; with what comes closest.
    """
    searched = search_sets(wanted, offers, store, data_folder)
    made = _Maker(wanted, data_folder)
    tried = [trial for trial in searched.trials if trial.state is TrialState.SUCCEEDED]
    rows = {trial.offer.key: made.choice(trial.offer) for trial in _front(tried, wanted)}
    if wanted.refine > 0:
        for offer in _promising(wanted, searched, tried):
            better = made.refined(offer)
            known = rows.get(offer.key)
            if known is None or better.figures.makespan < known.figures.makespan:
                rows[offer.key] = better
    best = min((row for row in rows.values() if fits(wanted, row)), key=lambda row: _order(wanted, row), default=None)
    if best is None:
        raise _nothing(wanted, searched, list(rows.values()))
    front = [row for row in rows.values() if not any(_beats(other, row) for other in rows.values())]
    shown = _thinned(sorted(front, key=lambda row: row.figures.cost), best)
    bounded = tuple(made.bounded(row) for row in shown)
    best = next(row for row in bounded if row.offer.key == best.offer.key)
    return Advice(best, bounded, searched, _reasons(wanted, searched, best), _warnings(wanted, searched, best))


def fits(wanted: Wanted, choice: Choice) -> bool:
    """True where a set keeps the deadline and the budget."""
    in_time = wanted.deadline is None or choice.figures.makespan <= wanted.deadline
    return in_time and (wanted.budget is None or choice.figures.cost <= wanted.budget)


class _Maker:
    """Makes choices of offers."""

    def __init__(self, wanted: Wanted, data_folder: Path) -> None:
        self._wanted, self._data_folder = wanted, data_folder
        self._planner = make_planner(wanted.planner, wanted.seed, data_folder)

    def choice(self, offer: Offer) -> Choice:
        """The set as the search saw it."""
        platform = self._wanted.terms.platform(offer, self._wanted.flow)
        schedule = carried_out(self._wanted.flow, platform, self._planner)
        return self._with_figures(Choice(offer, platform, schedule, self._planner.name, _NONE))

    def refined(self, offer: Offer) -> Choice:
        """The set with the plan of a longer search, where that is better."""
        quick = self.choice(offer)
        planner = make_planner({"use": "search", "seconds": self._wanted.refine}, self._wanted.seed, self._data_folder)
        schedule = carried_out(self._wanted.flow, quick.platform, planner)
        if schedule.makespan >= quick.schedule.makespan:
            return quick
        return self._with_figures(replace(quick, schedule=schedule, planner=planner.name))

    def bounded(self, choice: Choice) -> Choice:
        """With the lower bound of its makespan."""
        return self._with_figures(choice, lower_bound(self._wanted.flow, choice.platform))

    def _with_figures(self, choice: Choice, bound: float = 0.0) -> Choice:
        found = figures(self._wanted.flow, choice.platform, choice.schedule, bound)
        return replace(choice, figures=replace(found, cost=kept_cost(choice.platform, found.makespan)))


_NONE = Figures(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def _front(tried: Sequence[Trial], wanted: Wanted) -> list[Trial]:
    """The trials of which no other is both quicker and cheaper, and the best one."""
    seen = [(trial, trial.observation) for trial in tried if trial.observation is not None]
    seen.sort(key=lambda pair: (pair[1].cost, pair[1].runtime))
    kept, quickest = [], math.inf
    for trial, observation in seen:
        if observation.runtime < quickest:
            kept.append(trial)
            quickest = observation.runtime
    return kept


def _promising(wanted: Wanted, searched: Searched, tried: Sequence[Trial]) -> list[Offer]:
    """The best set, and those that a better plan could put before it, the most promising first."""
    outlook = searched.outlook
    by_cost = wanted.metric == COST

    def least(offer: Offer) -> float:
        return outlook.cost(offer) if by_cost else outlook.makespan(offer)

    good = [t for t in tried if t.observation and t.observation.feasible]
    best = min(good, key=lambda t: (t.observation.objective or 0.0, t.observation.runtime), default=None)  # type: ignore[union-attr]
    value = math.inf if best is None or best.observation is None else best.observation.objective or 0.0
    near = [
        trial.offer
        for trial in tried
        if trial is not best
        and least(trial.offer) < value
        and (wanted.deadline is None or outlook.makespan(trial.offer) <= wanted.deadline)
        and (wanted.budget is None or outlook.cost(trial.offer) <= wanted.budget)
    ]
    near.sort(key=least)
    return ([best.offer] if best else []) + near[:_NEAR]


def _order(wanted: Wanted, choice: Choice) -> tuple[float, float]:
    found = choice.figures
    return (found.cost, found.makespan) if wanted.metric == COST else (found.makespan, found.cost)


def _beats(one: Choice, other: Choice) -> bool:
    a, b = one.figures, other.figures
    return a.cost <= b.cost and a.makespan <= b.makespan and (a.cost, a.makespan) != (b.cost, b.makespan)


def _thinned(rows: Sequence[Choice], best: Choice) -> list[Choice]:
    """Some rows of a table that is too long: its ends, the best one, and others spread over the rest."""
    if len(rows) <= _SHOWN:
        return list(rows)
    places = {round(i * (len(rows) - 1) / (_SHOWN - 1)) for i in range(_SHOWN)}
    chosen = next(place for place, row in enumerate(rows) if row.offer.key == best.offer.key)
    return [rows[place] for place in sorted(places | {chosen})]


def limits(wanted: Wanted) -> str:
    """Deadline and budget in words, to follow a verb."""
    words = [f"within {format_duration(wanted.deadline)}"] if wanted.deadline is not None else []
    words += [f"for at most {format_money(wanted.budget)}"] if wanted.budget is not None else []
    return " and ".join(words)


def _reasons(wanted: Wanted, searched: Searched, best: Choice) -> tuple[str, ...]:
    what = "cheapest" if wanted.metric == COST else "quickest"
    within = f" that ends {limits(wanted)}" if limits(wanted) else ""
    first = f"{describe(best.offer)} is the {what} set found{within}."
    left = searched.sets - len(searched.trials)
    if not searched.proven:
        second = f"{left} of {searched.sets} sets were not tried, and some of them could be better: {searched.why}."
    elif left:
        better = "cheaper" if wanted.metric == COST else "quicker"
        second = f"None of the {left} sets that were not tried can be {better}, whoever plans: their bounds say so."
    else:
        second = f"All {searched.sets} sets were tried."
    return first, second


def _warnings(wanted: Wanted, searched: Searched, best: Choice) -> tuple[str, ...]:
    terms = wanted.terms
    unknown = [offer for offer in searched.offers if not terms.known(offer)]
    found = []
    if unknown:
        every = len(unknown) == len(searched.offers)
        which = "every type counts" if every else f"{len(unknown)} of {len(searched.offers)} types count"
        found.append(
            f"the catalogue does not say how fast a vCPU is: {which} as speed 1, the machine that the run times "
            "are for; say better with --speed c7i=1.3"
        )
    if best.offer.arch == "arm64":
        kind = best.offer.instance_type
        found.append(f"{kind} has arm64 processors: the programs must be built for them; --arch x86_64 leaves them out")
    minimum = terms.billing.minimum_seconds
    paid = f"each VM is paid from its order to the end, {format_duration(terms.boot_seconds)} of boot included"
    found.append(paid + (f", and for {format_duration(minimum)} at least" if minimum else ""))
    return (*wanted.flow.warnings, *found)


def _nothing(wanted: Wanted, searched: Searched, rows: Sequence[Choice]) -> NothingFeasibleError:
    """What to say where no set keeps the limits."""
    message = f"no set of up to {wanted.max_vms} VMs was found that ends {limits(wanted)}".rstrip()
    if not rows:
        return NothingFeasibleError(message, hint=searched.why)
    quick = min(rows, key=lambda row: (row.figures.makespan, row.figures.cost))
    cheap = min(rows, key=lambda row: (row.figures.cost, row.figures.makespan))
    words = [_words("the quickest found is", quick)]
    if wanted.budget is not None and cheap is not quick:
        words.append(_words("the cheapest", cheap))
    if searched.proven and not _possible(wanted, searched):
        message = f"no set of up to {wanted.max_vms} VMs can end {limits(wanted)}"
    return NothingFeasibleError(message, hint="; ".join(words))


def _possible(wanted: Wanted, searched: Searched) -> bool:
    """True where the bounds of a tried set leave room for a better plan that keeps the limits."""
    outlook = searched.outlook
    return any(
        (wanted.deadline is None or outlook.makespan(trial.offer) <= wanted.deadline)
        and (wanted.budget is None or outlook.cost(trial.offer) <= wanted.budget)
        for trial in searched.trials
    )


def _words(what: str, choice: Choice) -> str:
    found = choice.figures
    return f"{what} {describe(choice.offer)}: {format_duration(found.makespan)}, {format_money(found.cost)}"


def to_json(advice: Advice, wanted: Wanted) -> dict[str, Any]:
    """Advice as a document."""
    searched = advice.searched
    return {
        "workflow": wanted.flow.name,
        "tasks": len(wanted.flow),
        "deadline": wanted.deadline,
        "budget": wanted.budget,
        "best": choice_to_json(advice.best, wanted),
        "front": [choice_to_json(row, wanted) for row in advice.front],
        "reasons": list(advice.reasons),
        "warnings": list(advice.warnings),
        "sets": searched.sets,
        "tried": len(searched.trials),
        "proven": searched.proven,
        "study": {"id": searched.study, "name": searched.name},
    }


def choice_to_json(choice: Choice, wanted: Wanted) -> dict[str, Any]:
    """One set as a document."""
    found, offer = choice.figures, choice.offer
    return {
        "provider": offer.provider,
        "region": offer.region,
        "type": offer.instance_type,
        "count": offer.nodes,
        "slots": choice.platform.vms[0].slots,
        "speed": choice.platform.vms[0].speed,
        "price_per_hour": offer.price_per_hour,
        "makespan": found.makespan,
        "lower_bound": found.lower_bound,
        "gap": found.gap,
        "serial": found.serial,
        "utilisation": found.utilisation,
        "cost": found.cost,
        "fits": fits(wanted, choice),
        "planner": choice.planner,
    }


def vms_yaml(choice: Choice) -> str:
    """The machines of a set as a file for ``--vms``, the offer in a comment."""
    offer, platform = choice.offer, choice.platform
    vm, billing = platform.vms[0], platform.billing
    where = ":".join(part for part in (offer.provider, offer.region, offer.instance_type) if part)
    return "\n".join(
        [
            f"# {offer.nodes} x {where}",
            "vms:",
            f"  - {{kind: {_quoted(vm.kind)}, count: {offer.nodes}, speed: {vm.speed!r}, slots: {vm.slots}, "
            f"price: {vm.price_per_hour!r}, boot: {vm.boot_seconds!r}s}}",
            f"storage: {platform.storage}",
            f"bandwidth: {platform.bandwidth!r}",
            f"latency: {platform.latency!r}s",
            f"billing: {{setup: {billing.setup_seconds!r}s, minimum: {billing.minimum_seconds!r}s, "
            f"granularity: {billing.granularity_seconds!r}s}}",
            "",
        ]
    )


def _quoted(text: str) -> str:
    import json

    return json.dumps(text)
