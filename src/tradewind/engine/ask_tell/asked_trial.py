"""A trial that is handed out to be run by whoever asked, and what may be told of it."""

from __future__ import annotations

import math
import operator
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from tradewind.engine.search_builder import find_or_create_study
from tradewind.errors import ConfigurationError, StudyNotFoundError
from tradewind.passwords import hide_password
from tradewind.problem import Configuration, Fault, Offer, Problem, Run, RunState, Trial
from tradewind.problem.job_spec.spec import JobSpec, load_spec, parse_mapping
from tradewind.problem.yaml_source import plain_document
from tradewind.store.base import Store, StudyRow
from tradewind.utils.paths import store_url

TrialEnd = Literal["succeeded", "failed", "aborted", "lost"]

_STATES: Mapping[str, RunState] = {
    "succeeded": RunState.DONE,
    "failed": RunState.FAILED,
    "aborted": RunState.TIMED_OUT,
    "lost": RunState.PREEMPTED,
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A trial for you to run.

    Attributes:
        number: The trial's number; `Study.tell` wants it.
        configuration: The value of each parameter.
        offer: The machines, with their price.
        cap_seconds: Seconds after which the run cannot win any more, or the money for it is used up; None for no cap.
            Cut it short then, and tell it as aborted.
        fidelity: Share of the input to run.
        why: What the searcher expects of it.
    """

    number: int
    configuration: Configuration
    offer: Offer
    cap_seconds: float | None
    fidelity: float
    why: Mapping[str, float | str]


def asked_trial(trial: Trial, cap: float | None) -> Asked:
    """A trial as it is handed out, with the seconds after which its run is not wanted any more."""
    proposal = trial.proposal
    return Asked(trial.number, proposal.configuration, trial.offer, cap, proposal.fidelity, proposal.why)


def as_numbers(trial: int, metrics: Mapping[str, Any]) -> dict[str, float]:
    """Turn measured metrics into floats; NaN and infinities are numbers too, and fail the trial.

    Args:
        trial: The trial's number, for the words of an error.
        metrics: What was told, by name.

    Raises:
        ConfigurationError: A metric is no number.
    """
    if not isinstance(metrics, Mapping):
        raise ConfigurationError(
            f"trial {trial}: the metrics cannot be {metrics!r}", hint="tell them by name: metrics={'loss': 0.1}"
        )
    found: dict[str, float] = {}
    for name, value in metrics.items():
        if not isinstance(name, str) or not name:
            raise ConfigurationError(f"trial {trial}: {name!r} is no name of a metric", hint="names are text")
        try:
            found[name] = _converted(value)
        except (TypeError, ValueError, OverflowError):
            raise ConfigurationError(
                f"trial {trial}: the metric {name} cannot be {value!r}", hint="tell a number"
            ) from None
    return found


def as_number(value: Any) -> float:
    """A number; NaN for what is none."""
    try:
        return _converted(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _converted(value: Any) -> float:
    if isinstance(value, str | bytes):
        raise TypeError  # float() would read some of them
    return float(value)


def whole_number(value: Any) -> int | None:
    """A whole number, numpy's included; None for what is none, such as 1.5, "2" and True."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def asked_count(count: Any) -> int:
    """The number of configurations that `ask` is to return at most.

    Raises:
        ConfigurationError: It is no whole number, or less than one.
    """
    if (wanted := whole_number(count)) is None or wanted < 1:
        raise ConfigurationError(
            f"ask({count!r}): at least one configuration must be asked for", hint="write ask(), or a whole number"
        )
    return wanted


def named_trial(asked: Any) -> int:
    """The number of the trial that `tell` names.

    Raises:
        ConfigurationError: It is neither what `ask` returned nor a whole number.
    """
    number = asked.number if isinstance(asked, Asked) else whole_number(asked)
    if number is None:
        raise ConfigurationError(
            f"tell({asked!r}): no trial is named so", hint="give what `ask` returned, or its number"
        )
    return number


def check_given_back(asked: Any) -> None:
    """Check what `give_back` is to take.

    Raises:
        ConfigurationError: It is no list of what `ask` returned.
    """
    if isinstance(asked, Asked) or not isinstance(asked, Sequence) or not all(isinstance(x, Asked) for x in asked):
        raise ConfigurationError(f"give_back({asked!r:.80}): no list of trials", hint="give what `ask` returned")


def check_calls(trials: Any) -> None:
    """Check how many times `optimise` is to call a function at most.

    Raises:
        ConfigurationError: It is neither a whole number nor None.
    """
    if trials is not None and (whole_number(trials) is None or trials < 0):
        raise ConfigurationError(f"trials={trials!r} is no number of calls", hint="write a whole number, or None")


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The arguments of `tell`, as they were given.

    Attributes:
        runtime: Seconds that the run took.
        metrics: What it measured, by name; None for nothing.
        cost: USD that it cost; the offer's price for the run time without it.
        state: How it ended.
        reason: Why, in words.
    """

    runtime: float
    metrics: Mapping[str, float] | None
    cost: float | None
    state: TrialEnd
    reason: str

    def checked(self, problem: Problem, trial: Trial, run: Run) -> tuple[Run, dict[str, float]]:
        """The run as it ended, and its metrics.

        Args:
            problem: The problem.
            trial: The trial of the run.
            run: The run.

        Raises:
            ConfigurationError: What is told makes no sense.
        """
        number = trial.number
        measured = as_numbers(number, {} if self.metrics is None else self.metrics)
        if not isinstance(self.state, str) or self.state not in _STATES:
            known = ", ".join(_STATES)
            raise ConfigurationError(f"trial {number}: {self.state!r} is no end of a run", hint=f"known: {known}")
        if not isinstance(self.reason, str):
            raise ConfigurationError(
                f"trial {number}: the reason cannot be {self.reason!r:.80}", hint="say it in words"
            )
        if isinstance(self.runtime, bool) or not 0 <= as_number(self.runtime) < math.inf:
            raise ConfigurationError(f"trial {number}: the run time cannot be {self.runtime!r} s")
        seconds = float(self.runtime)
        bill = problem.terms.billing.cost(seconds, trial.offer.hourly) if self.cost is None else self.cost
        if isinstance(bill, bool) or not 0 <= as_number(bill) < math.inf:
            raise ConfigurationError(f"trial {number}: the cost cannot be {bill!r} USD")
        faults = {"failed": Fault.JOB, "lost": Fault.INFRASTRUCTURE}
        ended = replace(
            run,
            state=_STATES[self.state],
            runtime=seconds,
            cost=float(bill),
            ended=time.time(),
            reason=self.reason,
            fault=faults.get(self.state),
        )
        return ended, measured


def not_asked(number: int, trial: Trial | None) -> ConfigurationError:
    """The error for a trial that waits for no result, with the reason."""
    if trial is None or not trial.state.ended:
        return ConfigurationError(f"trial {number} is not waiting to be told", hint="ask for it first")
    return ConfigurationError(
        f"trial {number} was told already and is {trial.state.value}", hint="the first result counts"
    )


CallbackChoices: TypeAlias = Sequence[str | Mapping[str, Any]]
"""Callbacks as a job YAML has them: names, or mappings with ``use`` and settings."""


def read_job(source: Path | str | Mapping[str, Any], callbacks: CallbackChoices | None = None) -> JobSpec:
    """The specification of a job YAML's path, or of the same as a mapping.

    Args:
        source: The path or the mapping.
        callbacks: Callbacks, instead of those that it has.
    """
    changed: dict[str, Any] = {} if callbacks is None else {"callbacks": plain_document({"": callbacks})[""]}
    if isinstance(source, str | os.PathLike):
        return load_spec(Path(source), changed)
    if not isinstance(source, Mapping):
        raise ConfigurationError(f"{source!r:.80} is no job", hint="give a job YAML's path, or the same as a mapping")
    document = {"job": {"command": ["ask-and-tell"]}, "least_improvement": 0, **source, **changed}
    return parse_mapping(document, base=Path.cwd())


def checked_store(store: object) -> str:
    """The address of a store; the user's own without one.

    Raises:
        ConfigurationError: It is no text.
    """
    if store is not None and not isinstance(store, str):
        hint = "write sqlite:///path/to/tradewind.db, or leave it out"
        raise ConfigurationError(f"store={store!r} is no address", hint=hint)
    return store or store_url()


def found_study(
    store: Store, source: Path | str | Mapping[str, Any] | None, callbacks: CallbackChoices | None
) -> tuple[JobSpec, StudyRow]:
    """The specification and the study that several workers are to share; of a job, a new one where there is none.

    Args:
        store: The open store.
        source: What `Study.open` got.
        callbacks: Callbacks, instead of those that the job has.

    Raises:
        StudyNotFoundError: There is no study of that name.
    """
    if source is not None and (not isinstance(source, str) or Path(source).is_file()):
        spec = read_job(source, callbacks)
        return spec, find_or_create_study(spec, store)[0]
    found = [study for study in store.find_studies(source) if study.kind == "search"]
    if not found:
        place = hide_password(store.url)
        raise StudyNotFoundError(
            f"there is no study {source!r} at {place}" if source else f"there is no study at {place} yet",
            hint="give the job, too: Study.open(url, {...})",
        )
    document = dict(found[0].spec)
    if callbacks is not None:
        document["job"] = {**document["job"], "callbacks": callbacks}
    return JobSpec.from_json(document), found[0]
