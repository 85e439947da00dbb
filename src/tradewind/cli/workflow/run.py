"""``tradewind workflow run``: carry out a plan."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from tradewind.cli.workflow.advise import group_options
from tradewind.cli.workflow.journal_options import JournalOptions
from tradewind.cli.workflow.machines import LimitOptions, WhereOptions, machine_source

if TYPE_CHECKING:
    from tradewind.cli.workflow.machines import MachineSource
    from tradewind.workflow.execution.options import ExecutionOptions, ExecutionProgress
    from tradewind.workflow.execution.pilots import PilotSettings
    from tradewind.workflow.execution.plan_run import ExecutionResult
    from tradewind.workflow.files import Plan


_BAR = 24
_STEPS = 10
_LONGEST = 7 * 86400.0
"""Seconds that a run may take which nothing limits."""
_LEASE_SLACK = 3600.0
"""Seconds beyond the end of a run after which anyone may destroy its machines."""


class ProgressLine:
    """One line that is redrawn in place on a terminal; elsewhere a line for each tenth of the tasks.

    Args:
        quiet: Show nothing.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._live = sys.stdout.isatty() and not quiet
        self._width = 0
        self._step = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live and self._width:
            sys.stdout.write("\n")
            sys.stdout.flush()

    def show(self, progress: ExecutionProgress) -> None:
        """Show where the run is."""
        if self._quiet:
            return
        if self._live:
            for note in progress.notes:
                self._write(note + "\n")
            room = shutil.get_terminal_size().columns - 1
            self._write(progress_text(progress, most=room)[:room])
            return
        for note in progress.notes:
            sys.stdout.write(note + "\n")
        step = progress.done * _STEPS // max(1, progress.tasks)
        if step != self._step:
            self._step = step
            sys.stdout.write(progress_text(progress, bar=False) + "\n")
        sys.stdout.flush()

    def _write(self, text: str) -> None:
        sys.stdout.write("\r" + text.rstrip("\n").ljust(self._width) + ("\n" if text.endswith("\n") else ""))
        self._width = 0 if text.endswith("\n") else len(text)
        sys.stdout.flush()


def progress_text(progress: ExecutionProgress, *, bar: bool = True, most: int | None = None) -> str:
    """Progress in one line.

    Args:
        progress: Where the run is.
        bar: Begin with a bar.
        most: Columns that there are: what matters least is left out until the rest fits. None has room for all.
    """
    from tradewind.utils.units import count, format_duration, format_money

    full = progress.done * _BAR // max(1, progress.tasks)
    money = format_money(progress.cost)
    absent = [f"{progress.back} given back"] if progress.back else []
    absent += [f"{progress.later} later"] if progress.later else []
    up = f"{progress.up} of {count(progress.machines, 'machine')}" if progress.done < progress.tasks else ""
    words = {
        "bar": f"[{'#' * full}{'-' * (_BAR - full)}] " if bar else "",
        "done": f"{progress.done:,} of {count(progress.tasks, 'task')} done",
        "running": f", {progress.running} running" if progress.running else "",
        "failed": f", {progress.failed} failed" if progress.failed else "",
        "machines": f", {up}" if up else "",
        "absent": f" ({', '.join(absent)})" if up and absent else "",
        "money": f", {money} this run so far",
        "time": ", waiting for machines" if progress.seconds is None else f", {format_duration(progress.seconds)}",
        "left": f", {format_duration(progress.left)} left by the plan" if progress.left else "",
    }
    shorter = {"bar": "", "absent": "", "money": f", {money} this run", "machines": "", "running": "", "left": ""}
    for name, short in shorter.items():
        if most is None or len("".join(words.values())) <= most:
            break
        words[name] = short
    return "".join(words.values())


