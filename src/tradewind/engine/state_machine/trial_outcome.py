"""From the end of a run to what its trial taught: pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from tradewind.problem import (
    COST,
    RUNTIME,
    UNINTERRUPTED_COST,
    UNINTERRUPTED_RUNTIME,
    Constraints,
    Fault,
    Objective,
    Observation,
    Problem,
    Run,
    RunState,
    StudyTerms,
    Trial,
    TrialState,
    round_money,
)
from tradewind.utils.units import format_bill, format_duration

LARGEST_METRIC = 1e100
"""A metric above this in size stands for "no result": programs report the largest number that there is as a penalty.
Squares and sums of what is below can still be worked out."""


def is_lost(run: Run) -> bool:
    """True when an ended run is the infrastructure's fault and says nothing of the configuration."""
    own = run.fault in (Fault.JOB, Fault.ARCHITECTURE)
    return run.state == RunState.PREEMPTED or (run.state == RunState.FAILED and not own)


def run_figures(trial: Trial, run: Run, terms: StudyTerms) -> dict[str, float]:
    """Cost and run time that a run speaks for, as metrics.

    They are those of a whole run on machines of its own: what a checkpoint of interrupted runs has saved it counts, and
    so does the set-up that it was spared by machines that were kept for it; else of two equal configurations the one
    that came second would be the cheaper one. What was paid is in `Trial.spent`. On spot machines with a
    known rate of interruption they are what such a run is expected to come to with its interruptions, whether or not
    this one had any; what it came to itself is beside them.
    """
    work, hourly = run.runtime + run.usage.resumed_seconds, trial.offer.hourly
    cost = run.own_cost
    if run.taken is not None:
        cost = max(cost, terms.billing.cost(run.runtime, hourly))
    if run.usage.resumed_seconds:
        cost = round_money(cost + hourly * run.usage.resumed_seconds / 3600.0)
    interruptions = trial.offer.interruptions(terms.checkpoint_seconds)
    if interruptions is None:
        return {RUNTIME: work, COST: cost}
    setup = terms.billing.setup_seconds
    if hourly > 0:  # machines that were made for it may have been paid for longer than the run was
        setup += max(0.0, run.own_cost / hourly * 3600.0 - terms.billing.billed_seconds(run.runtime))
    more = interruptions.expected_seconds(work, setup) - setup - work
    expected = cost + hourly * more / 3600.0
    return {
        RUNTIME: interruptions.expected_runtime(work, setup),
        COST: round_money(expected) if math.isfinite(expected) else math.inf,
        UNINTERRUPTED_RUNTIME: work,
        UNINTERRUPTED_COST: cost,
    }


def succeeded(
    trial: Trial,
    run: Run,
    metrics: Mapping[str, float],
    objective: Objective,
    constraints: Constraints,
    terms: StudyTerms,
) -> Trial:
    """The trial after a run that ended well and whose output was read.

    Without a finite objective it has failed; so it has with an objective or a bounded metric above `LARGEST_METRIC` in
    size, and where a run as long as it is not expected to end before it is interrupted.
    """
    figures = run_figures(trial, run, terms)
    if not math.isfinite(figures[RUNTIME]):
        rate = trial.offer.interruptions(terms.checkpoint_seconds)
        words = f"at {rate.per_hour if rate else 0:.3g} interruptions per hour a run of {format_duration(run.runtime)}"
        return failed(trial, run, f"{words} is not expected to end", metrics)
    known = {**metrics, **figures}
    value = known.get(objective.metric)
    if value is None:
        have = ", ".join(sorted(known))
        return failed(trial, run, f"the output has no metric {objective.metric!r}; it has {have}", known)
    if not math.isfinite(value):
        return failed(trial, run, f"the metric {objective.metric!r} is {value}, which is not a finite number", known)
    for name in (objective.metric, *(bound.metric for bound in constraints.thresholds)):
        if LARGEST_METRIC < abs(known.get(name, 0.0)) < math.inf:
            words = f"the metric {name!r} is {known[name]:.3g}, which cannot be compared with others (1e100 can)"
            return failed(trial, run, words, known)
    broken = constraints.broken(known[RUNTIME], known)
    seen = Observation(
        objective=float(value),
        cost=known[COST],
        runtime=known[RUNTIME],
        feasible=not broken,
        metrics=known,
        profile=profile_of(run),
        reason="; ".join(broken),
    )
    return replace(trial, state=TrialState.SUCCEEDED, observation=seen, ended=run.ended)


def failed(trial: Trial, run: Run, reason: str, metrics: Mapping[str, float] | None = None) -> Trial:
    """The trial after a run that failed by the configuration's or the program's fault."""
    seen = Observation(
        objective=None,
        cost=run.own_cost,
        runtime=run.runtime,
        feasible=False,
        metrics=dict(metrics or {}),
        profile=profile_of(run),
        reason=reason or "the program failed",
    )
    return replace(trial, state=TrialState.FAILED, observation=seen, ended=run.ended)


