"""kill -9 of a search that learns from an earlier job: it goes on to the very trials of a search left alone."""

from __future__ import annotations

import math
import os
import random
import signal
import subprocess
from pathlib import Path

import pytest
from tests.effort import share
from tests.engine.test_crash_recovery import start

from tradewind import plugins
from tradewind.problem import Trial
from tradewind.store.base import Store

KILLS = share(8, 3)

JOB = """
name: NAME
job: {command: [job, --input, '{{ size }}'], parameters: {size: SIZE}}
space:
  instance: {provider: local, vcpu: 1..2}
  workers: 1..6
  level: 1..4
constraints: {deadline: 400s}
budget: {trials: 14}
deploy: {runner: {use: replay, file: SIZE.csv, time: seconds, ignore: [instance]}}
"""


def _job(folder: Path, name: str, size: int) -> None:
    rows = [
        f"{workers},{level},{size * 100 / workers**0.7 * math.exp(0.3 * abs(level - 2)):.3f}"
        for workers in range(1, 7)
        for level in range(1, 5)
    ]
    (folder / f"{size}.csv").write_text("\n".join(["workers,level,seconds", *rows]) + "\n")
    (folder / "job.yaml").write_text(JOB.replace("NAME", name).replace("SIZE", str(size)))


def _trials(home: Path, name: str) -> list[Trial]:
    store: Store = plugins.create("store", "sql", {}, url=f"sqlite:///{home}/tradewind.db")
    [study] = store.find_studies(name)
    found = store.trials(study.id)
    store.close()
    return list(found)


def _run(program: Path, folder: Path, kills: int) -> int:
    rng, done = random.Random(3), 0
    while done < kills:
        process = start([program], folder, 14)
        try:
            process.communicate(timeout=rng.uniform(0.02, 1.5))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        process.communicate()
        done += 1
    last = start([program], folder, 14)
    _, err = last.communicate(timeout=90)
    assert last.returncode == 0, err.decode()
    return done


@pytest.mark.thorough
@pytest.mark.slow
def test_killed_searches_go_on_to_the_same_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: Path) -> None:
    found = {}
    for kills in (0, KILLS):
        home = tmp_path / f"home-{kills}"
        folder = tmp_path / f"work-{kills}"
        folder.mkdir()
        monkeypatch.setenv("TRADEWIND_HOME", str(home))
        _job(folder, "earlier", 2)
        _run(quick, folder, 0)
        _job(folder, "later", 3)
        _run(quick, folder, kills)
        found[kills] = [(t.number, t.key, t.state, t.spent, t.proposal.abort_time) for t in _trials(home, "later")]
        assert os.environ["TRADEWIND_HOME"] == str(home)
    assert len(found[0]) > 3
    assert found[KILLS] == found[0]
