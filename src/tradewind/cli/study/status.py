"""``tradewind status``: all studies, or one with its trials."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tradewind.cli import completion

if TYPE_CHECKING:
    from tradewind.store.base import Store, StudyRow, StudySummary

NEWEST = 20
"""Studies, or trials of a study, that are shown without ``--all``."""

_NONE = "No study is stored yet: tradewind tune job.yaml makes one."


def status(
    study: Annotated[
        str | None,
        typer.Argument(
            help="A study's name, its id or a job.yaml; all studies without it.", autocompletion=completion.studies
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All studies or trials, not only the newest 20.")] = False,
    only_totals: Annotated[
        bool, typer.Option("--totals", help="Only how many studies there are, and what all have cost.")
    ] = False,
    store: Annotated[str | None, typer.Option("--store", help="Address of the store.", metavar="URL")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the studies and how far they are, or one: a search with its trials, a workflow with machines and tasks."""
    from contextlib import closing

    from tradewind.cli.common import open_store
    from tradewind.errors import InputError

    if only_totals and (study is not None or everything):
        raise InputError("--totals is of all studies", hint="leave out the study and --all")
    with closing(open_store(store, must_exist=True)) as opened:
        if only_totals:
            _totals(opened, as_json)
        elif study is None:
            _studies(opened, everything, as_json)
        else:
            _one(opened, study, everything, as_json)


def _totals(store: Store, as_json: bool) -> None:
    from tradewind.cli.common import emit_json
    from tradewind.deployer.compatibility import is_simulated
    from tradewind.reporting.words import totals_words

    totals = store.totals(is_simulated)
    if as_json:
        money = {"spent": totals.spent, "reserved": totals.reserved, "simulated": totals.simulated}
        emit_json({"studies": dict(totals.states), **money})
    elif not totals.states:
        typer.echo(_NONE)
    else:
        typer.echo(totals_words(totals))


def _studies(store: Store, everything: bool, as_json: bool) -> None:
    from tradewind.cli.common import emit_json
    from tradewind.cli.workflow.stored_runs import tasks_done
    from tradewind.reporting.study.documents import summary_document

    shown = [line.id for line in store.list_studies(limit=None if everything else NEWEST)]
    summaries = store.summaries(shown) if shown else []
    done = tasks_done(store, summaries)
    if as_json:
        extra = {number: {"tasks_done": tasks} for number, tasks in done.items()}
        emit_json([summary_document(summary) | extra.get(summary.study.id, {}) for summary in summaries])
        return
    from rich.console import Console

    from tradewind.deployer.compatibility import is_simulated
    from tradewind.reporting.study import tables
    from tradewind.reporting.words import totals_words

    console = Console(highlight=False)
    if not summaries:
        console.print(_NONE, markup=False)
        return
    console.print(tables.studies(summaries, console.width, done))
    totals = store.totals(is_simulated)
    older = sum(totals.states.values()) - len(shown)
    if older > 0:
        console.print(f"and {older:,} older: tradewind status --all", style="bright_black")
    if len(shown) > 1 or older > 0:
        console.print(totals_words(totals), markup=False)


def _one(store: Store, name: str, everything: bool, as_json: bool) -> None:
    from tradewind.cli.common import emit_json, find_study
    from tradewind.reporting.study.documents import summary_document
    from tradewind.store.studies.tabular import trial_document

    row = find_study(store, name)
    if row.kind == "workflow":
        from tradewind.cli.workflow.stored_runs import show_run

        show_run(store, row.id, everything, as_json)
        return
    summary = store.summaries([row.id])[0]
    total = sum(summary.counts.values())
    trials = store.trials(row.id, since=0 if everything else max(0, total - NEWEST))
    troubles = {run.trial: run.reason for run in store.runs(row.id, open_only=True) if run.reason}
    versions = store.code_versions(row.id)
    if as_json:
        found = summary_document(summary)
        found["code"] = [{"version": one.digest, "trials": list(one.trials)} for one in versions]
        if early := _early(store, row):
            found["stopped_early"] = {"trials": early[0], "saved": early[1]}
        if troubles:
            found["troubles"] = {str(number): why for number, why in sorted(troubles.items())}
        emit_json({**found, "trials": [trial_document(trial) for trial in trials], "trials_total": total})
        return
    from rich.console import Console

    from tradewind.reporting.study import tables
    from tradewind.reporting.study.data import machine_parameters, read_goal
    from tradewind.reporting.study.explanation import code_versions_sentence

    goal = read_goal(row.spec)
    console = Console(highlight=False)
    console.print(tables.studies([summary], console.width))
    if row.reason:
        console.print(f"stopped: {row.reason}", markup=False)
    if summary.holder:
        console.print(f"running in process {summary.holder}", markup=False)
    for line in (*_reserved(summary), *tables.kept_lines(summary)):
        console.print(line, markup=False)
    for trial in trials:
        if warning := tables.load_warning(trial.observation):
            console.print(f"trial {trial.number}: {warning}", markup=False, style="yellow")
    for number, why in sorted(troubles.items()):
        console.print(f"trial {number}: {' '.join(why.split())}", markup=False, style="yellow")
    if early := _early(store, row):
        console.print(early[2], markup=False)
    if changed := code_versions_sentence(versions):
        console.print(changed, markup=False, style="yellow")
    if not trials:
        return
    console.print()
    best = summary.best.number if summary.best is not None else None
    lines = [tables.TrialLine.of(trial, best, machine_parameters(row.spec)) for trial in trials]
    tables.print_trials(console, lines, goal.objective)
    if len(trials) < total:
        console.print(f"and {total - len(trials):,} earlier: tradewind status {name} --all", style="bright_black")


def _reserved(summary: StudySummary) -> list[str]:
    from tradewind.utils.units import format_money

    kept = ", and for machines that are kept" if summary.kept else ""
    words = f"{format_money(summary.reserved)} total is reserved for runs on their way{kept}"
    return [words] if summary.reserved else []


def _early(store: Store, row: StudyRow) -> tuple[int, float, str] | None:
    """Number of trials stopped early, USD that this saved, and both in words; None where a job asks for none."""
    job = row.spec.get("job")
    if not isinstance(job, dict) or not job.get("early_stop"):
        return None
    from tradewind.reporting.study.data import StudyData
    from tradewind.reporting.study.explanation import early_stopping_savings, early_stopping_sentence

    data = StudyData.load(store, row.id)
    return *early_stopping_savings(data), early_stopping_sentence(data) or "No trial was stopped early."
