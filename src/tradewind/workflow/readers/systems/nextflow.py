"""Reads what a run of Nextflow leaves: its trace (``-with-trace``), and its graph (``-with-dag``) as dot or Mermaid."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from tradewind.errors import InputError
from tradewind.utils.units import parse_duration, parse_memory
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.readers.builder import WorkflowBuilder
from tradewind.workflow.readers.systems.graph_text import DrawnGraph, is_dot, read_dot, read_mermaid
from tradewind.workflow.readers.systems.nextflow_edges import MeasuredTask, edges_of
from tradewind.workflow.readers.systems.tables import TableRow, columns_of, rows_of

_TYPICAL = {"task_id", "hash", "native_id", "status", "realtime", "%cpu"}
"""Columns of which a trace has several."""
_ENDED = ("COMPLETED", "CACHED")
_GRAPHS = ("*.dot", "*.gv", "*.mmd", "*dag*.html")
_TRACES = ("*trace*.txt", "*trace*.tsv", "*trace*.csv")
_MOST_FILES = 50
"""Most files of a folder that are tried; a folder of results holds a few."""


def is_trace(text: str) -> bool:
    """True for a table with the columns that a trace needs."""
    columns = set(columns_of(text[:4096]))
    return bool(columns & {"name", "process"}) and len(columns & _TYPICAL) > 1


def is_graph(graph: DrawnGraph) -> bool:
    """True for a graph as Nextflow draws it: its nodes are ``p0``, ``v1``, ..."""
    return bool(graph.nodes) and all(re.fullmatch(r"[pv]\d+", name) for name in graph.nodes)


def read_nextflow_trace(text: str, file: str, *, lenient: bool = False, declared_edges: bool = False) -> Workflow:
    """Read the tasks and times of a trace, and their edges from the graph of the same run beside it.

    A task takes its ``realtime``; of one that was tried several times the attempt that completed. Its cores and memory
    are those asked for (``cpus``, ``memory``), else those that it used (``%cpu``, ``peak_rss``), its disk and GPUs
    those asked for (``disk``, ``accelerator``).

    Nextflow draws processes, not tasks. A file beside the trace counts as its graph where every process of the trace is
    in it. `edges_of` finds out which tasks wait for which.

    Args:
        text: The trace.
        file: Its path; the graph is looked for in its folder.
        lenient: Accept times below zero, as `WorkflowBuilder` says.
        declared_edges: Likewise.

    Raises:
        WorkflowError: The trace is not whole, or something in it is wrong; with the line.
    """
    builder = WorkflowBuilder(file, Path(file).name.removesuffix(".gz").rsplit(".", 1)[0], lenient, declared_edges)
    tasks = _tasks(builder, text, file)
    found = _graph_beside(Path(file), {each.process for each in tasks})
    processes = dict.fromkeys(each.process for each in tasks)
    if found is not None:
        _connect(builder, tasks, found)
    elif len(processes) > 1:
        builder.note("processes whose tasks wait for nothing, for want of their graph (-with-dag) beside the trace",
                     *processes)  # fmt: skip
    return builder.workflow()


def read_nextflow_graph(
    graph: DrawnGraph, file: str, *, mermaid: bool = False, lenient: bool = False, declared_edges: bool = False
) -> Workflow:
    """Read the processes of a graph, or the tasks of the trace beside it.

    Args:
        graph: The graph.
        file: Its path; the trace is looked for in its folder.
        mermaid: True where it is a flowchart of Mermaid, which draws processes otherwise.
        lenient: As `read_nextflow_trace` has it.
        declared_edges: Likewise.

    Raises:
        WorkflowError: There is no process in it, or the trace has a mistake.
    """
    name = graph.name or Path(file).name.removesuffix(".gz").rsplit(".", 1)[0]
    builder = WorkflowBuilder(file, name, lenient, declared_edges)
    labels = _processes(graph, mermaid)
    if not labels:
        raise builder.fail("there is no process in this graph of Nextflow")
    path = _trace_beside(Path(file), set(labels.values()))
    if path is not None:
        tasks = _tasks(builder, path.read_text("utf-8-sig"), str(path))
        _connect(builder, tasks, graph)
        return builder.workflow()
    several = Counter(labels.values())
    ids = {node: label if several[label] == 1 else f"{label} {node}" for node, label in labels.items()}
    for node, label in labels.items():
        builder.task(Task(ids[node], label, 0.0), graph.nodes[node].line)
    builder.note("processes without a run time, for want of a trace (-with-trace) beside the graph, each taken as one "
                 "task of 0 s", *ids.values())  # fmt: skip
    for start, end, _ in graph.between(set(labels)):
        builder.edge(ids[start], ids[end])
    return builder.workflow()


def _processes(graph: DrawnGraph, mermaid: bool) -> dict[str, str]:
    """Labels of the nodes that are processes."""
    if not mermaid:
        points = ("point", "circle")
        return {name: node.label for name, node in graph.nodes.items() if node.label and node.shape not in points}
    # Until Nextflow 23 a rectangle is a process and a rounded one an operator, since then it is the other way round.
    shapes = {node.shape for node in graph.nodes.values()}
    shape = "[" if "[" in shapes else "(["
    return {name: node.label for name, node in graph.nodes.items() if node.label and node.shape == shape}


def _folder(path: Path, patterns: tuple[str, ...]) -> list[Path]:
    """Files beside one, those first that have the same date and time in their names."""
    stamp = re.search(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d|\d{8}-\d+", path.name)
    found = {each for pattern in patterns for each in path.parent.glob(pattern) if each.is_file() and each != path}
    ordered = sorted(found, key=lambda each: (stamp is None or stamp[0] not in each.name, each.name))
    return ordered[:_MOST_FILES]


def _graph_beside(path: Path, processes: set[str]) -> DrawnGraph | None:
    """The graph that has all processes of a trace."""
    for each in _folder(path, _GRAPHS):
        graph = _drawn(each)
        if graph is not None and all(nodes_of(process, graph) for process in processes):
            return graph
    return None


def _drawn(path: Path) -> DrawnGraph | None:
    try:
        text = path.read_text("utf-8-sig")
        graph = (read_dot if is_dot(text) else read_mermaid)(text, str(path))
    except (OSError, UnicodeDecodeError, InputError):
        return None  # a file of something else, which nobody has asked for
    return graph if is_graph(graph) else None


def _trace_beside(path: Path, processes: set[str]) -> Path | None:
    """The trace whose processes are all in a graph."""
    simple = {process.rpartition(":")[2] for process in processes}
    for each in _folder(path, _TRACES):
        try:
            text = each.read_text("utf-8-sig")
        except (OSError, UnicodeDecodeError):
            continue
        if text.strip() and is_trace(text):
            named = {_process(row).rpartition(":")[2] for row in rows_of(text, str(each))}
            if named and named <= simple:
                return each
    return None


def nodes_of(process: str, graph: DrawnGraph) -> list[str]:
    """Find the nodes that a process may be: of those with its name those in its workflow, where the graph says it."""
    found = [
        name
        for name, node in graph.nodes.items()
        if node.label and (process == node.label or process.endswith(f":{node.label}"))
    ]
    exact = [name for name in found if graph.nodes[name].label == process]
    inside = [name for name in found if process.endswith(f"{graph.nodes[name].group}:{graph.nodes[name].label}")]
    return exact or (inside if any(graph.nodes[name].group for name in inside) else []) or found


def _connect(builder: WorkflowBuilder, tasks: list[MeasuredTask], graph: DrawnGraph) -> None:
    by_process: dict[str, list[MeasuredTask]] = {}
    for task in tasks:
        by_process.setdefault(task.process, []).append(task)
    at: dict[str, list[str]] = {}
    for process in by_process:
        for node in nodes_of(process, graph):
            at.setdefault(node, []).append(process)
    by_order: list[str] = []
    by_all: list[str] = []
    by_none: list[str] = []
    for start, end, through in graph.between(set(at)):
        operators = tuple(graph.nodes[node].label or graph.nodes[node].shape for node in through)
        for before in at[start]:
            for after in at[end]:
                if before != after:
                    found = edges_of(by_process[before], by_process[after], operators)
                    noted = (
                        by_none if not found.edges else by_order if found.by_order else by_all if found.by_all else []
                    )
                    noted.append(f"{before} -> {after}")
                    for parent, child in found.edges:
                        builder.edge(parent, child)
    builder.note("processes whose tasks are matched by the order in which they ended and began", *by_order)
    builder.note("processes of which each task waits for all of the one before that had ended", *by_all)
    builder.note("processes that wait by the graph, but whose tasks began before any of the one before ended", *by_none)


@dataclass
class _Row:
    task: MeasuredTask
    status: str
    given: Task
    line: int


def _process(row: TableRow) -> str:
    return row.text("process") or re.sub(r"\s*\(.*\)$", "", row.text("name"))


def _tasks(builder: WorkflowBuilder, text: str, file: str) -> list[MeasuredTask]:
    """Add the tasks of a trace, in the order in which they were submitted where it is known."""
    rows = [_row(builder, row) for row in rows_of(text, file)]
    ended = {row.task.id for row in rows if row.status in _ENDED}
    kept = [row for row in rows if row.status in _ENDED or row.task.id not in ended]
    failed = [row.task.id for row in rows if row.status not in (*_ENDED, "")]
    builder.note(
        "attempts that failed before another one completed, which are left out", *(f for f in failed if f in ended)
    )
    builder.note(
        "tasks that did not complete, which take as long as they had run", *(f for f in failed if f not in ended)
    )
    names = Counter(row.task.id for row in kept)
    seen: Counter[str] = Counter()
    found = []
    for row in kept:
        name = row.task.id
        seen[name] += 1
        task_id = name if names[name] == 1 else f"{name} #{seen[name]}"
        builder.task(replace(row.given, id=task_id), row.line)
        found.append(replace(row.task, id=task_id))
    return found


def _row(builder: WorkflowBuilder, row: TableRow) -> _Row:
    process = _process(row)
    if not process:
        raise builder.fail("a row has neither a name nor a process", row.line)
    name = row.text("name")
    tag = row.text("tag") or (name.removeprefix(process).strip()[1:-1] if name.startswith(f"{process} (") else "")
    name = name or (f"{process} ({tag})" if tag else process)
    realtime = _seconds(builder, row, "realtime")
    duration = _seconds(builder, row, "duration")
    seconds = duration if realtime is None else realtime
    if seconds is None:
        builder.note("tasks without a run time, which count as 0 s", name)
    submit = _moment(row.text("submit")) if row.text("submit") else None
    complete = _moment(row.text("complete")) if row.text("complete") else None
    if complete is None and submit is not None and duration is not None:
        complete = submit + duration
    memory, disk = _bytes(builder, row, "memory", "peak_rss"), _bytes(builder, row, "disk")
    given = Task(name, process, seconds or 0.0, cores=_cores(builder, row), memory_bytes=memory, disk_bytes=disk,
                 gpus=_gpus(builder, row))  # fmt: skip
    return _Row(MeasuredTask(name, process, tag, submit, complete), row.text("status"), given, row.line)


def _seconds(builder: WorkflowBuilder, row: TableRow, column: str) -> float | None:
    text = row.text(column)
    if not text:
        return None
    try:
        # A bare number is in milliseconds.
        return float(text) / 1000 if re.fullmatch(r"-?\d+(\.\d+)?", text) else parse_duration(text)
    except InputError:
        raise builder.fail(f"{column} is {text!r}, not a time such as 1m 14s or milliseconds", row.line) from None


def _moment(text: str) -> float | None:
    """Seconds since any fixed moment; None of a text that is no time."""
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text) / 1000
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def _cores(builder: WorkflowBuilder, row: TableRow) -> int:
    text = row.text("cpus")
    used = row.text("%cpu", "pcpu").rstrip("%")
    try:
        if text:
            return int(text)
        if not used:
            return 1
        busy = max(1, round(float(used) / 100))
    except ValueError:
        raise builder.fail(f"cpus or %cpu is {text or used!r}, not a number", row.line) from None
    builder.note("tasks without cpus, whose cores are those that they kept busy (%cpu)", row.text("name", "process"))
    return busy


def _gpus(builder: WorkflowBuilder, row: TableRow) -> int:
    text = row.text("accelerator") or "0"
    if not re.fullmatch(r"\d{1,9}", text):
        raise builder.fail(f"accelerator is {text!r}, not a number", row.line)
    return int(text)


def _bytes(builder: WorkflowBuilder, row: TableRow, *columns: str) -> int | None:
    text = row.text(*columns)
    if not text:
        return None
    if re.fullmatch(r"\d+", text):
        return int(text) or None
    try:
        # Nextflow's kB, MB, GB are powers of 1024.
        return parse_memory(re.sub(r"\s*([KMGT])i?B$", r" \1iB", text)) if not text.endswith(" B") else int(text[:-2])
    except (InputError, ValueError):
        what = f"{' or '.join(columns)} is {text!r}, not a size such as 8.9 MB or bytes"
        raise builder.fail(what, row.line) from None