def plan_comparison(results: Mapping[str, Any]) -> str:
    """The figures of the plan and of its run, side by side."""
    from tradewind.utils.units import count, format_money

    planned, actual = results["planned"], results["actual"]
    rows = [("", "planned", "actual")]
    rows += [
        (words, f"{planned[name]:.3f} s", f"{actual[name]:.3f} s")
        for name, words in (("makespan", "makespan"), ("serial", "serial time"))
    ]
    rows.append(("utilisation", f"{100 * planned['utilisation']:.1f} %", f"{100 * actual['utilisation']:.1f} %"))
    rows.append(("cost this run", format_money(planned["cost"]), format_money(actual["cost"])))
    # By the plan each machine is paid from its first task to its last; really it was there before and after.
    rows.append(("as machines were held", "", format_money(results["kept_cost"])))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    text = [
        f"{first:<{widths[0]}}  {second:>{widths[1]}}  {third:>{widths[2]}}".rstrip() for first, second, third in rows
    ]
    if planned["makespan"] > 0:
        share = actual["makespan"] / planned["makespan"] - 1.0
        text.append(f"The run took {abs(share) * 100:.1f} % {'longer' if share >= 0 else 'less'} than planned.")
    else:
        text.append("The plan knows no run times: plan again with --measured.")
    retried = results["attempts"] - len(results["tasks"])
    lost = len(results["machines_lost"])
    if retried or lost or results["replans"]:
        text.append(
            f"{count(retried, 'attempt')} more than tasks, {count(lost, 'machine')} lost, "
            f"planned again {count(results['replans'], 'time')}."
        )
    return "\n".join(text)


_NO_DEFAULT: dict[str, Any] = {"show_default": False}
_Folder = Annotated[
    Path | None, typer.Option(help="Folder of the run; PLAN.run beside the plan without it.", **_NO_DEFAULT)
]
_Inputs = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the files that come from outside; that of the workflow's file, which the plan has, without it.",
        **_NO_DEFAULT,
    ),
]
_Synthetic = Annotated[
    bool, typer.Option("--synthetic", help="Tasks without a command sleep for the time that they take by the plan.")
]
_NoCommands = Annotated[
    bool, typer.Option("--no-commands", help="Run no program: all tasks sleep, as --synthetic has it for some.")
]
_Scale = Annotated[float, typer.Option(help="Such tasks take this share of it: 0.01 plays an hour in 36 seconds.")]
_Isolate = Annotated[
    bool, typer.Option("--isolate", help="A working folder for each task, with nothing but its inputs.")
]
_Retries = Annotated[int, typer.Option(min=0, help="Times a task that failed is tried again.")]
_Planner = Annotated[str, typer.Option(help="The planner of what is left when a machine is lost.")]
_Online = Annotated[
    bool, typer.Option("--online", help="The planner decides during the run where each task goes, not the plan.")
]
_Keep = Annotated[
    bool, typer.Option("--keep-machines", help="Keep all machines until the end, also those with nothing left to do.")
]
_Ahead = Annotated[
    str,
    typer.Option(help="Time before its first task at which a machine with a price is asked for, or twice its boot."),
]
_Python = Annotated[
    str | None,
    typer.Option(help="The Python on the machines; without it this one's path, or python3 where files are sent."),
]
_Wall = Annotated[str | None, typer.Option(help="Time that a machine is kept at most: 2h.")]
_Linger = Annotated[str, typer.Option(help="Time that an idle machine waits for a command that goes on.")]
_Gather = Annotated[str, typer.Option(help="Time that the first machine waits for the others before tasks start.")]
_GiveUp = Annotated[str, typer.Option(help="Time after which machines that have not come are given up.")]
_Gantt = Annotated[
    list[Path] | None, typer.Option(help="Draw planned and actual times there, .html or .png; repeatable.")
]


