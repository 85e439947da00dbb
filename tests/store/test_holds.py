"""Who is dead and who is not."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

import pytest

from tradewind.processes import start_of, where
from tradewind.store import holds
from tradewind.store.base import process_of_this_host, this_process

HOST = socket.gethostname()


holder = process_of_this_host


def started(pid: int) -> float:
    start = start_of(pid)
    assert start is not None
    return start


def test_this_process_lives() -> None:
    assert not holds.is_dead(holder(os.getpid(), started(os.getpid())))


def test_a_process_that_ended_is_dead_even_before_it_is_reaped() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    name = holder(child.pid, started(child.pid))
    assert not holds.is_dead(name)
    assert child.stdin is not None
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert holds.is_dead(name)
    child.wait()
    assert holds.is_dead(name)


def test_another_process_with_the_same_number_is_not_the_holder() -> None:
    assert holds.is_dead(holder(os.getpid(), started(os.getpid()) - 60))


@pytest.mark.parametrize("name", ["elsewhere:1:1.0", "no parts", "", f"{HOST}:x:1.0", f"{HOST}:-5:1.0"])
def test_what_cannot_be_known_is_not_dead(name: str) -> None:
    assert not holds.is_dead(name)


def test_a_holder_without_a_start_time_is_dead_when_its_process_is_gone() -> None:
    assert holds.is_dead(f"{HOST}:{2**22 + 1}:unknown@{where()}")
    assert not holds.is_dead(f"{HOST}:{os.getpid()}:unknown@{where()}")


def test_a_process_that_may_not_be_seen_is_not_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holds, "start_of", lambda pid: None)
    assert not holds.is_dead(holder(1, 1.0))


def test_setting_the_clock_kills_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    name = this_process()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert not holds.is_dead(name)


def test_another_machine_or_container_with_our_name_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = holder(2**22 + 1, 99999.0)
    assert holds.is_dead(gone)
    boot, _, space = where().partition(".")
    for there in (f"{boot}.0", f"00000000-0000-0000-0000-000000000000.{space}", "", "x"):
        assert not holds.is_dead(f"{gone.partition('@')[0]}@{there}")
        assert holds.shown(f"my-host:12:99.50@{there}") == "my-host:12"
    monkeypatch.setattr(os, "stat", _refused)
    assert where() == ""


def _refused(path: str) -> None:
    raise PermissionError(path)


def test_people_see_host_and_process() -> None:
    assert holds.shown("my-host:12:99.50") == "my-host:12"
    assert holds.shown("service worker") == "service worker"
