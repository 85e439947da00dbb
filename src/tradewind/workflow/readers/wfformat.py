"""Reads WfFormat, the JSON of WfCommons, versions 1.3 to 1.6, and writes it since 1.4."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tradewind.errors import WorkflowError
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.readers.builder import WorkflowBuilder
from tradewind.workflow.readers.command_words import join_argument, split_arguments

VERSION = "1.5"
"""The version that is written unless another one is asked for."""

VERSIONS = ("1.4", "1.5", "1.6")
"""The versions that can be written."""

_MOST = 1 << 60
"""Number of cores, bytes of memory, or priority that no task has."""
_NUMBER = re.compile(r"[_.-]?(ID)?\d+$")

_NO_TIME = "tasks without a run time, which count as 0 s"


def from_document(
    document: Any, file: str, *, text: bytes = b"", lenient: bool = False, declared_edges: bool = False
) -> Workflow:
    """Read the workflow of a WfFormat document.

    The activity of a task is its category, or its name where that is not its id, or the program that it runs, or its
    name without the number at its end. Until 1.4 tasks, files and times stand together; since 1.5 times are those of
    ``workflow.execution``.

    A task waits for its ``parents``, for those that have it among their ``children``, and for those that write its
    inputs. Both lists name tasks by their ids, or, until 1.4, by their names. Until 1.3 memory is in kB, and
    sizes are in bytes; a warning says so.

    Args:
        document: The document.
        file: The file's name, for messages.
        text: The file's content, in which errors look for their lines.
        lenient: Accept sizes and run times below zero, as `WorkflowBuilder` says.
        declared_edges: Keep the declared edges only.

    Raises:
        WorkflowError: The document is no WfFormat document, or something in it is wrong; with the task.
    """
    given = document if isinstance(document, Mapping) else {}
    name = str(given.get("name") or Path(file).name.removesuffix(".gz").rsplit(".", 1)[0])
    builder, flow = WorkflowBuilder(file, name, lenient, declared_edges, text), given.get("workflow")
    if not isinstance(flow, Mapping):
        raise builder.fail("it is no WfFormat file: it has no 'workflow'")
    try:
        if "specification" in flow:
            _split(builder, flow)
        else:
            _joined(builder, flow)
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        last = builder.tasks[-1].id if builder.tasks else None
        place = f"task {last!r} or the one after it" if last else "its first task"
        words = f"it is not as WfFormat has it at {place}: {type(error).__name__} {error}"
        raise builder.fail(words, about=last) from None
    _note_no_time(builder)
    return builder.workflow()


def _note_no_time(builder: WorkflowBuilder) -> None:
    """Note that the file says 0 s for all tasks, as a benchmark's does before it is run: a plan would take no time."""
    if not builder.noted(_NO_TIME) and not any(task.runtime for task in builder.tasks):
        builder.note("tasks whose run time is 0 s in the file, as that of all tasks", *(t.id for t in builder.tasks))


def _split(builder: WorkflowBuilder, flow: Mapping[str, Any]) -> None:
    """Read version 1.5 and later, in which the run of each task is apart from its specification."""
    specification = flow["specification"]
    listed = _mappings(builder, specification, "tasks")
    executed = _mappings(builder, flow.get("execution") or {}, "tasks", "execution.tasks")
    runs = {str(run["id"]): run for run in executed}
    if len(runs) < len(executed):
        several = [name for name, number in Counter(str(run["id"]) for run in executed).items() if number > 1]
        builder.note("tasks with several executions, of which the last counts", *several)
    sizes = {str(each["id"]): each.get("sizeInBytes") for each in _mappings(builder, specification, "files")}
    for task in listed:
        inputs = _names(builder, task, "inputFiles")
        outputs = _names(builder, task, "outputFiles")
        _task(builder, task, runs.get(str(task["id"]), {}), inputs, outputs)
        for names, output in ((inputs, False), (outputs, True)):
            for name in dict.fromkeys(names):
                builder.size(name, sizes.get(name), str(task["id"]), output=output)
    _edges(builder, listed)


def _joined(builder: WorkflowBuilder, flow: Mapping[str, Any]) -> None:
    """Read versions until 1.4, in which everything stands at the task."""
    if "tasks" not in flow and "jobs" not in flow:
        raise builder.fail("its 'workflow' has no 'tasks'")
    tasks = _mappings(builder, flow, "tasks" if "tasks" in flow else "jobs")
    for task in tasks:
        files = _mappings(builder, task, "files")
        inputs = [each["name"] for each in files if each.get("link") != "output"]
        outputs = [each["name"] for each in files if each.get("link") == "output"]
        _task(builder, {**task, "id": _id_of(task)}, task, inputs, outputs)
        for each in files:
            size = each.get("sizeInBytes", each.get("size"))
            builder.size(each["name"], size, _id_of(task), output=each.get("link") == "output")
    _note_units(builder, tasks)
    _edges(builder, tasks)


