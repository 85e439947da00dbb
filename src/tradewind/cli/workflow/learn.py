"""``tradewind workflow learn``: learn from simulated runs where tasks go."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tradewind.cli.workflow.common import DeclaredEdges, Measured, with_measured

if TYPE_CHECKING:
    from tradewind.workflow.execution.results import RuntimeChange
    from tradewind.workflow.graph import Workflow
    from tradewind.workflow.learning.evaluation import PolicyEvaluation
    from tradewind.workflow.learning.learners import Learner
    from tradewind.workflow.learning.training_folder import TrainingFolder
    from tradewind.workflow.schedule import Schedule

_NO_DEFAULT: dict[str, Any] = {"show_default": False}


_Vms = Annotated[str, typer.Option(help="The machines: a file, or a set such as paper3:16.", show_default=False)]
_Episodes = Annotated[int, typer.Option(min=1, help="Simulated runs to learn from, those of before included.")]
_Method = Annotated[str, typer.Option(help="adaptive, or q_learning as in paper 3.")]
_Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="A setting of the method, explore=0.1; tradewind plugins lists them; repeatable."),
]
_Noise = Annotated[float | None, typer.Option(help="How far ln(run time) of an attempt is off: 0.3.", **_NO_DEFAULT)]
_Unknown = Annotated[float | None, typer.Option(help="How far ln(speed) of a machine is off.", **_NO_DEFAULT)]
_Drift = Annotated[float | None, typer.Option(help="How far ln(speed) moves in each period.", **_NO_DEFAULT)]
_Period = Annotated[str | None, typer.Option(help="Time between changes of speed; 1m without it.", **_NO_DEFAULT)]
_Migration = Annotated[float | None, typer.Option(help="Chance to be moved in each period.", **_NO_DEFAULT)]
_Pause = Annotated[
    str | None, typer.Option(help="Time that a moved machine stands still; 10s without it.", **_NO_DEFAULT)
]
_Failure = Annotated[float | None, typer.Option(help="Chance of an attempt to fail.", **_NO_DEFAULT)]
_Out = Annotated[Path | None, typer.Option(help="Folder that keeps every episode.", **_NO_DEFAULT)]
_Resume = Annotated[bool, typer.Option("--resume", help="Go on with what the folder has.")]
_Worlds = Annotated[int, typer.Option(min=2, help="Worlds to test in, if anything deviates.")]
_Search = Annotated[str, typer.Option(help="Processor time of the search that it is compared with.")]
_Png = Annotated[Path | None, typer.Option(help="Draw the makespan of each episode there.", **_NO_DEFAULT)]
_Lenient = Annotated[bool, typer.Option("--lenient", help="Accept sizes and run times below zero.")]


def learn(
    file: Annotated[Path, typer.Argument(help="The workflow.", show_default=False)],
    vms: _Vms,
    episodes: _Episodes = 100,
    method: _Method = "adaptive",
    set_: _Set = None,
    noise: _Noise = None,
    unknown: _Unknown = None,
    drift: _Drift = None,
    period: _Period = None,
    migration: _Migration = None,
    pause: _Pause = None,
    failure: _Failure = None,
    seed: Annotated[int, typer.Option(min=0, help="Equal seeds learn the same.")] = 0,
    out: _Out = None,
    resume: _Resume = False,
    worlds: _Worlds = 30,
    search: _Search = "2s",
    png: _Png = None,
    measured: Measured = None,
    lenient: _Lenient = False,
    declared_edges: DeclaredEdges = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show nothing while learning.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON, and nothing else.")] = False,
) -> None:
    """Learn from simulated runs where tasks go; Ctrl-C keeps what was learned, --resume goes on.

    With nothing that deviates, HEFT and a search plan better than any learning. Learning is for machines whose speeds
    are noisy, drift, or are not as stated: say so with --noise, --unknown, --drift and the others. What was learned is
    then tested in worlds that it has not met, beside HEFT's plan followed in the same worlds.
    """
    from tradewind.errors import InputError, InterruptedSearch
    from tradewind.utils.units import count
    from tradewind.workflow.files import folder_of, open_platform, read_workflow
    from tradewind.workflow.learning.training_folder import TrainingFolder, open_learner

    if resume and out is None:
        raise InputError("--resume goes on with a folder, and there is none", hint="name it with --out")
    _check_chart(png)
    deviations = {"noise": noise, "unknown": unknown, "drift": drift, "migration": migration, "failure": failure}
    settings = _settings(method, {**deviations, **_durations(period=period, pause=pause)}, set_)
    seconds = _search_seconds(search)
    stated = read_workflow(file, lenient=lenient, declared_edges=declared_edges)
    flow = _with_runtimes(stated, measured, out if resume else None)
    learner = open_learner(method, flow, open_platform(vms).holding(flow), settings, seed)
    folder = None if out is None else TrainingFolder(
        out, learner, settings, resume=resume, stated=stated, renew=bool(measured), episodes=episodes
    )  # fmt: skip
    replaced = _replaced(stated, flow, folder, quiet=as_json)
    makespans, best, stopped = _train(learner, folder, episodes, quiet=quiet or as_json)
    if not makespans:
        raise InterruptedSearch("interrupted before the first episode had ended")
    _finish(
        learner, makespans, best, folder_of(file), out=out, png=png, worlds=worlds, search=seconds, stopped=stopped,
        as_json=as_json, since=1 if folder is None else folder.since, replaced=replaced,
    )  # fmt: skip
    if stopped:
        hint = f"--out {out} --resume goes on" if out is not None else "with --out FOLDER, --resume would go on"
        raise InterruptedSearch(f"interrupted after {count(len(makespans), 'episode')}", hint=hint)


def _replaced(
    stated: Workflow, flow: Workflow, folder: TrainingFolder | None, *, quiet: bool
) -> list[RuntimeChange]:  # fmt: skip
    """Find the run times that were replaced by measured ones, and say which."""
    from tradewind.cli.workflow.common import describe_changes, say
    from tradewind.workflow.execution.results import runtime_changes

    former = None if folder is None else folder.former
    changes = runtime_changes(former or {task.id: task.runtime for task in stated.tasks}, flow)
    if changes and not quiet:
        since = 1 if folder is None else folder.since
        began = f", from episode {since} on" if since > 1 else ""
        say(f"Run times as measured{began}: {describe_changes(changes, flow)}.", indent="  ")
    return changes


def _check_chart(png: Path | None) -> None:
    """See that the chart can be drawn before anything is learned."""
    from tradewind.errors import InputError
    from tradewind.utils.dependencies import require_package

    if png is None:
        return
    if not png.absolute().parent.is_dir():
        raise InputError(f"--png {png}: there is no folder {png.parent}", hint="make it, or name another file")
    require_package("matplotlib", "PNG charts", "plots")


def _with_runtimes(stated: Workflow, measured: list[Path] | None, kept: Path | None) -> Workflow:
    """The workflow with measured run times, else with those that a folder last went on with; there must be some.

    Raises:
        WorkflowError: No task takes any time, or results or folder cannot be read.
    """
    from tradewind.errors import WorkflowError
    from tradewind.workflow.learning.training_folder import with_kept_runtimes

    flow = with_measured(stated, measured) if measured or kept is None else with_kept_runtimes(stated, kept)
    if not flow.runtimes.any():
        hint = "give tasks a runtime; --measured takes those of a run"
        raise WorkflowError(f"no task of workflow {flow.name} has a run time: there is nothing to learn", hint=hint)
    return flow


def _search_seconds(text: str) -> float:
    """Seconds of ``--search``."""
    from tradewind.errors import InputError
    from tradewind.utils.units import parse_duration

    seconds = parse_duration(text)
    if seconds <= 0:
        raise InputError(f"--search {text}: a search takes some time", hint="write 2s")
    return seconds


def _durations(**given: str | None) -> dict[str, float | None]:
    """Seconds of options that are durations."""
    from tradewind.utils.units import parse_duration

    return {name: None if text is None else parse_duration(text) for name, text in given.items()}


def _settings(method: str, given: dict[str, Any], more: list[str] | None) -> dict[str, Any]:
    """The settings of a method, checked; one that is None has its default."""
    from tradewind import plugins
    from tradewind.cli.common import pairs
    from tradewind.errors import InputError
    from tradewind.workflow.learning.learners import LEARNERS

    if method not in LEARNERS:
        raise InputError(f"--method {method}: there is no such method", hint=f"methods are {', '.join(LEARNERS)}")
    chosen = pairs(more, "--set", "explore=0.1")
    if "episodes" in chosen:
        raise InputError("--set episodes: that is --episodes")
    part = plugins.load("planner", method)
    known = {key: value for key, value in given.items() if value is not None}
    checked = plugins.settings_for(part, {**known, **chosen}, where=f"method {method}").model_dump()
    return {key: value for key, value in checked.items() if key != "episodes"}


def _train(
    learner: Learner, folder: TrainingFolder | None, episodes: int, *, quiet: bool
) -> tuple[list[float], Schedule | None, bool]:
    """Learn until so many episodes have been run: their makespans, the best run where it is a plan, and if stopped."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from tradewind.cli.signals import GracefulInterrupt
    from tradewind.utils.units import format_duration

    makespans: list[float] = []
    best: Schedule | None = None
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        TextColumn("{task.fields[said]}"),
    )  # fmt: skip
    console = Console(stderr=True, quiet=quiet)
    with (
        GracefulInterrupt("stopping after this episode") as stop,
        Progress(*columns, console=console, disable=quiet or not console.is_terminal) as progress,
    ):
        bar = progress.add_task("episodes", total=episodes, said="")
        recalled = iter(()) if folder is None else folder.recall()
        while len(makespans) < episodes and not stop.wanted:
            episode = next(recalled, None)
            if episode is None:
                episode = learner.step()
                if folder is not None:
                    folder.keep(episode)
            makespans.append(episode.makespan)
            since = 1 if folder is None else folder.since
            if learner.certain and len(makespans) >= since and (best is None or episode.makespan < best.makespan):
                best = episode.schedule
            progress.update(bar, advance=1, said=f"best {format_duration(min(makespans[since - 1 :] or makespans))}")
        return makespans, best, stop.wanted


