"""Writes a study's trials as an Optuna study."""

from __future__ import annotations

import datetime
import logging
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tradewind.deployer.environment import METRICS
from tradewind.engine.records.foreign_trials import NONES, original_names
from tradewind.engine.records.optuna_storages import StorageName, opened_database
from tradewind.engine.records.optuna_studies import GOALS
from tradewind.errors import InputError, RecordError
from tradewind.interpreter.reported_series import read_series
from tradewind.problem import RUNTIME, Float, Integer, Nodes, Problem, Run, RunState, Trial, TrialState
from tradewind.utils.atomic_files import atomic_path
from tradewind.utils.dependencies import optuna_log, require_package
from tradewind.utils.interrupts import without_collection

if TYPE_CHECKING:
    import optuna


@dataclass(frozen=True, slots=True)
class OptunaExport:
    """The result of an export.

    Attributes:
        place: Where the study is, as it may be shown.
        written: How many trials it has.
        left: Numbers of the trials that had not ended, which are left out.
        notes: Sentences about what is not as one may expect.
    """

    place: str
    written: int
    left: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def write_optuna_study(
    target: str, name: str, problem: Problem, trials: Iterable[Trial], runs: Iterable[Run] = ()
) -> OptunaExport:
    """Write the trials of a study as a new Optuna study: all of it or nothing.

    Metrics become user attributes, bounds constraints, and runs that were cut short pruned trials; what a run has
    reported over its steps becomes intermediate values, where its folder is there. Trials that have not ended are left
    out. The word None of a parameter is Python's None again where it was in trials that were imported, and what the
    job calls otherwise than Optuna did has Optuna's name again.

    Args:
        target: A file that is not there yet: a journal of Optuna with the ending ``.log`` or ``.journal``, or else a
            database of SQLite. Or the address of a database, which may have other studies. With ``#NAME`` the study is
            called so.
        name: The study's name, where the target has none.
        problem: Its problem.
        trials: Its trials.
        runs: Their runs, by attempt.

    Raises:
        MissingProgramError: Optuna is not installed.
        InputError: The file is there, or a study of that name.
        OSError: The file cannot be written.
        RecordError: A value cannot be written, or the database does not take it.
    """
    require_package("optuna", "Optuna studies", "optuna")
    with without_collection():
        return _write(StorageName.of(target), name, problem, trials, runs)


def _write(
    storage: StorageName, name: str, problem: Problem, trials: Iterable[Trial], runs: Iterable[Run]
) -> OptunaExport:
    written = _Written(problem, list(trials), {run.trial: run for run in runs})
    if (file := storage.file) is None:
        try:
            notes = _into_database(storage, storage.study or name, written)
        except RecordError as error:
            raise RecordError(error.message, hint=error.hint, file=storage.shown) from None
    elif file.exists():
        raise InputError(f"{file} is there already", hint="name another file")
    else:
        with atomic_path(file, durable=True) as part:
            if storage.journal:
                from tradewind.engine.records.optuna_copies import copy_to_journal

                with optuna_log(logging.WARNING):
                    copy_to_journal(part, storage.study or name, written.directions, written.frozen())
                notes = []
            else:
                notes = _into_database(StorageName(str(part)), storage.study or name, written)
    return OptunaExport(storage.shown, written.count, written.left, [*written.notes, *notes])


def _into_database(storage: StorageName, name: str, written: _Written) -> list[str]:
    import optuna

    from tradewind.engine.records import optuna_copies

    with opened_database(storage) as opened:
        try:
            if optuna_copies.knows_schema(opened):
                optuna_copies.copy_to_database(opened, name, written.directions, written.frozen())
                return []
            optuna_copies.copy_slowly(opened, name, written.directions, written.frozen())
        except optuna.exceptions.DuplicatedStudyError:
            raise RecordError(f"it has a study {name!r} already", hint=f"another name: {storage.shown}#NAME") from None
    return [f"the tables of Optuna {optuna.__version__} are not known here: its trials were written one by one"]


