"""Times the import of an Optuna study and its export: 10,000 trials with six parameters, attributes and steps."""

from __future__ import annotations

import datetime
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState, create_trial

TRIALS = 10_000
DISTRIBUTIONS = {
    "x": FloatDistribution(-5, 5),
    "lr": FloatDistribution(1e-5, 1e-1, log=True),
    "drop": FloatDistribution(0, 0.75, step=0.25),
    "n": IntDistribution(2, 8, step=3),
    "units": IntDistribution(1, 1024, log=True),
    "opt": CategoricalDistribution(["adam", "sgd", None, True, 2]),
}
JOB = """\
name: big
job: {command: [sh, -c, "echo {{ x }} {{ lr }} {{ drop }} {{ n }} {{ units }} {{ opt }}"]}
space:
  x: -5.0..5.0
  lr: 1e-5..1e-1 log
  drop: 0.0..0.75 step 0.25
  n: 2..8 step 3
  units: 1..1024 log
  opt: [adam, sgd, None, true, 2]
objective: {minimise: loss}
"""


def make(path: Path) -> None:
    """Write the study as a journal."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    draw, begun = random.Random(1), datetime.datetime(2026, 1, 1)
    journal = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(path)))
    study = optuna.create_study(storage=journal, study_name="big")
    for number in range(TRIALS):
        kind = draw.random()
        state = TrialState.COMPLETE if kind < 0.8 else TrialState.PRUNED if kind < 0.95 else TrialState.FAIL
        params = {
            "x": draw.uniform(-5, 5),
            "lr": 10 ** draw.uniform(-5, -1),
            "drop": draw.choice([0, 0.25, 0.5, 0.75]),
            "n": draw.choice([2, 5, 8]),
            "units": draw.randint(1, 1024),
            "opt": draw.choice(["adam", "sgd", None, True, 2]),
        }
        trial = create_trial(
            state=state,
            value=draw.random() if state is TrialState.COMPLETE else None,
            params=params,
            distributions=DISTRIBUTIONS,
            user_attrs={"accuracy": draw.random(), "memory": draw.randint(1, 9), "gpu": 1},
            intermediate_values={step: draw.random() for step in (1, 2, 3)},
        )
        trial.datetime_start = begun + datetime.timedelta(seconds=10 * number)
        trial.datetime_complete = trial.datetime_start + datetime.timedelta(seconds=5)
        study.add_trial(trial)


def timed(*words: str) -> str:
    """Run a command of Tradewind; its time and processor time."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(["tradewind", *words], check=True, capture_output=True)
    after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - begun
    used = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return f"{wall:6.2f} s, processor {used:6.2f} s: tradewind {' '.join(words).partition('://')[0]}"


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        Path("job.yaml").write_text(JOB)
        make(Path("theirs.log"))
        os.environ["TRADEWIND_HOME"] = f"{name}/home"
        print(f"{TRIALS} trials, load {os.getloadavg()[0]:.1f}")
        print(timed("import", "theirs.log", "--study", "job.yaml"), flush=True)
        for out in ("ours.log", "ours.db", *sys.argv[1:]):
            print(timed("export", "big", "--out", out), flush=True)
        os.environ["TRADEWIND_HOME"] = f"{name}/other"
        print(timed("import", "ours.db", "--study", "job.yaml"), flush=True)


if __name__ == "__main__":
    main()