def _finish(
    learner: Learner, makespans: list[float], best: Schedule | None, inputs: Path, *, out: Path | None,
    png: Path | None, worlds: int, search: float, stopped: bool, as_json: bool, since: int,
    replaced: list[RuntimeChange],
) -> None:  # fmt: skip
    """Judge what was learned, write it, and say it."""
    from tradewind.utils.units import count
    from tradewind.workflow.files import Plan, write_plan
    from tradewind.workflow.learning.evaluation import evaluate_policy

    if not (learner.certain or as_json):
        typer.echo(f"Testing in {worlds} worlds that nothing was learned from (Ctrl-C leaves that out) ...", err=True)
    judged = evaluate_policy(learner, best, worlds=worlds, seconds=search)
    written = []
    if out is not None:
        write_plan(out / "plan.json", Plan(learner.flow, learner.platform, judged.plan, learner.name, inputs))
        written = [out / "table.csv", out / "plan.json"]
    if png is not None:
        from tradewind.reporting.workflow.plots import draw_learning_curve

        title = f"{learner.flow.name}: {learner.name}, {count(len(makespans), 'episode')}"
        draw_learning_curve(
            title, makespans, {row.name: row.makespan for row in judged.rows[1:]}, png, best=learner.certain
        )
        written.append(png)
    if as_json:
        _print_json(learner, makespans, judged, stopped, since, replaced)
        return
    _print(learner, makespans, judged, since)
    for path in written:
        typer.echo(f"Written: {path}")


