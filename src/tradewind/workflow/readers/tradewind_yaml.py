"""Reads and writes Tradewind's own workflow YAML, for people who have commands and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tradewind.errors import InputError, SpecError
from tradewind.utils.units import parse_duration, parse_memory
from tradewind.utils.yaml_lines import YamlMapping, YamlSequence
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.readers.builder import WorkflowBuilder
from tradewind.workflow.readers.yaml_lines import YamlValueReader

_KEYS = ("name", "files", "tasks", "edges", "locations")
_TASK_KEYS = (
    "command", "activity", "runtime", "inputs", "outputs", "optional", "after", "cores", "memory", "subworkflow",
    "gpus", "disk", "priority",
)  # fmt: skip


def read_tradewind_yaml(
    document: YamlMapping, file: str, name: str, *, lenient: bool = False, declared_edges: bool = False
) -> Workflow:
    """Read the workflow of a document of commands and files.

    A document is such as::

        name: totals
        files: {raw.csv: 30MB}
        tasks:
          clean: {command: python clean.py raw.csv clean.csv, runtime: 2.5s, inputs: [raw.csv], outputs: [clean.csv]}
          sum: {command: [python, sum.py], inputs: [clean.csv], cores: 2, memory: 4GiB}
          mail: {command: ./mail.sh, after: [sum]}

    A task waits for those that write its inputs and for those in ``after``; with ``edges: after`` at the top for the
    latter only. ``locations`` has the paths of files that come from outside. ``subworkflow`` names the file of the
    workflow that a task stands for: it is written where such a file was not there, and is not opened.

    Args:
        document: What `tradewind.workflow.readers.yaml_lines.read_yaml_lines` gives.
        file: Its name, for messages.
        name: The workflow's name where the document has none.
        lenient: Accept sizes and run times below zero, as `WorkflowBuilder` says.
        declared_edges: Keep the edges of ``after`` only, as ``edges: after`` does.

    Raises:
        WorkflowError: Something in it is wrong; with the line.
    """
    values = YamlValueReader(file)
    values.known(document, _KEYS, "a workflow")
    implied = values.text(document, "edges", "files")
    if implied not in ("files", "after"):
        raise values.fail(f"'edges' is {implied!r}", document.at("edges"), "write edges: files or edges: after")
    if declared_edges:
        implied = "after"
    builder = WorkflowBuilder(file, values.text(document, "name") or name, lenient, implied == "after")
    tasks = values.fields(document, "tasks")
    makers: dict[str, list[str]] = {}
    for task_id, given in tasks.items():
        if not isinstance(given, YamlMapping):
            hint = "write the keys of a task below its name: command, runtime, inputs, outputs, after"
            raise values.fail(f"task {task_id!r} is no mapping", tasks.at(task_id), hint)
        task = _task(values, task_id, given, builder)
        builder.task(task, tasks.at(task_id))
        for each in task.outputs:
            makers.setdefault(each, []).append(task_id)
    _sizes(values, document, builder)
    located = values.fields(document, "locations")
    for each in located:
        builder.locations[each] = str(Path(file).absolute().parent / values.text(located, each))
    for task_id, given in tasks.items():
        for parent in values.words(given, "after"):
            builder.edge(parent, task_id, given.at("after"))
        for each in values.words(given, "inputs") if implied == "files" else ():
            for maker in makers.get(each, ()):
                if maker != task_id:
                    builder.edge(maker, task_id, given.at("inputs"), by_file=each)
    return builder.workflow()


def _task(values: YamlValueReader, task_id: str, given: YamlMapping, builder: WorkflowBuilder) -> Task:
    what = f"task {task_id!r}"
    values.known(given, _TASK_KEYS, what)
    if given.get("runtime") is None:
        builder.note("tasks without a run time, which count as 0 s", task_id)
    inputs, outputs = values.words(given, "inputs"), values.words(given, "outputs")
    if len(set(inputs)) < len(inputs) or len(set(outputs)) < len(outputs):
        builder.note("tasks that list a file twice, which counts once", task_id)
    memory = values.parsed(given, "memory", -1, parse_memory, f"the memory of {what}", "an amount of memory")
    disk = values.parsed(given, "disk", -1, parse_memory, f"the disk of {what}", "an amount of disk such as 20GiB")
    return Task(
        task_id,
        values.text(given, "activity") or task_id,
        float(values.parsed(given, "runtime", 0.0, _seconds, f"the run time of {what}", "a time")),
        tuple(dict.fromkeys(inputs)),
        tuple(dict.fromkeys(outputs)),
        values.count(given, "cores", 1, f"the cores of {what}"),
        None if memory < 0 else memory,
        _command(values, given, what),
        _optional(values, given, inputs, what),
        values.text(given, "subworkflow"),
        values.count(given, "gpus", 0, f"the GPUs of {what}"),
        None if disk < 0 else disk,
        values.count(given, "priority", 0, f"the priority of {what}"),
    )


def _optional(values: YamlValueReader, given: YamlMapping, inputs: list[str], what: str) -> tuple[str, ...]:
    """The inputs that may be missing."""
    found = dict.fromkeys(values.words(given, "optional"))
    for name in found:
        if name not in inputs:
            raise values.fail(f"{name!r} is optional, but no input of {what}", given.at("optional"), "add it to inputs")
    return tuple(found)


def _seconds(value: Any) -> float:
    """Seconds; a number below zero is left to the builder, which has more to say about it."""
    try:
        return float(value)
    except ValueError:
        return parse_duration(str(value))


def _command(values: YamlValueReader, given: YamlMapping, what: str) -> tuple[str, ...]:
    from tradewind.problem.template import split_words  # brings Jinja, which `tradewind plugins` does not need

    value = given.get("command")
    if isinstance(value, YamlSequence):
        return tuple(values.words(given, "command"))
    try:
        return split_words(values.text(given, "command"))
    except SpecError as error:
        raise values.fail(f"the command of {what}: {error.message}", given.at("command"), error.hint or "") from None


def _sizes(values: YamlValueReader, document: YamlMapping, builder: WorkflowBuilder) -> None:
    files = values.fields(document, "files")
    used = dict.fromkeys(name for task in builder.tasks for name in (*task.inputs, *task.outputs))
    for name in files:
        if name not in used:
            builder.note("files of 'files' that no task uses", name)
        size = values.parsed(files, name, 0, _bytes, f"the size of file {name!r}", "a size")
        builder.size(name, size, "files", output=False, line=files.at(name))
    for name in used:
        if name not in files:
            builder.size(name, None, "files", output=False)


def _bytes(value: Any) -> int:
    """Bytes of ``30MB``, ``1 GiB`` or a whole number."""
    try:
        return int(str(value))
    except ValueError:
        words = str(value).strip()
        if words.replace(".", "", 1).isdigit():
            raise InputError(f"{words!r} is no size", hint="write whole bytes, 30MB or 1GiB") from None
        return parse_memory(words)


def to_document(flow: Workflow) -> dict[str, Any]:
    """Write a workflow as the document of `read_tradewind_yaml`, from which the same graph comes back."""
    makers = flow.producers
    implied = [
        {maker for name in task.inputs for maker in makers.get(name, ()) if maker != place}
        for place, task in enumerate(flow.tasks)
    ]
    # Where the graph lacks an edge that the files would make, every edge has to be written.
    listed = any(not found.issubset(parents) for found, parents in zip(implied, flow.parents, strict=True))
    document: dict[str, Any] = {"name": flow.name, **({"edges": "after"} if listed else {})}
    if flow.sizes:
        document["files"] = dict(flow.sizes)
    if flow.locations:
        document["locations"] = dict(flow.locations)
    document["tasks"] = {}
    for place, task in enumerate(flow.tasks):
        after = [flow.tasks[p].id for p in flow.parents[place] if listed or p not in implied[place]]
        row: dict[str, Any] = {
            "command": list(task.command),
            "activity": task.activity if task.activity != task.id else "",
            "runtime": task.runtime,
            "inputs": list(task.inputs),
            "outputs": list(task.outputs),
            "optional": list(task.optional),
            "after": after,
            "cores": task.cores if task.cores != 1 else None,
            "memory": f"{task.memory_bytes}B" if task.memory_bytes is not None else None,
            "subworkflow": task.subworkflow,
            "gpus": task.gpus or None,
            "disk": f"{task.disk_bytes}B" if task.disk_bytes is not None else None,
            "priority": task.priority or None,
        }
        document["tasks"][task.id] = {key: value for key, value in row.items() if value not in ([], "", None)}
    return document


def write_tradewind_yaml(flow: Workflow) -> str:
    """Write a workflow as Tradewind's own YAML."""
    import yaml

    dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    document = to_document(flow)
    # Files one a line, and of a task each key; what is below on one line.
    parts = [{key: value} for key, value in document.items()]
    return "".join(
        yaml.dump(
            part, Dumper=dumper, sort_keys=False, width=120, allow_unicode=True,
            default_flow_style=None if "tasks" in part else False,
        )
        for part in parts
    )  # fmt: skip
