"""Locks of journal files."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from tradewind.workflow.execution.journal import open_locked


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    first, alone = open_locked(path, os.O_APPEND)
    try:
        assert alone
        with pytest.raises(BlockingIOError):
            open_locked(path, os.O_APPEND)
    finally:
        os.close(first)
    os.close(open_locked(path, 0)[0])


@pytest.mark.parametrize("remade", [False, True], ids=["removed", "made anew"])
def test_a_file_that_loses_its_name_before_it_is_locked_is_opened_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remade: bool
) -> None:
    path = tmp_path / "journal"
    lock, tries = fcntl.flock, []

    def lock_late(descriptor: int, operation: int) -> None:
        lock(descriptor, operation)
        tries.append(descriptor)
        if len(tries) == 1:
            path.unlink()
            if remade:
                path.write_text("of another process")

    monkeypatch.setattr("tradewind.workflow.execution.journal.fcntl.flock", lock_late)
    descriptor, alone = open_locked(path, 0)
    try:
        assert alone and len(tries) == 2
        assert os.path.samestat(os.fstat(descriptor), path.stat())
        assert path.read_text() == ("of another process" if remade else "")
    finally:
        os.close(descriptor)


def test_a_file_system_without_locks_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("tradewind.workflow.execution.journal.fcntl.flock", refuse)
    descriptor, alone = open_locked(tmp_path / "journal", 0)
    os.close(descriptor)
    assert not alone
