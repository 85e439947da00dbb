"""Measures what Tradewind adds to each trial, beside the bare minimum and beside Optuna.

    python benchmarks/overhead/run.py [--trials 300] [--rounds 5] [--optuna PYTHON]

Each way runs the program `true` as often as asked, two at a time. PYTHON is an interpreter that has Optuna. The rounds
of all ways alternate, so that other work on the machine meets all of them. It prints the table of the README.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import platform
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36

JOB = """\
name: overhead
job: {{command: "true"}}
space: {{instance: {{provider: local}}, a: 1..{side}, b: 1..{side}}}
budget: {{dollars: 1000, trials: {trials}}}
searcher: exhaustive
parallel: 2
"""

BARE = """
import subprocess, sys
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(2) as pool:
    for _ in pool.map(lambda _: subprocess.run(["true"], check=True), range(int(sys.argv[1]))):
        pass
"""

OPTUNA = """
import subprocess, sys
import optuna
optuna.logging.set_verbosity(optuna.logging.ERROR)
def objective(trial):
    a, b = trial.suggest_int("a", 1, 1000), trial.suggest_int("b", 1, 1000)
    subprocess.run(["true"], check=True)
    return a + b
study = optuna.create_study(storage=f"sqlite:///{sys.argv[2]}/optuna.db", sampler=optuna.samplers.RandomSampler(0))
study.optimize(objective, n_trials=int(sys.argv[1]), n_jobs=2)
"""


@dataclass(frozen=True)
class Spent:
    """What a number of trials took.

    Attributes:
        wall: Seconds on the clock.
        cpu: Seconds of processor time, of the command and all that it started.
    """

    wall: float
    cpu: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=300, help="trials in one round")
    parser.add_argument("--rounds", type=int, default=5, help="how often each way is measured")
    parser.add_argument("--optuna", metavar="PYTHON", help="an interpreter that has Optuna")
    arguments = parser.parse_args()

    # What pip installs is compiled; without this, a session that writes no .pyc files would compile in every round.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # Processes that outlive their parent become ours: their CPU time is counted too.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    ways: dict[str, Callable[[int], Spent]] = {"`subprocess.run` in two threads": bare, "Tradewind": tradewind}
    if arguments.optuna:
        ways["Optuna, SQLite, `n_jobs=2`"] = lambda trials: optuna(arguments.optuna, trials)
    found: dict[str, list[Spent]] = {name: [] for name in ways}
    for _ in range(arguments.rounds):
        for name, measure in ways.items():
            few, many = measure(2), measure(arguments.trials)
            more = arguments.trials - 2
            found[name].append(Spent((many.wall - few.wall) / more, (many.cpu - few.cpu) / more))

    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(
        f"{date.today()}, {cpu()}, {os.cpu_count()} CPUs, Python {platform.python_version()}, load {load}, "
        f"{arguments.rounds} rounds of {arguments.trials} trials\n"
    )
    print("| way | wall time per trial, median | least and most | CPU time per trial, median |\n|---|---|---|---|")
    for name, spent in found.items():
        walls = [1000 * each.wall for each in spent]
        cpus = statistics.median(1000 * each.cpu for each in spent)
        spread = f"{min(walls):.1f} ms to {max(walls):.1f} ms"
        print(f"| {name} | {statistics.median(walls):.1f} ms | {spread} | {cpus:.1f} ms |")


def bare(trials: int) -> Spent:
    """The bare minimum: start `true` and wait for it."""
    return timed([sys.executable, "-c", BARE, str(trials)])


def optuna(python: str, trials: int) -> Spent:
    """Optuna with its SQLite storage; the objective starts `true` and waits for it."""
    with tempfile.TemporaryDirectory() as folder:
        return timed([python, "-c", OPTUNA, str(trials), folder])


def tradewind(trials: int) -> Spent:
    """The whole command, on a new store; every trial of it must have succeeded."""
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder, "job.yaml")
        job.write_text(JOB.format(side=int(trials**0.5) + 1, trials=trials))
        home = {"TRADEWIND_HOME": folder}
        spent = timed([sys.executable, "-m", "tradewind", "tune", str(job), "--json"], home)
        database = sqlite3.connect(Path(folder, "tradewind.db"))
        counted = database.execute("select state, count(*) from trials group by state").fetchall()
        database.close()
        if counted != [("succeeded", trials)]:
            raise SystemExit(f"not all {trials} trials succeeded: {counted}")
        return spent


def timed(command: list[str], more: dict[str, str] | None = None) -> Spent:
    environment = {key: value for key, value in os.environ.items() if key != "TRADEWIND_STORE"}
    before, began = used(), time.perf_counter()
    subprocess.run(command, check=True, env={**environment, **(more or {})}, stdout=subprocess.DEVNULL)
    wall = time.perf_counter() - began
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()  # Tradewind's helper, the warden, outlives the command for a moment
    return Spent(wall, used() - before)


def used() -> float:
    """CPU seconds of all child processes that ended, and of theirs that they waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


if __name__ == "__main__":
    main()
