"""What is true of a study whose controllers were killed, by its rows, by its jobs' own notes, and by the engine."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tradewind import plugins
from tradewind.problem import Run, RunState, Trial
from tradewind.store.base import Store

SLACK_BEFORE, SLACK_AFTER = 0.05, 10.0
"""Seconds that may be charged less and more than a job has measured: its clock ticks in hundredths, and an engine's
time begins before the job's first line and ends after its last, on a loaded machine some seconds."""

_PATIENCE = 20.0


@dataclass
class Findings:
    """What is wrong with a study; empty lists are what there should be.

    Attributes:
        runs: How many runs there were.
        repeated: Runs that the infrastructure lost, and that were repeated, with a row for each.
        lost: Runs that ended without their row saying so, or that have no row, and trials without a result.
        leaked: Processes and jobs of the engine that are still there.
        twice: Runs that were executed twice.
        machines: Machines that are still there.
        money: Sums that do not agree.
    """

    runs: int = 0
    repeated: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    leaked: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    machines: list[str] = field(default_factory=list)
    money: list[str] = field(default_factory=list)

    @property
    def wrong(self) -> list[str]:
        """All of it, in words."""
        kinds = ("lost", "leaked", "twice", "machines", "money")
        return [f"{kind}: {each}" for kind in kinds for each in getattr(self, kind)]


def look(home: Path, work: Path, left: Callable[[], list[str]], *, makes_machines: bool) -> Findings:
    """Look at a study that has ended.

    Args:
        home: The folder with its store.
        work: The folder with its jobs' notes.
        left: What the engine still has.
        makes_machines: What the engine has are machines, not runs.
    """
    found = Findings()
    store: Store = plugins.create("store", "sql", {}, url=f"sqlite:///{home}/tradewind.db")
    try:
        [study] = store.find_studies("chaos")
        trials, runs = store.trials(study.id), store.runs(study.id)
        [summary] = store.summaries([study.id])
    finally:
        store.close()
    began, ended = notes(work / "began"), notes(work / "ended")
    found.runs = len(runs)
    found.repeated = [f"{run.run_id} {run.state}: {run.reason}" for run in runs if run.state is not RunState.DONE]
    found.twice = [f"run {run_id} began {len(times)} times" for run_id, times in began.items() if len(times) > 1]
    found.lost = _lost(trials, runs, set(began), set(ended))
    measured = {name: ended[name][-1] - began[name][0] for name in began if name in ended}
    found.money = _money(trials, runs, measured, makes_machines=makes_machines)
    for words, amount in (("runs", sum(run.cost for run in runs)), ("trials", sum(trial.spent for trial in trials))):
        if abs(amount - summary.spent) > 1e-9:
            found.money.append(f"the study has spent {summary.spent}, and its {words} {amount}")
    if summary.reserved:
        found.money.append(f"{summary.reserved} is still set aside")
    processes, others = _left_behind(study.owner, left)
    found.machines = others if makes_machines else []
    found.leaked = processes if makes_machines else [*processes, *others]
    return found


def left_behind(owner: str, left: Callable[[], list[str]]) -> list[str]:
    """Processes of an owner and what the engine still has, once they have had some time to go."""
    processes, others = _left_behind(owner, left)
    return [*processes, *others]


def _left_behind(owner: str, left: Callable[[], list[str]]) -> tuple[list[str], list[str]]:
    until = time.monotonic() + _PATIENCE
    while (still := (_processes(owner), left())) != ([], []) and time.monotonic() < until:
        time.sleep(0.2)
    return still


def notes(path: Path) -> dict[str, list[float]]:
    """The times that jobs have noted in a file, by what they call themselves."""
    found: dict[str, list[float]] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        run_id, moment = line.split()
        found.setdefault(run_id, []).append(float(moment))
    return found


def _lost(trials: list[Trial], runs: list[Run], began: set[str], ended: set[str]) -> list[str]:
    done = {run.run_id for run in runs if run.state is RunState.DONE}
    rows = {run.run_id for run in runs}
    wrong = [f"run {name} is done without having run" for name in done - ended]
    wrong += [f"run {name} ran to its end and is not done" for name in (ended & rows) - done]
    wrong += [f"run {name} has no row" for name in began - rows]
    wrong += [f"run {run.run_id} is still {run.state}" for run in runs if not run.state.ended]
    wrong += [f"trial {each.number} is {each.state}" for each in trials if each.state.value != "succeeded"]
    if [trial.number for trial in trials] != list(range(len(trials))):
        wrong.append(f"the trials are {[trial.number for trial in trials]}")
    keys = Counter(trial.key for trial in trials)
    return wrong + [f"configuration {key} was tried {count} times" for key, count in keys.items() if count > 1]


def _money(trials: list[Trial], runs: list[Run], measured: dict[str, float], *, makes_machines: bool) -> list[str]:
    prices = {trial.number: trial.offer.hourly / 3600.0 for trial in trials}
    wrong = []
    for run in runs:
        if run.run_id not in measured:
            continue
        least, charged = measured[run.run_id], run.cost / prices[run.trial]
        most = least + SLACK_AFTER
        if makes_machines and run.started is not None and run.ended is not None:
            most = run.ended - run.started + SLACK_AFTER  # machines are paid while they boot, too
        if not least - SLACK_BEFORE <= charged <= most:
            wrong.append(f"run {run.run_id} took {least:.2f} s and was charged {charged:.2f} s")
    return wrong


def _processes(owner: str) -> list[str]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TRADEWIND_OWNER") == owner and process.status() != psutil.STATUS_ZOMBIE:
                found.append(f"process {process.pid} {' '.join(process.cmdline())[:60]}")
        except psutil.Error:
            continue
    return found
