"""Writes values of objectives, configurations and amounts of money as words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tradewind.problem import COST, RUNTIME, MachineParameters, Objective, Observation, Offer
from tradewind.store.base import StudyTotals
from tradewind.utils.units import bill_column, format_money, format_settings


def value_words(metric: str, value: float | None) -> str:
    """A value of a metric: money for ``cost``, a duration for ``runtime``, a plain number for others."""
    return Objective(metric).format(value)


def metric_scale(metric: str, values: Iterable[float]) -> tuple[str, Callable[[float], str]]:
    """The name of a metric above an axis, and how its values are written beside it: small bills are for many runs."""
    if metric != COST:
        return metric, lambda value: value_words(metric, value)
    unit, bill = bill_column(values)
    return (metric if unit == "this run" else f"{metric} of {unit}"), bill


def goal_words(objective: Objective) -> str:
    """``the lowest cost`` or ``the highest accuracy``."""
    return f"the {'lowest' if objective.goal == 'minimise' else 'highest'} {objective.metric}"


def comparative(objective: Objective) -> str:
    """The word for a better value: ``cheaper``, ``faster``, ``lower`` or ``higher``."""
    if objective.goal == "maximise":
        return "higher"
    return {COST: "cheaper", RUNTIME: "faster"}.get(objective.metric, "lower")


def opposite(objective: Objective) -> str:
    """The word for a worse value: ``dearer``, ``slower``, ``higher`` or ``lower``."""
    if objective.goal == "maximise":
        return "lower"
    return {COST: "dearer", RUNTIME: "slower"}.get(objective.metric, "higher")


def compact(configuration: Mapping[str, Any]) -> str:
    """A configuration on one line; numbers are cut to four digits that mean something."""
    return format_settings(configuration)


def cost_word(seen: Observation) -> str:
    """Words behind a trial's cost: that of its run, or on spot machines what is expected of such runs."""
    return "expected with interruptions" if seen.expected else "this run"


def machine_words(offer: Offer) -> str:
    """Machines as people say them: ``2 × c5.xlarge (spot) of aws in us-east-1``."""
    several = f"{offer.nodes} × " if offer.nodes > 1 else ""
    spot, place = " (spot)" if offer.spot else "", f" in {offer.region}" if offer.region else ""
    return f"{several}{offer.instance_type}{spot} of {offer.provider}{place}"


def choice_words(configuration: Mapping[str, Any], offer: Offer, machine: MachineParameters) -> str:
    """The machines, the parameters that led to them, and the settings.

    ``2 × c5.xlarge of aws (cpus=4 memory=8) with level=3``: values that the machines say by themselves are left out.
    Where no parameter chooses machines, the settings alone.
    """
    if not machine.names:
        return compact(configuration)
    led = {n: v for n, v in configuration.items() if n in machine.names and not machine.said_by(offer, n, v)}
    settings = {n: v for n, v in configuration.items() if n not in machine.names}
    words = machine_words(offer) + (f" ({compact(led)})" if led else "")
    return f"{words} with {compact(settings)}" if settings else words


def tells_machine(configuration: Mapping[str, Any], offer: Offer, machine: MachineParameters) -> bool:
    """True where a configuration names its type of machine by itself, or chooses none."""
    chosen = [name for name in machine.names if name not in machine.counts]
    return not chosen or any(machine.said_by(offer, name, configuration.get(name)) for name in chosen)


def configuration_words(configuration: Mapping[str, Any], offer: Offer, machine: MachineParameters) -> str:
    """A configuration on one line, behind its machines where it does not name them by itself."""
    if tells_machine(configuration, offer, machine):
        return compact(configuration)
    return choice_words(configuration, offer, machine)


def machines_of(key: object) -> str:
    """An offer's key (``aws/us-east-1/c5.xlargex2``) as people say it: ``2 × c5.xlarge, us-east-1``."""
    if not isinstance(key, str) or key.count("/") < 2:
        return ""
    _, region, kind, *rest = key.split("/")
    last = rest[-1] if rest else kind
    last, _, nodes = last.rpartition("x")
    kind, spot = (kind, ", spot") if rest else (last, "")
    count = f"{nodes} × " if nodes != "1" else ""
    return f"{count}{kind}{f', {region}' if region else ''}{spot}"


_PATH = re.compile(
    r"\w[\w+.-]*://[^\s'\"`,;()]+"  # an address
    r"|(?<![\w.])(?:~|\.{1,2})?/[^\s'\"`,;:()]+"
    r"|[\w.+-]+(?:/[\w.+-]+){2,}"
    r"|\b[A-Za-z]:\\[^\s'\"`,;()]+"
)
_RUN = re.compile(r"\btw-[0-9a-f]{10}(?:-\d+)*\b|\b0x[0-9a-f]+\b|\b[0-9a-f]{12,64}\b")


def reason_key(reason: str) -> str:
    """A reason without what differs from run to run, by which equal reasons are known: paths, and ids of objects."""
    return _RUN.sub("*", _PATH.sub("*", " ".join(reason.split())))


def percent(share: float) -> str:
    """A share of one as a percentage with no false precision."""
    if 0 < share < 0.01:
        return "under 1 %"
    if 0.995 <= share < 1:
        return "over 99 %"
    return f"{100 * share:.0f} %"


def totals_words(totals: StudyTotals) -> str:
    """Write the number of studies in each state, and the cost of all of them, in a line."""
    states = ", ".join(f"{totals.states[name]:,} {name}" for name in sorted(totals.states) if totals.states.get(name))
    aside = f", {format_money(totals.reserved)} reserved" if totals.reserved else ""
    unpaid = f"; {format_money(totals.simulated)} simulated, not paid" if totals.simulated else ""
    return f"all studies: {states}; {format_money(totals.spent)} spent{aside}{unpaid}"


def value_word(value: object) -> str:
    """Write a value of a parameter as pages do: ``true`` and ``false`` as in JSON."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def natural_key(word: str) -> list[tuple[int, int | str]]:
    """Sort key that puts ``c5.2xlarge`` before ``c5.16xlarge``."""
    return [(0, int(part)) if part.isdecimal() else (1, part) for part in re.split(r"(\d+)", word) if part]
