"""``tradewind tune``: search."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tradewind.cli import completion

if TYPE_CHECKING:
    from tradewind.engine.state_machine.events import StopSearch
    from tradewind.engine.state_machine.snapshot import SearchSnapshot
    from tradewind.problem.job_spec.spec import JobSpec
    from tradewind.store.base import Store, StudyRow


def tune(
    file: Annotated[Path, typer.Argument(help="The job YAML.", show_default=False)],
    budget: Annotated[str | None, typer.Option(help="USD that the search may spend in total: $2.")] = None,
    deadline: Annotated[str | None, typer.Option(help="Time that one run may take: 30m.")] = None,
    hours: Annotated[str | None, typer.Option(help="Time that the search may take: 2h.")] = None,
    trials: Annotated[int | None, typer.Option(help="Number of trials at most.")] = None,
    parallel: Annotated[int | None, typer.Option(help="Trials at the same time.")] = None,
    searcher: Annotated[
        str | None,
        typer.Option(help="Who proposes; tradewind plugins lists them.", autocompletion=completion.parts("searcher")),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Equal seeds give equal proposals.")] = None,
    param: Annotated[
        list[str] | None, typer.Option("--param", "-p", help="A job parameter's value, size=4000; repeatable.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start anew, even if there is a study to go on with.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what may be chosen and what it may cost; start nothing.")
    ] = False,
    html: Annotated[Path | None, typer.Option(help="Write the HTML report there at the end.")] = None,
    png: Annotated[Path | None, typer.Option(help="Write the plots as PNG into that folder at the end.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show nothing while searching.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON, and nothing else.")] = False,
    store: Annotated[str | None, typer.Option(help="Address of the store.", metavar="URL", show_default=False)] = None,
) -> None:
    """Search for the best configuration; Ctrl-C stops cleanly, the same command resumes."""
    from tradewind.cli.common import load_job, open_store
    from tradewind.errors import InputError
    from tradewind.utils.dependencies import require_package

    given = {
        "budget.dollars": budget,
        "constraints.deadline": deadline,
        "budget.hours": hours,
        "budget.trials": trials,
        "parallel": parallel,
        "searcher": searcher,
        "seed": seed,
    }
    spec = load_job(file, {key: value for key, value in given.items() if value is not None}, param)
    if dry_run:
        from tradewind.cli.preview import print_dry_run

        print_dry_run(spec, store=store, fresh=fresh, as_json=as_json)
        return
    # Hours of searching are not to end with these.
    if html is not None and not html.absolute().parent.is_dir():
        raise InputError(f"--html {html}: there is no folder {html.parent}", hint="make it, or name another file")
    if png is not None:
        require_package("matplotlib", "PNG charts", "plots")
    opened = open_store(store)
    try:
        study, ended = _search(spec, opened, fresh=fresh, quiet=quiet or as_json)
        _finish(spec, opened, study, ended, html=html, png=png, as_json=as_json)
    finally:
        opened.close()


def _search(spec: JobSpec, store: Store, *, fresh: bool, quiet: bool) -> tuple[StudyRow, StopSearch]:
    from tradewind.cli.signals import GracefulInterrupt
    from tradewind.engine.past_studies import missing_past_hint
    from tradewind.engine.preflight import future_runs_warning
    from tradewind.engine.search_builder import build_problem, build_search, find_or_new_study
    from tradewind.reporting.live import LiveView
    from tradewind.utils.paths import data_folder
    from tradewind.utils.units import count

    problem = build_problem(spec, data_folder())
    study, new = find_or_new_study(spec, store, fresh=fresh)
    history = [] if new else store.trials(study.id)
    for warning in filter(None, (missing_past_hint(spec, store), future_runs_warning(spec))):
        typer.echo(f"tradewind: {warning}", err=True)
    words = f"Resuming {study.name} after {count(len(history), 'trial')} (--fresh starts anew)."
    untold = [words] if history and not quiet else []

    def show(snapshot: SearchSnapshot) -> None:
        # The first snapshot: the study is ours, and nothing was refused.
        if untold:
            typer.echo(untold.pop())
        view.update(snapshot)

    with LiveView(quiet=quiet, history=history) as view, GracefulInterrupt() as stop:
        search = build_search(spec, study, store, data_folder(), problem=problem, observer=show, fresh=fresh)
        ended = search.run(lambda: not stop.wanted)
    if not quiet:
        for line in (*untold, *search.swept):
            typer.echo(line)
    return search.study, ended


def _finish(
    spec: JobSpec,
    store: Store,
    study: StudyRow,
    ended: StopSearch,
    *,
    html: Path | None,
    png: Path | None,
    as_json: bool,
) -> None:
    """Say what was found, and end with the exit code that fits."""
    from tradewind.cli.failure import prerequisite_error
    from tradewind.cli.study.report import write_files
    from tradewind.errors import BudgetError, InterruptedSearch, NothingFeasibleError
    from tradewind.reporting.study.data import StudyData
    from tradewind.utils.units import format_money

    data = StudyData.load(store, study.id)
    if as_json:
        _print_json(store, study, ended)
    elif not ended.interrupted:
        from rich.console import Console

        from tradewind.reporting.study.terminal import print_report

        print_report(data, Console(highlight=False))
    for path in write_files(data, html, png):
        if not as_json:
            typer.echo(f"Written: {path}")
    if ended.interrupted:
        raise InterruptedSearch("interrupted", hint=f"tradewind tune {spec.file} resumes")
    if data.best is None:
        if data.unpaid:
            words = f"the budget of {format_money(spec.budget.dollars)} does not pay a single run"
            message = ended.reason if ended.reason.startswith(words) else f"{words}: {ended.reason}"
            raise BudgetError(message, hint="raise budget.dollars, or allow cheaper instance types")
        runs = store.runs(study.id)
        if runs and (problem := prerequisite_error(max(runs, key=lambda run: run.ended or 0.0), ended.reason)):
            raise problem
        last = data.reasons[max(data.reasons)] if data.reasons else ""
        mentioned = not last or last in ended.reason
        raise NothingFeasibleError(
            f"no feasible configuration was found: {ended.reason}" + ("" if mentioned else f"; the last one: {last}"),
            hint=f"tradewind report {study.name} shows what was tried",
        )


def _print_json(store: Store, study: StudyRow, ended: StopSearch) -> None:
    from tradewind.cli.common import emit_json
    from tradewind.store.codec import trial_to_json

    summary = store.summaries([study.id])[0]
    result: dict[str, Any] = {
        "study": study.name,
        "id": study.id,
        "reason": ended.reason,
        "interrupted": ended.interrupted,
        "trials": dict(summary.counts),
        "spent": summary.spent,
        "best": None if summary.best is None else trial_to_json(summary.best),
    }
    emit_json(result)
