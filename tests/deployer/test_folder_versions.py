"""Versions of a program's folder: what counts, what is read, and what is said."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from tradewind.deployer import folder_versions
from tradewind.deployer.folder_versions import FolderVersions


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "program"
    place.mkdir()
    for name in ("run.py", "lib.py", "data.csv", "out.txt"):
        write(place / name, f"the {name}")
    (place / "link.py").symlink_to("run.py")
    (place / ".tradewindignore").write_text("*.csv\n")
    os.utime(place / ".tradewindignore", (1e9, 1e9))
    return place


def write(path: Path, text: str, when: float = 1e9) -> None:
    path.write_text(text)
    os.utime(path, (when, when))


def made(folder: Path, monkeypatch: pytest.MonkeyPatch) -> FolderVersions:
    # Files are as old as they say: what was just written need not be read again to be sure.
    monkeypatch.setattr(folder_versions, "_SETTLED_SECONDS", -60.0)
    monkeypatch.setattr(folder_versions, "_SHARE", 0.0)
    return FolderVersions(folder, folder.parent / "record.json", skip=folder / "home", outputs=["out*"])


def test_a_change_is_another_version_and_is_said_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    versions = made(folder, monkeypatch)
    first = versions(0)
    assert versions(1) == first
    write(folder / "run.py", "edited", 2e9)
    with caplog.at_level(logging.WARNING):
        second = versions(2)
        write(folder / "lib.py", "edited", 2e9)
        third = versions(3)
    assert len({first, second, third}) == 3
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith(f"in {folder} run.py changed since the trial before: trial 2 and later ones run other code")
    write(folder / "run.py", "the run.py", 3e9)
    write(folder / "lib.py", "the lib.py", 3e9)
    assert versions(4) == first


def test_what_programs_write_is_ignored_or_lies_in_the_data_does_not_count(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "home").mkdir()
    write(folder / "home" / "x", "1")
    (folder / "store.bin").write_bytes(b"SQLite format 3\0 of one kind")
    versions = made(folder, monkeypatch)
    first = versions(0)
    for name in ("data.csv", "out.txt", "new.txt", "home/x"):
        write(folder / name, "changed", 2e9)
    (folder / "store.bin").write_bytes(b"SQLite format 3\0 of another")
    assert versions(1) == first
    (folder / "lib.py").unlink()
    assert versions(2) != first


def test_only_what_changed_is_read_again_also_by_the_next_process(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = made(folder, monkeypatch)
    first = versions(0)
    assert versions.read_files == 3
    versions(1)
    assert versions.read_files == 3
    following = made(folder, monkeypatch)
    assert following(2) == first
    assert following.read_files == 0
    write(folder / "lib.py", "edited", 2e9)
    changed = made(folder, monkeypatch)
    assert changed(3) != first
    assert changed.read_files == 1


def test_a_file_so_young_that_its_time_may_stay_is_read_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = made(folder, monkeypatch)
    monkeypatch.setattr(folder_versions, "_SETTLED_SECONDS", 1e9)
    first = versions(0)
    write(folder / "lib.py", "the lip.py")  # of the same length, at the same time
    assert versions(1) != first


def test_links_and_files_that_cannot_be_read_are_versions_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = made(folder, monkeypatch)
    first = versions(0)
    (folder / "link.py").unlink()
    (folder / "link.py").symlink_to("lib.py")
    second = versions(1)
    assert second != first
    (folder / "lib.py").unlink()
    (folder / "lib.py").mkdir()
    assert versions(2) not in (first, second)


def test_a_folder_that_is_no_programs_is_not_watched_and_that_is_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    versions = made(folder, monkeypatch)
    monkeypatch.setattr(folder_versions, "MEMBER_LIMIT", 2)
    assert versions(0) == versions(1) == ""
    (said,) = [record.getMessage() for record in caplog.records]
    assert "has more than 2 files and folders (name in .tradewindignore what the job does not need)" in said
