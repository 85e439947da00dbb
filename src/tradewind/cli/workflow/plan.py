"""``tradewind workflow plan``: which machine runs which task, and when."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tradewind.cli import completion
from tradewind.cli.workflow.common import DeclaredEdges, File, Gantt, Json, Lenient, Measured, Seed, Set, Vms

if TYPE_CHECKING:
    from tradewind.workflow.graph import Workflow
    from tradewind.workflow.planner.base import Planner
    from tradewind.workflow.platform import Platform


def plan(
    file: File,
    vms: Vms = None,
    planner: Annotated[
        str,
        typer.Option(
            help="The planner: heft, search, peft, ...; tradewind plugins lists all.",
            autocompletion=completion.parts("planner"),
        ),
    ] = ("heft"),
    set_: Set = None,
    seed: Seed = 0,
    out: Annotated[Path | None, typer.Option(help="Write the plan there, as JSON.", show_default=False)] = None,
    gantt: Gantt = None,
    measured: Measured = None,
    lenient: Lenient = False,
    declared_edges: DeclaredEdges = False,
    as_json: Json = False,
) -> None:
    """Plan a workflow on machines: makespan, lower bound, gap, serial time, utilisation and cost."""
    from tradewind.cli.workflow.common import check_folder, check_pictures, make_planner, with_measured
    from tradewind.errors import WorkflowError
    from tradewind.workflow.files import folder_of, open_platform, read_workflow

    check_folder("--out", out)
    check_pictures("--gantt", gantt)
    if vms is None:
        raise WorkflowError("there are no machines to plan on", hint="--vms vms.yaml, or --vms paper3:16")
    part = make_planner(planner, set_, seed)
    flow = with_measured(read_workflow(file, lenient=lenient, declared_edges=declared_edges), measured)
    _plan(part, flow, folder_of(file), open_platform(vms).holding(flow), out, gantt, as_json=as_json)


def _plan(
    part: Planner, flow: Workflow, folder: Path, platform: Platform, out: Path | None, gantt: list[Path] | None,
    *, as_json: bool,
) -> None:  # fmt: skip
    """Plan it, see that the plan keeps every rule, and write what was asked for."""
    import time
    from dataclasses import asdict

    from tradewind.cli.common import emit_json
    from tradewind.cli.workflow.common import draw_gantt, figure_rows, say, show_rows, tiles
    from tradewind.utils.units import count
    from tradewind.workflow.bounds import lower_bound
    from tradewind.workflow.diagrams import gantt_document
    from tradewind.workflow.files import Plan, plan_document, write_plan
    from tradewind.workflow.schedule import check, figures
    from tradewind.workflow.simulator.compiled import replay_plan

    begin = time.perf_counter()
    schedule = replay_plan(flow, platform, part.plan(flow, platform))
    took = time.perf_counter() - begin
    check(flow, platform, schedule)
    found = figures(flow, platform, schedule, lower_bound(flow, platform))
    made = Plan(flow, platform, schedule, type(part).name, folder)
    if out is not None:
        write_plan(out, made)
    if gantt:
        title = f"{flow.name}, planned by {made.planner} on {count(len(platform.vms), 'machine')}"
        draw_gantt(gantt, gantt_document(flow, platform, schedule, title=title, figures=tiles(found)))
    if as_json:
        emit_json({**plan_document(made), "figures": asdict(found), "seconds": took, "said": part.said})
        return
    said = f"; {part.said}" if part.said else ""
    say(f"{flow.name}: {count(len(flow), 'task')} on {count(len(platform.vms), 'machine')} by {made.planner}{said}")
    show_rows(figure_rows(found))
    for warning in (*flow.warnings, *filter(None, [platform.disk_note(flow)])):
        say(f"warning: {warning}", indent="  ")
    for path in (*([out] if out else []), *(gantt or [])):
        typer.echo(f"written: {path}")
