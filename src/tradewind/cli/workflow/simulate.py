"""``tradewind workflow simulate``: what a plan, or a planner that decides as it goes, would come to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tradewind.cli.workflow.common import DeclaredEdges, File, Gantt, Json, Lenient, Seed, Set, Vms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tradewind.workflow.simulator.replications import ReplicationResult, SimulationCase

_NO_DEFAULT: dict[str, Any] = {"show_default": False}


def _share(words: str) -> Any:
    return typer.Option(min=0.0, help=words)


_Plan = Annotated[Path | None, typer.Option(help="Follow this plan, on its machines.", **_NO_DEFAULT)]
_Planner = Annotated[
    str | None, typer.Option(help="Or let this planner decide: mct, heft, ...; tradewind plugins lists all.")
]
_Noise = Annotated[float, _share("Standard deviation of ln(run time / expected), for each attempt.")]
_Unknown = Annotated[float, _share("Standard deviation of ln(speed / stated speed), once for each machine.")]
_Drift = Annotated[float, _share("Standard deviation of the change of ln(speed) of a machine in each period.")]
_Period = Annotated[str, typer.Option(help="Time between changes of speed and between possible migrations.")]
_Migration = Annotated[float, typer.Option(min=0.0, max=1.0, help="Chance of a machine to be moved in each period.")]
_Pause = Annotated[str, typer.Option(help="Time that a live migration takes.")]
_Failure = Annotated[float, typer.Option(min=0.0, max=1.0, help="Chance of an attempt to fail.")]
_Retries = Annotated[int, typer.Option(min=0, help="Times a task that failed is tried again.")]
_Delay = Annotated[
    list[str] | None,
    typer.Option(
        help="Delay of the workflow system: engine=2s, queue=, post= or clustering=; figures by depth: queue=5s,1s.",
        **_NO_DEFAULT,
    ),
]
_Repeat = Annotated[int, typer.Option(min=1, max=100_000, help="Simulate with so many seeds, from --seed on.")]
_Clustering = Annotated[
    str | None,
    typer.Option(
        help="Put tasks together: horizontal:4 (jobs of a level), horizontal:size=4 (tasks of a job), vertical, "
        "block:4, balanced:4, impact:4 or distance:4.",
        **_NO_DEFAULT,
    ),
]
_Compat = Annotated[
    str | None, typer.Option(help="workflowsim: WorkflowSim 1.0's own rules and policies.", **_NO_DEFAULT)
]


def simulate(
    file: File,
    plan: _Plan = None,
    planner: _Planner = None,
    vms: Vms = None,
    set_: Set = None,
    noise: _Noise = 0.0,
    unknown: _Unknown = 0.0,
    drift: _Drift = 0.0,
    period: _Period = "60s",
    migration: _Migration = 0.0,
    pause: _Pause = "10s",
    failure: _Failure = 0.0,
    retries: _Retries = 3,
    delay: _Delay = None,
    clustering: _Clustering = None,
    compat: _Compat = None,
    seed: Seed = 0,
    repeat: _Repeat = 1,
    gantt: Gantt = None,
    lenient: Lenient = False,
    declared_edges: DeclaredEdges = False,
    as_json: Json = False,
) -> None:
    """Simulate a plan, or a planner that decides as it goes, with noise, failures and delays.

    A task whose attempts are used up has failed for good, and what needs it does not run: the command names them and
    ends with exit code 7.
    """
    from dataclasses import replace

    from tradewind.cli.workflow.common import check_pictures
    from tradewind.workflow.simulator.world import World

    check_pictures("--gantt", gantt)
    delays, joining = _delays(delay or ())
    world = World(
        noise=noise, unknown=unknown, drift=drift, period=_positive("--period", period), migration=migration,
        pause=_seconds("--pause", pause), failure=failure, retries=retries, delays=delays, seed=seed,
    )  # fmt: skip
    _check(plan, planner, vms, clustering, compat, joining, world)
    options = {"lenient": lenient, "declared_edges": declared_edges, "workflowsim": compat is not None}
    case, notes = _case(file, plan, planner, vms, set_, seed, options)
    if compat is not None:
        result = _compat(case, planner or "")
    else:
        from tradewind.workflow.simulator.replications import simulate_repeatedly

        result = simulate_repeatedly(case, world, repeat, clustering, joining)
    _finish(case, replace(result, notes=(*notes, *result.notes)), gantt, repeat, as_json=as_json)


def _check(
    plan: Path | None, planner: str | None, vms: str | None, clustering: str | None, compat: str | None,
    joining: Any, world: Any,
) -> None:  # fmt: skip
    """See that the options go together.

    Raises:
        InputError: They do not.
    """
    from tradewind.errors import InputError
    from tradewind.workflow.simulator.world import World

    if plan is not None and planner is not None:
        raise InputError("--plan and --planner both say who decides", hint="leave one out")
    if clustering is not None and plan is not None:
        raise InputError("--clustering changes the tasks that --plan is about", hint="give --planner instead")
    if joining and clustering is None:
        raise InputError("--delay clustering= is for jobs of several tasks", hint="add --clustering horizontal:4")
    if compat is None:
        return
    if compat != "workflowsim":
        raise InputError(f"--compat {compat!r} is not known", hint="write --compat workflowsim")
    plain = World(period=world.period, pause=world.pause, retries=world.retries, seed=world.seed)
    if world != plain or clustering is not None or plan is not None:
        raise InputError(
            "--compat workflowsim has no noise, failures, delays, clustering or plans", hint="leave those options out"
        )


def _seconds(option: str, text: str) -> float:
    from tradewind.errors import InputError
    from tradewind.utils.units import parse_duration

    try:
        return parse_duration(text)
    except InputError as error:
        raise InputError(f"{option}: {error.message}", hint=error.hint) from None


def _positive(option: str, text: str) -> float:
    from tradewind.errors import InputError

    found = _seconds(option, text)
    if found <= 0:
        raise InputError(f"{option} {text!r} is no time", hint="it is above 0")
    return found


def _delays(words: Sequence[str]) -> tuple[dict[Any, list[float]], list[float]]:
    """The delays of the system, and that of jobs of several tasks.

    Raises:
        InputError: One is not written as one.
    """
    from tradewind.errors import InputError

    found: dict[Any, list[float]] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or name not in ("engine", "queue", "post", "clustering"):
            hint = "write engine=2s, queue=, post= or clustering="
            raise InputError(f"--delay {word!r} is not understood", hint=hint)
        found[name] = [_seconds(f"--delay {name}", part) for part in text.split(",")]
    return found, found.pop("clustering", [])


def _case(
    file: Path, plan: Path | None, planner: str | None, vms: str | None, pairs: Sequence[str] | None, seed: int,
    options: Mapping[str, bool],
) -> tuple[SimulationCase, tuple[tuple[str, str], ...]]:  # fmt: skip
    """Read the case to simulate (workflow, machines and planner), and the lines to print about it."""
    from tradewind.cli.workflow.common import make_planner
    from tradewind.errors import WorkflowError
    from tradewind.workflow.files import is_plan, open_platform, read_plan, read_workflow, with_feasible_times
    from tradewind.workflow.schedule import from_json, to_json
    from tradewind.workflow.simulator.replications import SimulationCase

    if plan is None and planner is None:
        if not is_plan(file):
            raise WorkflowError(
                "nobody says where tasks run", hint="--plan plan.json, or --planner heft --vms vms.yaml"
            )
        plan = file
    flow = read_workflow(file, **options)
    if plan is None:
        if vms is None:
            raise WorkflowError("there are no machines to run on", hint="--vms vms.yaml, or --vms paper3:16")
        name = planner or ""
        platform = open_platform(vms).holding(flow)
        return SimulationCase(flow, platform, None, None, name, lambda: make_planner(name, pairs, seed)), ()
    read, said = with_feasible_times(read_plan(plan))
    platform = (read.platform if vms is None else open_platform(vms)).holding(flow)
    document = to_json(read.flow, read.platform, read.schedule, read.planner)
    schedule = from_json(document, flow, platform, file=str(plan))
    return SimulationCase(flow, platform, schedule, read.schedule, read.planner, None), (
        ("times", said),
    ) if said else ()


def _compat(case: SimulationCase, planner: str) -> ReplicationResult:
    """WorkflowSim's own outcome."""
    from tradewind.workflow.simulator.replications import simulate_like_workflowsim

    return simulate_like_workflowsim(case.flow, case.platform, planner.upper())


