"""``tradewind down``: end a study's runs now, and give back its machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tradewind.cli import completion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tradewind.engine.cleanup.study_teardown import StudyTeardown
    from tradewind.store.base import Store, StudyRow

_FEW = 20
"""So many studies are ended one after the other; of more, those that have nothing to be ended are found first."""


def down(
    study: Annotated[
        str | None,
        typer.Argument(
            help="A study's name, its id or a job.yaml.", show_default=False, autocompletion=completion.studies
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All studies of the store.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Take the study from the live process that runs it, if there is one.")
    ] = False,
    checkpoints: Annotated[
        bool, typer.Option("--checkpoints", help="Remove its checkpoints, too: trials that go on then begin anew.")
    ] = False,
    store: Annotated[str | None, typer.Option("--store", help="Address of the store.", metavar="URL")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; asks nothing, so it wants --yes.")] = False,
) -> None:
    """End all runs of a study now, give back its machines, and wait until that is confirmed.

    What the runs have cost is stored. The study stays: the command that began it goes on with it. A study that a live
    process runs is left alone: end that process with Ctrl-C, or give --force. Ends with exit code 11 if something could
    not be given back.
    """
    from contextlib import closing

    from tradewind.cli.common import emit_json, open_store
    from tradewind.engine.cleanup.study_teardown import teardown_error
    from tradewind.errors import InputError

    if (study is None) != everything:
        raise InputError("name a study, or give --all", hint="tradewind status lists them")
    if as_json and not yes:
        raise InputError("--json asks nothing", hint="give --yes with it")
    with closing(open_store(store, must_exist=not everything)) as opened:
        chosen = _chosen(opened, study)
        if not yes and chosen and not _agreed(opened, chosen, checkpoints=checkpoints):
            return
        ended, problems = _end(
            opened, chosen, force=force, alone=not everything, quiet=as_json, checkpoints=checkpoints
        )
    if as_json:
        emit_json([_document(one) for one in ended])
    if problems:
        raise teardown_error(problems)


def _chosen(store: Store, name: str | None) -> list[StudyRow]:
    """The studies that are meant: of one name or file all, for an older one may have left something, too."""
    from tradewind.cli.common import find_studies

    return store.find_studies() if name is None else find_studies(store, name)


def _agreed(store: Store, chosen: Sequence[StudyRow], *, checkpoints: bool) -> bool:
    import sys

    from tradewind.errors import InputError
    from tradewind.utils.units import count

    if not sys.stdin.isatty():
        raise InputError("nobody can be asked: this is no terminal", hint="give --yes")
    open_ = store.open_studies() if len(chosen) > 1 else {study.id for study in chosen}
    running = sum(len(store.runs(study.id, open_only=True)) for study in chosen if study.id in open_)
    what = chosen[0].name if len({study.name for study in chosen}) == 1 else f"{len(chosen)} studies"
    more = ", and remove all checkpoints" if checkpoints else ""
    return typer.confirm(f"End {what} ({count(running, 'open run')}) and give back its machines{more}?")


def _end(
    store: Store, chosen: Sequence[StudyRow], *, force: bool, alone: bool, quiet: bool, checkpoints: bool
) -> tuple[list[StudyTeardown], list[str]]:
    """End one study after the other; none keeps the others from being ended."""
    from dataclasses import replace

    from tradewind.engine.cleanup.old_checkpoints import remove_checkpoints
    from tradewind.engine.cleanup.orphan_reaper import idle_studies
    from tradewind.engine.cleanup.study_teardown import StudyTeardown, tear_down_study
    from tradewind.errors import StudyBusyError, TradewindError
    from tradewind.utils.paths import data_folder

    ended: list[StudyTeardown] = []
    problems: list[str] = []
    idle = idle_studies(store, chosen, data_folder()) if len(chosen) > _FEW and not checkpoints else set()
    for study in chosen:
        if study.id in idle:
            ended.append(StudyTeardown(study))
            continue
        try:
            one = tear_down_study(store, study, data_folder(), reason="tradewind down ended it", force=force)
            if checkpoints and not one.problems:
                removed = remove_checkpoints(store, study, data_folder(), force=force)
                one = replace(one, words=(*one.words, *([removed] if removed else [])))
        except StudyBusyError as error:
            if alone:
                raise StudyBusyError(error.message, hint="end it with Ctrl-C there, or give --force") from None
            ended.append(StudyTeardown(study, problems=(str(error),)))
            problems.append(f"{study.name}: {error}")
        except TradewindError as error:
            ended.append(StudyTeardown(study, problems=(str(error),)))
            problems.append(f"{study.name}: {error}")
        else:
            ended.append(one)
            problems += one.problems
            if not quiet:
                _say(one, alone=alone)
    return ended, problems


def _say(ended: StudyTeardown, *, alone: bool) -> None:
    from tradewind.utils.units import count, format_money

    study = ended.study
    if ended.runs:
        closed = [run for run in ended.runs if run.state.ended]
        cost = format_money(ended.cost)
        typer.echo(f"{study.name} ({study.id}): {count(len(closed), 'run')} ended, {cost} total")
    elif alone and not ended.words:
        typer.echo(f"{study.name} ({study.id}): nothing runs")
    for line in ended.words:
        typer.echo(f"{study.name} ({study.id}): {line}")


def _document(ended: StudyTeardown) -> dict[str, Any]:
    return {
        "study": ended.study.name,
        "id": ended.study.id,
        "runs": [
            {"run": run.run_id, "trial": run.trial, "state": run.state.value, "cost": run.cost} for run in ended.runs
        ],
        "cost": ended.cost,
        "given_back": list(ended.words),
        "problems": list(ended.problems),
    }
