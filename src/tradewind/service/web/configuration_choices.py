"""Choices of configurations for a new request: the proposed ones with time and cost, and the user's own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from tradewind.engine.search_builder import build_problem
from tradewind.errors import FormError, TradewindError
from tradewind.problem import COST, RUNTIME, Float, Integer
from tradewind.reporting.charts.document import Chart
from tradewind.reporting.proposal_charts import proposal_charts
from tradewind.reporting.words import value_words
from tradewind.service.accounts.identity import Principal
from tradewind.service.applications.form import ApplicationForm
from tradewind.service.applications.proposals import ConfigurationProposal, ProposedConfiguration
from tradewind.service.context import Context
from tradewind.service.web.request_draft import BEST, OWN, RequestDraft
from tradewind.service.web.template_filters import rounded, setting, short
from tradewind.utils.units import bill_column, count, format_money

if TYPE_CHECKING:
    from tradewind.problem import Offer, Parameter

_MOST_OPTIONS = 1_000


@dataclass(frozen=True, slots=True)
class ConfigurationChoice:
    """A configuration that may be chosen.

    Attributes:
        value: Value that the form sends for it.
        machines: Its machines, in words.
        settings: The rest of the configuration: name and value.
        runtime: Expected time in words; empty where nothing is known.
        runtime_range: 5 % and 95 % quantiles of the time, in words.
        cost: Expected cost in words; empty where nothing is known.
        cost_unit: The runs that these are for: ``this run`` or ``per 1,000 runs``.
        cost_range: 5 % and 95 % quantiles of the cost, in words.
        objective: Expected value of a metric that is neither time nor cost, with its name; empty for none.
        objective_range: 5 % and 95 % quantiles of that metric, in words.
        hourly: Price of its machines by the hour, in words.
        likelihood: How likely it is to keep deadline and bounds, in words; empty where nothing is doubtful.
        reason: Runs that the prediction rests on.
        marks: By what it stands out, see `tradewind.reporting.proposal_words.MARKS`.
        difference: How it differs from the best known, in words.
    """

    value: str
    machines: str
    settings: Sequence[tuple[str, str]]
    runtime: str
    runtime_range: str
    cost: str
    cost_unit: str
    cost_range: str
    objective: str
    objective_range: str
    hourly: str
    likelihood: str
    reason: str
    marks: Sequence[str] = ()
    difference: str = ""


@dataclass(frozen=True, slots=True)
class ParameterInput:
    """A parameter of the space, for an own configuration.

    Attributes:
        name: Name of the parameter.
        options: Value and words of each that may be chosen; empty for a number between bounds.
        low: The least number, or None.
        high: The greatest number, or None.
        step: The distance between numbers from the least on; None where any will do.
        value: Chosen value.
    """

    name: str
    options: Sequence[tuple[str, str]]
    low: float | None
    high: float | None
    step: float | None
    value: str


@dataclass(frozen=True, slots=True)
class ConfigurationChoices:
    """Proposed configurations for a draft, or why there are none.

    Attributes:
        choices: The configurations, the best first.
        parts: The parameters of the space.
        own: Prediction for the own configuration; None where nothing is known, or none was chosen.
        runs: Past runs that it rests on.
        basis: Basis of the proposal, a sentence each.
        advice: Advice on what else one may do; may be empty.
        search_cost: USD that a search may cost to be worth while; None where nothing is known.
        charts: Charts by name, see `tradewind.reporting.proposal_charts`; none where they would say nothing.
        fields: Errors in the form, by field; then there are no choices.
        problem: Other reason why there is nothing to choose, or None.
    """

    choices: Sequence[ConfigurationChoice] = ()
    parts: Sequence[ParameterInput] = ()
    own: ConfigurationChoice | None = None
    runs: int = 0
    basis: Sequence[str] = ()
    advice: str = ""
    search_cost: float | None = None
    charts: Mapping[str, Chart] = field(default_factory=dict)
    fields: Mapping[str, str] | None = None
    problem: TradewindError | None = None


def propose(shared: Context, who: Principal, form: ApplicationForm, draft: RequestDraft) -> ConfigurationChoices:
    """Propose configurations for a draft; errors in the draft are returned, not raised."""
    parameters = {**draft.parameters, **draft.files}
    deadline = draft.deadline if draft.deadline and "deadline" not in draft.errors() else None
    count = 5 if draft.choice != OWN else _MOST_OPTIONS
    try:
        found = shared.proposals.propose(
            who, form.address, parameters, backend=draft.backend, deadline=deadline, count=count, whole=True
        )
        parts = _parts(shared, who, form, parameters, draft, found)
    except FormError as error:
        return ConfigurationChoices(fields=error.fields)
    except TradewindError as error:
        return ConfigurationChoices(problem=error)
    own = next((c for c in found.candidates if _same(c.configuration, parts)), None) if draft.choice == OWN else None
    return ConfigurationChoices(
        choices=[choice_of(one, found) for one in found.candidates[:5]],
        parts=parts,
        own=choice_of(own, found) if own is not None else None,
        runs=found.runs,
        basis=found.basis,
        advice=found.advice,
        search_cost=found.search_cost,
        charts=proposal_charts(
            found.space, [(one.configuration, one.offer, one.marks) for one in found.candidates[:5]]
        ),
    )


def choice_of(one: ProposedConfiguration, proposal: ConfigurationProposal) -> ConfigurationChoice:
    """Describe a candidate in words.

    Args:
        one: The candidate.
        proposal: The proposal that it is of.
    """
    offer, metric = one.offer, proposal.metric
    unit, bill = bill_column(other.cost for other in proposal.candidates)
    judged = one.objective is not None and metric not in (COST, RUNTIME)
    names = {str(offer.instance_type), str(offer.nodes)}
    rest = [(name, rounded(value)) for name, value in one.configuration.items() if not _is_machine(name, value, offer)]
    return ConfigurationChoice(
        value=json.dumps(dict(one.configuration), sort_keys=True) if names else BEST,
        machines=machines_of(offer),
        settings=rest,
        runtime=short(one.runtime) if one.runtime is not None else "",
        runtime_range=_range(one.runtime_low, one.runtime_high, short),
        cost=bill(one.cost) if one.cost is not None else "",
        cost_unit=unit if unit == "this run" else f"per {unit}",
        cost_range=_range(one.cost_low, one.cost_high, bill),
        objective=f"{metric} {value_words(metric, one.objective)}" if judged else "",
        objective_range=_range(one.objective_low, one.objective_high, partial(value_words, metric)) if judged else "",
        hourly=format_money(offer.hourly),
        likelihood=one.likelihood,
        reason="" if one.reason.startswith(("to learn from", "never run")) or not proposal.runs else one.reason,
        marks=one.marks,
        difference=one.difference,
    )


def machines_of(offer: Offer) -> str:
    """Describe machines: ``2 × c5.xlarge, 4 CPUs and 8 GiB each``."""
    several = f"{offer.nodes} × " if offer.nodes > 1 else ""
    each = " each" if offer.nodes > 1 else ""
    place = f", {offer.region}" if offer.region else ""
    return f"{several}{offer.instance_type}, {count(offer.vcpu, 'CPU')} and {offer.memory_gib:g} GiB{each}{place}"


def _is_machine(name: str, value: Any, offer: Offer) -> bool:
    """True where the words about the machines have a value already."""
    return name in ("instance", "nodes") and (value == offer.nodes or str(value).endswith(offer.instance_type))


def _range(low: float | None, high: float | None, words: Any) -> str:
    if low is None or high is None or words(low) == words(high):
        return ""
    return f"{words(low)} to {words(high)}"


def _same(configuration: Mapping[str, Any], parts: Sequence[ParameterInput]) -> bool:
    return all(str(configuration.get(part.name)) == part.value for part in parts)


def _parts(
    shared: Context,
    who: Principal,
    form: ApplicationForm,
    parameters: Mapping[str, Any],
    draft: RequestDraft,
    found: ConfigurationProposal,
) -> list[ParameterInput]:
    row = shared.applications.get(who, form.address)
    where = shared.backends.choose(who, row, draft.backend)
    space = build_problem(shared.applications.spec(row, parameters, where), shared.data_folder).space
    best = found.candidates[0].configuration if found.candidates else {}
    return [_part(space[name], draft.own.get(name, str(best.get(name, "")))) for name in space.names]


def _part(parameter: Parameter, value: str) -> ParameterInput:
    offers = getattr(parameter, "offers", {})
    levels = getattr(parameter, "values", None)
    if levels is not None:
        options = [
            (str(level), f"{level}: {_about(offers[str(level)])}" if str(level) in offers else setting(level))
            for level in levels[:_MOST_OPTIONS]
        ]
        return ParameterInput(parameter.name, options, None, None, None, value)
    assert isinstance(parameter, Float | Integer)
    return ParameterInput(parameter.name, (), parameter.low, parameter.greatest, parameter.step, value)


def _about(offer: Offer) -> str:
    return f"{count(offer.vcpu, 'CPU')}, {offer.memory_gib:g} GiB, {format_money(offer.price_per_hour)} per hour"
