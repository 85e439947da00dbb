"""Puts a whole study into a storage of Optuna at once, of which Optuna itself writes one trial after the other."""

from __future__ import annotations

import json
import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy as sa
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import BaseJournalBackend, JournalFileBackend
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial
from sqlalchemy.orm import Session

from tradewind.errors import RecordError

_SCHEMAS = frozenset({"v3.2.0.a"})
"""Versions of the tables of Optuna that rows are put into here: those of Optuna 3.2 to 5."""

_AT_ONCE = 1_000
"""Trials whose rows are in memory at the same time."""

_UNFINISHED = " (not whole: an export goes on or was cut off)"
_LONGEST_NAME = 512
"""Characters of a study's name that Optuna has room for."""


def knows_schema(storage: RDBStorage) -> bool:
    """Test that the tables of a database are those that `copy_to_database` writes.

    Args:
        storage: The storage.
    """
    return storage.get_current_version() == storage.get_head_version() and storage.get_head_version() in _SCHEMAS


def copy_to_database(
    storage: RDBStorage, name: str, directions: Sequence[StudyDirection], trials: Iterable[FrozenTrial]
) -> None:
    """Write a new study, all of it in one transaction: what is interrupted leaves nothing.

    The rows are made by Optuna's own models, so that each version of it reads what it would have written; only the
    looks at the database before each of them, which take milliseconds a trial, are left out.

    Args:
        storage: The storage; see `knows_schema`.
        name: The study's name.
        directions: Its directions.
        trials: Its trials in their order, with distributions that agree.

    Raises:
        optuna.exceptions.DuplicatedStudyError: There is a study of that name.
    """
    from optuna.storages._rdb import models

    given, number = iter(trials), 0
    with Session(storage.engine) as session, session.begin():
        study = models.StudyModel(
            study_name=name,
            directions=[models.StudyDirectionModel(objective=at, direction=one) for at, one in enumerate(directions)],
        )
        session.add(study)
        try:
            session.flush()
        except sa.exc.IntegrityError:
            raise optuna.exceptions.DuplicatedStudyError(name) from None
        study_id: Any = study.study_id
        while batch := list(islice(given, _AT_ONCE)):
            rows = [_trial(models, study_id, at, each) for at, each in enumerate(batch, number)]
            session.add_all(rows)
            session.flush()
            for table, found in _parts(models, [row.trial_id for row in rows], batch).items():
                session.execute(sa.insert(table), found)
            session.expunge_all()
            number += len(batch)


def _trial(models: Any, study_id: int, number: int, trial: FrozenTrial) -> Any:
    """The row of a trial; its model keeps moments as this version of Optuna does."""
    begun, ended = trial.datetime_start, trial.datetime_complete
    return models.TrialModel(
        study_id=study_id, number=number, state=trial.state, datetime_start=begun, datetime_complete=ended
    )


def _parts(models: Any, ids: Sequence[int], trials: Sequence[FrozenTrial]) -> dict[sa.Table, list[Mapping[str, Any]]]:
    """The rows of what belongs to trials, by their table."""
    found: dict[sa.Table, list[Mapping[str, Any]]] = defaultdict(list)
    texts: dict[int, str] = {}  # the distributions of a study are few

    def add(model: Any, trial_id: int, **cells: Any) -> None:
        found[model.__table__].append({"trial_id": trial_id, **cells})

    for trial_id, trial in zip(ids, trials, strict=True):
        for objective, one in enumerate(trial.values or ()):
            value, kind = models.TrialValueModel.value_to_stored_repr(one)
            add(models.TrialValueModel, trial_id, objective=objective, value=value, value_type=kind)
        for name, chosen in trial.params.items():
            distribution = trial.distributions[name]
            if (text := texts.get(id(distribution))) is None:
                text = texts[id(distribution)] = optuna.distributions.distribution_to_json(distribution)
            inner = distribution.to_internal_repr(chosen)
            add(models.TrialParamModel, trial_id, param_name=name, param_value=inner, distribution_json=text)
        for key, given in trial.user_attrs.items():
            add(models.TrialUserAttributeModel, trial_id, key=key, value_json=json.dumps(given))
        for key, given in trial.system_attrs.items():
            add(models.TrialSystemAttributeModel, trial_id, key=key, value_json=json.dumps(given))
        steps = models.TrialIntermediateValueModel
        for step, one in trial.intermediate_values.items():
            value, kind = steps.intermediate_value_to_stored_repr(one)
            add(steps, trial_id, step=step, intermediate_value=value, intermediate_value_type=kind)
    return found


