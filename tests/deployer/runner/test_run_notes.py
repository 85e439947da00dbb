"""Notes of runs are found again by another process, whatever owners and runs are called."""

from __future__ import annotations

from pathlib import Path

import pytest

from tradewind.deployer.runner.run_files import RunNotes, file_name_of
from tradewind.errors import DeployError

AWKWARD = ("tw-1", "..", ".hidden", "a/b", "*", "[ab]", "two words", "héé")


@pytest.mark.parametrize("name", AWKWARD)
def test_what_is_noted_is_found_by_its_owner(tmp_path: Path, name: str) -> None:
    notes = RunNotes(tmp_path / "notes")
    notes.write(name, name, {"x": 1})
    notes.write("another", "run", {"x": 2})
    again = RunNotes(tmp_path / "notes")
    assert [tuple(note) for note in again.all(name)] == [(name, name, {"x": 1})]
    assert {(note.owner, note.run_id) for note in again.all(None)} == {(name, name), ("another", "run")}
    assert again.read(name, name) == {"x": 1}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes"], "no name leads out of the folder"


def test_what_is_forgotten_is_gone(tmp_path: Path) -> None:
    notes = RunNotes(tmp_path)
    notes.write("owner", "run", {})
    for _ in range(2):
        notes.remove("owner", "run")
    assert (notes.read("owner", "run"), list(notes.all(None))) == (None, [])


def test_half_a_note_is_none(tmp_path: Path) -> None:
    notes = RunNotes(tmp_path, ".run")
    notes.write("owner", "whole", {"x": 1})
    notes.path("owner", "half").write_text('{"x"')
    (tmp_path / "owner" / "other.json").write_text("{}")
    assert [note.run_id for note in notes.all("owner")] == ["whole"]
    assert [run_id for _, run_id, _ in notes.paths("owner")] == ["half", "whole"]


def test_a_note_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DeployError, match="cannot be written"):
        RunNotes(tmp_path / "file").write("owner", "run", {})


def test_a_word_is_never_empty() -> None:
    assert [file_name_of(text) for text in ("", ".", "a.b", "a b")] == ["%", "%2E", "a.b", "a%20b"]
