"""``tradewind workflow info``: what a workflow consists of."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tradewind.cli.workflow.common import DeclaredEdges, File, Json, Lenient

if TYPE_CHECKING:
    from tradewind.workflow.graph import Workflow

_BAR = 40
_LEVELS = 40
_ACTIVITIES = 40


def info(
    file: File,
    dag: Annotated[
        list[Path] | None,
        typer.Option(help="Draw the graph there, .html or .png; repeatable.", show_default=False),
    ] = None,
    lenient: Lenient = False,
    declared_edges: DeclaredEdges = False,
    as_json: Json = False,
) -> None:
    """Show what is in a workflow: tasks, widths, activities, critical path, bytes, and what the file leaves open."""
    from tradewind.cli.common import emit_json
    from tradewind.cli.workflow.common import check_pictures
    from tradewind.workflow.files import read_workflow

    check_pictures("--dag", dag)
    flow = read_workflow(file, lenient=lenient, declared_edges=declared_edges)
    if as_json:
        emit_json(_document(flow))
    else:
        _show(flow)
    if dag:
        _draw(flow, dag)


def _document(flow: Workflow) -> dict[str, Any]:
    length, path = flow.critical_path()
    made = {name for task in flow.tasks for name in task.outputs}
    read = {name for task in flow.tasks for name in task.inputs}
    outside = {name for names in flow.from_outside for name in names}
    return {
        "name": flow.name,
        "tasks": len(flow),
        "edges": flow.edges,
        "levels": len(flow.widths),
        "widths": list(flow.widths),
        "seconds": float(flow.runtimes.sum()),
        "critical_path": {"seconds": length, "tasks": [flow.tasks[task].id for task in path]},
        "activities": _activities(flow),
        "files": {
            "count": len(made | read),
            "bytes": sum(flow.sizes.values()),
            "from_outside": len(outside),
            "bytes_from_outside": sum(flow.sizes.get(name, 0) for name in outside),
            "results": len(made - read),
            "bytes_read_by_tasks": int(flow.input_bytes.sum()),
        },
        "most_cores": max(task.cores for task in flow.tasks),
        "most_memory": max((task.memory_bytes or 0 for task in flow.tasks), default=0),
        "tasks_with_memory": sum(task.memory_bytes is not None for task in flow.tasks),
        "commands": sum(bool(task.command) for task in flow.tasks),
        "warnings": list(flow.warnings),
    }


def _activities(flow: Workflow) -> list[dict[str, Any]]:
    """Tasks, times and bytes of each activity, the one that takes most time first."""
    found: dict[str, dict[str, Any]] = {}
    for place, task in enumerate(flow.tasks):
        row = found.setdefault(
            task.activity,
            {"activity": task.activity, "tasks": 0, "seconds": 0.0, "least": task.runtime, "most": 0.0, "bytes": 0},
        )
        row["tasks"] += 1
        row["seconds"] += task.runtime
        row["least"], row["most"] = min(row["least"], task.runtime), max(row["most"], task.runtime)
        row["bytes"] += int(flow.input_bytes[place])
    return sorted(found.values(), key=lambda row: (-row["seconds"], row["activity"]))


def _show(flow: Workflow) -> None:
    from tradewind.cli.workflow.common import say, show_rows
    from tradewind.utils.units import count, format_duration

    facts = _document(flow)
    total, length = facts["seconds"], facts["critical_path"]["seconds"]
    files, path = facts["files"], count(len(facts["critical_path"]["tasks"]), "task")
    several = f", up to {facts['most_cores']} cores a task" if facts["most_cores"] > 1 else ""
    commands = f", {facts['commands']:,} with a command" if facts["commands"] else ""
    rows = [
        ("workflow", flow.name),
        ("tasks", f"{len(flow):,} in {_kinds(len(facts['activities']))}{commands}{several}"),
        ("edges", f"{flow.edges:,}"),
        ("levels", f"{facts['levels']}, up to {count(max(flow.widths), 'task')} wide"),
        ("run time", f"{total:,.2f} s ({format_duration(total)}) on one core at speed 1"),
        ("critical path", f"{length:,.2f} s ({format_duration(length)}), {path}"),
        ("parallelism", f"{total / length:.1f} on average" if length > 0 else "-"),
        (
            "files",
            f"{files['count']:,} of {_size(files['bytes'])}; {files['from_outside']:,} of "
            f"{_size(files['bytes_from_outside'])} from outside; tasks read {_size(files['bytes_read_by_tasks'])}",
        ),
    ]
    if facts["tasks_with_memory"]:
        known = "all" if facts["tasks_with_memory"] == len(flow) else f"{facts['tasks_with_memory']:,}"
        rows.insert(2, ("memory", f"up to {_size(facts['most_memory'])} a task; {known} of them say what they need"))
    show_rows(rows)
    _show_path(flow, facts["critical_path"]["tasks"])
    _show_widths(flow)
    _show_activities(facts["activities"])
    for warning in flow.warnings:
        say(f"warning: {warning}", indent="  ")


def _kinds(number: int) -> str:
    return "1 activity" if number == 1 else f"{number:,} activities"


def _show_path(flow: Workflow, tasks: list[str]) -> None:
    """The critical path as runs of activities, in lines that fit."""
    from tradewind.cli.workflow.common import say

    names = [flow.tasks[flow.index[task]].activity for task in tasks]
    words: list[str] = []
    counts: list[int] = []
    for name in names:
        if words and words[-1] == name:
            counts[-1] += 1
        else:
            words.append(name)
            counts.append(1)
    text = " > ".join(f"{name} x{count}" if count > 1 else name for name, count in zip(words, counts, strict=True))
    typer.echo()
    say(f"critical path: {text}", indent="  ")


def _show_widths(flow: Workflow) -> None:
    """Show the number of tasks at each depth, as bars."""
    from tradewind.cli.workflow.common import width

    widths = flow.widths
    room = max(10, min(_BAR, width() - 24))
    most = max(widths)
    typer.echo()
    typer.echo("depth  tasks")
    shown = widths if len(widths) <= _LEVELS else widths[:_LEVELS]
    for depth, count in enumerate(shown):
        typer.echo(f"{depth:>5}  {count:>5,}  {'#' * max(1, round(room * count / most))}")
    if len(shown) < len(widths):
        typer.echo(f"   ... {len(widths) - len(shown)} more levels; --json has all")


def _show_activities(activities: list[dict[str, Any]]) -> None:
    from tradewind.cli.workflow.common import show_table

    typer.echo()
    rows = [
        (
            row["activity"],
            f"{row['tasks']:,}",
            f"{row['seconds']:,.2f}",
            f"{row['seconds'] / row['tasks']:,.2f}",
            f"{row['least']:,.2f}",
            f"{row['most']:,.2f}",
            _size(row["bytes"]),
        )
        for row in activities
    ]
    show_table(("activity", "tasks", "seconds", "mean", "least", "most", "read"), rows[:_ACTIVITIES])
    if len(rows) > _ACTIVITIES:
        typer.echo(f"... {len(rows) - _ACTIVITIES} more activities; --json has all")


def _size(size: float) -> str:
    """Bytes in decimal units, of three digits: 999,999 bytes are 1 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < (1000 if unit == "B" else 999.5):
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB" if size < 99.95 else f"{size:,.0f} TB"


def _draw(flow: Workflow, paths: list[Path]) -> None:
    from tradewind.reporting.workflow.html import dag_html
    from tradewind.reporting.workflow.plots import draw_dag
    from tradewind.workflow.diagrams import dag_document
    from tradewind.workflow.files import write_text

    document = dag_document(flow)
    for path in paths:
        if path.suffix == ".png":
            draw_dag(document, path)
        else:
            write_text(path, dag_html(document))
