"""Whole studies put into Optuna's storages at once, beside what Optuna itself writes one trial after the other."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("optuna", reason="OPTUNA IS NOT INSTALLED: pip install 'tradewind[optuna]'")

import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial
from tests.store.conftest import _server as _server
from tests.store.conftest import postgresql_url as postgresql_url

from tradewind.engine.records import optuna_copies
from tradewind.engine.records.optuna_copies import (
    copy_one_by_one,
    copy_slowly,
    copy_to_database,
    copy_to_journal,
    unfinished_name,
)
from tradewind.errors import RecordError

DISTRIBUTIONS = {
    "x": FloatDistribution(-5, 5),
    "rate": FloatDistribution(1e-5, 1e-1, log=True),
    "drop": FloatDistribution(0, 0.75, step=0.25),
    "n": IntDistribution(2, 8, step=3),
    "units": IntDistribution(1, 1024, log=True),
    "größe λ": CategoricalDistribution(["ä", None, True, 1, 2.5]),
}
ONE = [StudyDirection.MINIMIZE]
TWO = [StudyDirection.MINIMIZE, StudyDirection.MAXIMIZE]


def _trials(objectives: int) -> Iterator[FrozenTrial]:
    """Trials of all kinds: each state, conditional parameters, infinities, attributes of all types."""
    for number, state in enumerate([*TrialState, *TrialState, TrialState.COMPLETE]):
        names = list(DISTRIBUTIONS)[: number % len(DISTRIBUTIONS) + 1]
        params = {
            "x": -1.25,
            "rate": 3e-4,
            "drop": 0.5,
            "n": 5,
            "units": 17,
            "größe λ": ["ä", None, True, 1, 2.5][number % 5],
        }
        values = [[1.5, math.inf, -math.inf, 1e300, 0.1][(number + at) % 5] for at in range(objectives)]
        some = state in (TrialState.COMPLETE, TrialState.PRUNED)
        made = create_trial(
            state=state,
            values=values if some else None,
            params={name: params[name] for name in reversed(names)},
            distributions={name: DISTRIBUTIONS[name] for name in reversed(names)},
            user_attrs={"loss": 0.5, "word": "ü\n", "list": [1, {"a": None}], "yes": True, "inf": math.inf},
            system_attrs={"constraints": [-1.0, 0.5], "grid_id": number},
            intermediate_values={0: 1.0, 7: math.nan, 3: math.inf, 2: -math.inf} if objectives == 1 else {},
        )
        if state is not TrialState.WAITING:
            made.datetime_start = datetime(2026, 7, 1, 12, 0, number, 123456)
        if state.is_finished():
            made.datetime_complete = datetime(2026, 12, 1, 12, 0, number)
        yield made


def _all_of(trial: FrozenTrial) -> dict[str, Any]:
    """All that Optuna tells of a trial, each value with its type; numbers of steps as words, so that NaN equals NaN."""
    return {
        "number": trial.number,
        "state": trial.state,
        "values": trial.values,
        "params": [(name, value, type(value)) for name, value in trial.params.items()],
        "distributions": trial.distributions,
        "moments": (trial.datetime_start, trial.datetime_complete),
        "attributes": (trial.user_attrs, trial.system_attrs),
        "steps": {step: str(value) for step, value in trial.intermediate_values.items()},
    }


@pytest.fixture(params=["sqlite", "postgresql"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    url = f"sqlite:///{tmp_path}/o.db" if request.param == "sqlite" else request.getfixturevalue("postgresql_url")
    made = optuna.storages.RDBStorage(url)
    yield made
    made.remove_session()
    made.engine.dispose()


@pytest.mark.slow
@pytest.mark.parametrize("directions", [ONE, TWO])
def test_a_database_has_what_optuna_would_have_written(
    storage: Any, directions: list[StudyDirection], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optuna_copies, "_AT_ONCE", 4)
    assert optuna_copies.knows_schema(storage)
    copy_one_by_one(storage, "theirs", directions, _trials(len(directions)))
    copy_to_database(storage, "ours", directions, _trials(len(directions)))
    theirs, ours = (optuna.load_study(study_name=name, storage=storage) for name in ("theirs", "ours"))
    assert ours.directions == theirs.directions == directions
    assert len(ours.trials) == len(theirs.trials) == 11
    for one, other in zip(ours.trials, theirs.trials, strict=True):
        assert _all_of(one) == _all_of(other)
    assert _rows(storage, "ours") == _rows(storage, "theirs"), "also what the public functions do not tell"
    waiting = [one.number for one in theirs.trials if one.state is TrialState.WAITING]
    taken = [ours.ask(DISTRIBUTIONS).number for _ in (*waiting, None)]
    assert taken == [*waiting, 11], "whoever goes on begins with what was waiting"


def _rows(storage: Any, study: str) -> dict[str, list[Any]]:
    """All rows of a study without their keys, by table, in the order in which they were put."""
    import sqlalchemy as sa

    tables = optuna.storages._rdb.models.BaseModel.metadata.tables
    found: dict[str, list[Any]] = {}
    with storage.engine.connect() as connection:
        trials = tables["trials"]
        study_id = sa.select(tables["studies"].c.study_id).where(tables["studies"].c.study_name == study)
        ids = list(
            connection.scalars(
                sa.select(trials.c.trial_id).where(trials.c.study_id.in_(study_id)).order_by(trials.c.trial_id)
            )
        )
        for name, table in tables.items():
            if "trial_id" not in table.c:
                continue
            chosen = sa.select(table).where(table.c.trial_id.in_(ids)).order_by(*table.primary_key)
            rows = connection.execute(chosen).mappings()
            keys = {column.name for column in table.primary_key} | {"study_id"}
            found[name] = [
                {key: value for key, value in row.items() if key not in keys} | {"trial_id": ids.index(row["trial_id"])}
                for row in rows
            ]
    assert len(found["trial_params"]) > 20
    return found


@pytest.mark.slow
def test_what_is_interrupted_leaves_nothing(storage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optuna_copies, "_AT_ONCE", 2)

    def interrupted() -> Iterator[FrozenTrial]:
        yield from list(_trials(1))[:5]
        raise KeyboardInterrupt

    for copy in (copy_to_database, copy_one_by_one):
        with pytest.raises(KeyboardInterrupt):
            copy(storage, "mine", ONE, interrupted())
        assert optuna.get_all_study_names(storage) == []
    copy_to_database(storage, "mine", ONE, _trials(1))
    for copy in (copy_to_database, copy_one_by_one):
        with pytest.raises(optuna.exceptions.DuplicatedStudyError):
            copy(storage, "mine", ONE, _trials(1))
    assert len(optuna.load_study(study_name="mine", storage=storage).trials) == 11


_KILLED = """
import os, sys
sys.path.insert(0, sys.argv[4])
from tests.engine.records.test_optuna_copies import ONE, _trials
from tradewind.engine.records import optuna_copies
from tradewind.engine.records.optuna_storages import StorageName, opened_database

