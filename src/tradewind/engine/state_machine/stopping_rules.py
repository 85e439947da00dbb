"""Rules that end a search. Each returns its reason, in words, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field, ValidationError

from tradewind.errors import SpecError
from tradewind.plugins import Settings
from tradewind.problem import Objective, Trial, TrialState
from tradewind.utils.suggestions import did_you_mean
from tradewind.utils.units import count, format_bill


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """State of a search, as stopping rules see it.

    Attributes:
        objective: What is wanted.
        ended: Trials that succeeded, failed or were aborted, in the order in which they ended; it only grows.
        best: The best feasible trial, or None.
        spent: USD, total.
        misfits: Numbers of trials that failed only for the processor architecture of their machines, while there are
            others: they say nothing of the program.
    """

    objective: Objective
    ended: Sequence[Trial]
    best: Trial | None
    spent: float
    misfits: Collection[int] = ()


StoppingRule = Callable[[SearchProgress], str | None]
"""A rule belongs to one search: what it has read of the ended trials it need not read again."""


class NoImprovementSettings(Settings):
    """Stop once the search has stopped improving."""

    trials: int = Field(default=15, ge=1, description="Stop after so many trials in a row that improved nothing.")
    by: float = Field(default=0.0, ge=0, lt=1, description="An improvement by less than this share does not count.")


class TargetSettings(Settings):
    """Stop once the result is good enough."""

    value: float = Field(allow_inf_nan=False, description="Stop when the best feasible trial is at least this good.")


class SpentShareSettings(Settings):
    """Stop once further search would cost more than it can save."""

    runs: float = Field(gt=0, description="How often the job will be run with the configuration that is found.")
    share: float = Field(
        default=0.2, gt=0, description="Stop when the search has cost this share of those runs' cost at the best."
    )


class NeverSettings(Settings):
    """The whole budget is used, though no further trial pays for itself any more."""


class AllFailedSettings(Settings):
    """Stop once nothing works."""

    trials: int = Field(
        default=8,
        ge=1,
        description="Stop when so many have failed, as many as were cut short if those are more, and none succeeded.",
    )
    silent: int = Field(
        default=2,
        ge=1,
        description="Stop when so many trials have run to their end, all of them without the objective's metric.",
    )


class FailedSettings(Settings):
    """Stop once too many trials have failed, whatever others have brought."""

    trials: int = Field(
        ge=1, description="Stop when so many have failed, in all; trials that were cut short or lost do not count."
    )


class _Counts:
    """Counters of a rule over the trials that have ended.

    It is asked at every event, and a search may have thousands of trials: each of them is looked at once.
    """

    def __init__(self) -> None:
        self._read = 0

    def _new(self, progress: SearchProgress) -> Sequence[Trial]:
        """The trials that have ended since the last time."""
        found = progress.ended[self._read :]
        self._read = len(progress.ended)
        return [trial for trial in found if trial.number not in progress.misfits] if progress.misfits else found


class _NoImprovement(_Counts):
    """Counts the trials that have ended since the last one that improved something."""

    def __init__(self, settings: NoImprovementSettings) -> None:
        super().__init__()
        self._settings = settings
        self._best: float | None = None
        self._since = 0

    def __call__(self, progress: SearchProgress) -> str | None:
        for trial in self._new(progress):
            self._take(trial, progress.objective)
        if self._best is not None and self._since >= self._settings.trials:
            return f"{count(self._since, 'trial')} in a row improved nothing"
        return None

    def _take(self, trial: Trial, objective: Objective) -> None:
        if trial.proposal.fidelity < 1.0:
            return  # a part of the input costs less and takes less time: it is neither an improvement nor none
        seen = trial.observation
        self._since += 1
        if seen is None or not seen.feasible or seen.objective is None:
            return
        loss = objective.loss(seen.objective)
        if self._best is None or loss < self._best - self._settings.by * abs(self._best):
            self._best, self._since = loss, 0


class _Failed(_Counts):
    """Counts the trials that have failed."""

    def __init__(self, settings: FailedSettings) -> None:
        super().__init__()
        self._settings = settings
        self._failed: list[Trial] = []

    def __call__(self, progress: SearchProgress) -> str | None:
        self._failed += [trial for trial in self._new(progress) if trial.state == TrialState.FAILED]
        if len(self._failed) < self._settings.trials:
            return None
        seen = self._failed[-1].observation
        return f"{count(len(self._failed), 'trial')} failed, the last one: {seen.reason if seen else 'no reason known'}"


def _never(_settings: NeverSettings) -> StoppingRule:
    """A rule that ends nothing: it is read where the search is told how often its result will be used."""
    return lambda _progress: None


def _target(settings: TargetSettings) -> StoppingRule:
    def rule(progress: SearchProgress) -> str | None:
        best = progress.best.observation if progress.best else None
        if best is None or best.objective is None or progress.objective.better(settings.value, best.objective):
            return None
        return f"the target of {settings.value:g} is reached"

    return rule


def _spent_share(settings: SpentShareSettings) -> StoppingRule:
    def rule(progress: SearchProgress) -> str | None:
        best = progress.best.observation if progress.best else None
        if best is None or progress.spent < settings.share * settings.runs * best.cost:
            return None
        runs = count(settings.runs, "run")
        return f"the search has cost {settings.share:.0%} of {runs} at {format_bill(best.cost, 'each')}"

    return rule


def _lacks(trial: Trial, metric: str) -> bool:
    """True for a run that went to its end and whose output was read, but had no such metric."""
    seen = trial.observation
    return seen is not None and bool(seen.metrics) and metric not in seen.metrics


class _AllFailed(_Counts):
    """Counts the trials that have failed while none has succeeded.

    A run that was cut short says neither that the program works nor that it does not: it is no reason to go on. Where
    more were cut short than failed, what fails may be what is too small, and as many may fail.
    """

    def __init__(self, settings: AllFailedSettings) -> None:
        super().__init__()
        self._settings = settings
        self._failed = self._aborted = 0
        self._works, self._silent = False, True
        self._last: Trial | None = None

    def __call__(self, progress: SearchProgress) -> str | None:
        for trial in self._new(progress):
            self._take(trial, progress.objective.metric)
        if self._works or self._last is None:
            return None
        # A misspelt metric is in no run's output, and every further run costs as much as these.
        silent = self._silent and self._failed >= self._settings.silent
        if not silent and self._failed < max(self._settings.trials, self._aborted):
            return None
        reason = self._last.observation.reason if self._last.observation else "no reason known"
        if self._aborted:
            cut = f"{self._aborted} {'was' if self._aborted == 1 else 'were'} cut short"
            return f"of the first {self._read} trials none succeeded, {cut}, and the last that failed: {reason}"
        if self._failed == 1:
            return f"the first trial failed: {reason}"
        return f"the first {self._failed} trials all failed, the last one: {reason}"

    def _take(self, trial: Trial, metric: str) -> None:
        if trial.state == TrialState.ABORTED:
            self._aborted += 1
            # What it reported before it was cut short is no result, but shows how the metric is spelt.
            self._silent = self._silent and not (trial.observation and metric in trial.observation.metrics)
        elif trial.state == TrialState.FAILED:
            self._failed += 1
            self._silent = self._silent and _lacks(trial, metric)
            self._last = trial
        else:
            self._works = True


STOPPING_RULES: Mapping[str, tuple[type[Settings], Callable[[Any], StoppingRule]]] = {
    "all_failed": (AllFailedSettings, _AllFailed),
    "failed": (FailedSettings, _Failed),
    "never": (NeverSettings, _never),
    "no_improvement": (NoImprovementSettings, _NoImprovement),
    "spent_share": (SpentShareSettings, _spent_share),
    "target": (TargetSettings, _target),
}
"""The rules by name, with their settings."""


def make_stopping_rules(specs: Sequence[tuple[str, Mapping[str, Any]]]) -> list[StoppingRule]:
    """The rules of a job YAML, for one search; ``all_failed`` is always among them.

    Args:
        specs: Name and settings of each.

    Raises:
        SpecError: A name or a setting is unknown or wrong.
    """
    rules = []
    given = dict(specs)
    for name, settings in {"all_failed": {}, **given}.items():
        if name not in STOPPING_RULES:
            raise SpecError(
                f"stop: there is no rule named {name!r}", hint=did_you_mean(name, STOPPING_RULES, "known rules:")
            )
        model, make = STOPPING_RULES[name]
        try:
            rules.append(make(model.model_validate(dict(settings))))
        except ValidationError as error:
            known = ", ".join(model.model_fields) or "none"
            first = error.errors()[-1]  # an unknown key comes last, and explains the one that is missing
            key = ".".join(str(p) for p in first["loc"]) or name
            raise SpecError(f"stop: {name}: {key}: {first['msg']}", hint=f"its settings: {known}") from None
    return rules