@group_options
def run(
    plan: Annotated[Path, typer.Argument(help="The plan, of tradewind workflow plan.", show_default=False)],
    where: WhereOptions,
    limits: LimitOptions,
    *,
    folder: _Folder = None,
    inputs: _Inputs = None,
    synthetic: _Synthetic = False,
    no_commands: _NoCommands = False,
    scale: _Scale = 1.0,
    isolate: _Isolate = False,
    retries: _Retries = 2,
    planner: _Planner = "heft",
    online: _Online = False,
    keep_machines: _Keep = False,
    ahead: _Ahead = "60s",
    python: _Python = None,
    wall: _Wall = None,
    linger: _Linger = "60s",
    gather: _Gather = "30s",
    give_up: _GiveUp = "10m",
    kept: JournalOptions,
    gantt: _Gantt = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show nothing while it runs.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON, and nothing else.")] = False,
) -> None:
    """Carry out a plan; Ctrl-C stops cleanly, the same command goes on where it was.

    Each machine of the plan comes in time for its first task, runs its tasks in the plan's order, and is given back
    when nothing is left for it. Tasks that fail are tried again; when a machine is lost, what is left is planned anew.
    The run is in the store as a search is: tradewind status, logs, report, down and reap show and end it. Its actual
    times are in results.json too; tradewind workflow plan --measured learns from them.
    """
    from tradewind import plugins
    from tradewind.cli.signals import GracefulInterrupt
    from tradewind.cli.workflow.common import check_pictures
    from tradewind.utils.units import parse_duration
    from tradewind.workflow.execution.options import ExecutionOptions
    from tradewind.workflow.execution.plan_run import execute_plan
    from tradewind.workflow.execution.task_states import RetryLimits

    check_pictures("--gantt", gantt)
    synthetic |= no_commands
    rest, read = plugins.create("planner", planner, {}), _read(plan, scale, synthetic, no_commands)
    place = (folder or plan.absolute().with_suffix(".run")).absolute()
    source = machine_source(where, place)
    options = ExecutionOptions(
        (inputs or read.folder or plan.parent).absolute(), RetryLimits(retries=retries), isolate, synthetic,
        scale, parse_duration(gather), parse_duration(give_up), online, not keep_machines, parse_duration(ahead),
        *limits.parsed(),
    )  # fmt: skip
    terms = _terms(read, source, python, wall, linger, options)
    _say_cost(read, options, quiet=quiet or as_json)
    journal = kept.journal(read, place, source, options)
    with ProgressLine(quiet=quiet or as_json) as screen, GracefulInterrupt("stopping: running tasks are ended") as stop:
        carried = execute_plan(
            read, place, source.runner, options=options, planner=rest, terms=terms, provisioner=source.provisioner,
            fresh=kept.fresh, dismiss=kept.dismiss, journal=journal, watch=screen.show, wanted=lambda: not stop.wanted,
        )  # fmt: skip
    _finish(carried, place, gantt or [], as_json=as_json)


def _read(path: Path, scale: float, synthetic: bool, no_commands: bool) -> Plan:
    """The plan, with times that hold; where they are not those of the file, that is said.

    Raises:
        WorkflowError: It is no plan, or its order contradicts the graph.
        InputError: Its tasks do not take the share of their time that is wanted.
    """
    from tradewind.workflow.files import read_plan, with_feasible_times, without_commands

    plan, said = with_feasible_times(read_plan(path))
    if said:
        typer.echo(f"{path}: its times are {said}", err=True)
    if no_commands:
        plan = without_commands(plan)
    _check_scale(plan, scale, synthetic)
    return plan


def _say_cost(plan: Plan, options: ExecutionOptions, *, quiet: bool) -> None:
    """Say what machines cost that are there before their first task, where that is more than was planned."""
    from tradewind.utils.units import format_money
    from tradewind.workflow.schedule import figures, held_cost

    planned = figures(plan.flow, plan.platform, plan.schedule, 0.0).cost
    ahead = None if options.online else options.ahead
    give_back = options.give_back and not options.online
    held = held_cost(plan.platform, plan.schedule, give_back=give_back, ahead=ahead)
    if held > planned and not quiet:
        since = "all from the beginning" if ahead is None else "each from when it is asked for"
        until = "" if give_back else " to the end"
        typer.echo(
            f"cost: {format_money(planned)} as planned, each machine from its first task to its last; "
            f"{format_money(held)} as they are held, {since}{until}"
        )


