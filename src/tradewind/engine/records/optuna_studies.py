"""Reads the trials of an Optuna study, and writes a study's trials as one."""

from __future__ import annotations

import contextlib
import datetime
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tradewind.engine.records.foreign_trials import NONES, ForeignTrial
from tradewind.errors import RecordError
from tradewind.problem import COST, RUNTIME, Float, Integer, Nodes, Objective, Problem, Trial, TrialState
from tradewind.utils.dependencies import require_package

if TYPE_CHECKING:
    import optuna

_GOALS: dict[str, Literal["minimize", "maximize"]] = {"minimise": "minimize", "maximise": "maximize"}
_STATES: dict[str, Literal["succeeded", "failed", "aborted", "unfinished"]] = {
    "COMPLETE": "succeeded",
    "FAIL": "failed",
    "PRUNED": "aborted",
}


_JOURNALS = (".log", ".journal")
FILE_ENDINGS = (".db", ".sqlite", ".sqlite3", *_JOURNALS)
"""Endings of files that are taken for a storage of Optuna."""


def is_optuna_storage(source: str) -> bool:
    """Test that a name is that of an Optuna storage: a database's address, a file of SQLite or a journal.

    Args:
        source: What a user wrote.
    """
    address = source.partition("#")[0]
    return "://" in address or Path(address).suffix in FILE_ENDINGS


def without_password(source: str) -> str:
    """The name of a storage, or of anything else, as it may be shown."""
    return re.sub(r"(://[^:/@]*):[^@/]*@", r"\1:***@", source)


def read_optuna_trials(source: str, objective: Objective) -> Iterator[ForeignTrial]:
    """Read the trials of an Optuna study.

    Its value is the objective's metric; numbers among the user attributes are metrics, too.

    Args:
        source: A database's address (``sqlite:///optuna.db``, ``postgresql://...``), a file of SQLite or a journal;
            with ``#NAME`` where it has several studies.
        objective: The objective of the study that takes them.

    Raises:
        MissingProgramError: Optuna is not installed.
        RecordError: There is no such study, or it has another goal or several ones.
    """
    study = _open(source)
    if len(study.directions) != 1:
        raise RecordError(f"the study {study.study_name!r} has {len(study.directions)} objectives", hint="one is read")
    if (theirs := study.direction.name.lower()) != (ours := _GOALS[objective.goal]):
        raise RecordError(
            f"the study {study.study_name!r} is to {theirs} its value, and the job to {ours} {objective.metric}",
            hint="change the objective of the job",
        )
    for trial in study.get_trials(deepcopy=False):
        yield _foreign(study.study_name, trial, objective.metric)


