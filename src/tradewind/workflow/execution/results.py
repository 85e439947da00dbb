"""Writes the planned and actual times of a run, and measures run times from them for a later plan."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tradewind.errors import WorkflowError
from tradewind.workflow.bounds import lower_bound
from tradewind.workflow.execution.journal import AttemptRecord, RunHistory
from tradewind.workflow.execution.options import vm_stays
from tradewind.workflow.files import Plan, read_bytes
from tradewind.workflow.graph import Numbers, Workflow
from tradewind.workflow.schedule import RepeatedAttempt, Schedule, figures

FORMAT = "tradewind-results-1"

_LEAST = 1e-3
"""Seconds; a run time that was expected to be shorter says nothing as a ratio."""


def results_of(plan: Plan, history: RunHistory, *, engine: str, ending: str, now: float) -> dict[str, Any]:
    """Make the document of a run's results.

    All times are in seconds of the plan, from the moment at which tasks could begin, without pauses between two
    controllers; those of a run that was played faster are stretched. ``seconds`` is what a task took on its machine.

    Args:
        plan: The plan.
        history: The journal of its run.
        engine: The name of the runner.
        ending: The way that the run ended.
        now: The time, in seconds since the epoch.
    """
    flow, platform = plan.flow, plan.platform
    scale = float((history.header or {}).get("scale", 1.0))
    done = history.done()
    bound = lower_bound(flow, platform)
    document: dict[str, Any] = {
        "format": FORMAT,
        "workflow": flow.name,
        "planner": plan.planner,
        "engine": engine,
        "ending": ending,
        "scale": scale,
        "sessions": history.sessions,
        "paused": sum(end - begin for begin, end in history.pauses),
        "replans": history.replans,
        "attempts": len(history.attempts),
        "machines_lost": [{"vm": each["vm"], "reason": each["reason"]} for each in history.lost],
        "planned": _figures(plan, plan.schedule, bound),
        "actual": None,
        "kept_cost": platform.bill(vm_stays(history, platform, now)),
    }
    if history.began is not None and len(done) == len(flow):
        document["actual"] = _figures(plan, actual_schedule(plan, history, scale), bound)
    document["vms"] = [
        {"name": vm.name, "kind": vm.kind, "speed": vm.speed, "slots": vm.slots, "price_per_hour": vm.price_per_hour}
        for vm in platform.vms
    ]
    document["tasks"] = _rows(plan, history, scale)
    return document


def actual_schedule(plan: Plan, history: RunHistory, scale: float) -> Schedule:
    """Make the schedule of a finished run as it really was, with the attempts that failed or were lost."""
    names = {vm.name: place for place, vm in enumerate(plan.platform.vms)}
    done, count = history.done(), len(plan.flow)
    vm, attempts = np.zeros(count, dtype=np.int32), np.ones(count, dtype=np.int32)
    start, finish = np.zeros(count), np.zeros(count)
    for place, task in enumerate(plan.flow.tasks):
        each = done[task.id]
        vm[place], attempts[place] = names[each.vm], each.attempt
        start[place], finish[place] = _span(each, history, scale)
    repeated = [
        RepeatedAttempt(plan.flow.index[each.task], names[each.vm], *_span(each, history, scale))
        for each in history.attempts.values()
        if each is not done[each.task] and each.end is not None
    ]
    return Schedule(vm, start, finish, attempts, tuple(repeated))


def _span(each: AttemptRecord, history: RunHistory, scale: float) -> tuple[float, float]:
    end = each.end or {"at": each.at}
    # Of a lost attempt nobody knows more than when it was written down that it had begun, and that it was lost.
    begin = end.get("start", each.at)
    finish = end["finish"] if "finish" in end else end["at"]
    return history.clock(begin) / scale, history.clock(finish) / scale


def _figures(plan: Plan, schedule: Schedule, bound: float) -> dict[str, float]:
    found = figures(plan.flow, plan.platform, schedule, bound)
    return {
        "makespan": found.makespan,
        "lower_bound": found.lower_bound,
        "gap": found.gap,
        "serial": found.serial,
        "speedup": found.speedup,
        "utilisation": found.utilisation,
        "cost": found.cost,
    }


def _rows(plan: Plan, history: RunHistory, scale: float) -> list[dict[str, Any]]:
    flow, platform, schedule = plan.flow, plan.platform, plan.schedule
    names = {vm.name: place for place, vm in enumerate(platform.vms)}
    expected, transfers = platform.seconds(flow), _transfers(plan)
    done, attempts = history.done(), Counter(task for task, _ in history.attempts)
    last = {each.task: each for each in history.attempts.values()}
    rows = []
    for place, task in enumerate(flow.tasks):
        row: dict[str, Any] = {
            "task": task.id,
            "activity": task.activity,
            "cores": task.cores,
            "runtime": task.runtime,
            "planned_vm": platform.vms[schedule.vm[place]].name,
            "planned_start": float(schedule.start[place]),
            "planned_finish": float(schedule.finish[place]),
            "attempts": attempts[task.id],
        }
        each = done.get(task.id)
        if each is None or each.end is None:
            end = last[task.id].end if task.id in last else None
            rows.append({**row, "vm": None, "reason": (end or {}).get("reason", "")})
            continue
        start, finish = _span(each, history, scale)
        vm = platform.vms[names[each.vm]]
        row |= {
            "vm": vm.name,
            "kind": vm.kind,
            "speed": vm.speed,
            "actual_start": start,
            "actual_finish": finish,
            "seconds": each.end["seconds"] / scale,
            "expected": float(expected[place, names[each.vm]]),
            "transfer": float(transfers[place]),
        }
        rows.append(row | {name: each.end[name] for name in ("cpu_seconds", "peak_memory_bytes") if name in each.end})
    return rows


def _transfers(plan: Plan) -> Numbers:
    """Seconds that a plan counts for each task to get its files; no run time is learned from them."""
    flow, platform, schedule = plan.flow, plan.platform, plan.schedule
    if platform.storage != "local":
        return platform.reading(flow)
    # What is fetched depends on where files lie; the plan has it in its spans.
    running = flow.runtimes / platform.speeds[schedule.vm]
    return np.asarray(np.maximum(0.0, schedule.finish - schedule.start - running))


def results_gantt(results: Mapping[str, Any]) -> dict[str, Any]:
    """Make the document of a Gantt chart from the results of a run.

    Args:
        results: A document of `results_of`, of a run that may have been ended early.
    """
    planned, actual = results["planned"], results["actual"]
    figures_ = [["planned makespan", f"{planned['makespan']:.2f} s"]]
    if actual is not None:
        figures_.append(["actual makespan", f"{actual['makespan']:.2f} s"])
        figures_.append(["utilisation", f"{100 * actual['utilisation']:.0f} %"])
    tasks = []
    for row in results["tasks"]:
        task = {
            "task": row["task"],
            "activity": row["activity"],
            "cores": row["cores"],
            "vm": row["planned_vm"],
            "start": row["planned_start"],
            "finish": row["planned_finish"],
        }
        if row["vm"] is not None:
            task |= {"actual_vm": row["vm"]}
            task |= {name: row[name] for name in ("actual_start", "actual_finish")}
        tasks.append(task)
    title = f"{results['workflow']} by {results['planner']}, planned and run on {results['engine']}"
    return {"title": title, "vms": results["vms"], "tasks": tasks, "figures": figures_}


def history_gantt(plan: Plan, history: RunHistory, *, engine: str, ending: str, now: float) -> dict[str, Any]:
    """Make the document of a Gantt chart from the journal of a run, tasks without an end included.

    Args:
        plan: The plan.
        history: The journal of its run.
        engine: The name of the runner.
        ending: The way that the run ended.
        now: Time until which tasks without an end are drawn, in seconds since the epoch.
    """
    document = results_gantt(results_of(plan, history, engine=engine, ending=ending, now=now))
    scale = float((history.header or {}).get("scale", 1.0))
    open_ = {each.task: each for each in history.open()}
    for row in document["tasks"]:
        if (each := open_.get(row["task"])) is not None and "actual_vm" not in row:
            row["actual_vm"] = each.vm
            row["actual_start"], row["actual_finish"] = history.clock(each.at) / scale, history.clock(now) / scale
    return document


def read_results(path: Path) -> dict[str, Any]:
    """Read the results of a run: of a file of `results_of`, or of the folder of a run.

    Raises:
        WorkflowError: There are none.
    """
    file = path / "results.json" if path.is_dir() else path
    try:
        document = json.loads(read_bytes(file))
    except ValueError as error:
        raise WorkflowError(f"it is no JSON: {error}", file=str(file)) from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        hint = "tradewind workflow run writes them"
        raise WorkflowError(f"these are no results of a run: the 'format' is not {FORMAT}", file=str(file), hint=hint)
    return document


def measured_runtimes(flow: Workflow, results: Sequence[Mapping[str, Any]]) -> Workflow:
    """Give a workflow the run times that were measured, for the next plan.

    For each activity and kind of machine the median of measured over expected seconds is taken, and of those the median
    over the kinds; the run time of each task of that activity is multiplied with it. Where the workflow had no run
    times to expect, the median of what was measured, at the speed of its machine, is the run time.

    What the plan counted for files to be read or fetched is left out of both: the next plan counts it again.

    What was expected of a task of this workflow is first put into proportion to the run time that it has now: the plan
    may have been made with other times, such as those that were measured before.

    Args:
        flow: The workflow; activities that were not measured keep their run times.
        results: Documents of `results_of`, of this workflow or of others with the same activities.

    Raises:
        WorkflowError: Nothing that was measured is of this workflow.
    """
    ratios: dict[str, dict[str, list[float]]] = {}
    absolute: dict[str, list[float]] = {}
    for document in results:
        for row in document["tasks"]:
            if row.get("seconds") is None:
                continue
            seconds, expected = _running(row)
            expected *= _proportion(flow, document, row)
            if expected > _LEAST:
                kinds = ratios.setdefault(row["activity"], {})
                kinds.setdefault(row["kind"], []).append(seconds / expected)
            absolute.setdefault(row["activity"], []).append(seconds * row["speed"])
    factor = {
        activity: statistics.median(statistics.median(each) for each in kinds.values())
        for activity, kinds in ratios.items()
    }
    tasks, known = [], 0
    for task in flow.tasks:
        known += task.activity in absolute
        if task.activity in factor and task.runtime > _LEAST:
            tasks.append(replace(task, runtime=task.runtime * factor[task.activity]))
        elif task.activity in absolute and task.runtime <= _LEAST:
            tasks.append(replace(task, runtime=statistics.median(absolute[task.activity])))
        else:
            tasks.append(task)
    if not known:
        raise WorkflowError(
            f"nothing of workflow {flow.name} was measured there",
            hint="give the results of a run of it, or of one with the same activities",
        )
    return replace(flow, tasks=tuple(tasks))


@dataclass(frozen=True, slots=True)
class RuntimeChange:
    """Run times of one activity, as they were and as they are now.

    Attributes:
        activity: The activity.
        tasks: Number of its tasks whose run time has changed.
        before: Seconds that these tasks took in sum.
        after: Seconds that they take now.
    """

    activity: str
    tasks: int
    before: float
    after: float


def runtime_changes(before: Mapping[str, float], flow: Workflow) -> list[RuntimeChange]:
    """Compare the run times of a workflow with those of before, for each activity in which some have changed.

    Args:
        before: Seconds by task.
        flow: The workflow as it is now.
    """
    found: dict[str, list[tuple[float, float]]] = {}
    for task in flow.tasks:
        if task.runtime != before.get(task.id, 0.0):
            found.setdefault(task.activity, []).append((before.get(task.id, 0.0), task.runtime))
    return [
        RuntimeChange(activity, len(pairs), sum(was for was, _ in pairs), sum(now for _, now in pairs))
        for activity, pairs in found.items()
    ]


def _running(row: Mapping[str, Any]) -> tuple[float, float]:
    """Seconds that a task ran, as measured and as expected, without those of its files."""
    if "transfer" not in row:  # results of earlier versions
        return row["seconds"], row["expected"]
    return max(row["seconds"] - row["transfer"], _LEAST), row["runtime"] / row["speed"]


def _proportion(flow: Workflow, document: Mapping[str, Any], row: Mapping[str, Any]) -> float:
    """The run time that a task has now, in those that it was planned with; 1 where that is not known."""
    place = flow.index.get(row["task"]) if document["workflow"] == flow.name else None
    planned = row.get("runtime", 0.0)  # results of earlier versions have none
    if place is None or planned <= _LEAST or flow.tasks[place].activity != row["activity"]:
        return 1.0
    return flow.tasks[place].runtime / float(planned)
