"""``tradewind reap``: find what is left over, and give it back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tradewind.engine.cleanup.orphan_policy import OrphanDecision
    from tradewind.engine.cleanup.orphan_reaper import OrphanReaper, ReapOutcome

COLUMNS = ("what", "from", "run", "owner", "age", "expiry", "why", "price per hour", "so far")


def reap(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list it.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    provisioner: Annotated[
        list[str] | None,
        typer.Option("--provisioner", help="Look there, too, though no study names it; repeatable.", metavar="NAME"),
    ] = None,
    runner: Annotated[
        list[str] | None, typer.Option("--runner", help="Look there, too; repeatable.", metavar="NAME")
    ] = None,
    like: Annotated[
        list[Path] | None,
        typer.Option("--like", help="Look there, too, with the settings of this job YAML; repeatable.", metavar="FILE"),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", help="Keep what is not known to exist for so long: 1h.", metavar="DURATION"),
    ] = None,
    foreign: Annotated[
        bool, typer.Option("--foreign", help="What belongs to nobody of this store goes before its expiry, too.")
    ] = False,
    store: Annotated[str | None, typer.Option("--store", help="Address of the store.", metavar="URL")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; asks nothing, so it wants --yes.")] = False,
) -> None:
    """Find machines and jobs that nobody waits for any more, at all providers, and give them back.

    All provisioners and runners that the store's studies use are asked. What is past its expiry goes, and what this
    store has no open run for. What belongs to a study that is being run is never touched, and what belongs to another
    store only when it is past its expiry. Ends with exit code 11 if something could not be given back or asked.
    """
    import time
    from contextlib import closing
    from functools import partial

    from tradewind.cli.common import load_job, open_store
    from tradewind.engine.cleanup.orphan_policy import OrphanFate, decide_fate
    from tradewind.engine.cleanup.orphan_reaper import OrphanReaper
    from tradewind.errors import InputError
    from tradewind.utils.paths import data_folder
    from tradewind.utils.units import parse_duration

    jobs = [load_job(file) for file in like or ()]
    limit = None if older_than is None else parse_duration(older_than)
    if as_json and not (yes or dry_run):
        raise InputError("--json asks nothing", hint="give --yes or --dry-run with it")
    look_at = partial(OrphanReaper, provisioners=provisioner or (), runners=runner or (), like=jobs)
    with closing(open_store(store)) as opened, closing(look_at(opened, data_folder())) as reaper:
        findings = reaper.look()
        known, now = reaper.known(findings), time.time()
        decisions = [decide_fate(one, known, now, older_than=limit, foreign=foreign) for one in findings]
        removable = [decision for decision in decisions if decision.fate is not OrphanFate.KEEP]
        if not as_json:
            _show(decisions, removable, reaper, now)
        wanted = bool(removable) and not dry_run and (yes or _agreed(len(removable)))
        outcomes = _give_back(reaper, removable, quiet=as_json) if wanted else []
        if as_json:
            _emit(decisions, outcomes, reaper)
    _complain(reaper, outcomes)


def _complain(reaper: OrphanReaper, outcomes: Sequence[ReapOutcome]) -> None:
    from tradewind.engine.cleanup.study_teardown import teardown_error

    if problems := [*reaper.problems, *(one.problem for one in outcomes if one.problem and not one.kept)]:
        raise teardown_error(problems)


def _give_back(reaper: OrphanReaper, removable: Sequence[OrphanDecision], *, quiet: bool) -> list[ReapOutcome]:
    outcomes = []
    for outcome in reaper.give_back(removable):
        outcomes.append(outcome)
        if not quiet:
            typer.echo(_outcome_words(outcome))
    return outcomes


def _agreed(number: int) -> bool:
    import sys

    from tradewind.errors import InputError

    if not sys.stdin.isatty():
        raise InputError("nobody can be asked: this is no terminal", hint="give --yes, or --dry-run only to look")
    return typer.confirm(f"Give {'it' if number == 1 else f'all {number}'} back?")


def _show(
    decisions: Sequence[OrphanDecision], removable: Sequence[OrphanDecision], reaper: OrphanReaper, now: float
) -> None:
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from tradewind.utils.units import format_money

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=1000)
    for line in (*reaper.notes, *reaper.problems):
        console.print(line, style="yellow", markup=False)
    kept = len(decisions) - len(removable)
    if removable:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for title in COLUMNS:
            table.add_column(title, overflow="fold", no_wrap=title in ("what", "age"))
        for decision in removable:
            table.add_row(*(escape(text) for text in _cells(decision, now)))
        console.print(table)
        hourly = sum(decision.price_per_hour or 0.0 for decision in removable if decision.finding.kind == "machines")
        if hourly:
            spent = sum(decision.spent or 0.0 for decision in removable if decision.finding.kind == "machines")
            console.print(f"Together at least {format_money(hourly)} per hour, {format_money(spent)} so far.")
    else:
        console.print("Nothing is left over.")
    if kept:
        words = "is there and stays" if kept == 1 else "are there and stay"
        console.print(f"{kept} more {words}: --json --dry-run says why.")


def _cells(decision: OrphanDecision, now: float) -> Sequence[str]:
    from tradewind.utils.units import format_duration, format_money

    finding = decision.finding
    expiry = "-"
    if finding.expires is not None:
        ago = now - finding.expires
        expiry = f"{format_duration(ago)} ago" if ago >= 0 else f"in {format_duration(-ago)}"
    what = finding.kind.value if finding.alive else f"{finding.kind.value} (ended)"
    age, price = format_duration(decision.age), format_money(decision.price_per_hour)
    so_far = format_money(decision.spent)
    return what, finding.part, finding.run_id, finding.owner or "-", age, expiry, decision.why, price, so_far


def _outcome_words(outcome: ReapOutcome) -> str:
    finding = outcome.decision.finding
    thing = f"{finding.kind.value} of run {finding.run_id} ({finding.part})"
    if outcome.kept:
        return f"kept: {thing}: {outcome.problem}"
    return f"STILL THERE: {thing}: {outcome.problem}" if outcome.problem else f"gone: {thing}"


def _emit(decisions: Sequence[OrphanDecision], outcomes: Sequence[ReapOutcome], reaper: OrphanReaper) -> None:
    from tradewind.cli.common import emit_json
    from tradewind.engine.cleanup.orphan_policy import OrphanFate

    by_decision = {id(outcome.decision): outcome for outcome in outcomes}

    def document(decision: OrphanDecision) -> dict[str, Any]:
        finding, outcome = decision.finding, by_decision.get(id(decision))
        return {
            "what": finding.kind.value,
            "from": finding.part,
            "run": finding.run_id,
            "owner": finding.owner,
            "age": decision.age,
            "expires": finding.expires,
            "alive": finding.alive,
            "fate": decision.fate.value,
            "why": decision.why,
            "price_per_hour": decision.price_per_hour,
            "spent": decision.spent,
            "gone": outcome is not None and not outcome.problem,
            "problem": outcome.problem if outcome is not None else "",
        }

    emit_json(
        {
            "left_over": [document(one) for one in decisions if one.fate is not OrphanFate.KEEP],
            "kept": [document(one) for one in decisions if one.fate is OrphanFate.KEEP],
            "problems": reaper.problems,
            "notes": reaper.notes,
        }
    )