def _foreign(study: str, trial: optuna.trial.FrozenTrial, metric: str) -> ForeignTrial:
    metrics = {
        name: float(value)
        for name, value in trial.user_attrs.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    value = trial.value if trial.state.name == "COMPLETE" else None
    if value is None and trial.intermediate_values:
        metrics["step"] = float(max(trial.intermediate_values))
        value = trial.intermediate_values[max(trial.intermediate_values)]
    if value is not None:
        metrics[metric] = float(value)
    begun, ended = trial.datetime_start, trial.datetime_complete
    runtime = metrics.get(RUNTIME)
    if runtime is None and begun is not None and ended is not None:
        runtime = max(0.0, (ended - begun).total_seconds())
    return ForeignTrial(
        f"optuna-{study}-{trial.number:05d}",
        f"trial {trial.number}",
        trial.params,
        _STATES.get(trial.state.name, "unfinished"),
        metrics,
        runtime,
        metrics.get(COST),
        str(trial.user_attrs.get("reason", "")) or _said(trial, value),
        None if begun is None else begun.timestamp(),
        None if ended is None else ended.timestamp(),
    )


def _said(trial: optuna.trial.FrozenTrial, value: float | None) -> str:
    """The reason in words that a trial has no result."""
    unfinished = trial.state.name not in _STATES
    return f"Optuna says {trial.state.name}" if value is None or unfinished else ""


def _open(source: str) -> optuna.Study:
    require_package("optuna", "Optuna studies", "optuna")
    import optuna

    address, _, name = source.partition("#")
    path = Path(address.removeprefix("sqlite:///"))
    if ("://" not in address or address.startswith("sqlite:///")) and not path.is_file():
        raise RecordError("there is no such file", file=str(path))
    try:
        with _quiet():
            storage = _storage(address)
            names = sorted(optuna.get_all_study_names(storage))
            if not name and len(names) != 1:
                some = ", ".join(names[:8]) or "none"
                raise RecordError(
                    f"it has {len(names)} studies: {some}", hint=f"choose one: {without_password(address)}#NAME"
                )
            if name and name not in names:
                raise RecordError(f"it has no study {name!r}", hint=f"it has {', '.join(names[:8]) or 'none'}")
            return optuna.load_study(study_name=name or names[0], storage=storage)
    except RecordError:
        raise
    except Exception as error:  # whatever a database or a damaged journal makes Optuna raise
        first = str(error).strip().partition("\n")[0]
        raise RecordError(f"Optuna cannot read it: {type(error).__name__}: {first}") from None


def _storage(address: str) -> Any:
    from optuna.storages import JournalStorage, RDBStorage
    from optuna.storages.journal import JournalFileBackend

    if "://" in address:
        return RDBStorage(address)
    if Path(address).suffix in _JOURNALS:
        return JournalStorage(JournalFileBackend(address))
    return RDBStorage(f"sqlite:///{address}")


def write_optuna_study(path: Path, name: str, problem: Problem, trials: Iterable[Trial]) -> tuple[int, list[int]]:
    """Write the trials of a study as an Optuna study of that name.

    Metrics become user attributes, runs that were cut short pruned trials; trials that have not ended are left out. The
    word None of a parameter is Python's None again where it was in trials that were imported.

    Args:
        path: The file: a journal of Optuna with the ending ``.log`` or ``.journal``, which is written quickly, or else
            a database of SQLite.
        name: The study's name.
        problem: Its problem.
        trials: Its trials.

    Returns:
        How many trials were written, and the numbers of those that are left out.

    Raises:
        MissingProgramError: Optuna is not installed.
        RecordError: A value cannot be written.
    """
    require_package("optuna", "Optuna studies", "optuna")
    import optuna
    from optuna.trial import create_trial

    trials = list(trials)
    nones = {name for trial in trials for name in str(trial.proposal.why.get(NONES, "")).split()}
    distributions = {p.name: _distribution(p, none=p.name in nones) for p in problem.space.parameters}
    with _quiet():
        storage = _storage(str(path))
        if isinstance(storage, optuna.storages.RDBStorage):
            _hurry(storage)
        study = optuna.create_study(storage=storage, study_name=name, direction=_GOALS[problem.objective.goal])
        left: list[int] = []
        for trial in trials:
            if (state := _optuna_state(trial)) is None:
                left.append(trial.number)
                continue
            values = {name: _none(value) if name in nones else value for name, value in trial.configuration.items()}
            value = _value(trial, problem.objective.metric)
            seen = trial.observation
            step = int(seen.metrics.get("step", 0)) if seen is not None else 0
            try:
                frozen = create_trial(
                    state=state,
                    value=None if state.name == "FAIL" else value,
                    params=values,
                    distributions={each: distributions[each] for each in values},
                    user_attrs=_attributes(trial),
                    intermediate_values={step: value} if state.name == "PRUNED" and value is not None else {},
                )
            except ValueError as error:
                raise RecordError(f"trial {trial.number}: {error}") from None
            frozen.datetime_start = _moment(trial.started if trial.started is not None else trial.created)
            frozen.datetime_complete = _moment(trial.ended) or frozen.datetime_start
            study.add_trial(frozen)
    return len(trials) - len(left), left


def _hurry(storage: optuna.storages.RDBStorage) -> None:
    """Let SQLite not wait for the disk at each trial: a file that is not whole is thrown away."""
    import sqlalchemy as sa

    def connected(connection: Any, _record: object) -> None:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA journal_mode = MEMORY")

    storage.engine.dispose()
    sa.event.listen(storage.engine, "connect", connected)


def _optuna_state(trial: Trial) -> optuna.trial.TrialState | None:
    from optuna.trial import TrialState as OptunaState

    seen = trial.observation
    match trial.state:
        case TrialState.SUCCEEDED if seen is not None and seen.objective is not None:
            return OptunaState.COMPLETE
        case TrialState.ABORTED:
            return OptunaState.PRUNED
        case _:
            return OptunaState.FAIL if trial.state.ended else None


def _value(trial: Trial, metric: str) -> float | None:
    """The objective, or of a run that was cut short what it reached."""
    seen = trial.observation
    value = None if seen is None else seen.objective if seen.objective is not None else seen.metrics.get(metric)
    return value if value is not None and math.isfinite(value) else None


def _attributes(trial: Trial) -> dict[str, Any]:
    seen = trial.observation
    if seen is None:
        return {"reason": "the infrastructure failed"}
    figures = {name: value for name, value in seen.figures.items() if math.isfinite(value)}
    return {**figures, "feasible": seen.feasible, **({"reason": seen.reason} if seen.reason else {})}


def _none(value: Any) -> Any:
    """Python's None for the word."""
    return None if value == "None" else value


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
    return CategoricalDistribution([_none(choice) for choice in choices] if none else choices)


def _moment(seconds: float | None) -> datetime.datetime | None:
    return None if seconds is None else datetime.datetime.fromtimestamp(seconds)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without Optuna's own lines about studies that it opens and makes."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)
