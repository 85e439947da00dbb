"""The copies of a trial's checkpoints on this machine: whole or not there, the latest only."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from pathlib import Path

import pytest

from tradewind.deployer import checkpoints
from tradewind.deployer.checkpoints import (
    FOLDER,
    CheckpointLook,
    CheckpointStore,
    copy_files,
    look_at_files,
    put_checkpoint,
)
from tradewind.errors import DeployError, PrerequisiteError
from tradewind.problem import CheckpointPlan


def made(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "state").write_text(text)
    return folder


def keep(store: CheckpointStore, text: str, seconds: float | None) -> None:
    def copy(place: Path) -> float | None:
        made(place, text)
        return seconds

    store.add(copy)


def test_the_latest_whole_copy_stays(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "trial")
    assert store.latest() is None
    keep(store, "one", 10.0)
    keep(store, "two", 20.0)
    keep(store, "of a run that has ended", None)
    found = CheckpointStore(tmp_path / "trial").latest()
    assert found is not None
    assert (found.seconds, (found.files / "state").read_text()) == (20.0, "two")
    assert len(list((tmp_path / "trial").glob("copy-*"))) == 1
    store.remove()
    assert store.latest() is None
    assert not (tmp_path / "trial").exists()


def test_a_copy_that_fails_leaves_the_one_before(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    keep(store, "one", 10.0)

    def breaks(place: Path) -> float:
        made(place, "half")
        raise OSError("the machine is gone")

    with pytest.raises(OSError, match="gone"):
        store.add(breaks)
    found = store.latest()
    assert found is not None
    assert (found.files / "state").read_text() == "one"


@pytest.mark.parametrize(("moment", "text", "left"), [("in the middle", "one", 2), ("at its end", "two", 2)])
def test_a_process_that_is_killed_while_it_copies_leaves_a_whole_one_and_nothing_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, text: str, left: int
) -> None:
    """Its half copy stayed on the disk as long as the trial."""
    store = CheckpointStore(tmp_path)
    keep(store, "one", 10.0)

    def killed(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def copy(place: Path) -> float:
        made(place, "two")
        if moment == "in the middle":
            killed()
        return 20.0

    if (child := os.fork()) == 0:
        monkeypatch.setattr(shutil, "rmtree", killed)  # of the copy before
        store.add(copy)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    found = store.latest()
    assert found is not None and (found.files / "state").read_text() == text
    assert len(list(tmp_path.glob("copy-*"))) == left
    keep(store, "three", 30.0)
    assert len(list(tmp_path.glob("copy-*"))) == 1


@pytest.mark.parametrize("text", ["", "{}", '{"files": "copy-x/checkpoint", "seconds": 3}', '{"files": 3}'])
def test_a_note_that_leads_nowhere_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "latest.json").write_text(text)
    assert CheckpointStore(tmp_path).latest() is None


def test_a_job_finds_the_latest_and_nothing_else(tmp_path: Path) -> None:
    plan, run = CheckpointPlan(tmp_path / "trial", 60.0), tmp_path / "run"
    put_checkpoint(plan, run)
    assert list((run / FOLDER).iterdir()) == []
    keep(CheckpointStore(plan.folder), "one", 10.0)
    made(run / FOLDER, "of a process that was killed before it started the job")
    put_checkpoint(plan, run)
    assert (run / FOLDER / "state").read_text() == "one"


def test_a_look_sees_every_change(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    assert look_at_files(folder).fingerprint == ""
    made(folder / "deep", "one")
    os.utime(folder / "deep" / "state", (1000.0, 1000.0))
    first = look_at_files(folder)
    assert first.written == 1000.0
    assert look_at_files(folder) == first
    made(folder / "deep", "two")
    os.utime(folder / "deep" / "state", (1000.5, 1000.5))
    assert look_at_files(folder).fingerprint != first.fingerprint
    assert copy_files(folder, tmp_path / "copy") == look_at_files(folder)
    assert (tmp_path / "copy" / "deep" / "state").stat().st_mtime == 1000.5


def test_files_that_change_all_the_time_are_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = iter(range(100))
    made(tmp_path / "files", "one")

    def changing(folder: Path) -> CheckpointLook:
        return CheckpointLook(str(next(turns)))

    monkeypatch.setattr(checkpoints, "look_at_files", changing)
    with pytest.raises(DeployError, match="change while they are copied"):
        copy_files(tmp_path / "files", tmp_path / "copy")


def test_pipes_and_sockets_are_no_part_of_a_checkpoint(tmp_path: Path) -> None:
    """They were said to be files that change, and nothing was kept."""
    os.mkfifo(made(tmp_path / "files", "one") / "pipe")
    assert copy_files(tmp_path / "files", tmp_path / "copy") == look_at_files(tmp_path / "files")
    assert [path.name for path in (tmp_path / "copy").iterdir()] == ["state"]
    (tmp_path / "files" / "state").unlink()
    assert look_at_files(tmp_path / "files") == CheckpointLook()


def test_a_full_disk_is_no_change_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    made(tmp_path / "files" / "deep", "one")
    monkeypatch.setattr(shutil, "copy2", full)
    with pytest.raises(OSError, match="No space left"):
        copy_files(tmp_path / "files", tmp_path / "copy")


def test_what_this_user_may_not_read_is_said_and_not_taken_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was silently as if there were none: the trial would have been paid a second time."""

    def refused(path: object, *_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    made(tmp_path / "files", "one")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", refused)
        with pytest.raises(PrerequisiteError, match=f"cannot be read: permission denied: {tmp_path}/latest.json"):
            CheckpointStore(tmp_path).latest()
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", refused)
        with pytest.raises(PermissionError):
            look_at_files(tmp_path / "files")
