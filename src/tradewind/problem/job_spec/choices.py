"""Choices of a user in a job YAML: parts with their settings, stopping rules, hooks, parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tradewind.problem.expression import Expression
from tradewind.problem.offer import OfferQuery
from tradewind.problem.parameter import Parameter

USUAL_RUNS = 100.0
"""How often a job is expected to run with what is found, where nobody says: as often as a nightly job in a quarter."""

USUAL_IMPROVEMENT = 0.01
"""Share of the best that a trial must be expected to improve it by, where nobody says and no money decides."""

NEVER = "never"
"""The stopping rule that leaves a search its whole budget."""


@dataclass(frozen=True, slots=True)
class PluginChoice:
    """A part that the user chose.

    Attributes:
        name: Its entry-point name.
        settings: The user's settings for it.
    """

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StopSpec:
    """A stopping rule that the user chose.

    Attributes:
        name: Name of the rule.
        settings: The user's settings for it.
    """

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HookSpec:
    """Something to do before or after a stage of a run: a program or a Python function.

    Attributes:
        command: The program and its arguments, or None.
        python: ``module:function``, or None.
        timeout: Seconds after which it is ended, and counts as failed.
    """

    command: tuple[str, ...] | None = None
    python: str | None = None
    timeout: float = 60.0


@dataclass(frozen=True, slots=True)
class ParameterSpec:
    """A parameter as declared; an instance has no values before the catalogue is asked.

    Attributes:
        name: Name of the parameter.
        kind: ``integer``, ``float``, ``ordinal``, ``categorical``, ``instance`` or ``nodes``.
        when: The parameter exists only where this holds.
        parameter: The parameter, unless it is an instance.
        query: The question to the catalogue, if it is one.
    """

    name: str
    kind: str
    when: Expression | None = None
    parameter: Parameter | None = None
    query: OfferQuery | None = None
