"""Names of Optuna's storages, and what is said of those that cannot be opened."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tradewind.engine.records.optuna_storages import (
    StorageName,
    is_optuna_storage,
    opened_database,
    opened_storage,
)
from tradewind.errors import InputError, RecordError

optuna = pytest.importorskip("optuna", reason="OPTUNA IS NOT INSTALLED: pip install 'tradewind[optuna]'")


def test_a_password_is_not_shown() -> None:
    def shown(source: str) -> str:
        return StorageName(source).shown

    assert shown("postgresql://u:secret@h:5/d#mine") == "postgresql://u:***@h:5/d#mine"
    assert shown("postgresql://u:s/e@c:ret@h:5/d#mine") == "postgresql://u:***@h:5/d#mine"
    for plain in ("sqlite:///a.db#x", "postgresql://u@h:5/d", "runs.csv", "C:/x.db"):
        assert shown(plain) == plain


def test_names_of_storages() -> None:
    yes = ("a.db", "sqlite:///x.db", "postgresql://u@h/d#name", "journal.log", "x.sqlite3#study")
    assert all(map(is_optuna_storage, yes))
    assert not any(map(is_optuna_storage, ("a.csv", "records.jsonl", "folder", "records.jsonl.gz")))


@pytest.mark.parametrize(
    ("source", "address", "study"),
    [
        ("a.db#mine", "a.db", "mine"),
        ("runs#1/a.db#b.db", "runs#1/a.db", "b.db"),
        ("a#b.log", "a#b.log", ""),
        ("postgresql://u@h/d#two words", "postgresql://u@h/d", "two words"),
        ("sqlite:////tmp/a.db", "sqlite:////tmp/a.db", ""),
    ],
)
def test_a_study_in_a_name(source: str, address: str, study: str) -> None:
    assert StorageName.of(source) == StorageName(address, study)


def test_a_file_that_is_there_is_called_as_it_is(tmp_path: Path) -> None:
    odd = tmp_path / "a.db#b"
    assert StorageName.of(str(odd)) == StorageName(str(tmp_path / "a.db"), "b")
    odd.write_bytes(b"")
    assert StorageName.of(str(odd)) == StorageName(str(odd))


@pytest.mark.parametrize("name", ["what? 100 %.db", "with{braces}.db", "ünï#.db"])
def test_a_database_in_a_file_of_any_name(name: str, tmp_path: Path) -> None:
    with opened_database(StorageName(str(tmp_path / name))) as storage:
        optuna.create_study(storage=storage, study_name="mine")
    assert [path.name for path in tmp_path.iterdir()] == [name]
    with opened_storage(StorageName(str(tmp_path / name))) as read:
        assert optuna.get_all_study_names(read) == ["mine"]


def test_what_cannot_be_opened_is_said_in_a_line(tmp_path: Path) -> None:
    def said(source: str) -> str:
        with pytest.raises(RecordError) as error, opened_storage(StorageName.of(source)):
            pass
        assert "\n" not in str(error.value)
        return str(error.value)

    assert "there is no such file" in said(str(tmp_path / "none.db"))
    assert "it is a folder" in said(f"sqlite:///{tmp_path}")
    (tmp_path / "text.db").write_text("no database, in more than a hundred characters\n" * 5)
    assert "the database cannot be read: file is not a database" in said(str(tmp_path / "text.db"))
    (tmp_path / "text.log").write_text("no journal\nat all\n")
    assert "Optuna cannot read it: JSONDecodeError" in said(str(tmp_path / "text.log"))
    for number, line in enumerate(("[]", '{"op_code": 0}', '{"op_code": 4711, "worker_id": "x"}', "7", '"x"')):
        (tmp_path / f"odd{number}.log").write_text(f"{line}\n")
        assert "Optuna cannot read it: " in said(str(tmp_path / f"odd{number}.log"))
    assert "it is no address of a database" in said("://x")
    assert "no driver for this database" in said("oracle://u:p@h/d")


def test_tables_of_another_version_are_said_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.db"
    with opened_database(StorageName(str(path))) as storage:
        optuna.create_study(storage=storage, study_name="mine")
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE version_info SET schema_version = 4711")
        connection.execute("UPDATE alembic_version SET version_num = 'v99'")
    connection.close()
    for opened in (opened_storage, opened_database):
        with (
            pytest.raises(
                RecordError, match=r"^Optuna cannot (read|write) it: RuntimeError: The runtime optuna version"
            ),
            opened(StorageName(str(path))),
        ):
            pass


def test_a_fault_of_this_program_stays_one(tmp_path: Path) -> None:
    """Nobody who looks for an error of ours is sent to Optuna's data."""
    name = StorageName(str(tmp_path / "mine.db"))
    with opened_database(name) as storage:
        optuna.create_study(storage=storage, study_name="mine")
    for kind in (KeyError, TypeError, ValueError, AssertionError, RuntimeError, AttributeError):
        for opened in (opened_database, opened_storage):
            with pytest.raises(kind, match="ours"), opened(name):
                raise kind("ours")
    with pytest.raises(InputError), opened_storage(name):
        raise InputError("said already")
    with pytest.raises(TypeError), opened_database(name) as storage:
        storage.create_new_study(7)  # type: ignore[arg-type]
    with pytest.raises(AttributeError), opened_database(name) as storage:
        storage.create_new_trial(1, template_trial=object())  # type: ignore[arg-type]


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    """Optuna would make its tables beside those of the others, and take a table `studies` for its own."""
    path = tmp_path / "others.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE studies (id INTEGER)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(RecordError, match="it is no database of Optuna"), opened_storage(StorageName(str(path))):
        pass
    with (
        pytest.raises(RecordError, match="with tables that Optuna would take for its own: studies"),
        opened_database(StorageName(str(path))),
    ):
        pass
    assert path.read_bytes() == before


def test_a_file_that_may_only_be_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.db"
    with opened_database(StorageName(str(path))) as storage:
        optuna.create_study(storage=storage, study_name="mine")
    before = path.read_bytes()
    with opened_storage(StorageName(str(path))) as read:
        names = optuna.get_all_study_names(read)
        with pytest.raises(optuna.exceptions.StorageInternalError):
            optuna.create_study(storage=read, study_name="other")
    assert names == ["mine"]
    assert path.read_bytes() == before
