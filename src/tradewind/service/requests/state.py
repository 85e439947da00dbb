"""State of requests, as pure functions: what a request may cost, its stage, and its outcome."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tradewind.errors import QuotaError
from tradewind.problem import COST, RUNTIME, UNINTERRUPTED_RUNTIME, Run, RunState, Trial, TrialState
from tradewind.store.service.request_values import (
    ACTIVE,
    NewRequestEvent,
    RequestEndState,
    RequestState,
    TenantQueueState,
)
from tradewind.utils.units import count, format_duration, format_money

REQUESTS, DOLLARS = "requests", "dollars"
"""The names of a tenant's limits: requests at a time, and USD in all."""

_ENDLESS = "one of its searches on clusters, which is not over, has no budget"
"""Reason for nothing being left where a search of the tenant has no limit of money."""

# ---------------------------------------------------------------------- limits


def request_allowance(line: TenantQueueState) -> tuple[float, str]:
    """Compute what the first request of a tenant may cost, and why it has to wait.

    One that names no limit itself gets half of what its tenant has left, so that another one can always begin.

    Args:
        line: The request, and what its tenant uses.

    Returns:
        USD in all, earlier attempts included, 0 where nothing limits it; and why it waits, empty where it need not.
    """
    most = line.quota.get(REQUESTS)
    if most is not None and line.running >= most:
        return (
            0.0,
            f"{line.tenant} has {count(line.running, 'request')} carried out at present, as many as its quota allows",
        )
    asked = float(line.plan.get(DOLLARS) or 0.0)
    quota = line.quota.get(DOLLARS)
    if quota is None:
        return asked, ""
    if math.isinf(line.spent):
        return 0.0, f"nothing can be set aside of the quota of {format_money(quota)} of {line.tenant}: {_ENDLESS}"
    left = quota - line.spent  # what it has cost itself is among what was spent
    if left <= 0:
        return 0.0, f"the quota of {format_money(quota)} of {line.tenant} is used up or set aside"
    if asked and asked - line.cost > left:
        words = f"it may cost {format_money(asked)}, and {format_money(left)} are left of the quota of {line.tenant}"
        return 0.0, words
    return asked or line.cost + left / 2, ""


def check_money(line: TenantQueueState, asked: float) -> None:
    """Check that a tenant's money pays a new request.

    Args:
        line: The resources and money that the tenant uses.
        asked: USD that the request may cost; 0 where it names no limit.

    Raises:
        QuotaError: It does not pay it.
    """
    quota = line.quota.get(DOLLARS)
    if quota is None:
        return
    if math.isinf(line.spent):
        raise QuotaError(
            f"{line.tenant} may spend {format_money(quota)} in all, and {_ENDLESS}",
            hint="wait until it has ended, or cancel it: tradewind queue lists searches, tradewind cancel N ends one",
        )
    left = max(0.0, quota - line.spent)
    if not left or asked > left:
        words = f"it may cost {format_money(asked)}" if asked else "it would cost more"
        raise QuotaError(
            f"{words}, and {format_money(left)} are left of the quota of {format_money(quota)} of {line.tenant}",
            hint="ask for less, wait until others have ended, or ask an administrator to raise it",
        )


# ---------------------------------------------------------------------- stages

_WORDS = {
    "pending": "waits for its turn",
    "booting": "the machines are made ready",
    "bootstrapping": "inputs are brought to them",
    "submitting": "the program is handed over",
    "executing": "the program runs",
    "collecting": "results are brought back",
}


@dataclass(frozen=True, slots=True)
class StageEntry:
    """Entry of a run into a stage.

    Attributes:
        run_id: The run.
        stage: The stage.
        at: Seconds since the epoch.
    """

    run_id: str
    stage: str
    at: float


class StageTracker:
    """The stages of a request with one run, as its events report them.

    Args:
        state: The request's state as the store has it.
        runs: The runs that were seen by an earlier process, the last one last.
    """

    def __init__(self, state: RequestState, runs: Sequence[str] = ()) -> None:
        self.state = state
        self._run = runs[-1] if runs else ""

    def take(self, passed: StageEntry) -> list[NewRequestEvent]:
        """Return the events of a stage entry; a stage that an earlier process has reported is not reported again."""
        stage = next((each for each in ACTIVE if each == passed.stage), None)
        if stage is None:
            return []
        again = bool(self._run) and passed.run_id != self._run
        self._run = passed.run_id
        known = ACTIVE.index(self.state) if self.state in ACTIVE else -1
        if not again and ACTIVE.index(stage) <= known:
            return []
        self.state = stage
        words = _WORDS[stage] + (", once more" if again else "")
        return [NewRequestEvent(stage, words, {"run": passed.run_id}, passed.at)]