def _note_units(builder: WorkflowBuilder, tasks: Sequence[Mapping[str, Any]]) -> None:
    """Say which units figures without one in their name have; since 1.4 their names say it."""
    files = [each for task in tasks for each in _mappings(builder, task, "files")]
    sized = [str(each["name"]) for each in files if "sizeInBytes" not in each and each.get("size")]
    builder.note(
        "files whose size is in bytes, as WfCommons wrote it, although the schema of WfFormat 1.3 says KB", *sized
    )
    kilobytes = [_id_of(task) for task in tasks if task.get("memory") and not task.get("memoryInBytes")]
    builder.note("tasks whose memory is in kB, as in WfFormat until 1.3", *kilobytes)


def _id_of(task: Mapping[str, Any]) -> str:
    return str(task.get("id") or task["name"])


def _edges(builder: WorkflowBuilder, tasks: Sequence[Mapping[str, Any]]) -> None:
    """Add the edges: a file may have each at one end only, and may name tasks by names that are not their ids."""
    ids = {_id_of(task) for task in tasks}
    named = [task for task in tasks if "name" in task]
    names = Counter(str(task["name"]) for task in named)
    alias = {str(task["name"]): _id_of(task) for task in named if names[str(task["name"])] == 1}
    alias |= {each: each for each in ids}

    def ends(task: Mapping[str, Any], key: str) -> list[str]:
        return [alias.get(each, each) for each in _names(builder, task, key)]

    above = {(parent, _id_of(task)) for task in tasks for parent in ends(task, "parents")}
    below = {(_id_of(task), child) for task in tasks for child in ends(task, "children")}
    listing = [{child for _, child in above}, {parent for parent, _ in below}]
    for task in tasks:
        for parent in ends(task, "parents"):
            builder.edge(parent, _id_of(task))
        for child in ends(task, "children"):
            if (_id_of(task), child) not in above:
                builder.edge(_id_of(task), child)
    # Where a task has no list at all the file may have its edges at the other end; a list that lacks some is a mistake.
    odd = {pair for pair in below - above if pair[1] in listing[0]}
    odd |= {pair for pair in above - below if pair[0] in listing[1]}
    words = "edges that are either among the parents or among the children, not both, and hold"
    builder.note(words, *(f"{parent} -> {child}" for parent, child in sorted(odd)))


def _task(
    builder: WorkflowBuilder,
    task: Mapping[str, Any],
    run: Mapping[str, Any],
    inputs: Sequence[str],
    outputs: Sequence[str],
) -> None:
    task_id, runtime = str(task["id"]), run.get("runtimeInSeconds", run.get("runtime"))
    if runtime is None:
        builder.note(_NO_TIME, task_id)
    command = run.get("command") or {}
    if not isinstance(command, Mapping):
        hint = "it is a mapping with program and arguments"
        raise builder.fail(f"the command of task {task_id!r} is {command!r}", None, hint, task_id)
    program, arguments = str(command.get("program") or ""), list(map(str, command.get("arguments") or []))
    words = [program, *split_arguments(program, arguments)] if program else []
    kilobytes = _number(builder, task_id, run, "memory")
    memory = int(_number(builder, task_id, run, "memoryInBytes") or 1000 * kilobytes)
    cores = _number(builder, task_id, run, "coreCount") or _number(builder, task_id, run, "cores") or 1
    if cores % 1:
        builder.note("tasks with a part of a core, which count as the next whole number of cores", task_id)
    if isinstance(runtime, str | bool | list | Mapping):
        runtime = _number(builder, task_id, {"run time": runtime}, "run time")
    builder.task(
        Task(
            task_id,
            _activity(task, task_id, program),
            float(runtime or 0.0),
            tuple(dict.fromkeys(inputs)),
            tuple(dict.fromkeys(outputs)),
            max(1, math.ceil(cores)),
            memory or None,
            tuple(words),
            priority=_priority(builder, task_id, run),
        )
    )
    if len(set(inputs)) < len(inputs) or len(set(outputs)) < len(outputs):
        builder.note("tasks that list a file twice, which counts once", task_id)


def _priority(builder: WorkflowBuilder, task_id: str, run: Mapping[str, Any]) -> int:
    given = run.get("priority")
    if given is None:
        return 0
    if isinstance(given, bool) or not isinstance(given, int | float) or not abs(given) < _MOST:
        raise builder.fail(f"the priority of task {task_id!r} is {given!r}, not a number", about=task_id)
    return round(given)


