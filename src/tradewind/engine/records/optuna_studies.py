"""Reads the trials of an Optuna study."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from tradewind.engine.records.foreign_trials import ForeignTrial
from tradewind.engine.records.optuna_storages import StorageName, opened_storage
from tradewind.errors import RecordError
from tradewind.problem import COST, RUNTIME, Objective
from tradewind.utils.units import listed

if TYPE_CHECKING:
    import optuna

GOALS: dict[str, Literal["minimize", "maximize"]] = {"minimise": "minimize", "maximise": "maximize"}
"""Optuna's word for what is to become of an objective."""

CONSTRAINT = "constraint_"
"""What the name of a metric begins with that is the value of a constraint: one above 0 breaks it."""

_STATES: dict[str, Literal["succeeded", "failed", "aborted", "unfinished"]] = {
    "COMPLETE": "succeeded",
    "FAIL": "failed",
    "PRUNED": "aborted",
}


_SHOWN = 8


def read_optuna_trials(source: str, objective: Objective) -> Iterator[ForeignTrial]:
    """Read the trials of an Optuna study.

    Its value is the objective's metric, and of several objectives each is the one of that name, or else that place;
    numbers among the user attributes are metrics, too, and so are the values of its constraints.

    Args:
        source: A database's address (``sqlite:///optuna.db``, ``postgresql://...``), a file of SQLite or a journal;
            with ``#NAME`` where it has several studies.
        objective: The objective of the study that takes them.

    Raises:
        MissingProgramError: Optuna is not installed.
        RecordError: There is no such study, or it has another goal or other objectives.
    """
    name = StorageName.of(source)
    with opened_storage(name) as storage:
        study = _chosen(storage, name)
        metrics = _metrics(study, objective)
        trials = study.get_trials(deepcopy=False)
    for trial in trials:
        yield _foreign(study.study_name, trial, metrics)


def _chosen(storage: optuna.storages.BaseStorage, name: StorageName) -> optuna.Study:
    import optuna

    names = sorted(optuna.get_all_study_names(storage))
    some = listed(names, _SHOWN) or "none"
    if not name.study and len(names) != 1:
        hint = f"choose one: {name.shown}#NAME" if names else "name another one"
        raise RecordError(f"it has {len(names)} studies{f': {some}' if names else ''}", hint=hint)
    if name.study and name.study not in names:
        raise RecordError(f"it has no study {name.study!r}", hint=f"it has {some}")
    return optuna.load_study(study_name=name.study or names[0], storage=storage)


def _metrics(study: optuna.Study, objective: Objective) -> Sequence[str]:
    """The metric that each value of a study is."""
    ours = {one.metric: one for one in (objective, *objective.also)}
    names = list(ours)
    if len(study.directions) != len(names):
        many = len(study.directions)
        hint = f"name {many} under objective, in their order" if many > 1 else "remove also from the objective"
        raise RecordError(
            f"the study {study.study_name!r} has {many} objective{'s' if many > 1 else ''}, and the job "
            f"{len(names)}: {', '.join(names)}",
            hint=hint,
        )
    if sorted(study.metric_names or ()) == sorted(names):
        names = list(study.metric_names or ())
    for name, direction in zip(names, study.directions, strict=True):
        theirs, mine = direction.name.lower(), GOALS[ours[name].goal]
        if theirs != mine:
            which = f"value {names.index(name)}" if len(names) > 1 else "value"
            raise RecordError(
                f"the study {study.study_name!r} is to {theirs} its {which}, and the job to {mine} {name}",
                hint="change the objective of the job",
            )
    return names


def _foreign(study: str, trial: optuna.trial.FrozenTrial, names: Sequence[str]) -> ForeignTrial:
    metrics = {
        name: float(value)
        for name, value in trial.user_attrs.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    metrics |= {f"{CONSTRAINT}{name}": float(value) for name, value in _constraints(trial).items()}
    values = trial.values if trial.state.name == "COMPLETE" else None
    if values is None and trial.intermediate_values:
        metrics["step"] = float(max(trial.intermediate_values))
        values = [trial.intermediate_values[max(trial.intermediate_values)]]
    metrics |= {name: float(value) for name, value in zip(names, values or (), strict=False)}
    begun, ended = trial.datetime_start, trial.datetime_complete
    runtime = metrics.get(RUNTIME)
    if runtime is None and begun is not None and ended is not None:
        runtime = max(0.0, (ended - begun).total_seconds())
    return ForeignTrial(
        f"optuna-{study}-{trial.number:05d}-{_digest(trial)}",
        f"trial {trial.number}",
        trial.params,
        _STATES.get(trial.state.name, "unfinished"),
        metrics,
        runtime,
        metrics.get(COST),
        str(trial.user_attrs.get("reason", "")) or _said(trial, values),
        None if begun is None else begun.timestamp(),
        None if ended is None else ended.timestamp(),
    )


def _digest(trial: optuna.trial.FrozenTrial) -> str:
    """A digest of what does not change of a trial: studies of one name in several databases are told apart by it."""
    moments = [str(trial.datetime_start), str(trial.datetime_complete)]
    known = repr((moments, trial.state.name, sorted(trial.params.items(), key=str), trial.values))
    return hashlib.sha256(known.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _said(trial: optuna.trial.FrozenTrial, values: Sequence[float] | None) -> str:
    """The reason in words that a trial has no result."""
    unfinished = trial.state.name not in _STATES
    return f"Optuna says {trial.state.name}" if values is None or unfinished else ""


def _constraints(trial: optuna.trial.FrozenTrial) -> dict[str, float]:
    """The values of constraints by name, as Optuna keeps them: until version 4 in a list, from 5 on by name."""
    kept = trial.system_attrs
    found = {str(at): value for at, value in enumerate(kept.get("constraints") or ())}
    return found | {name.removeprefix("constraints:"): v for name, v in kept.items() if name.startswith("constraints:")}