# ---------------------------------------------------------------------- ends


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """Outcome of a request.

    Attributes:
        state: One of the ended states.
        problem: Reason of a failure, or a remark on a good end; may be empty.
        hint: Advice on what to do about it; may be empty.
    """

    state: RequestEndState
    problem: str = ""
    hint: str = ""


def outcome_of_run(trial: Trial, run: Run | None) -> RequestOutcome:
    """Derive the outcome of a request from its run.

    Args:
        trial: The trial of the run, ended.
        run: The last run of that trial; None where none was started.
    """
    reason = trial.observation.reason if trial.observation else ""
    if trial.state == TrialState.SUCCEEDED:
        if trial.observation is not None and not trial.observation.feasible:
            return RequestOutcome("done", f"it ran, but broke a bound: {reason}", "a larger configuration may keep it")
        return RequestOutcome("done")
    if trial.state == TrialState.ABORTED:
        return RequestOutcome(
            "timed_out", reason, "give it more time or money, or a larger configuration, and resubmit it"
        )
    if trial.state == TrialState.LOST:
        state: RequestEndState = "preempted" if run is not None and run.state == RunState.PREEMPTED else "failed"
        return RequestOutcome(state, reason, "the machines failed, not the program: retry runs it once more")
    return RequestOutcome("failed", reason, _advice(reason, run))


def _advice(reason: str, run: Run | None) -> str:
    if run is None or run.state != RunState.FAILED:
        return "its log shows what it printed; resubmit it with changes"
    if "memory" in reason:
        return "resubmit it with more memory"
    if run.exit_code == 127:
        return "the machines do not have this program: its application or image has to be changed"
    return "its log, stderr above all, shows why; resubmit it with changes"


def outcome_of_search(reason: str, trials: int, *, found: bool) -> RequestOutcome:
    """Derive the outcome of a search.

    Args:
        reason: Reason of the stop, in words.
        trials: Trials that have ended.
        found: True where one of them keeps every bound.
    """
    if found:
        return RequestOutcome("done", hint=reason)
    if not trials:
        return RequestOutcome("failed", reason, "give it a larger budget, or allow cheaper machines")
    return RequestOutcome(
        "failed", f"none of {count(trials, 'trial')} kept every bound: {reason}", "its trials show why each one failed"
    )


# ---------------------------------------------------------------------- progress


def describe_trial(trial: Trial, metric: str = "") -> str:
    """Describe an ended trial in one line.

    Args:
        trial: The trial.
        metric: Metric of the search's objective, if that is neither cost nor time.
    """
    seen = trial.observation
    asked = ", ".join(f"{name}={value}" for name, value in trial.configuration.items())
    if seen is None:
        return f"trial {trial.number} {trial.state.value}: {asked}"
    figures = f"{format_duration(seen.figures.get(UNINTERRUPTED_RUNTIME, seen.runtime))}, {format_money(trial.spent)}"
    if metric not in ("", COST, RUNTIME) and seen.objective is not None:
        figures = f"{metric} {seen.objective:.4g}, {figures}"
    why = f"; {seen.reason}" if seen.reason else ""
    return f"trial {trial.number} {trial.state.value}: {asked} ({figures}){why}"


def trial_facts(trial: Trial | None) -> dict[str, Any] | None:
    """Return the facts of an ended trial for those who watch, or None."""
    if trial is None:
        return None
    seen = trial.observation
    facts: dict[str, Any] = {
        "trial": trial.number,
        "state": trial.state.value,
        "configuration": dict(trial.configuration),
        "offer": trial.offer.key,
        "spent": trial.spent,
    }
    if seen is not None:
        facts |= {"objective": seen.objective, "runtime": seen.runtime, "cost": seen.cost, "feasible": seen.feasible}
    return facts


def budget_share(spent: float, budget: Mapping[str, float | None], trials: int, seconds: float) -> float | None:
    """Compute the used share of a search's budget: the largest of money, trials and time; None without a budget."""
    used = {"dollars": spent, "trials": float(trials), "hours": seconds / 3600.0}
    shares = [min(1.0, used[name] / most) for name, most in budget.items() if most]
    return max(shares, default=None)
