"""Machines that a killed search kept: what goes on, ends or reaps it gives them back, and pays for them once."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import pytest
from tests.effort import share
from tests.waiting import eventually

from tradewind.engine.cleanup.orphan_policy import (
    KnownRecords,
    KnownRun,
    OrphanFate,
    OrphanFinding,
    OrphanKind,
    OwningStudy,
    decide_fate,
)
from tradewind.problem import Run
from tradewind.store.base import Store, store_at

JOB = """
name: kept
job: {command: [sh, -c, 'sleep {{ pause }}']}
space:
  instance: {provider: local, limit: 2}
  pause: [PAUSES]
  level: [LEVELS]
objective: {minimise: cost}
searcher: {use: exhaustive, order: shuffled}
parallel: PARALLEL
abort: false
budget: {trials: TRIALS}
deploy:
  keep: KEEP
  billing: {granularity: 1ms}
  provisioner: {use: simulated, boot: 0.2}
  runner: process
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TRADEWIND_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    yield tmp_path


def write_job(folder: Path, *, pauses: str, levels: str, parallel: int = 2, trials: int = 10_000) -> None:
    text = JOB.replace("PAUSES", pauses).replace("LEVELS", levels).replace("PARALLEL", str(parallel))
    (folder / "job.yaml").write_text(text.replace("TRIALS", str(trials)).replace("KEEP", "10m"))


def tradewind(quick: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([quick, *words], capture_output=True, text=True, timeout=120, check=False)


def opened(folder: Path) -> Store:
    return store_at(f"sqlite:///{folder}/home/tradewind.db")


def rows(folder: Path) -> list[Run]:
    with closing(opened(folder)) as store:
        found = store.find_studies("kept")
        return store.runs(found[0].id) if found else []


def kept(folder: Path) -> list[Run]:
    with suppress(Exception):  # while the store is being made
        return [run for run in rows(folder) if run.lease is not None and run.lease.ended is None]
    return []


def begun(folder: Path) -> int:
    """How many runs have rows."""
    with suppress(Exception):  # while the store is being made
        return len(rows(folder))
    return 0


def has_begun(folder: Path, goal: int) -> bool:
    return begun(folder) >= goal


def fleet(folder: Path) -> dict[str, object]:
    found = [*folder.glob("home/**/simulated-fleet.json")]
    return dict(json.loads(found[0].read_text() or "{}")) if found else {}


def killed_while_keeping(folder: Path, quick: Path) -> Run:
    """Kill a search with -9 while it keeps machines for a next trial: the other trial goes on for long."""
    write_job(folder, pauses="0.05, 60", levels="1")
    text = (folder / "job.yaml").read_text().replace("limit: 2", "limit: 1").replace("shuffled", "declared")
    (folder / "job.yaml").write_text(text)
    process = subprocess.Popen([quick, "tune", "job.yaml", "--quiet"], stdout=subprocess.PIPE)
    try:
        eventually(lambda: bool(kept(folder)), 60)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    return kept(folder)[0]


def assert_settled(folder: Path) -> None:
    """Nothing is left at the provider, no row holds machines, and the trials have cost what the runs have."""
    assert not fleet(folder)
    assert not kept(folder)
    with closing(opened(folder)) as store:
        study = store.find_studies("kept")[0]
        spent = sum(trial.spent for trial in store.trials(study.id))
        runs = store.runs(study.id)
        assert spent == pytest.approx(sum(run.cost for run in runs if run.state.ended), abs=1e-6)
        assert store.summaries([study.id])[0].kept == ()
    for run in runs:
        if run.lease is not None and run.lease.taken_by:
            heir = next(each for each in runs if each.run_id == run.lease.taken_by)
            assert heir.taken is not None
            assert heir.taken.cluster == run.lease.cluster
            assert heir.started == run.lease.ended, "no second is paid twice, and none by nobody"


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["down", "kept", "--yes"],
        pytest.param(["reap", "--yes", "--provisioner", "simulated"], marks=pytest.mark.thorough),
    ],
)
def test_after_a_kill_what_was_kept_is_shown_given_back_and_paid_for(
    folder: Path, words: list[str], quick: Path
) -> None:
    left = killed_while_keeping(folder, quick)
    assert left.lease is not None
    assert left.lease.cluster in fleet(folder)
    shown = json.loads(tradewind(quick, "status", "kept", "--json").stdout)
    [line] = shown["kept"]
    assert (line["machines_of"], line["offer"]) == (left.lease.cluster, left.lease.offer_key)
    ended = tradewind(quick, *words)
    assert ended.returncode == 0, ended.stderr
    [run] = [each for each in rows(folder) if each.run_id == left.run_id]
    assert run.lease is not None and run.lease.ended is not None
    assert run.cost == pytest.approx(run.own_cost + run.lease.cost)
    assert left.lease.cluster not in fleet(folder)
    if words[0] == "reap":
        tradewind(quick, "down", "kept", "--yes")
    assert_settled(folder)


@pytest.mark.slow
def test_kill_nine_at_random_moments_leaks_no_kept_machines_and_pays_nothing_twice(folder: Path, quick: Path) -> None:
    levels = ", ".join(map(str, range(100)))
    write_job(folder, pauses="0.02, 0.3", levels=levels)
    chance = random.Random(7)
    for _ in range(share(20, 3)):
        process = subprocess.Popen([quick, "tune", "job.yaml", "--quiet"], stdout=subprocess.PIPE)
        goal = begun(folder) + chance.randint(1, 8)
        try:
            eventually(partial(has_begun, folder, goal), 60)
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate()
    trials = len({run.trial for run in rows(folder)})
    last = tradewind(quick, "tune", "job.yaml", "--quiet", "--json", "--trials", str(trials + 3))
    assert last.returncode == 0, last.stderr
    assert any(run.taken is not None for run in rows(folder))
    assert_settled(folder)


def known(**facts: object) -> KnownRecords:
    row = KnownRun("t", ended=True, **facts)  # type: ignore[arg-type]
    return KnownRecords({"t": OwningStudy(1, "kept")}, {"t-00000-1": row})


def machines(expires: float) -> OrphanFinding:
    return OrphanFinding(OrphanKind.MACHINES, "simulated", "t-00000-1", "t", expires)


def test_machines_that_an_open_run_has_taken_over_are_judged_by_that_run() -> None:
    now = time.time()
    records = known(had_by="t-00001-1")
    assert decide_fate(machines(now + 60.0), records, now).fate is OrphanFate.KEEP
    past = decide_fate(machines(now - 60.0), records, now)
    assert (past.fate, past.run_id) == (OrphanFate.SETTLE, "t-00001-1")


def test_machines_that_are_kept_for_nobody_go() -> None:
    now = time.time()
    decided = decide_fate(machines(now + 60.0), known(kept_until=now + 30.0), now)
    assert decided.fate is OrphanFate.DESTROY
    assert "it was kept for a next trial, and nobody watches it" in decided.why