def _print(learner: Learner, makespans: list[float], judged: PolicyEvaluation, since: int) -> None:
    import shutil

    from tradewind.cli.workflow.common import say
    from tradewind.reporting.workflow.plots import learning_curve_lines
    from tradewind.utils.units import format_duration

    apart = ", fetching of files left out" if learner.platform.storage == "local" else ""
    former = min(since - 1, len(makespans))
    apart += f", the first {former} with other run times" if former else ""
    typer.echo(f"Makespan of each of {len(makespans)} episodes{apart}:")
    for line in learning_curve_lines(makespans, min(shutil.get_terminal_size().columns, 100)):
        typer.echo(line)
    said = judged.figures
    say(
        f"Best plan, if all goes as stated: makespan {format_duration(said.makespan)}, lower bound "
        f"{format_duration(said.lower_bound)}, gap {said.gap:.1%}, serial time {format_duration(said.serial)}, "
        f"utilisation {said.utilisation:.0%}"
        + (f", cost ${said.cost:.4f} this run" if said.cost else "")
    )  # fmt: skip
    where = f"Mean of {judged.worlds} worlds that nothing was learned from" if judged.worlds else "Makespan, all known"
    say(f"{where}:")
    for row in judged.rows:
        against = ""
        if row.against is not None:
            change = row.against
            against = f"  {change.ratio - 1:+.1%} against HEFT [{change.low - 1:+.1%}, {change.high - 1:+.1%}]"
        elif not judged.worlds and said.lower_bound:
            against = f"  gap {row.makespan / said.lower_bound - 1:.1%}"
        say(f"  {row.name:<22} {format_duration(row.makespan):>9}{against}", indent="    ")
    if not judged.worlds and judged.best is not judged.rows[0]:
        say(f"Where everything is known, {judged.best.name.partition(',')[0]} plans better than what was learned.")


def _print_json(
    learner: Learner, makespans: list[float], judged: PolicyEvaluation, stopped: bool, since: int,
    replaced: list[RuntimeChange],
) -> None:  # fmt: skip
    from dataclasses import asdict

    from tradewind.cli.common import emit_json

    emit_json(
        {
            "workflow": learner.flow.name,
            "method": learner.name,
            "episodes": len(makespans),
            "interrupted": stopped,
            "measured_since": since if replaced else None,
            "replaced": [asdict(each) for each in replaced],
            "makespans": makespans,
            "best": asdict(judged.figures),
            "worlds": judged.worlds,
            "rows": [asdict(row) for row in judged.rows],
            "table": [list(line) for line in learner.lines()],
        }
    )
