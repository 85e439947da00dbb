"""What ends a `select.select` of another thread."""

from __future__ import annotations

import os
import select

import pytest

from tradewind.deployer.runner.process import WakeupPipe


def _rings(pipe: WakeupPipe) -> bool:
    return bool(select.select([pipe], [], [], 0)[0])


def test_it_can_be_read_from_until_it_is_cleared() -> None:
    pipe = WakeupPipe()
    assert not _rings(pipe)
    for _ in range(70_000):  # more than a pipe holds
        pipe.ring()
    assert _rings(pipe)
    while _rings(pipe):
        pipe.clear()
    pipe.clear()
    pipe.ring()
    assert _rings(pipe)


def test_it_leaves_no_files_open() -> None:
    pipe = WakeupPipe()
    number = pipe.fileno()
    os.fstat(number)
    del pipe
    with pytest.raises(OSError, match="file descriptor"):
        os.fstat(number)
