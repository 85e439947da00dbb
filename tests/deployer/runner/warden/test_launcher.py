"""How the first process of a job is started: without a copy of who starts it, and by one that stands by."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tradewind.deployer.runner.warden.files import StartRefused
from tradewind.deployer.runner.warden.launcher import Launcher


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> Iterator[Launcher]:
    monkeypatch.chdir("/")
    made = Launcher(ctypes.CDLL(None), f"{os.getpid()}-test")
    yield made
    made.dismiss()


def plain(folder: Path, *argv: str, cwd: str = "") -> dict[str, Any]:
    return {"argv": list(argv), "cwd": cwd or str(folder), "folder": str(folder), "env": {"WORD": "a b"}, "plain": True}


def test_a_plain_program_is_started_where_it_works(launcher: Launcher, tmp_path: Path) -> None:
    started = launcher.start(
        plain(tmp_path, "sh", "-c", 'pwd; echo "$WORD" >&2; ps=$(ps -o sid= -p $$); exit 4'), set()
    )
    assert os.waitstatus_to_exitcode(os.waitpid(started.pid, 0)[1]) == 4
    assert (tmp_path / "stdout").read_text() == f"{tmp_path}\n"
    assert (tmp_path / "stderr").read_text() == "a b\n"
    assert Path.cwd() == Path("/")


@pytest.mark.parametrize(
    ("word", "cwd", "kind", "number"),
    [
        ("no-such-program", "", "missing", errno.ENOENT),
        ("./data", "", "missing", errno.EACCES),
        ("true", "/no/such/folder", "workdir", errno.ENOENT),
    ],
)
def test_why_a_plain_program_is_not_started(
    launcher: Launcher, tmp_path: Path, word: str, cwd: str, kind: str, number: int
) -> None:
    (tmp_path / "data").write_text("no program")
    with pytest.raises(StartRefused) as refused:
        launcher.start(plain(tmp_path, word, cwd=cwd), set())
    assert (refused.value.kind, refused.value.number) == (kind, number)
    assert Path.cwd() == Path("/")


def test_what_only_sleeps_is_one_that_stood_by(launcher: Launcher, tmp_path: Path) -> None:
    launcher.stand_by(3)
    ready = launcher.ready_pids
    launcher.stand_by(2)
    assert launcher.ready_pids == ready[:2]
    with pytest.raises(ProcessLookupError):
        os.kill(ready[2], 0)
    order: dict[str, Any] = {"argv": None, "folder": str(tmp_path), "until": time.monotonic() + 0.05}
    started = launcher.start(order, set())
    assert started.pid == ready[1]
    assert os.waitpid(started.pid, 0)[1] == 0
    assert time.monotonic() >= order["until"]


def test_one_that_stood_by_and_was_killed_is_replaced(launcher: Launcher, tmp_path: Path) -> None:
    launcher.stand_by(1)
    [ready] = launcher.ready_pids
    os.kill(ready, signal.SIGKILL)
    os.waitpid(ready, 0)
    started = launcher.start({"argv": None, "folder": str(tmp_path), "until": time.monotonic() + 60}, set())
    assert started.pid != ready
    os.kill(started.pid, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(started.pid, 0)[1]) == -signal.SIGTERM