def _terms(
    plan: Plan, source: MachineSource, python: str | None, wall: str | None, linger: str, options: ExecutionOptions
) -> PilotSettings:
    """Settings with which machines are requested."""
    import sys

    from tradewind.deployer.compatibility import shares_folder
    from tradewind.deployer.runner.base import ThisMachine
    from tradewind.problem.job_spec.model import LOG_LIMIT
    from tradewind.utils.units import parse_duration
    from tradewind.workflow.execution.pilots import PilotSettings
    from tradewind.workflow.platform import needs_of_slot

    shared = shares_folder(type(source.runner))
    return PilotSettings(
        python=python or (sys.executable if shared else "python3"),
        wall_seconds=None if wall is None else parse_duration(wall),
        linger=parse_duration(linger),
        slot_bytes=needs_of_slot(plan.flow),
        poll_seconds=0.5 if isinstance(source.runner, ThisMachine) else 2.0,
        image=source.image,
        log_bytes=source.log_bytes or LOG_LIMIT,
        lease_seconds=_lease(plan, options),
    )


def _lease(plan: Plan, options: ExecutionOptions) -> float:
    """Seconds after which anyone may destroy a machine: then it turns itself off, whatever becomes of this one."""
    most = [_LONGEST, *([] if options.deadline is None else [options.deadline])]
    prices = [vm.price_per_hour for vm in plan.platform.vms if vm.price_per_hour > 0]
    if options.budget is not None and prices:
        most.append(3600.0 * options.budget / min(prices))
    return min(most) + _LEASE_SLACK


def _check_scale(plan: Plan, scale: float, synthetic: bool) -> None:
    from tradewind.errors import InputError

    if not 0 < scale <= 1000:
        raise InputError(f"--scale {scale:g} is no share of a time", hint="0.01 plays an hour in 36 seconds")
    if scale != 1.0 and (not synthetic or any(task.command for task in plan.flow.tasks)):
        hint = "--synthetic, and a workflow without commands; or --no-commands, which runs none of them"
        raise InputError("--scale is for tasks that only sleep", hint=hint)


def _finish(carried: ExecutionResult, place: Path, gantt: list[Path], *, as_json: bool) -> None:
    """Draw and say how it ended, with the exit code that fits."""
    from tradewind.cli.common import emit_json
    from tradewind.cli.workflow.common import draw_gantt
    from tradewind.errors import DeployError, InterruptedSearch, JobFailedError, WorkflowError
    from tradewind.utils.units import count
    from tradewind.workflow.execution.events import ExecutionEnding
    from tradewind.workflow.execution.results import results_gantt
    from tradewind.workflow.execution.run_folder import WorkflowRunFolder

    if gantt:
        draw_gantt(gantt, results_gantt(carried.results))
    if as_json:
        emit_json(carried.results)
    elif carried.ending is ExecutionEnding.DONE:
        typer.echo(plan_comparison(carried.results))
        typer.echo(f"Files: {place / 'files'}; times: {place / 'results.json'}")
    again = "the same command goes on"
    if carried.limit is not None and carried.ending is ExecutionEnding.INTERRUPTED:
        raise carried.limit
    match carried.ending:
        case ExecutionEnding.INTERRUPTED:
            raise InterruptedSearch("interrupted", hint=again)
        case ExecutionEnding.MACHINES:
            why = f": {carried.reason}" if carried.reason else ""
            raise DeployError(f"no machine is left{why}", hint=again)
        case ExecutionEnding.IMPOSSIBLE:
            why = f": {carried.reason}" if carried.reason else ""
            raise WorkflowError(f"what is left cannot be run on the machines that are left{why}", hint=again)
        case ExecutionEnding.FAILED:
            (task, reason), *others = carried.failures.items()
            tasks = carried.results["tasks"]
            tries = next(row["attempts"] for row in tasks if row["task"] == task)
            more = f", and {count(len(others), 'more task')} failed" if others else ""
            left = sum(row["vm"] is None for row in tasks) - len(carried.failures)
            more += f"; {left} that need them were not run" if left else ""
            times = count(tries, "time")
            log = place / WorkflowRunFolder(place).attempt(task, tries) / "stderr"
            raise JobFailedError(f"task {task!r} failed {times}: {reason}{more}", hint=f"see {log}; {again}")
