"""Reads the stored logs of a study with other interpreters: nothing is run again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tradewind.deployer.environment import METRICS
from tradewind.deployer.lifecycle.deployer import output_of
from tradewind.engine.search_builder import accepted_exit_codes, build_metrics_reader, study_document
from tradewind.engine.state_machine import trial_outcome
from tradewind.engine.state_machine.trial_history import TrialHistory
from tradewind.errors import InputError, InterpretationError
from tradewind.problem import OWN_METRICS, Fault, Objective, Observation, Run, RunOutput, RunState, Trial, TrialState
from tradewind.problem.job_spec.spec import JobSpec
from tradewind.store.base import Change, Store, StudyRow, this_process
from tradewind.utils.units import count

MAY_DIFFER = ("interpret", "objective", "constraints")
"""Keys of a job in which it may differ from that of the study whose logs it reads."""

_HOLD_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class TrialReading:
    """A trial as it was, and as its logs are read now.

    Attributes:
        before: The trial as it is stored.
        after: The trial as it is now; the same object where nothing changes.
        without_logs: True where its logs are not on this machine, so that its recorded metrics count.
        cut: True where its logs are there only in part.
    """

    before: Trial
    after: Trial
    without_logs: bool = False
    cut: bool = False

    @property
    def changed(self) -> bool:
        """True where something of the trial is not as it was."""
        return self.after is not self.before

    @property
    def unknown(self) -> bool:
        """True where the trial has a result that nothing here says any more: it would count as failed."""
        was, now = self.before.state, self.after.state
        return self.without_logs and was is TrialState.SUCCEEDED and now is TrialState.FAILED


@dataclass(frozen=True)
class Reinterpretation:
    """A study's logs as they are read now.

    Attributes:
        study: The study.
        spec: The specification whose interpreters read them.
        old: The specification of the study.
        readings: All its trials that have ended, by number.
    """

    study: StudyRow
    spec: JobSpec
    old: JobSpec
    readings: Sequence[TrialReading]

    @property
    def changed(self) -> list[TrialReading]:
        """The trials of which something is not as it was."""
        return [reading for reading in self.readings if reading.changed]

    @cached_property
    def best_before(self) -> Trial | None:
        """The best trial so far."""
        return _best(self.old, [reading.before for reading in self.readings])

    @cached_property
    def best(self) -> Trial | None:
        """The best trial as the logs are read now."""
        return _best(self.spec, [reading.after for reading in self.readings])

    @cached_property
    def new_problem(self) -> list[str]:
        """The keys in which the job is another one than the study's."""
        return self.spec.problem_differences(self.old)


def _best(spec: JobSpec, trials: Sequence[Trial]) -> Trial | None:
    history = TrialHistory(spec.objective, spec.constraints)
    for trial in trials:
        history.put(trial)
        history.end(trial)
    return history.best


def reinterpret(store: Store, study: StudyRow, spec: JobSpec | None = None) -> Reinterpretation:
    """Read the logs of a study's trials; nothing is stored.

    Args:
        store: Where it is kept.
        study: The study.
        spec: A job with other interpreters, objective or constraints; the study's own without it.

    Raises:
        InputError: The job is another one.
        SpecError: The study's own job cannot be read any more.
    """
    old = JobSpec.from_json(study.spec)
    new = spec or old
    others = [key for key in new.problem_differences(old) if key not in MAY_DIFFER]
    if others:
        raise InputError(
            f"{new.file} is another job than that of study {study.name}: {', '.join(others)} differ",
            hint="only interpret, objective and constraints may",
        )
    runs: dict[int, Run] = {}
    for run in store.runs(study.id):
        runs[run.trial] = run  # by attempt: the last one stays
    reader = _TrialReader(new, changes_objective=new.objective != old.objective)
    trials = [trial for trial in store.trials(study.id) if trial.state.ended]
    return Reinterpretation(study, new, old, [reader.read(trial, runs.get(trial.number)) for trial in trials])