def killed():
    for number, trial in enumerate(_trials(1)):
        if number == 5:
            os._exit(9)
        yield trial

optuna_copies._AT_ONCE = 2
with opened_database(StorageName(sys.argv[1])) as storage:
    getattr(optuna_copies, sys.argv[2])(storage, sys.argv[3], ONE, killed())
"""


@pytest.mark.slow
def test_who_is_killed_in_the_middle_leaves_nothing_that_looks_whole(storage: Any) -> None:
    """The process ends between two trials: of the quick way nothing is there, of the slow one a study that says so."""

    def killed(how: str, name: str) -> None:
        address = storage.engine.url.render_as_string(hide_password=False)
        words = [sys.executable, "-c", _KILLED, address, how, name, str(Path(__file__).parents[3])]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 9, done.stderr

    killed("copy_to_database", "quick")
    assert optuna.get_all_study_names(storage) == []
    copy_to_database(storage, "quick", ONE, _trials(1))
    assert len(optuna.load_study(study_name="quick", storage=storage).trials) == 11
    killed("copy_slowly", "mine")
    half = unfinished_name("mine")
    assert sorted(optuna.get_all_study_names(storage)) == [half, "quick"]
    assert "not whole" in half
    with pytest.raises(RecordError, match=r"an export to 'mine' goes on or was cut off: its study 'mine \(not whole"):
        copy_slowly(storage, "mine", ONE, _trials(1))
    optuna.delete_study(study_name=half, storage=storage)
    copy_slowly(storage, "mine", ONE, _trials(1))
    assert sorted(optuna.get_all_study_names(storage)) == ["mine", "quick"]
    assert len(optuna.load_study(study_name="mine", storage=storage).trials) == 11


def test_the_slow_way_ends_with_one_study_or_none(tmp_path: Path) -> None:
    storage = optuna.storages.RDBStorage(f"sqlite:///{tmp_path}/o.db")
    longest = "n" * 512
    copy_slowly(storage, longest, ONE, itertools.islice(_trials(1), 2))
    assert optuna.get_all_study_names(storage) == [longest]

    def taken() -> Iterator[FrozenTrial]:
        yield from itertools.islice(_trials(1), 2)
        optuna.create_study(storage=storage, study_name="mine")  # by somebody else meanwhile

    for _ in range(2):
        with pytest.raises(optuna.exceptions.DuplicatedStudyError):
            copy_slowly(storage, "mine", ONE, taken())
    assert sorted(optuna.get_all_study_names(storage)) == ["mine", longest]
    storage.remove_session()
    storage.engine.dispose()


def test_a_journal_has_what_optuna_would_have_written(tmp_path: Path) -> None:
    def journal(name: str) -> Any:
        return optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(tmp_path / name)))

    copy_one_by_one(journal("theirs.log"), "mine", TWO, _trials(2))
    copy_to_journal(tmp_path / "ours.log", "mine", TWO, _trials(2))
    theirs, ours = (optuna.load_study(study_name="mine", storage=journal(name)) for name in ("theirs.log", "ours.log"))
    assert ours.directions == theirs.directions == TWO
    assert [_all_of(one) for one in ours.trials] == [_all_of(other) for other in theirs.trials]
    assert len(ours.trials) == 11


def test_a_schema_of_another_version_is_not_written_by_us(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = optuna.storages.RDBStorage("sqlite://")
    assert optuna_copies.knows_schema(storage)
    monkeypatch.setattr(storage, "get_head_version", lambda: "v9.0.0.a")
    assert not optuna_copies.knows_schema(storage)