def aborted(
    trial: Trial,
    run: Run,
    reason: str,
    objective: Objective,
    terms: StudyTerms,
    reported: Mapping[str, float] | None = None,
) -> Trial:
    """The trial after a run that was cut short: its cost and run time so far bound the truth from below.

    Args:
        trial: The trial.
        run: The run of the trial.
        reason: Why, in words.
        objective: What is wanted.
        terms: How time becomes money, and how often the program saves its work.
        reported: Its last intermediate results; they are noted, and bound nothing.
    """
    reached = run_figures(trial, run, terms)
    if not math.isfinite(reached[RUNTIME]):
        return failed(trial, run, f"{reason}; it is not expected to end between two interruptions", reported)
    seen = Observation(
        objective=reached.get(objective.metric) if objective.goal == "minimise" else None,
        cost=reached[COST],
        runtime=reached[RUNTIME],
        feasible=False,
        censored=True,
        metrics={**(reported or {}), **reached},
        profile=profile_of(run),
        reason=reason,
    )
    return replace(trial, state=TrialState.ABORTED, observation=seen, ended=run.ended)


def profile_of(run: Run) -> dict[str, float]:
    """Resources that the run used, as low-level metrics."""
    used = run.usage
    profile = dict(used.profile)
    if used.peak_memory_bytes is not None:
        profile["peak_memory_bytes"] = float(used.peak_memory_bytes)
    if used.cpu_seconds is not None:
        profile["cpu_seconds"] = used.cpu_seconds
    return profile


def _bounds(problem: Problem, hourly: float) -> list[tuple[float, str]]:
    """The times at which a run has broken a bound on its cost or run time for good, and which one."""
    found: list[tuple[float, str]] = []
    for threshold in problem.constraints.thresholds:
        if threshold.at_most is None:
            continue
        if threshold.metric == COST:
            seconds = problem.terms.billing.longest_run(threshold.at_most, hourly)
            found.append((seconds, f"it could no longer keep its cost within {format_bill(threshold.at_most)}"))
        elif threshold.metric == RUNTIME:
            words = f"it could no longer keep its run time within {format_duration(threshold.at_most)}"
            found.append((threshold.at_most, words))
    return found


def run_time_caps(
    problem: Problem, trial: Trial, best: float | None, *, abort: bool, priced: bool
) -> list[tuple[float, str]]:
    """The times at which a run of the trial is cut short, with the reason of each.

    Args:
        problem: The problem.
        trial: The trial.
        best: The objective of the best feasible trial, or None.
        abort: False when the user wants every run to go to its end.
        priced: True when the searcher chooses caps itself: the incumbent adds none then, and a cap in seconds stands
            for the deadline, beyond which a run may be worth finishing.

    Returns:
        Seconds of execution without interruptions, and reason; empty when nothing limits the run.
    """
    found: list[tuple[float, str]] = []
    if not abort:
        return found
    billing, hourly = problem.terms.billing, trial.offer.hourly
    deadline = problem.constraints.deadline
    if deadline is not None and not (priced and trial.proposal.abort_time is not None):
        found.append((deadline, f"it ran into the deadline of {format_duration(deadline)}"))
    proposal = trial.proposal
    # A cap below one billing unit would forbid the run; the smallest bill is owed as soon as it starts anyway.
    least = max(billing.granularity_seconds, billing.minimum_seconds - billing.setup_seconds)
    if proposal.abort_time is not None:
        cap = max(proposal.abort_time, least)
        words = f"it could no longer win, and more than {format_duration(cap)} of it were not worth their money"
        if deadline is not None and cap >= deadline:
            words = f"it was past the deadline of {format_duration(deadline)}, and its end not worth more money"
        found.append((cap, words))
    if proposal.abort_cost is not None:
        money = proposal.abort_cost
        found.append((billing.longest_run(money, hourly), f"it could no longer cost less than {format_bill(money)}"))
    found += _bounds(problem, hourly)
    if best is not None and not priced and problem.objective.grows_with_time and proposal.fidelity >= 1.0:
        if problem.objective.metric == COST:
            limit = billing.longest_run(best, hourly)
            found.append((limit, f"it could no longer cost less than {format_bill(best)}"))
        else:
            found.append((best, f"it could no longer be quicker than {format_duration(best)}"))
    # All of them bound what a run is expected to take, as trials are judged; a run that is not interrupted takes less.
    if (interruptions := trial.offer.interruptions(problem.terms.checkpoint_seconds)) is not None:
        setup = billing.setup_seconds
        found = [
            (interruptions.work_within(seconds, setup), f"{reason}, counting expected interruptions")
            for seconds, reason in found
        ]
    return [(max(seconds, least), reason) for seconds, reason in found if math.isfinite(seconds)]
