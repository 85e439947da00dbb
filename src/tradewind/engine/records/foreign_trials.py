"""Makes trials of a study out of those that another tool has run."""

from __future__ import annotations

import json
import re
import unicodedata
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

_NAMES = "names"
"""What a proposal says of an imported trial: the names that the other tool has for parameters, as a JSON text."""

_LETTERS = str.maketrans({"ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "ı": "i"})
_UMLAUTS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue"})


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
        names: The other tool's name of each parameter that the job calls otherwise, by the job's.
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
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def nones(self) -> list[str]:
        """Names of the parameters that are None."""
        return [name for name, value in self.values.items() if value is None]

    @property
    def timeless(self) -> bool:
        """True where nothing says how long a trial took that came to its end."""
        said = RUNTIME in self.metrics or self.runtime is not None
        return self.state == "succeeded" and not said and None in (self.started, self.ended)


def original_names(trial: Trial) -> Mapping[str, str]:
    """The names that another tool has for parameters of an imported trial, by the job's; empty for all other trials.

    Args:
        trial: The trial.
    """
    found: Mapping[str, str] = json.loads(str(trial.proposal.why.get(_NAMES, "{}")))
    return found


def match_names(names: Iterable[str], wanted: Collection[str], said: Mapping[str, str] | None = None) -> dict[str, str]:
    """Find the names of a job that those of another tool stand for; others stay as they are.

    ``opt/lr``, ``Learning rate``, ``lambda``, ``größe`` and ``α``, which a job cannot have, are ``opt_lr``,
    ``learning_rate``, ``lambda_``, ``grosse`` or ``groesse``, and ``alpha``; what has its own name is taken first.

    Args:
        names: The other tool's names.
        wanted: The names of the job.
        said: Names of the job by the other tool's, as the user has said them.
    """
    given, said = list(names), said or {}
    found = {name: said.get(name, name) for name in given}
    left = {name: name for name in wanted if name not in found.values()}
    folded = Counter(map(str.casefold, left))
    lower = {name.casefold(): name for name in left if folded[name.casefold()] == 1}
    for name in given:
        if name in wanted or name in said:
            continue
        for candidate in _spellings(name):
            ours = left.get(candidate) or lower.get(candidate.casefold())
            if ours is not None and ours not in found.values():
                found[name] = ours
                break
    return found


def _spellings(name: str) -> Iterator[str]:
    """The names that a job may have for one of another tool, the nearest first."""
    plain = re.sub(r"\W+", "_", name.strip())
    yield from (plain, plain.strip("_"), f"{plain}_")
    if not plain.isascii():
        whole = unicodedata.normalize("NFKC", plain)
        for text in (whole, whole.casefold().translate(_UMLAUTS)):
            letters = unicodedata.normalize("NFKD", "".join(map(_latin, text.casefold().translate(_LETTERS))))
            spelled = re.sub(r"\W+", "_", letters.encode("ascii", "ignore").decode())
            yield from (spelled, f"{spelled}_")


def _latin(letter: str) -> str:
    """A Greek letter as its name, with which people write it in programs."""
    what, _, name = unicodedata.name(letter, "").partition(" LETTER ")
    if not what.startswith("GREEK") or not name:
        return letter
    return name.removeprefix("FINAL ").split(" ")[0].lower().replace("lamda", "lambda")


def fitted_trials(
    trials: Sequence[ForeignTrial],
    parameters: Sequence[str],
    constants: dict[str, Any],
    said: Mapping[str, str] | None = None,
) -> Iterator[ForeignTrial]:
    """Call the values of trials by the names of the job, and leave out what it does not have and is the same in all.

    Args:
        trials: All trials.
        parameters: Names of the job's parameters.
        constants: What is left out is put into it, by name.
        said: Names of the job by the other tool's, as the user has said them.

    Yields:
        The trials in their order.

    Raises:
        RecordError: No trial has a name that the user has said, or one has two for the same parameter.
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
    if missing := [name for name in said or {} if name not in values]:
        raise RecordError(f"no trial has a parameter {missing[0]!r}", hint=f"they have {', '.join(values) or 'none'}")
    names = match_names(values, parameters, said)
    varied |= {name for name in values if any(name not in trial.values for trial in whole)}
    constants |= {name: values[name] for name in values if names[name] not in parameters and name not in varied}
    for trial in trials:
        kept = {names[name]: value for name, value in trial.values.items() if name not in constants}
        if len(kept) < sum(name not in constants for name in trial.values):
            first, second = _of_one_name(trial.values, names)
            hint = "each parameter has one name: see --rename"
            raise RecordError(f"{trial.place}: both {first!r} and {second!r} are {names[first]}", hint=hint)
        others = {names[name]: name for name in trial.values if names[name] != name and name not in constants}
        yield replace(trial, values=kept, names=others)


def _of_one_name(values: Iterable[str], names: Mapping[str, str]) -> tuple[str, str]:
    seen: dict[str, str] = {}
    return next((seen[names[name]], name) for name in values if seen.setdefault(names[name], name) != name)


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
            if error.message.startswith("there is no parameter"):
                hint = f"{hint}; --rename NAME=PARAMETER says which one it is"
            raise RecordError(f"{given.place}: {error.message}", hint=hint) from None


def _record(problem: Problem, number: int, given: ForeignTrial, configuration: Configuration) -> Mapping[str, Any]:
    offer = problem.resolver.resolve(configuration)
    runtime = _seconds(problem, given)
    cost = problem.terms.billing.cost(runtime, offer.hourly) if given.cost is None else given.cost
    begun = given.started if given.started is not None else given.ended
    why = {NONES: " ".join(given.nones)} if given.nones else {}
    if given.names:
        why[_NAMES] = json.dumps(dict(given.names), ensure_ascii=False)
    trial = Trial(
        number,
        Proposal(configuration, why=why),
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
