"""Who is dead and who is not."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

import pytest

from tradewind.store import holders
from tradewind.store.base import process_of_this_host, this_process
from tradewind.utils.processes import process_namespace, process_start_time

HOST = socket.gethostname()


holder = process_of_this_host


def started(pid: int) -> float:
    start = process_start_time(pid)
    assert start is not None
    return start


def test_this_process_lives() -> None:
    assert not holders.is_dead(holder(os.getpid(), started(os.getpid())))


def test_a_process_that_ended_is_dead_even_before_it_is_reaped() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    name = holder(child.pid, started(child.pid))
    assert not holders.is_dead(name)
    assert child.stdin is not None
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert holders.is_dead(name)
    child.wait()
    assert holders.is_dead(name)


def test_another_process_with_the_same_number_is_not_the_holder() -> None:
    assert holders.is_dead(holder(os.getpid(), started(os.getpid()) - 60))


@pytest.mark.parametrize("name", ["elsewhere:1:1.0", "no parts", "", f"{HOST}:x:1.0", f"{HOST}:-5:1.0"])
def test_what_cannot_be_known_is_not_dead(name: str) -> None:
    assert not holders.is_dead(name)


def test_a_holder_without_a_start_time_is_dead_when_its_process_is_gone() -> None:
    assert holders.is_dead(f"{HOST}:{2**22 + 1}:unknown@{process_namespace()}")
    assert not holders.is_dead(f"{HOST}:{os.getpid()}:unknown@{process_namespace()}")


def test_a_process_that_may_not_be_seen_is_not_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holders, "process_start_time", lambda pid: None)
    assert not holders.is_dead(holder(1, 1.0))


def test_setting_the_clock_kills_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    name = this_process()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert not holders.is_dead(name)


def test_another_machine_or_container_with_our_name_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = holder(2**22 + 1, 99999.0)
    assert holders.is_dead(gone)
    boot, _, space = process_namespace().partition(".")
    for there in (f"{boot}.0", f"00000000-0000-0000-0000-000000000000.{space}", "", "x"):
        assert not holders.is_dead(f"{gone.partition('@')[0]}@{there}")
        assert holders.display_name(f"my-host:12:99.50@{there}") == "my-host:12"
    monkeypatch.setattr(os, "stat", _refused)
    assert process_namespace() == ""


def _refused(path: str) -> None:
    raise PermissionError(path)


def test_people_see_host_and_process() -> None:
    assert holders.display_name("my-host:12:99.50") == "my-host:12"
    assert holders.display_name("service worker") == "service worker"


def test_a_lease_has_a_live_holder_until_it_runs_out() -> None:
    here, soon = this_process(), time.time() + 60.0
    for holder in (here, "elsewhere:17:1.00"):
        assert holders.live_holder(holder, soon) == holder
        assert holders.live_holder(holder, time.time() - 1.0) is None
        assert holders.live_holder(holder, None) is None
    assert holders.live_holder(process_of_this_host(2**22 + 1, 1.0), soon) is None, "its process is dead"
    assert holders.live_holder(None, soon) is None
    assert holders.live_holder_name("elsewhere:17:1.00", soon) == "elsewhere:17"
    assert holders.live_holder_name(None, soon) == ""