class _Written:
    """The trials of a study as those of Optuna.

    Args:
        problem: The problem of the study.
        trials: Its trials.
        runs: The last run of each.
    """

    def __init__(self, problem: Problem, trials: list[Trial], runs: Mapping[int, Run]) -> None:
        self._problem, self._runs = problem, runs
        self._objectives = (problem.objective, *problem.objective.also)
        self._trials = [trial for trial in trials if trial.state.ended]
        self._nones = {name for trial in trials for name in str(trial.proposal.why.get(NONES, "")).split()}
        self._distributions: dict[str, Any] = {
            p.name: _distribution(p, none=p.name in self._nones) for p in problem.space.parameters
        }
        self._names: dict[str, str] = {}
        for trial in trials:
            self._names = {**original_names(trial), **self._names}  # of several the first one
        ours = set(problem.space.names)
        # Two imports may have had one name for two of them.
        free = {theirs for theirs, many in Counter(self._names.values()).items() if many == 1} - ours
        self._names = {name: theirs for name, theirs in self._names.items() if name in ours and theirs in free}
        self.left = [trial.number for trial in trials if not trial.state.ended]
        self.count = len(self._trials)

    @property
    def notes(self) -> list[str]:
        """Sentences about what is called otherwise."""
        pairs = [f"{ours} is {theirs}" for ours, theirs in self._names.items()]
        return [f"parameters are called as where they came from: {', '.join(pairs)}"] if pairs else []

    @property
    def directions(self) -> list[optuna.study.StudyDirection]:
        """The direction of each objective."""
        from optuna.study import StudyDirection

        return [StudyDirection[GOALS[one.goal].upper()] for one in self._objectives]

    def frozen(self) -> Iterator[optuna.trial.FrozenTrial]:
        """The trials that have ended.

        Raises:
            RecordError: One cannot be written.
        """
        from optuna.trial import create_trial

        for trial in self._trials:
            chosen = {name: self._value(name, value) for name, value in trial.configuration.items()}
            state, values = self._outcome(trial)
            try:
                frozen = create_trial(
                    state=state,
                    values=values,
                    params={self._names.get(each, each): value for each, value in chosen.items()},
                    distributions={self._names.get(each, each): self._distributions[each] for each in chosen},
                    user_attrs=_attributes(trial),
                    system_attrs=self._constraints(trial),
                    intermediate_values=self._steps(trial),
                )
            except ValueError as error:
                raise RecordError(f"trial {trial.number}: {error}") from None
            frozen.datetime_start = _moment(trial.started if trial.started is not None else trial.created)
            frozen.datetime_complete = _moment(trial.ended) or frozen.datetime_start
            yield frozen

    def _value(self, name: str, value: Any) -> Any:
        """Python's None for the word, where it was; a number with a step as Optuna reckons it, to the last digit."""
        one = self._distributions[name]
        if (step := getattr(one, "step", None)) is not None and isinstance(value, float):
            return min(round((value - one.low) / step) * step + one.low, one.high)
        return None if value == "None" and name in self._nones else value

    def _outcome(self, trial: Trial) -> tuple[optuna.trial.TrialState, list[float] | None]:
        """State and values of a trial. Optuna takes a run that reports infinity for one that has ended well."""
        from optuna.trial import TrialState as OptunaState

        seen, run = trial.observation, self._runs.get(trial.number)
        figures = {} if seen is None else seen.figures
        values = [figures.get(one.metric, math.nan) for one in self._objectives]
        if seen is not None and seen.objective is not None:
            values[0] = seen.objective
        known = not any(map(math.isnan, values))
        if trial.state is TrialState.ABORTED:
            return OptunaState.PRUNED, values if known and all(map(math.isfinite, values)) else None
        whole = trial.state is TrialState.SUCCEEDED or (run is not None and run.state is RunState.DONE)
        return (OptunaState.COMPLETE, values) if whole and known else (OptunaState.FAIL, None)

    def _steps(self, trial: Trial) -> dict[int, float]:
        """The objective over the steps of a run; Optuna knows none of several objectives."""
        seen, run, metric = trial.observation, self._runs.get(trial.number), self._problem.objective.metric
        if len(self._objectives) > 1:
            return {}
        if run is not None and run.folder:
            return dict(read_series(Path(run.folder) / METRICS).get(metric, ()))
        step = None if seen is None else seen.metrics.get("step")
        last = None if seen is None else seen.metrics.get(metric)
        if trial.state is TrialState.SUCCEEDED or step is None or last is None or not math.isfinite(step):
            return {}
        return {int(step): last}

    def _constraints(self, trial: Trial) -> dict[str, Any]:
        """Distances of each bound, above 0 where it is missed; in the form that all versions of Optuna read."""
        seen, bounds = trial.observation, self._problem.constraints
        if seen is None or trial.state is not TrialState.SUCCEEDED:
            return {}
        found = [] if bounds.deadline is None else [seen.figures.get(RUNTIME, math.nan) - bounds.deadline]
        for bound in bounds.thresholds:
            value = seen.figures.get(bound.metric, math.nan)
            found += [] if bound.at_most is None else [value - bound.at_most]
            found += [] if bound.at_least is None else [bound.at_least - value]
        return {"constraints": found} if found and all(map(math.isfinite, found)) else {}


def _attributes(trial: Trial) -> dict[str, Any]:
    seen = trial.observation
    if seen is None:
        return {"reason": "the infrastructure failed"}
    figures = {name: value for name, value in seen.figures.items() if math.isfinite(value)}
    return {**figures, "feasible": seen.feasible, **({"reason": seen.reason} if seen.reason else {})}


def _distribution(parameter: Any, *, none: bool) -> optuna.distributions.BaseDistribution:
    """Optuna's distribution of a parameter's own values; with ``none`` the word None among them is Python's None."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(parameter, Float):
        if parameter.step is None:
            return FloatDistribution(parameter.low, parameter.high, log=parameter.log)
        return FloatDistribution(parameter.low, float(parameter.level(int(parameter.count) - 1)), step=parameter.step)
    if isinstance(parameter, Integer):
        log = parameter.log and parameter.step == 1
        return IntDistribution(int(parameter.low), parameter.greatest, log=log, step=parameter.step)
    levels: Mapping[int, Any] = {i: parameter.level(i) for i in range(int(parameter.count))}
    choices = [int(v) if isinstance(parameter, Nodes) else v for v in levels.values()]
    return CategoricalDistribution([None if none and choice == "None" else choice for choice in choices])


def _moment(seconds: float | None) -> datetime.datetime | None:
    return None if seconds is None else datetime.datetime.fromtimestamp(seconds)