def _finish(
    case: SimulationCase, result: ReplicationResult, gantt: list[Path] | None, repeat: int, *, as_json: bool
) -> None:
    from tradewind.cli.common import emit_json
    from tradewind.cli.workflow.common import draw_gantt, figure_rows, say, show_rows, tiles
    from tradewind.utils.units import count, listed
    from tradewind.workflow.diagrams import gantt_document
    from tradewind.workflow.simulator.replications import to_json

    first, failed = result.figures[0], result.lost(0)[0]
    if gantt:
        title = f"{case.flow.name}, {case.planner} simulated on {count(len(result.platform.vms), 'machine')}"
        planned, actual = (case.planned, result.schedule) if case.planned is not None else (result.schedule, None)
        shown = tiles(first, whole=not failed)
        shown += [("failed", listed([case.flow.tasks[task].id for task in failed]))] if failed else []
        document = gantt_document(case.flow, result.platform, planned, title=title, actual=actual, figures=shown)
        draw_gantt(gantt, document)
    if as_json:
        emit_json(to_json(case, result))
        _check_failures(case, result)
        return
    who = "the plan of " + (case.planner or "somebody") if case.planned is not None else case.planner
    say(f"{case.flow.name}: {count(len(case.flow), 'task')} on {count(len(result.platform.vms), 'machine')} by {who}")
    rows = figure_rows(first, whole=not failed)
    if case.planned is not None:
        rows.insert(1, ("planned", f"{case.planned.makespan:,.3f} s"))
    show_rows([*rows, *result.notes])
    if repeat > 1:
        _show_spread(result, repeat)
    for warning in case.flow.warnings:
        say(f"warning: {warning}", indent="  ")
    for path in gantt or ():
        typer.echo(f"written: {path}")
    _check_failures(case, result)


