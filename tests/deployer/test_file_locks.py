from __future__ import annotations

import os
from pathlib import Path

from tradewind.deployer.file_locks import wait_for_lock


def test_a_lock_is_waited_for_and_held_as_long_as_its_descriptor_is_open(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with path.open("w") as first, path.open("w") as second:
        assert wait_for_lock(first, 0.0)
        assert not wait_for_lock(second.fileno(), 0.01)
        heir = os.dup(first.fileno())  # as a program that was started has it
        first.close()
        assert not wait_for_lock(second, 0.0)
        os.close(heir)
        assert wait_for_lock(second, 0.0)
