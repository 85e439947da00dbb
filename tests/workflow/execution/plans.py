"""Plans for the tests of execution, and ways to carry them out."""

from __future__ import annotations

import functools
import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from tradewind import plugins
from tradewind.deployer.runner.base import Runner
from tradewind.deployer.runner.process import ProcessRunner, ProcessSettings
from tradewind.problem import Handle
from tradewind.store.workflows.workflow_store import WorkflowStore
from tradewind.workflow.execution.events import ExecutionEnding
from tradewind.workflow.execution.journal import RunHistory
from tradewind.workflow.execution.options import ExecutionOptions
from tradewind.workflow.execution.pilots import PilotSettings
from tradewind.workflow.execution.plan_run import ExecutionResult, execute_plan
from tradewind.workflow.files import Plan, write_plan
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.planner.base import Planner
from tradewind.workflow.platform import Platform, Vm
from tradewind.workflow.schedule import Schedule, held_cost

QUICK = PilotSettings(linger=5.0, poll_seconds=0.2, silence=5.0)


def sh(task: str, script: str, *, after: str = "", writes: str = "", runtime: float = 0.1, **more: Any) -> Task:
    """A task that runs a line of shell; files are words."""
    return Task(task, more.pop("activity", task), runtime, tuple(after.split()), tuple(writes.split()),
                command=("sh", "-c", script), **more)  # fmt: skip


def flow_of(*tasks: Task) -> Workflow:
    """The workflow of some tasks, whose edges follow from their files."""
    writer = {name: place for place, task in enumerate(tasks) for name in task.outputs}
    parents = tuple(tuple(sorted({writer[name] for name in task.inputs if name in writer})) for task in tasks)
    return Workflow("test", tasks, parents)


def heft() -> Planner:
    planner: Planner = plugins.create("planner", "heft", {})
    return planner


def plan_of(flow: Workflow, vms: int = 2, **machine: Any) -> Plan:
    """A plan by HEFT on machines that are alike."""
    platform = Platform(tuple(Vm(f"vm-{n + 1}", **machine) for n in range(vms)))
    return Plan(flow, platform, heft().plan(flow, platform), "heft")


def lopsided(seconds: float) -> Plan:
    """A long task on one machine, a short one on another, and nothing on a third."""
    tasks = tuple(Task(name, "a", took) for name, took in (("long", seconds), ("short", 0.1)))
    flow, platform = Workflow("lopsided", tasks, ((), ())), Platform(tuple(Vm(f"vm-{n + 1}") for n in range(3)))
    return Plan(flow, platform, Schedule(np.array([0, 1]), np.zeros(2), np.array([seconds, 0.1])), "heft")


def local(folder: Path) -> Runner:
    runner: Runner = plugins.create("runner", "process", {}, data_folder=folder / "machines" / ".runner")
    return runner


class Elsewhere(ProcessRunner):
    """Another engine: it does not know what another has started."""

    name = "elsewhere"

    def find(self, owner: str | None) -> list[Handle]:
        """Nothing."""
        return []


def elsewhere(folder: Path, **settings: Any) -> Elsewhere:
    return Elsewhere(settings=ProcessSettings(**settings), data_folder=folder / "machines" / ".elsewhere")


def carry(
    plan: Plan, folder: Path, *, runner: Runner | None = None, terms: PilotSettings = QUICK, **more: Any
) -> ExecutionResult:
    """Carry out a plan on this machine."""
    names = ("watch", "wanted", "fresh", "dismiss", "journal", "provisioner")
    outside = {name: more.pop(name) for name in names if name in more}
    options = ExecutionOptions(inputs=more.pop("inputs", folder.parent), **more)
    return execute_plan(plan, folder, runner or local(folder), options=options, planner=heft(), terms=terms, **outside)


def history(folder: Path) -> RunHistory:
    """Read the journal of a run."""
    found = RunHistory()
    for record in records(folder):
        found.take(record)
    return found