def _check_failures(case: SimulationCase, result: ReplicationResult) -> None:
    """End with the exit code of a failed workflow where a task has failed for good.

    Raises:
        JobFailedError: One has.
    """
    from tradewind.errors import JobFailedError
    from tradewind.utils.units import count

    bad = [place for place in range(len(result.seeds)) if result.lost(place)[0]]
    if not bad:
        return
    failed, skipped = result.lost(bad[0])
    others = f", and {count(len(failed) - 1, 'more task')} failed" if len(failed) > 1 else ""
    others += f"; {len(skipped)} that need them were not run" if skipped else ""
    where = f"in {len(bad)} of {len(result.seeds)} seeds tasks failed; with seed {result.seeds[bad[0]]}, "
    raise JobFailedError(
        f"{where if len(result.seeds) > 1 else ''}task {case.flow.tasks[failed[0]].id!r} failed for good{others}",
        hint="--retries gives a task more attempts",
    )


def _show_spread(result: ReplicationResult, repeat: int) -> None:
    from tradewind.cli.workflow.common import show_table
    from tradewind.workflow.simulator.replications import spread

    typer.echo()
    bad = repeat - len(result.whole)
    failed = f"; in {bad} of them tasks failed for good, and below are the others" if bad else ""
    typer.echo(f"{repeat} seeds; above is the first of them{failed}")
    if not result.whole:
        return
    rows = []
    for name, unit in (("makespan", "s"), ("gap", "%"), ("utilisation", "%"), ("cost", "USD")):
        found = spread([getattr(each, name) * (100 if unit == "%" else 1) for each in result.whole])
        rows.append((f"{name}, {unit}", *(f"{value:,.4g}" if unit == "USD" else f"{value:,.2f}" for value in found)))
    show_table(("", "mean", "5 %", "95 %", "least", "most"), rows)
