"""The files of SSH keys, which several threads of a server write."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

from tradewind.service.context import Context
from tradewind.service.results.ssh_keys import UserSshKeys

THREADS, ROUNDS = 4, 60


def test_threads_write_the_same_file_at_the_same_moment(context: Context, tmp_path: Path) -> None:
    keys = UserSshKeys(context.database, context.settings, context.sealer, tmp_path / "keys")
    together = Barrier(THREADS)

    def write(thread: int) -> Path:
        for turn in range(ROUNDS):
            together.wait(10)
            path = keys.known_hosts(1, "example.org", None, f"ssh-ed25519 {turn}-{thread}")
            assert path.read_text().startswith(f"example.org ssh-ed25519 {turn}-"), path.read_text()
        return path

    with ThreadPoolExecutor(THREADS) as pool:
        path = next(iter(pool.map(write, range(THREADS))))

    assert [each.name for each in path.parent.iterdir()] == [path.name]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
