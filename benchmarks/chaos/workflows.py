"""Kills the controllers of runs of workflows, and looks at what that has cost.

The command ``tradewind workflow run`` is killed again and again, and given again. When it has come to its end, the
records of the run, what its tasks noted themselves, and what the engine still has are compared.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controllers import Controllers
from verify import SLACK_AFTER, SLACK_BEFORE, Findings, left_behind, notes

from engines import Engine
from tradewind import plugins
from tradewind.problem import Billing, Run
from tradewind.store.base import Store
from tradewind.store.workflows.workflow_store import WorkflowStore
from tradewind.workflow.execution.journal import RunHistory
from tradewind.workflow.files import Plan, write_plan
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.planner.base import Planner
from tradewind.workflow.platform import Platform, Vm

MACHINES, LAYERS = 2, 20
HOURLY = 3.6
_PRICE = HOURLY / 3600.0
_LAST_SECONDS = 240.0
_STORE = "tradewind.store.workflows.workflow_store:WorkflowStore"

Stage = tuple[str, str, str, str, int]


@dataclass
class Kills:
    """Controllers that were killed: right before or after a call, and at any moment."""

    at_calls: int = 0
    at_moments: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.at_calls + self.at_moments


def plan_for(work: Path, pause: float, *, noted: bool) -> Plan:
    """A plan of layers of tasks, each of which needs all of the layer before; they note when they begin and end."""
    note = f"read up _ < /proc/uptime; echo $TRADEWIND_TASK#$TRADEWIND_MACHINE $up >> {work}"
    tasks: list[Task] = []
    parents: list[tuple[int, ...]] = []
    for layer in range(LAYERS):
        for column in range(MACHINES):
            name, before = f"t{layer}-{column}", [f"f{layer - 1}-{other}" for other in range(MACHINES) if layer]
            # Its own line below those of the task before it, where the others of that layer are whole, too.
            reads = f"grep -c . {' '.join(before)} >&2 && cat f{layer - 1}-{column}" if before else ":"
            writes = f"f{layer}-{column}"
            script = f"sleep {pause}; {{ {reads}; echo {name}; }} > {writes}"
            if noted:
                script = f"{note}/began; {script}; {note}/ended"
            tasks.append(Task(name, "a", pause, tuple(before), (writes,), command=("sh", "-c", script)))
            parents.append(tuple((layer - 1) * MACHINES + other for other in range(MACHINES) if layer))
    flow = Workflow("chaos", tuple(tasks), tuple(parents))
    machines = tuple(Vm(f"vm-{n}", price_per_hour=HOURLY) for n in range(MACHINES))
    platform = Platform(machines, billing=Billing(granularity_seconds=0.001))
    planner: Planner = plugins.create("planner", "heft", {})
    return Plan(flow, platform, planner.plan(flow, platform), "heft")


def content_of(column: int) -> list[str]:
    """The lines that the file of the last task of a column has at the end."""
    return [f"t{layer}-{column}" for layer in range(LAYERS)]


def stage_of(engine: Engine, chance: random.Random) -> Stage | None:
    """Where a controller kills itself, or None for any moment."""
    if chance.random() < 0.5:
        return None
    runner = str(engine.runner["use"])
    calls = [("class", _STORE, "append", 25), ("store", "sql", "write", 12), ("runner", runner, "poll", 8)]
    calls += [("runner", runner, name, 2) for name in ("submit", "collect", "forget", "cancel")]
    kind, name, method, most = chance.choice(calls)
    return kind, name, method, chance.choice(("before", "after")), chance.randint(1, most)


def one_run(engine: Engine, controllers: Controllers, folder: Path, kills: int, seed: int) -> tuple[Kills, Findings]:
    """Kill controllers of a run until it has come to its end, and look at it; after ``kills`` it is left alone."""
    chance, done = random.Random(seed), Kills()
    work, home = folder / "work", folder / "home"
    work.mkdir(parents=True)
    noted = not engine.journal
    write_plan(folder / "plan.json", plan_for(work, 0.3, noted=noted))
    deploy = {"provisioner": dict(engine.provisioner), "runner": dict(engine.runner)}
    job = {"job": dict(engine.job)} if engine.job else {}
    (folder / "deploy.yaml").write_text(json.dumps({"deploy": deploy, **job}))
    words = ["workflow", "run", "plan.json", "--deploy", "deploy.yaml", "--quiet", "--ahead", "1h"]
    words += ["--python", engine.python or sys.executable]
    environment = {"TRADEWIND_HOME": str(home), **engine.environment}
    began, longest = time.monotonic(), engine.longest
    while True:
        left_alone = done.total >= kills
        stage = None if left_alone else stage_of(engine, chance)
        seconds = _LAST_SECONDS if left_alone else 2 * longest if stage else chance.uniform(0.05, longest)
        death = controllers.run(folder, words, seconds=seconds, environment=environment, stage=stage)
        done.at_calls += death.code == -9 and not death.by_time
        done.at_moments += death.code == -9 and death.by_time
        if death.code == 0:
            break
        if death.code != -9 or left_alone:
            said = (folder / "controllers.log").read_text()[-2000:]
            raise RuntimeError(f"the command ended by itself with {death}\n{said}")
    return done, _look(folder, engine, time.monotonic() - began, noted=noted)


def _look(folder: Path, engine: Engine, seconds: float, *, noted: bool) -> Findings:
    found = Findings()
    url = f"sqlite:///{folder}/home/tradewind.db"
    store: Store = plugins.create("store", "sql", {}, url=url)
    rows = WorkflowStore(url)
    try:
        [study] = store.find_studies("chaos")
        runs, [summary] = store.runs(study.id), store.summaries([study.id])
        records = rows.records(study.id)
    finally:
        rows.close()
        store.close()
    history = RunHistory()
    for record in records:
        history.take(record)
    names = [f"t{layer}-{column}" for layer in range(LAYERS) for column in range(MACHINES)]
    found.runs = len(names)
    found.repeated = [f"attempt {number} at {task}" for task, number in history.attempts if number > 1]
    found.lost = _lost(folder, names, history)
    began, ended = notes(folder / "work/began"), notes(folder / "work/ended")
    ends = [(key[0], each.end["outcome"]) for key, each in history.attempts.items() if each.end is not None]
    lost = {task for task, outcome in ends if outcome in ("lost", "gone")}
    found.twice = [words for name, words in _twice(began, ended).items() if name not in lost] if noted else []
    done = [task for task, outcome in ends if outcome == "done"]
    found.twice += [f"task {name} is done {done.count(name)} times" for name in names if done.count(name) > 1]
    found.money = _money(runs, began, ended, seconds)
    if abs(sum(run.cost for run in runs) - summary.spent) > 1e-9:
        found.money.append(f"the run has spent {summary.spent}, and its machines {sum(run.cost for run in runs)}")
    if summary.reserved:
        found.money.append(f"{summary.reserved} is still set aside")
    found.leaked, found.machines = left_behind(study.owner, engine.left), []
    return found


def _lost(folder: Path, names: Sequence[str], history: RunHistory) -> list[str]:
    wrong = [f"task {name} is not done" for name in names if name not in history.done()]
    for column in range(MACHINES):
        path = folder / f"plan.run/files/f{LAYERS - 1}-{column}"
        if not path.exists() or path.read_text().split() != content_of(column):
            wrong.append(f"{path.name} is not what the tasks write")
    return wrong


def _twice(began: dict[str, list[float]], ended: dict[str, list[float]]) -> dict[str, str]:
    """Tasks that came to their end and were begun again, in words; those of a machine that was lost may be."""
    starts: dict[str, list[float]] = {}
    ends: dict[str, list[float]] = {}
    for given, kept in ((began, starts), (ended, ends)):
        for key, times in given.items():
            kept.setdefault(key.partition("#")[0], []).extend(times)
    return {
        name: f"task {name} began again after its end"
        for name, times in starts.items()
        if name in ends and max(times) > min(ends[name])
    }


def _money(runs: Sequence[Run], began: Any, ended: Any, seconds: float) -> list[str]:
    """Machines that are charged less than their tasks took, or more than the run took altogether."""
    wrong = [f"machine {run.run_id} is still {run.state}" for run in runs if not run.state.ended]
    charged: dict[str, float] = {}
    for run in runs:
        charged[f"vm-{run.trial}"] = charged.get(f"vm-{run.trial}", 0.0) + run.cost / _PRICE
    for name, paid in charged.items():
        keys = [key for key in began if key.endswith(f"#{name}") and key in ended]
        least = sum(ended[key][-1] - began[key][-1] for key in keys)
        if not least - SLACK_BEFORE * max(1, len(keys)) <= paid <= seconds + SLACK_AFTER:
            wrong.append(f"{name} worked {least:.2f} s in {seconds:.2f} s, and was charged {paid:.2f} s")
    return wrong