def copy_to_journal(path: Path, name: str, directions: Sequence[StudyDirection], trials: Iterable[FrozenTrial]) -> None:
    """Write a new study as a journal.

    Args:
        path: The file.
        name: The study's name.
        directions: Its directions.
        trials: Its trials in their order.
    """
    pages = _Pages()
    copy_one_by_one(JournalStorage(pages), name, directions, trials)
    JournalFileBackend(str(path)).append_logs(pages.logs)


class _Pages(BaseJournalBackend):
    """A journal in memory: one in a file is locked and written through to the disk at each trial."""

    def __init__(self) -> None:
        self.logs: list[dict[str, Any]] = []

    def read_logs(self, log_number_from: int) -> Iterable[dict[str, Any]]:
        """The entries from a number on."""
        return self.logs[log_number_from:]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Add entries."""
        self.logs += logs


def copy_one_by_one(
    storage: BaseStorage, name: str, directions: Sequence[StudyDirection], trials: Iterable[FrozenTrial]
) -> None:
    """Write a new study as Optuna does; what is interrupted by an error is taken back.

    Args:
        storage: The storage.
        name: The study's name.
        directions: Its directions.
        trials: Its trials in their order.

    Raises:
        optuna.exceptions.DuplicatedStudyError: There is a study of that name.
    """
    study = optuna.create_study(storage=storage, study_name=name, directions=directions)
    try:
        for each in trials:
            study.add_trial(each)
    except BaseException:
        optuna.delete_study(study_name=name, storage=storage)
        raise


def copy_slowly(
    storage: RDBStorage, name: str, directions: Sequence[StudyDirection], trials: Iterable[FrozenTrial]
) -> None:
    """Write a new study into tables that are not known, as Optuna does, under a name that says that it is not whole.

    It gets its own name in one step when all of it is there: whoever is killed before leaves nothing that looks whole.

    Args:
        storage: The storage.
        name: The study's name.
        directions: Its directions.
        trials: Its trials in their order.

    Raises:
        optuna.exceptions.DuplicatedStudyError: There is a study of that name.
        RecordError: Another export to that name goes on, or was killed.
    """
    meanwhile = unfinished_name(name)
    names = optuna.get_all_study_names(storage)
    if name in names:
        raise optuna.exceptions.DuplicatedStudyError(name)
    hint = f"when none goes on: optuna delete-study --storage ADDRESS --study-name {shlex.quote(meanwhile)}"
    words = f"an export to {name!r} goes on or was cut off: its study {meanwhile!r} is not whole"
    if meanwhile in names:
        raise RecordError(words, hint=hint)
    try:
        copy_one_by_one(storage, meanwhile, directions, trials)
    except optuna.exceptions.DuplicatedStudyError:  # by another one at this moment
        raise RecordError(words, hint=hint) from None
    try:
        _rename(storage, meanwhile, name)
    except BaseException as error:
        optuna.delete_study(study_name=meanwhile, storage=storage)
        if isinstance(error, sa.exc.IntegrityError):
            raise optuna.exceptions.DuplicatedStudyError(name) from None
        raise


def unfinished_name(name: str) -> str:
    """The name of a study of which only a part is written.

    Args:
        name: The name that it gets at the end.
    """
    return f"{name[: _LONGEST_NAME - len(_UNFINISHED)]}{_UNFINISHED}"


def _rename(storage: RDBStorage, old: str, new: str) -> None:
    with storage.engine.begin() as connection:
        studies = sa.Table("studies", sa.MetaData(), autoload_with=connection)
        connection.execute(sa.update(studies).where(studies.c.study_name == old).values(study_name=new))
