"""Processes that are killed while they write, and processes that write at once."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.effort import share
from tests.store.conftest import run_python

from tradewind.store.base import Store
from tradewind.testing.stores import run, trial

# Children are forked from a process that has imported everything: a kill then costs milliseconds, not a second.
KILL = """
import os, random, select, signal, struct, sys, time
import alembic.command, alembic.config
from tradewind import plugins
from tradewind.store.base import Change, this_process
from tradewind.testing.stores import run, study_row, trial

folder, kills, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
plugins.load("store", "sql")
random.seed(20)


def child(url, place, pipe):
    store = plugins.create("store", "sql", {}, url=url)
    studies = store.find_studies() or [store.create_study(study_row())]
    number = len(store.trials(studies[0].id))
    # Steps of who holds a study are written another way.
    token = store.hold(studies[0].id, this_process(), 60) if place % 2 else None
    while True:
        asked = Change([trial(number)], [run(number, cost=0.0)], {"elapsed": number - 0.5}, lasting=False)
        store.write(studies[0].id, asked, token)
        store.write(studies[0].id, Change([trial(number, 0.5)], [run(number)], {"elapsed": float(number)}), token)
        os.write(pipe, struct.pack("<II", place, number))
        number += 1


began = time.monotonic()
for kill in range(kills):
    if time.monotonic() - began > seconds:
        break
    place = kill % 4  # a few stores, each of them killed again and again
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        child(f"sqlite:///{folder}/{place}.db", place, writer)
        os._exit(1)
    os.close(writer)
    if kill // 4 % 2:  # every other time it comes to write, however busy the machine is
        select.select([reader], [], [], 30)
    time.sleep(random.choice([random.uniform(0, 0.03), random.uniform(0.02, 0.25)]))
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), f"the child ended by itself: {status}"
    while piece := os.read(reader, 8):
        print(kill, *struct.unpack("<II", piece))
    os.close(reader)
print("kills", kill + 1, 0)
"""


@pytest.mark.slow
def test_what_was_written_before_a_kill_is_there_afterwards(tmp_path: Path, open_store: Callable[..., Store]) -> None:
    result = run_python(KILL, tmp_path, share(200, 24), 60, timeout=100)
    assert result.returncode == 0, result.stderr
    *acknowledged, (_, kills, _) = [line.split() for line in result.stdout.splitlines()]
    assert int(kills) >= 20
    assert len(acknowledged) > 20
    for path in sorted(tmp_path.glob("*.db")):
        with sqlite3.connect(path) as plain:
            assert plain.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        plain.close()
        store = open_store(f"sqlite:///{path}")
        written = {int(number) for _, place, number in acknowledged if place == path.stem}
        for study in store.find_studies():
            trials, runs = store.trials(study.id), store.runs(study.id)
            assert [t.number for t in trials] == [r.trial for r in runs] == list(range(len(trials)))
            assert written <= {t.number for t in trials}
            for number, pair in enumerate(zip(trials, runs, strict=True)):
                whole = (trial(number, 0.5), run(number))
                # A kill between two writes leaves the first one, whole.
                assert pair == whole or (number not in written and pair == (trial(number), run(number, cost=0.0)))
        assert len(store.find_studies()) == 1 or not written


BOTH = """
import os, sys
import alembic.command, alembic.config
from tradewind import plugins
from tradewind.store.base import Change
from tradewind.testing.stores import run, study_row, trial

url, count = sys.argv[1], int(sys.argv[2])
plugins.load("store", "sql")
children = []
for child in range(3):
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            store = plugins.create("store", "sql", {}, url=url)
            study = store.create_study(study_row(f"job-{child}"))
            token = store.hold(study.id, f"host-{child}:1:1.00", 60)
            for number in range(count):
                store.write(study.id, Change([trial(number, 0.5)], [run(number)]), token)
                store.summaries()
            status = 0
        finally:
            os._exit(status)
    children.append(pid)
sys.exit(any(os.waitpid(pid, 0)[1] for pid in children))
"""


@pytest.mark.slow
@pytest.mark.parametrize("database", ["sqlite_url", pytest.param("postgresql_url", marks=pytest.mark.thorough)])
def test_processes_that_write_at_once(
    database: str, request: pytest.FixtureRequest, open_store: Callable[..., Store]
) -> None:
    url = request.getfixturevalue(database)
    result = run_python(BOTH, url, 60)
    assert result.returncode == 0, result.stderr
    store = open_store(url)
    assert sorted(study.name for study in store.find_studies()) == ["job-0", "job-1", "job-2"]
    for study in store.find_studies():
        assert store.trials(study.id) == [trial(number, 0.5) for number in range(60)]
        assert store.runs(study.id) == [run(number) for number in range(60)]
