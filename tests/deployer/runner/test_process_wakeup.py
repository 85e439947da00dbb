"""What ends a `select.select` of another thread."""

from __future__ import annotations

import os
import select

import pytest

from tradewind.deployer.runner.process import WakeupPipe


def _rings(alarm: WakeupPipe) -> bool:
    return bool(select.select([alarm], [], [], 0)[0])


def test_it_can_be_read_from_until_it_is_cleared() -> None:
    alarm = WakeupPipe()
    assert not _rings(alarm)
    for _ in range(70_000):  # more than a pipe holds
        alarm.ring()
    assert _rings(alarm)
    while _rings(alarm):
        alarm.clear()
    alarm.clear()
    alarm.ring()
    assert _rings(alarm)


def test_it_leaves_no_files_open() -> None:
    alarm = WakeupPipe()
    number = alarm.fileno()
    os.fstat(number)
    del alarm
    with pytest.raises(OSError, match="file descriptor"):
        os.fstat(number)
