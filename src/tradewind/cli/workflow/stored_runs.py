"""Runs of workflows in the store, as ``tradewind status``, ``logs``, ``report`` and ``export`` show them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import IO

    from tradewind.store.base import Store, StudySummary
    from tradewind.workflow.execution.journal import AttemptRecord
    from tradewind.workflow.execution.stored.stored_run import StoredRun

NEWEST = 20
"""Tasks of a run that are shown without ``--all``."""


def tasks_done(store: Store, summaries: Sequence[StudySummary]) -> dict[int, int]:
    """The number of tasks that are done, of each of some studies that is a run of a workflow."""
    from contextlib import closing

    from tradewind.store.workflows.workflow_store import WorkflowStore

    runs = [each.study.id for each in summaries if each.study.kind == "workflow"]
    if not runs:
        return {}
    with closing(WorkflowStore(store.url)) as rows:
        return rows.task_counts(runs)


# ---------------------------------------------------------------------- status


def show_run(store: Store, study_id: int, everything: bool, as_json: bool) -> None:
    """Show a run with its machines and its tasks."""
    from tradewind.cli.common import emit_json
    from tradewind.reporting.study.documents import summary_document
    from tradewind.workflow.execution.stored.stored_run import StoredRun

    run = StoredRun.load(store, study_id)
    tasks = task_rows(run)
    machines = _machine_rows(store, run)
    if as_json:
        facts = {"folder": str(run.folder.path), "engine": run.engine, "ending": run.ending}
        done = sum(row["state"] == "done" for row in tasks)
        counts = {"tasks_total": len(tasks), "tasks_done": done}
        emit_json({**summary_document(run.summary), **facts, **counts, "machines": machines, "tasks": tasks})
        return
    _print_run(run, tasks, machines, everything)


def _print_run(
    run: StoredRun, tasks: Sequence[Mapping[str, Any]], machines: Sequence[Mapping[str, Any]], everything: bool
) -> None:
    from collections import Counter

    from rich.console import Console

    from tradewind.reporting.study import tables
    from tradewind.utils.units import format_money

    console, study = Console(highlight=False), run.study
    states = Counter(row["state"] for row in tasks)
    console.print(tables.studies([run.summary], console.width, {study.id: states["done"]}))
    if run.summary.holder:
        console.print(f"running in process {run.summary.holder}", markup=False)
    elif run.imported:
        console.print("imported: the store that it came from goes on with it", markup=False)
    elif study.reason:
        console.print(f"stopped: {study.reason}", markup=False)
    elif run.ending == "interrupted":
        console.print("its process is gone: the command that began it goes on with it", markup=False)
    if run.summary.reserved:
        console.print(f"{format_money(run.summary.reserved)} total is reserved for its machines", markup=False)
    words = ", ".join(f"{states[name]:,} {name}" for name in TASK_STATES if states[name])
    console.print(f"tasks: {words}; on {run.engine}, in {run.folder.path}", markup=False, soft_wrap=True)
    console.print()
    console.print(_machine_table(machines, console.width))
    begun = [row for row in tasks if row["state"] != "waiting"]
    shown = list(tasks) if everything else sorted(begun, key=lambda row: row["start"] or 0.0)[-NEWEST:]
    if shown:
        console.print()
        console.print(_task_table(shown, console.width))
    if len(shown) < len(tasks):
        more = f"and {len(tasks) - len(shown):,} more: tradewind status {study.name} --all"
        console.print(more, style="bright_black", markup=False)


TASK_STATES = ("done", "running", "open", "failed", "lost", "gone", "waiting")
"""States of a task: ``open`` where nobody knows the end of an attempt, ``gone`` where its outputs are missing since."""


def task_rows(run: StoredRun) -> list[dict[str, Any]]:
    """The tasks of a run in the plan's order: state, machine, attempts, planned and actual times, and why not.

    Times are seconds from the moment at which tasks could begin, as in ``results.json``.
    """
    import time

    newest: dict[str, AttemptRecord] = {each.task: each for each in run.history.attempts.values()}
    results = run.results(time.time())
    scale, rows = results["scale"], []
    for row in results["tasks"]:
        each = newest.get(row["task"])
        state = "waiting"
        if each is not None:
            state = each.end["outcome"] if each.end is not None else "running" if run.summary.holder else "open"
        start = None if each is None else run.history.clock((each.end or {}).get("start", each.at)) / scale
        end = None if each is None or each.end is None else each.end
        rows.append(
            {
                "task": row["task"],
                "activity": row["activity"],
                "state": state,
                "machine": None if each is None else each.vm,
                "attempts": row["attempts"],
                "planned_machine": row["planned_vm"],
                "planned_start": row["planned_start"],
                "planned_seconds": row["planned_finish"] - row["planned_start"],
                "start": start,
                "seconds": None if end is None or "seconds" not in end else end["seconds"] / scale,
                "reason": "" if end is None else str(end.get("reason", "")),
            }
        )
    return rows


def _machine_rows(store: Store, run: StoredRun) -> list[dict[str, Any]]:
    """The machines of a plan, with what has become of each."""
    runs = store.runs(run.study.id)
    rows = []
    for place, vm in enumerate(run.plan.platform.vms):
        mine = [each for each in runs if each.trial == place]
        rows.append(
            {
                "machine": vm.name,
                "kind": vm.kind,
                "state": mine[-1].state.value if mine else "not requested",
                "requested": len(mine),
                "seconds": sum(each.runtime for each in mine),
                "spent": sum(each.cost for each in mine),
                "reason": mine[-1].reason if mine else "",
            }
        )
    return rows


def _machine_table(machines: Sequence[Mapping[str, Any]], width: int) -> Any:
    from tradewind.reporting.text_layout import TableColumn, TextTable
    from tradewind.utils.units import format_duration, format_money

    columns = [
        TableColumn("machine"), TableColumn("kind", 2), TableColumn("state"), TableColumn("requested", 3, right=True),
        TableColumn("was there", 1, right=True), TableColumn("spent, total", right=True),
        TableColumn("why", least=12),
    ]  # fmt: skip
    table = TextTable(columns, [], width=width)
    for row in machines:
        held = format_duration(row["seconds"]) if row["seconds"] else "-"
        why = " ".join(row["reason"].split())
        cells = [row["machine"], row["kind"] or "-", row["state"], str(row["requested"]), held]
        table.rows.append([*cells, format_money(row["spent"]), why])
        table.styles.append({2: _STYLES.get(row["state"], "")})
    return table


def _task_table(tasks: Sequence[Mapping[str, Any]], width: int) -> Any:
    from tradewind.reporting.text_layout import TableColumn, TextTable

    columns = [
        TableColumn("task"), TableColumn("state"), TableColumn("machine", 1), TableColumn("attempts", 3, right=True),
        TableColumn("begins, planned", 2, right=True), TableColumn("began", 1, right=True),
        TableColumn("takes, planned", 2, right=True), TableColumn("took", right=True), TableColumn("why", least=12),
    ]  # fmt: skip
    table = TextTable(columns, [], width=width)
    for row in tasks:
        table.rows.append(
            [
                row["task"],
                row["state"],
                row["machine"] or f"({row['planned_machine']})",
                str(row["attempts"]),
                *(_seconds(row[name]) for name in ("planned_start", "start", "planned_seconds", "seconds")),
                " ".join(row["reason"].split()),
            ]
        )
        table.styles.append({1: _STYLES.get(row["state"], "")})
    return table


_STYLES = {"done": "green", "running": "cyan", "executing": "cyan", "failed": "red", "lost": "magenta"}


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f} s"


# ---------------------------------------------------------------------- logs


def print_task_log(
    store: Store, study_id: int, task: str, name: str, *, follow: bool, tail: int | None, as_json: bool
) -> None:
    """Print what a task printed, in its newest attempt.

    Args:
        store: The store.
        study_id: The run.
        task: The task, or ``last``: the one that was begun last.
        name: ``stdout`` or ``stderr``.
        follow: Go on until the attempt ends.
        tail: Only so many lines of what there is; 0 for all.
        as_json: Print where the log is.
    """
    from tradewind.cli.common import emit_json
    from tradewind.errors import InputError
    from tradewind.workflow.execution.stored.stored_run import StoredRun

    run = StoredRun.load(store, study_id)
    each = _attempt(run, task)
    path = run.folder.path / run.folder.attempt(each.task, each.attempt) / name
    if as_json:
        state = "running" if each.end is None else each.end["outcome"]
        size = path.stat().st_size if path.is_file() else None
        facts = {"run": run.study.name, "task": each.task, "attempt": each.attempt, "state": state}
        emit_json({**facts, "path": str(path), "bytes": size})
        return
    if not path.is_file() and not (follow and each.end is None):
        what = f"task {each.task!r} (attempt {each.attempt} on {each.vm}) has no {name}"
        if not run.folder.path.is_dir():
            hint = "it was removed, or is on another machine"
            raise InputError(f"{what}: the run's folder {run.folder.path} is gone", hint=hint)
        raise InputError(f"{what} in {path.parent}", hint="tasks without a command print nothing")
    _follow(store, run, each, path, follow, tail)


def _attempt(run: StoredRun, task: str) -> AttemptRecord:
    from tradewind.errors import InputError

    if task == "last" and task not in run.plan.flow.index:
        begun = list(run.history.attempts.values())
        if not begun:
            raise InputError("no task has been begun yet", hint="tradewind status shows how far the run is")
        return begun[-1]
    attempts = run.attempts(task)
    if not attempts:
        raise InputError(f"task {task!r} has not been begun", hint="tradewind status shows how far the run is")
    return attempts[-1]


def _follow(store: Store, run: StoredRun, each: AttemptRecord, path: Path, follow: bool, tail: int | None) -> None:
    from contextlib import closing

    from tradewind.cli.study.logs import offset_of, print_log
    from tradewind.store.workflows.workflow_store import WorkflowStore

    with closing(WorkflowStore(store.url)) as rows:

        def has_ended() -> bool:
            run.take(rows)
            return not follow or run.history.attempts[each.task, each.attempt].end is not None

        print_log(path, offset_of(path, tail), has_ended)


# ---------------------------------------------------------------------- report


def report_run(store: Store, study_id: int, html: Path | None, png: Path | None, *, as_json: bool) -> None:
    """Compare a run with its plan: figures, a chart of both, and what its machines have cost."""
    import time

    from tradewind.cli.common import emit_json
    from tradewind.reporting.workflow.html import gantt_html
    from tradewind.reporting.workflow.plots import draw_gantt
    from tradewind.workflow.execution.stored.stored_run import StoredRun
    from tradewind.workflow.files import write_text

    run = StoredRun.load(store, study_id)
    results = run.results(time.time())
    written: list[Path] = []
    if html is not None:
        write_text(html, gantt_html(run.gantt(time.time())))
        written.append(html)
    if png is not None:
        png.mkdir(parents=True, exist_ok=True)
        written.append(png / "gantt.png")
        draw_gantt(run.gantt(time.time()), written[-1])
    if as_json:
        emit_json({**results, "study": run.study.name, "id": run.study.id, "spent": run.summary.spent,
                   "files": [str(path) for path in written]})  # fmt: skip
        return
    if not written:
        _print_report(run, results)
    for path in written:
        typer.echo(f"wrote {path}")


def _print_report(run: StoredRun, results: Mapping[str, Any]) -> None:
    import shutil
    import sys
    import time

    from tradewind.cli.output import unicode
    from tradewind.cli.workflow.run import plan_comparison
    from tradewind.reporting.workflow.text_gantt import text_gantt
    from tradewind.utils.units import count, format_money

    done = sum(row["vm"] is not None for row in results["tasks"])
    total = count(len(results["tasks"]), "task")
    typer.echo(f"{run.study.name} (run {run.study.id}): {results['ending']}, {done:,} of {total} done on {run.engine}")
    typer.echo(f"planned by {results['planner']}; machines have cost {format_money(run.summary.spent)} total\n")
    if results["actual"] is not None:
        typer.echo(plan_comparison(results) + "\n")
    width = shutil.get_terminal_size((100, 24)).columns
    for line in text_gantt(run.gantt(time.time()), width, plain=not unicode(sys.stdout)):
        typer.echo(line)
    for lost in results["machines_lost"]:
        typer.echo(f"lost: {lost['vm']}: {lost['reason']}")
    for row in results["tasks"]:
        if row["vm"] is None and row.get("reason"):
            typer.echo(f"task {row['task']}: {row['reason']}")


# ---------------------------------------------------------------------- export


def write_run(store: Store, study_id: int, format_: str, stream: IO[str]) -> int:
    """Write the tasks of a run, or all of it as records; returns the number of tasks.

    Args:
        store: The store.
        study_id: The run.
        format_: ``csv``, ``json``, ``jsonl`` or ``records``.
        stream: Text stream that is written to.
    """
    import csv

    from tradewind.reporting.study.documents import write_json, write_json_lines
    from tradewind.workflow.execution.stored.run_records import export_run
    from tradewind.workflow.execution.stored.stored_run import StoredRun

    run = StoredRun.load(store, study_id)
    tasks = task_rows(run)
    if format_ == "records":
        write_json_lines(export_run(store, study_id), stream)
    elif format_ == "json":
        write_json(iter(tasks), stream)
    elif format_ == "jsonl":
        write_json_lines(iter(tasks), stream)
    else:
        writer = csv.DictWriter(stream, fieldnames=list(tasks[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(tasks)
    return len(tasks)


def task_columns(store: Store, study_id: int) -> dict[str, list[Any]]:
    """The tasks of a run as columns."""
    from tradewind.workflow.execution.stored.stored_run import StoredRun

    tasks = task_rows(StoredRun.load(store, study_id))
    return {name: [row[name] for row in tasks] for name in tasks[0]}