def records(folder: Path) -> list[dict[str, Any]]:
    """Read the records of a run, in the store or in its folder; none where it has not begun."""
    note, journal = folder / "store.json", folder / "journal.jsonl"
    if note.exists():
        where = json.loads(note.read_text())
        place = os.environ.get("TRADEWIND_STORE") or f"sqlite:///{where['store']}"
        return _store(place).records(where["study"])
    return [json.loads(line) for line in journal.read_bytes().split(b"\n")[:-1]] if journal.exists() else []


@functools.lru_cache(maxsize=4)
def _store(url: str) -> WorkflowStore:
    return WorkflowStore(url)


def counted(folder: Path, log: str = "log") -> Counter[str]:
    """Count the times that each line was written to a file of the run."""
    path = folder / "files" / log
    return Counter(path.read_text().split()) if path.exists() else Counter()


class Command:
    """``tradewind workflow run`` in a process of its own.

    Args:
        plan: Written into ``folder`` as plan.json.
        folder: Where it is given.
        words: Further words.
        program: What is ``tradewind``.
        env: Further environment variables.
    """

    def __init__(self, plan: Plan, folder: Path, *words: str, program: Path, env: dict[str, str] | None = None) -> None:
        if not (folder / "plan.json").exists():
            write_plan(folder / "plan.json", plan)
        self.run = folder / "plan.run"
        self._words = [str(program), "workflow", "run", "plan.json", "--linger", "8s", *words]
        self._folder, self._env = folder, {**os.environ, **(env or {})}

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self._words, cwd=self._folder, env=self._env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def finish(self, seconds: float = 60.0) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._words, cwd=self._folder, env=self._env, text=True, capture_output=True, timeout=seconds, check=False
        )


def agents(folder: Path) -> list[psutil.Process]:
    """The processes that serve the machines of a run."""
    return [process for process in psutil.process_iter() if _is_agent(process, folder)]


def _is_agent(process: psutil.Process, folder: Path) -> bool:
    try:
        words = process.cmdline()
    except psutil.Error:
        return False
    return "agent.py" in words and str(folder) in words and process.status() != psutil.STATUS_ZOMBIE


def chunks(count: int, seconds: float) -> Iterator[Task]:
    """Tasks that each write their name to a log, and a last one that needs all of them."""
    for n in range(count):
        yield sh(f"work{n}", f"echo work{n} >> log; sleep {seconds}; echo {n} > out{n}", writes=f"out{n}",
                 activity="work", runtime=seconds)  # fmt: skip
    names = " ".join(f"out{n}" for n in range(count))
    yield sh("join", f"echo join >> log; cat {names} > total", after=names, writes="total")


def two_after_another(seconds: float) -> Plan:
    """A task on one machine, and then another on another, which costs and boots."""
    tasks = tuple(Task(name, "a", seconds) for name in ("first", "second"))
    machines = tuple(Vm(f"vm-{n}", price_per_hour=3600.0, boot_seconds=100.0) for n in (1, 2))
    starts = np.array([100.0, 100.0 + seconds])
    flow, schedule = Workflow("two", tasks, ((), (0,))), Schedule(np.array([0, 1]), starts, starts + seconds)
    return Plan(flow, Platform(machines), schedule, "heft")


def asked_just_in_time(run: Path, carried: ExecutionResult, plan: Plan, scale: float) -> None:
    """See that the second machine of `two_after_another` was asked for when its plan says, and is billed so.

    Args:
        run: The folder of the run.
        carried: What became of it.
        plan: The plan.
        scale: In which it was played.
    """
    assert carried.ending is ExecutionEnding.DONE
    past = history(run)
    assert past.began is not None and not past.lost
    [asked] = [(at - past.began) / scale for at in past.requested["vm-2"]]
    [(_, up, _)] = [each for each in past.ups if each[0] == "vm-2"]
    assert 850 <= asked < 1050  # 1100 s less twice the boot time
    assert (up - past.began) / scale > 850
    # One machine for 1100 s and one for 1200 s, and what this machine took longer.
    held = held_cost(plan.platform, plan.schedule)
    assert carried.results["kept_cost"] == pytest.approx(held, abs=2 / scale)
