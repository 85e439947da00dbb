"""Finds what the keys of a job YAML say against one another: unknown names, and rules that exclude each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tradewind.errors import ConfigurationError, SpecError
from tradewind.problem.expression import Expression
from tradewind.problem.job_spec.workflow_model import workflow_templates
from tradewind.problem.objective import RUNTIME
from tradewind.problem.template import BUILT_IN, check_template
from tradewind.problem.yaml_source import KeyPath

if TYPE_CHECKING:
    from tradewind.problem.job_spec.spec import JobSpec


def contradictions(spec: JobSpec) -> list[SpecError]:
    """List what a specification says against itself.

    Args:
        spec: The specification.
    """
    problems = [*_wrong_names(spec), *_wrong_templates(spec)]
    if spec.said_future_runs is not None and spec.uses_whole_budget:
        words = "future_runs: it says when further trials do not pay, and stop: never goes on all the same"
        problems.append(spec.source.error(("future_runs",), words, "leave one of the two out"))
    if spec.said_least_improvement and spec.uses_whole_budget:
        words = "least_improvement: it says when to stop, and stop: never goes on all the same"
        problems.append(spec.source.error(("least_improvement",), words, "leave one of the two out"))
    if spec.value is not None and not (spec.objective.metric == RUNTIME and spec.objective.grows_with_time):
        words = "value: it says what an hour of a run is worth, and this search does not minimise the run time"
        problems.append(
            spec.source.error(("value",), words, "write objective: {minimise: runtime}, or leave value out")
        )
    return problems


def _wrong_names(spec: JobSpec) -> list[SpecError]:
    """Conditions and constraints that name what is not there."""
    problems = []
    names = [p.name for p in spec.parameters]
    instances = {p.name for p in spec.parameters if p.kind == "instance"}
    checks: list[tuple[KeyPath, Expression, list[str]]] = [
        (("space", p.name, "when"), p.when, names[:i]) for i, p in enumerate(spec.parameters) if p.when is not None
    ]
    checks += [(("where", i), expression, names) for i, expression in enumerate(spec.where)]
    for place, expression, known in checks:
        label = ".".join(str(piece) for piece in place)
        try:
            expression.require(known)
            expression.require_facts_of(instances)
        except SpecError as error:
            later = place[0] == "space" and expression.names <= set(names)
            hint = "a condition may name only parameters above its own" if later else error.hint
            problems.append(spec.source.error(place, f"{label}: {error.message}", hint))
    return problems + _impossible_conditions(spec)


def _impossible_conditions(spec: JobSpec) -> list[SpecError]:
    """Conditions, written as a mapping, on a value that the parameter does not have."""
    known = {p.name: p.parameter for p in spec.parameters}
    problems = []
    for name in known:
        declared = spec.source.document["space"][name]
        when = declared.get("when") if isinstance(declared, Mapping) else None
        for other, wanted in when.items() if isinstance(when, Mapping) else ():
            parameter = known.get(other)
            for value in (wanted if isinstance(wanted, list) else [wanted]) if parameter else ():
                try:
                    assert parameter is not None
                    parameter.coerce(value)
                except ConfigurationError as error:
                    place: KeyPath = ("space", name, "when", other)
                    problems.append(spec.source.error(place, f"space.{name}.when: {error.message}", error.hint))
    return problems


def _wrong_templates(spec: JobSpec) -> list[SpecError]:
    names = {p.name for p in spec.parameters}
    problems = []
    for name in spec.job.parameters.values:
        if name in names | BUILT_IN:
            place: KeyPath = ("job", "parameters", name)
            problems.append(spec.source.error(place, f"job.parameters.{name}: this name is taken", "choose another"))
    known = names | BUILT_IN | set(spec.job.parameters.values)
    places: list[tuple[KeyPath, str]] = [(("job", "command", i), word) for i, word in enumerate(spec.job.command)]
    places += [(("job", "env", name), text) for name, text in spec.job.env.items()]
    places += workflow_templates(spec.job.workflow)
    if spec.job.load:
        places += [(("job", "load", "command", i), word) for i, word in enumerate(spec.job.load.argv)]
        places += [(("job", "load", "env", name), text) for name, text in spec.job.load.env.items()]
    for place, word in places:
        try:
            check_template(word, known)
        except SpecError as error:
            label = ".".join(str(piece) for piece in place[: 2 + (place[1] == "env")])
            problems.append(spec.source.error(place, f"{label}: {error.message}", error.hint))
    return problems
