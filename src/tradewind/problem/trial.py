"""A trial: one configuration tried once, what it was expected to do, and what it did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tradewind.problem.configuration import Configuration
from tradewind.problem.objective import COST, RUNTIME, UNINTERRUPTED_COST
from tradewind.problem.offer import Offer
from tradewind.utils.notebook import box_html, facts_html
from tradewind.utils.units import format_duration, format_money, format_setting

STOPPED_EARLY = "stopped early: "
"""How the reason begins of a trial that was given up for what it reported while it ran."""

ENQUEUED = "enqueued by the user"
"""The stage, in the words of `Proposal.why`, of a trial that the user wanted and no searcher proposed."""


class TrialState(StrEnum):
    """States of a trial.

    ``pending``: proposed, not running (its run may be about to start, or be repeated).
    ``running``: a run of it is on its way.
    ``succeeded``: it ran to its end and its output was read; it may still be infeasible.
    ``failed``: the configuration's fault: a non-zero exit, out of memory, unreadable output.
    ``aborted``: it was cut short, at a cap on its cost or time or by a stopper: a right-censored observation.
    ``lost``: the infrastructure's fault, and all attempts are used up; never given to a model as bad.
    """

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    ABORTED = "aborted"
    LOST = "lost"

    @property
    def ended(self) -> bool:
        """True when the trial will not change any more."""
        return self not in (TrialState.PENDING, TrialState.RUNNING)

    @property
    def informs(self) -> bool:
        """True when a searcher learns from it."""
        return self in (TrialState.SUCCEEDED, TrialState.FAILED, TrialState.ABORTED)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A configuration to try next, which a searcher or the user wants.

    Attributes:
        configuration: The configuration.
        abort_cost: USD at which the run should be cut short because it can no longer win, or None.
        abort_time: Seconds at which the run should be cut short, or None; from a searcher that prices aborts it may lie
            beyond the deadline, where the end of the run is worth its money.
        fidelity: Share of the input to run; 1 is all of it.
        repeat: Run it even if the same trial was run before; otherwise that one's observation is the answer.
        why: What the searcher expects, by name: ``expected_cost`` (USD), ``probability_feasible``,
            ``expected_saving`` (USD), ``expected_spend`` (USD), ``stage`` in words, ...; where the user
            enqueued it, ``stage`` is `ENQUEUED`.
        origin: Number of the ended trial whose last checkpoint the run begins at, where that was kept; None: it begins
            anew.
    """

    configuration: Configuration
    abort_cost: float | None = None
    abort_time: float | None = None
    fidelity: float = 1.0
    repeat: bool = False
    why: Mapping[str, float | str] = field(default_factory=dict)
    origin: int | None = None

    @property
    def enqueued(self) -> bool:
        """True when the user wanted it, and no searcher proposed it."""
        return self.why.get("stage") == ENQUEUED


@dataclass(frozen=True, slots=True)
class Observation:
    """Result of a trial.

    Attributes:
        objective: The value of the objective; for an aborted trial the value reached so far, which the true
            one is worse than; None where the trial failed or the metric is missing.
        cost: USD of the run that led to it; for an aborted trial a lower bound of the full cost. On spot machines with
            a known rate of interruption, what such a run is expected to cost with its interruptions; what the run
            itself came to is the metric `UNINTERRUPTED_COST`, and what was paid is in its runs.
        runtime: Seconds; for an aborted trial a lower bound. As with the cost, on such spot machines the expected ones;
            the run's own are the metric `UNINTERRUPTED_RUNTIME`.
        feasible: True when every constraint held.
        censored: True for an aborted trial.
        metrics: All metrics that the interpreters read.
        profile: Low-level metrics of the run.
        reason: Why it failed, was aborted, or is infeasible, in words.
        earlier_readings: How the same output was read before it was interpreted anew, the latest last: by name
            ``state``, ``objective``, ``feasible``, ``metrics``, ``reason`` and ``until`` (seconds since the epoch).
    """

    objective: float | None
    cost: float
    runtime: float
    feasible: bool
    censored: bool = False
    metrics: Mapping[str, float] = field(default_factory=dict)
    profile: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""
    earlier_readings: tuple[Mapping[str, Any], ...] = ()

    @property
    def expected(self) -> bool:
        """True where cost and run time are what is expected with interruptions, and not those of the run itself."""
        return UNINTERRUPTED_COST in self.metrics

    @property
    def figures(self) -> dict[str, float]:
        """Metrics of the trial, with cost and run time among them where no interpreter read such a metric."""
        return {COST: self.cost, RUNTIME: self.runtime, **self.metrics}


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial as the store keeps it and the searcher sees it.

    Attributes:
        number: From 0, in the order of proposing, within the study.
        proposal: What the searcher proposed.
        offer: The machines, with their price at launch.
        state: Where it is.
        key: What makes two trials the same: offer and settings after selection, and the fidelity.
        observation: Once it has ended, and it is not ``lost``.
        spent: USD over all its runs, lost ones included.
        attempts: Runs so far.
        created: Seconds since the epoch.
        started: Of the first run.
        ended: Of the last run.
    """

    number: int
    proposal: Proposal
    offer: Offer
    state: TrialState
    key: str
    observation: Observation | None = None
    spent: float = 0.0
    attempts: int = 0
    created: float = 0.0
    started: float | None = None
    ended: float | None = None

    @property
    def stopped_early(self) -> bool:
        """True when it was given up for what it reported while it ran."""
        seen = self.observation
        return self.state == TrialState.ABORTED and seen is not None and seen.reason.startswith(STOPPED_EARLY)

    @property
    def outcome(self) -> str:
        """The state; ``infeasible`` for a trial that succeeded and broke a constraint."""
        seen = self.observation
        infeasible = self.state is TrialState.SUCCEEDED and seen is not None and not seen.feasible
        return "infeasible" if infeasible else self.state.value

    @property
    def configuration(self) -> Configuration:
        """The configuration that was proposed."""
        return self.proposal.configuration

    def _repr_html_(self) -> str:
        pairs = [(name, format_setting(value)) for name, value in self.configuration.items()]
        seen = self.observation
        if seen is not None:
            bound = "≥ " if self.state is TrialState.ABORTED else ""
            pairs += [(name, f"{value:.4g}") for name, value in seen.metrics.items() if name not in (COST, RUNTIME)]
            pairs += [("cost", bound + format_money(seen.cost)), ("run time", bound + format_duration(seen.runtime))]
            pairs += [("why", seen.reason)] if seen.reason else []
        return box_html(f"Trial {self.number}: {self.outcome}", facts_html(pairs))
