"""The folder that controllers and Slurm's jobs share, used by several threads."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from tradewind.deployer.runner.slurm.commands import script_source
from tradewind.deployer.runner.slurm.spool import Spool
from tradewind.errors import DeployError

THREADS, ROUNDS = 6, 60


@pytest.fixture(autouse=True)
def _hasty() -> Iterator[None]:
    """Threads change places as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_threads_ask_for_the_script_at_the_same_moment(tmp_path: Path) -> None:
    spools = [Spool(tmp_path / str(turn)) for turn in range(ROUNDS)]
    together = Barrier(THREADS)

    def ask(_: int) -> list[Path]:
        found = []
        for spool in spools:
            together.wait(10)
            found.append(spool.script())
        return found

    with ThreadPoolExecutor(THREADS) as pool:
        answers = list(pool.map(ask, range(THREADS)))

    assert all(answer == answers[0] for answer in answers)
    for spool, path in zip(spools, answers[0], strict=True):
        assert path.read_bytes() == script_source()
        assert list(spool.root.iterdir()) == [path]


def test_a_script_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "slurm").write_text("in the way")
    with pytest.raises(DeployError, match=re.escape(str(tmp_path / "slurm"))):
        Spool(tmp_path / "slurm").script()


def test_threads_note_the_job_at_the_same_moment(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.batch("b").mkdir(parents=True)
    together = Barrier(THREADS)

    def note(thread: int) -> list[str]:
        found = []
        for turn in range(ROUNDS):
            together.wait(10)
            spool.keep_job("b", f"{turn}-{thread}")
            found.append(spool.job("b"))
        return found

    with ThreadPoolExecutor(THREADS) as pool:
        for answer in pool.map(note, range(THREADS)):
            assert [text.partition("-")[0] for text in answer] == [str(turn) for turn in range(ROUNDS)]
    assert [each.name for each in spool.batch("b").iterdir()] == ["job"]
