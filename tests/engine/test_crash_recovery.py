"""kill -9 of ``tradewind tune`` at random moments of a real study: nothing lost, nothing twice, nothing left."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest
from tests.effort import share
from tests.waiting import eventually

from tradewind import plugins
from tradewind.problem import RunState, TrialState
from tradewind.store.base import Store

PROGRAM = [sys.executable, "-m", "tradewind"]
KILLS = share(100, 25)
SECONDS = 330.0

JOB = """
name: killed
job:
  command: [sh, -c, 'echo $TRADEWIND_RUN_ID >> journal; sleep 0.0{{ pause }}; echo $TRADEWIND_RUN_ID >> ended']
space:
  instance: {provider: local, vcpu: 1}
  pause: 1..9
  level: 1..400
searcher: {use: exhaustive, order: shuffled}
parallel: 2
abort: false
deploy: {billing: {granularity: 1ms}}
"""

GIVEN_UP = """
name: given-up
job:
  command:
    - sh
    - -c
    - >-
      echo $TRADEWIND_RUN_ID >> journal;
      for i in 1 2 3 4 5 6 7 8; do echo '{"step":' $i', "loss": {{ level }} }' >> $TRADEWIND_METRICS; sleep 0.06; done;
      echo $TRADEWIND_RUN_ID >> ended
space:
  instance: {provider: local, vcpu: 1, limit: 1}
  level: 1..300
objective: {minimise: loss}
searcher: {use: exhaustive, order: shuffled}
parallel: 2
early_stop: {use: median, trials: 3, every: 0.05}
deploy: {billing: {granularity: 1ms}}
"""


def alive_with(tag: str) -> list[int]:
    """Processes whose environment carries the tag."""
    found = []
    for process in psutil.process_iter():
        try:
            if tag in process.environ().get("TRADEWIND_OWNER", ""):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def begun(folder: Path) -> int:
    """How many runs have begun so far."""
    journal = folder / "journal"
    return len(journal.read_text().split()) if journal.exists() else 0


def start(program: Sequence[str | Path], folder: Path, trials: int) -> subprocess.Popen[bytes]:
    command = [*program, "tune", "job.yaml", "--quiet", "--json", "--trials", str(trials)]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ))


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 120)
def test_kill_nine_at_random_moments_loses_nothing_and_leaves_nothing(tmp_path: Path, quick: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    rng = random.Random(20)
    stop_at = time.monotonic() + SECONDS
    kills = 0
    while kills < KILLS and time.monotonic() < stop_at:
        process = start([quick], tmp_path, 10_000)
        try:
            process.wait(rng.uniform(0.02, 1.2))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.communicate()
    assert kills == KILLS, f"only {kills} kills fitted into {SECONDS:.0f} s"

    store: Store = plugins.create("store", "sql", {}, url=f"sqlite:///{os.environ['TRADEWIND_HOME']}/tradewind.db")
    study = store.find_studies("killed")[0]
    goal = len(store.trials(study.id)) + 6  # go on for a little, then stop by the budget of trials
    last = start(PROGRAM, tmp_path, goal)
    _, err = last.communicate(timeout=90)
    assert last.returncode == 0, err.decode()

    assert [s.id for s in store.find_studies("killed")] == [study.id], "the study was not resumed but started anew"
    trials = store.trials(study.id)
    runs = store.runs(study.id)
    assert [trial.number for trial in trials] == list(range(goal))
    assert all(trial.state.value == "succeeded" for trial in trials)
    assert len({trial.key for trial in trials}) == goal, "a configuration was counted twice"

    journal = Counter((tmp_path / "journal").read_text().split())
    assert set(journal.values()) == {1}, "a run was started twice"
    assert set(journal) <= {run.run_id for run in runs}, "something ran without a row"
    done = {run.run_id for run in runs if run.state == RunState.DONE}
    assert done == set((tmp_path / "ended").read_text().split()), "a finished run was lost, or counted unfinished"
    assert all(run.state.ended for run in runs)

    summary = store.summaries([study.id])[0]
    spent = sum(run.cost for run in runs)
    assert summary.spent == pytest.approx(spent, abs=1e-9)
    assert sum(trial.spent for trial in trials) == pytest.approx(spent, abs=1e-9)
    assert summary.reserved == 0
    assert summary.holder == ""
    store.close()
    eventually(lambda: not alive_with(study.owner), 10, "the end of all processes of the study", pause=0.1)


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_kill_nine_while_trials_are_stopped_early_repeats_none_and_loses_none(tmp_path: Path, quick: Path) -> None:
    (tmp_path / "job.yaml").write_text(GIVEN_UP)
    rng = random.Random(21)
    for _ in range(share(12, 6)):
        before = begun(tmp_path)
        process = start([quick], tmp_path, 10_000)
        eventually(lambda: begun(tmp_path) > before)  # noqa: B023
        time.sleep(rng.uniform(0.0, 1.2))
        process.send_signal(signal.SIGKILL)
        process.communicate()
    store: Store = plugins.create("store", "sql", {}, url=f"sqlite:///{os.environ['TRADEWIND_HOME']}/tradewind.db")
    study = store.find_studies("given-up")[0]
    goal = len(store.trials(study.id)) + 4
    last = start(PROGRAM, tmp_path, goal)
    _, err = last.communicate(timeout=90)
    assert last.returncode == 0, err.decode()

    trials, runs = store.trials(study.id), store.runs(study.id)
    assert [trial.number for trial in trials] == list(range(goal))
    stopped = {trial.number for trial in trials if trial.stopped_early}
    assert len(stopped) > 3
    assert all(t.state == (TrialState.ABORTED if t.number in stopped else TrialState.SUCCEEDED) for t in trials)
    assert {trial.attempts for trial in trials} == {1}, "a trial was repeated"
    journal = Counter((tmp_path / "journal").read_text().split())
    assert set(journal.values()) == {1}, "a run was started twice"
    assert set(journal) <= {run.run_id for run in runs}, "something ran without a row"
    done = {run.run_id for run in runs if run.state == RunState.DONE}
    assert done <= set((tmp_path / "ended").read_text().split())
    for trial in trials:
        seen = trial.observation
        assert seen is not None
        if trial.number in stopped:
            assert seen.metrics["loss"] == trial.configuration["level"]
    spent = sum(run.cost for run in runs)
    assert all(run.state.ended for run in runs)
    assert store.summaries([study.id])[0].spent == pytest.approx(spent, abs=1e-9)
    store.close()