def _mappings(builder: WorkflowBuilder, given: Any, key: str, what: str = "") -> list[Mapping[str, Any]]:
    """The mappings that a key lists; none where it is not there."""
    found = given.get(key) if isinstance(given, Mapping) else given
    if found is not None and (not isinstance(found, list) or not all(isinstance(each, Mapping) for each in found)):
        odd = next((each for each in found if not isinstance(each, Mapping)), "") if isinstance(found, list) else ""
        has = f": {odd!r} is in it" if odd != "" else ""
        raise builder.fail(f"its {what or key} is no list of mappings{has}")
    return found or []


def _names(builder: WorkflowBuilder, task: Mapping[str, Any], key: str) -> list[str]:
    """The names that a key of a task lists."""
    given = task.get(key) or []
    if not isinstance(given, list) or any(isinstance(each, list | Mapping) for each in given):
        task_id = _id_of(task)
        raise builder.fail(f"{key} of task {task_id!r} is no list of names", about=task_id)
    return [str(each) for each in given]


def _number(builder: WorkflowBuilder, task: str, run: Mapping[str, Any], key: str) -> float:
    """A number of 0 or more, below any that makes sense; 0 where there is none. Texts that are numbers count."""
    given = run.get(key)
    if given is None:
        return 0
    try:
        value = math.nan if isinstance(given, bool) else float(given)
    except (TypeError, ValueError):
        value = math.nan
    if not 0 <= value < _MOST:
        what = "more than any task can have" if value >= _MOST else "not a number of 0 or more"
        raise builder.fail(f"{key} of task {task!r} is {given!r}, {what}", about=task)
    return value


def _activity(task: Mapping[str, Any], task_id: str, program: str) -> str:
    name = str(task.get("name") or task_id)
    if task.get("category"):
        return str(task["category"])
    if name != task_id:
        return name.removesuffix(task_id).rstrip("_.-") or name
    # Some systems give a whole script as the program.
    return program if program and not re.search(r"\s", program) else _NUMBER.sub("", name) or name


def write_wfformat(flow: Workflow, *, machine: str = "reference", version: str = VERSION) -> str:
    """A workflow as a WfFormat document.

    Args:
        flow: The workflow.
        machine: The name of the machine that its run times are for.
        version: ``1.4``, ``1.5`` or ``1.6``.

    Raises:
        WorkflowError: The version is another one.
    """
    if version not in VERSIONS:
        raise WorkflowError(f"WfFormat {version} is not written", hint=f"one of {', '.join(VERSIONS)}")
    joined = version == "1.4"
    tasks = [{**_named(flow, place), **_files(flow, place, joined)} for place in range(len(flow))]
    runs = [_execution(task, machine, joined) for task in flow.tasks]
    if joined:
        inner: dict[str, Any] = {
            "makespanInSeconds": 0,
            "executedAt": "1970-01-01T00:00:00Z",
            "tasks": [{**task, "type": "compute", **run} for task, run in zip(tasks, runs, strict=True)],
            "machines": [{"nodeName": machine}],
        }
    else:
        inner = {
            "specification": {
                "tasks": tasks,
                "files": [{"id": name, "sizeInBytes": size} for name, size in flow.sizes.items()],
            },
            "execution": {
                "makespanInSeconds": 0,
                "executedAt": "1970-01-01T00:00:00Z",
                "tasks": runs,
                "machines": [{"nodeName": machine}],
            },
        }
    return json.dumps({"name": flow.name, "schemaVersion": version, "workflow": inner}, indent=1)


def _named(flow: Workflow, place: int) -> dict[str, Any]:
    task = flow.tasks[place]
    return {
        "name": task.id,
        "id": task.id,
        "category": task.activity,
        "parents": [flow.tasks[parent].id for parent in flow.parents[place]],
        "children": [flow.tasks[child].id for child in flow.children[place]],
    }


def _files(flow: Workflow, place: int, joined: bool) -> dict[str, Any]:
    task = flow.tasks[place]
    if not joined:
        return {"inputFiles": list(task.inputs), "outputFiles": list(task.outputs)}
    found = []
    for link, names in (("input", task.inputs), ("output", task.outputs)):
        for name in names:
            size = {"sizeInBytes": flow.sizes[name]} if name in flow.sizes else {}
            found.append({"link": link, "name": name, **size})
    return {"files": found}


def _execution(task: Task, machine: str, joined: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"id": task.id, "runtimeInSeconds": task.runtime}
    found["cores" if joined else "coreCount"] = task.cores
    if task.command:
        found["command"] = {"program": task.command[0], "arguments": list(map(join_argument, task.command[1:]))}
    if task.memory_bytes is not None:
        found["memoryInBytes"] = task.memory_bytes
    if task.priority:
        found["priority"] = task.priority
    return {**found, **({"machine": machine} if joined else {"machines": [machine]})}
