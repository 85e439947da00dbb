"""Makes trials of a study out of those that another tool has run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tradewind.engine.state_machine.trial_outcome import aborted, failed, succeeded
from tradewind.errors import ConfigurationError, NoOfferError, RecordError
from tradewind.problem import COST, RUNTIME, Configuration, Problem, Proposal, Run, RunState, Trial, TrialState
from tradewind.store.studies.records import trial_record

NONES = "none"
"""What a proposal says of an imported trial (`Proposal.why`): names of the parameters that were None, with spaces.

A job has no None: the word stands for it, and an export tells the two apart by this.
"""


@dataclass(frozen=True, slots=True)
class ForeignTrial:
    """A trial as another tool has kept it.

    Attributes:
        run_id: The same whenever it is read: what a study has already is known by it.
        place: Where it stands, for errors: ``line 3``, ``trial 12``.
        values: Value by parameter name.
        state: What became of it.
        metrics: Its results by name; of one that was cut short the last that it reported.
        runtime: Seconds; None where nobody knows.
        cost: USD; None where it is worked out from the machines' price and the run time.
        reason: Why it failed or was cut short, in words.
        started: Seconds since the epoch, or None.
        ended: Seconds since the epoch, or None.
    """

    run_id: str
    place: str
    values: Mapping[str, Any]
    state: Literal["succeeded", "failed", "aborted", "unfinished"] = "succeeded"
    metrics: Mapping[str, float] = field(default_factory=dict)
    runtime: float | None = None
    cost: float | None = None
    reason: str = ""
    started: float | None = None
    ended: float | None = None

    @property
    def nones(self) -> list[str]:
        """Names of the parameters that are None."""
        return [name for name, value in self.values.items() if value is None]

    @property
    def timeless(self) -> bool:
        """True where nothing says how long a trial took that came to its end."""
        said = RUNTIME in self.metrics or self.runtime is not None
        return self.state == "succeeded" and not said and None in (self.started, self.ended)


def match_names(names: Iterable[str], wanted: Collection[str]) -> dict[str, str]:
    """Find the names of a job that those of another tool stand for; others stay as they are.

    ``opt/lr``, ``Learning rate`` and ``lambda``, which a job cannot have, are ``opt_lr``, ``learning_rate`` and
    ``lambda_``; what has its own name is taken first.

    Args:
        names: The other tool's names.
        wanted: The names of the job.
    """
    given = list(names)
    found = {name: name for name in given}
    left = {name: name for name in wanted if name not in found}
    folded = Counter(map(str.casefold, left))
    lower = {name.casefold(): name for name in left if folded[name.casefold()] == 1}
    for name in given:
        if name in wanted:
            continue
        plain = re.sub(r"\W+", "_", name.strip())
        for candidate in (plain, plain.strip("_"), f"{plain}_"):
            ours = left.get(candidate) or lower.get(candidate.casefold())
            if ours is not None and ours not in found.values():
                found[name] = ours
                break
    return found


def fitted_trials(
    trials: Sequence[ForeignTrial], parameters: Sequence[str], constants: dict[str, Any]
) -> Iterator[ForeignTrial]:
    """Call the values of trials by the names of the job, and leave out what it does not have and is the same in all.

    Args:
        trials: All trials.
        parameters: Names of the job's parameters.
        constants: What is left out is put into it, by name.

    Yields:
        The trials in their order.
    """
    values: dict[str, Any] = {}
    varied: set[str] = set()
    whole = [trial for trial in trials if trial.state == "succeeded"]  # others may have ended before they chose all
    for trial in trials:
        for name, value in trial.values.items():
            if name not in values:
                values[name] = value
            elif values[name] is not value and (type(values[name]) is not type(value) or values[name] != value):
                varied.add(name)
    names = match_names(values, parameters)
    varied |= {name for name in values if any(name not in trial.values for trial in whole)}
    constants |= {name: values[name] for name in values if names[name] not in parameters and name not in varied}
    for trial in trials:
        kept = {names[name]: value for name, value in trial.values.items() if name not in constants}
        yield replace(trial, values=kept)


def foreign_records(problem: Problem, trials: Iterable[ForeignTrial]) -> Iterator[Mapping[str, Any]]:
    """Make records of trials that another tool has run, as an import takes them.

    What they have cost is what such a run costs here; it was not paid here, and the budget is not charged with it.

    Args:
        problem: The problem of the study that takes them.
        trials: The trials, in their order; what has not ended must not be among them.

    Yields:
        The record of each.

    Raises:
        RecordError: A trial does not fit the problem; its place is named.
    """
    implied = problem.space.implied({})  # what the job leaves no choice about need not be said
    for number, given in enumerate(trials):
        try:
            yield _record(problem, number, given, problem.space.check({**implied, **given.values}))
        except (ConfigurationError, NoOfferError) as error:
            hint = f"{error.hint}; for None list the word None" if "=None is not in" in error.message else error.hint
            raise RecordError(f"{given.place}: {error.message}", hint=hint) from None


def _record(problem: Problem, number: int, given: ForeignTrial, configuration: Configuration) -> Mapping[str, Any]:
    offer = problem.resolver.resolve(configuration)
    runtime = _seconds(problem, given)
    cost = problem.terms.billing.cost(runtime, offer.hourly) if given.cost is None else given.cost
    begun = given.started if given.started is not None else given.ended
    trial = Trial(
        number,
        Proposal(configuration, why={NONES: " ".join(given.nones)} if given.nones else {}),
        offer,
        TrialState.PENDING,
        problem.key_of(offer, configuration),
        attempts=1,
        created=begun or 0.0,
        started=begun,
    )
    ended = given.ended if given.ended is not None else begun
    run = Run(
        given.run_id,
        number,
        state=RunState.FAILED if given.state == "failed" else RunState.DONE,
        cost=cost,
        runtime=runtime,
        started=begun,
        ended=ended,
        reason=given.reason,
        offer_key=offer.key,
    )
    match given.state:
        case "succeeded":
            trial = succeeded(trial, run, given.metrics, problem.objective, problem.constraints, problem.terms)
        case "failed":
            trial = failed(trial, run, given.reason, given.metrics)
        case _:
            run = replace(run, state=RunState.CANCELLED)
            reason = given.reason or "it was cut short"
            trial = aborted(trial, run, reason, problem.objective, problem.terms, given.metrics)
    return trial_record(trial, [replace(run, cost=0.0)])


def _seconds(problem: Problem, given: ForeignTrial) -> float:
    """The run time of a trial; 0 where nobody knows it and nothing asks for it.

    Raises:
        RecordError: The search is about the time, or about money that only the time tells.
    """
    aim, bounds = problem.objective.metric, {bound.metric for bound in problem.constraints.thresholds}
    known = given.metrics.get(RUNTIME, given.runtime) if aim == RUNTIME else given.runtime
    if known is None and given.started is not None and given.ended is not None:
        known = given.ended - given.started
    if known is not None or given.state == "failed":
        return max(float(known or 0.0), 0.0)
    timed = problem.constraints.deadline is not None or RUNTIME in {aim, *bounds}
    if timed or (COST in {aim, *bounds} and given.cost is None):
        hint = "in a CSV file the column runtime has it, in seconds"
        raise RecordError(f"{given.place}: it has no run time, and the job asks for time or cost", hint=hint)
    return 0.0