class _TrialReader:
    """Reads the logs of trials with the interpreters of a specification."""

    def __init__(self, spec: JobSpec, *, changes_objective: bool) -> None:
        self._spec = spec
        self._changes_objective = changes_objective
        self._accepted = accepted_exit_codes(spec)
        self._read: Callable[[RunOutput], dict[str, float]] = build_metrics_reader(spec)

    def read(self, trial: Trial, run: Run | None) -> TrialReading:
        """The reading of a trial that has ended."""
        seen = trial.observation
        if run is None or seen is None:
            return TrialReading(trial, trial)
        if trial.state is TrialState.ABORTED:
            return TrialReading(trial, self._aborted(trial, run, seen) if self._changes_objective else trial)
        if not self._ended_well(run):
            after = trial_outcome.failed(trial, run, run.reason) if trial.state is TrialState.SUCCEEDED else trial
            return TrialReading(trial, _kept(trial, after))
        output = output_of(run, Path(run.folder or "/nonexistent"), trial.offer, trial.configuration)
        here = bool(run.folder) and any((output.folder / name).is_file() for name in ("stdout", METRICS))
        if not here:
            if trial.state is TrialState.FAILED:
                return TrialReading(trial, trial, without_logs=True)
            known = {name: value for name, value in seen.metrics.items() if name not in OWN_METRICS}
            output = replace(output, recorded=known)
        return TrialReading(trial, _kept(trial, self._ended(trial, run, output)), not here, here and output.truncated)

    def _ended_well(self, run: Run) -> bool:
        accepted = run.state is RunState.FAILED and run.fault is Fault.JOB and run.exit_code in self._accepted
        return run.state is RunState.DONE or accepted

    def _ended(self, trial: Trial, run: Run, output: RunOutput) -> Trial:
        try:
            metrics = self._read(output)
        except InterpretationError as error:
            return trial_outcome.failed(trial, run, str(error))
        of = self._spec
        return trial_outcome.succeeded(trial, run, metrics, of.objective, of.constraints, of.terms)

    def _aborted(self, trial: Trial, run: Run, seen: Observation) -> Trial:
        objective: Objective = self._spec.objective
        return _kept(trial, trial_outcome.aborted(trial, run, seen.reason, objective, self._spec.terms, seen.metrics))


def _kept(before: Trial, after: Trial) -> Trial:
    """The trial after it was read anew, with how it was read before; the one before where nothing changes."""
    old, new = before.observation, after.observation
    assert old is not None
    assert new is not None
    # What the run was and used is not read from its logs.
    new = replace(new, profile=old.profile, earlier_readings=old.earlier_readings)
    if before.state is after.state and repr(new) == repr(old):  # NaN equals nothing
        return before
    reading: dict[str, Any] = {
        "state": before.state.value,
        "objective": old.objective,
        "feasible": old.feasible,
        "metrics": dict(old.metrics),
        "reason": old.reason,
        "until": time.time(),
    }
    return replace(
        after, ended=before.ended, observation=replace(new, earlier_readings=(*old.earlier_readings, reading))
    )


def store_reinterpretation(store: Store, found: Reinterpretation) -> None:
    """Store what was read: the trials that change, and the job, so that its search goes on with the study.

    Args:
        store: Where the study is kept.
        found: What was read.

    Raises:
        InputError: The logs of a trial are not here, and what was recorded of it is not enough.
        StudyBusyError: A process is running the study.
    """
    if unknown := [str(reading.before.number) for reading in found.readings if reading.unknown]:
        numbers = ", ".join(unknown[:8]) + (", ..." if len(unknown) > 8 else "")
        raise InputError(
            f"the logs of {count(len(unknown), 'trial')} ({numbers}) are not here, and what was recorded of them is "
            "not enough: they would count as failed",
            hint="do it where the logs are, or export there with --with-logs and import that",
        )
    study, fields = found.study, {}
    if found.new_problem:
        kind = study.problem_key.partition("/")[2]
        key = found.spec.problem_key + (f"/{kind}" if kind else "")
        fields = {"spec": study_document(found.spec), "problem_key": key}
    token = store.hold(study.id, this_process(), _HOLD_SECONDS)
    try:
        store.write(study.id, Change(trials=[reading.after for reading in found.changed], study=fields), token)
    finally:
        store.release(study.id, token)
