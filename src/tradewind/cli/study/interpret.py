"""``tradewind interpret``: the stored logs of a study, read with other interpreters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tradewind.cli import completion

if TYPE_CHECKING:
    from tradewind.engine.records.reinterpretation import Reinterpretation, TrialReading
    from tradewind.problem import Trial

_MOST_ROWS = 40
"""So many trials are printed; JSON has all."""


def interpret(
    study: Annotated[
        str, typer.Argument(help="A study's name, its id or a job.yaml.", autocompletion=completion.studies)
    ],
    with_: Annotated[
        Path | None,
        typer.Option(
            "--with",
            help="A job YAML with other interpreters, objective or constraints; the study's own without it.",
            metavar="FILE",
        ),
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Store what is read; the values before are kept in each trial's record.")
    ] = False,
    store: Annotated[str | None, typer.Option("--store", help="Address of the store.", metavar="URL")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Read the stored logs of a study anew, with other patterns say; nothing is run.

    Without --write it is only shown which trials change. With it they are stored, the study takes over the job, and
    tradewind tune goes on with it.
    """
    from contextlib import closing

    from tradewind.cli.common import emit_json, find_search, open_store
    from tradewind.engine.records.reinterpretation import reinterpret, store_reinterpretation
    from tradewind.problem.job_spec.spec import load_spec

    spec = load_spec(with_) if with_ is not None else None
    with closing(open_store(store, must_exist=True)) as opened:
        found = reinterpret(opened, find_search(opened, study), spec)
        stored = write and bool(found.changed or found.new_problem)
        if stored:
            store_reinterpretation(opened, found)
    if as_json:
        emit_json(_document(found, stored=stored))
    else:
        _print(found, stored=stored)


def _document(found: Reinterpretation, *, stored: bool) -> dict[str, Any]:
    return {
        "study": found.study.name,
        "id": found.study.id,
        "trials": len(found.readings),
        "changed": [
            {"number": one.before.number, "before": _facts(one.before), "after": _facts(one.after)}
            for one in found.changed
        ],
        "without_logs": [one.before.number for one in found.readings if one.without_logs],
        "cut": [one.before.number for one in found.readings if one.cut],
        "best": None if found.best is None else found.best.number,
        "best_before": None if found.best_before is None else found.best_before.number,
        "stored": stored,
    }


def _facts(trial: Trial) -> dict[str, Any]:
    seen = trial.observation
    assert seen is not None
    return {
        "state": trial.state.value,
        "objective": seen.objective,
        "feasible": seen.feasible,
        "metrics": dict(seen.metrics),
        "reason": seen.reason,
    }


def _print(found: Reinterpretation, *, stored: bool) -> None:
    from tradewind.utils.units import count

    changed = found.changed
    for one in changed[:_MOST_ROWS]:
        typer.echo(f"trial {one.before.number}: {'; '.join(_changes(one))}")
    if len(changed) > _MOST_ROWS:
        typer.echo(f"and {count(len(changed) - _MOST_ROWS, 'trial')} more (--json has all)")
    typer.echo(f"{len(changed):,} of {count(len(found.readings), 'trial')} change.")
    without = sum(one.without_logs for one in found.readings)
    if without:
        typer.echo(f"The logs of {count(without, 'trial')} are not here: what was recorded of them counts.")
    if cut := sum(one.cut for one in found.readings):
        typer.echo(f"The logs of {count(cut, 'trial')} are here only in part: what stood in the rest is not read.")
    typer.echo(_best_words(found))
    if stored:
        goes_on = f"; tradewind tune {found.spec.file} goes on with it" if found.new_problem else ""
        typer.echo(f"Stored in study {found.study.name} (id {found.study.id}){goes_on}.")
    elif changed or found.new_problem:
        typer.echo("Nothing is stored: --write does that.")


def _best_words(found: Reinterpretation) -> str:
    now, before = found.best, found.best_before
    if now is None:
        return "No trial is feasible." + ("" if before is None else f" The best was trial {before.number}.")
    value = "" if now.observation is None else f", {found.spec.objective.metric} {_number(now.observation.objective)}"
    words = f"The best is trial {now.number} ({now.configuration}{value})"
    if before is None:
        return f"{words}; before, none was feasible."
    return f"{words}, as before." if before.number == now.number else f"{words}; it was trial {before.number}."


def _changes(one: TrialReading) -> list[str]:
    """The differences of a trial, in words: metrics first."""
    old, new = one.before.observation, one.after.observation
    assert old is not None
    assert new is not None
    found = []
    for name in dict.fromkeys([*old.metrics, *new.metrics]):
        before, after = old.metrics.get(name), new.metrics.get(name)
        if repr(before) != repr(after):
            found.append(f"{name} {_number(before)} → {_number(after)}")
    if one.before.state is not one.after.state:
        found.append(f"{one.before.state.value} → {one.after.state.value}")
    elif old.feasible != new.feasible:
        found.append("feasible now" if new.feasible else "not feasible any more")
    if new.reason and new.reason != old.reason:
        found.append(new.reason)
    return found or [f"objective {_number(old.objective)} → {_number(new.objective)}"]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"
