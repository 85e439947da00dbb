"""``tradewind logs``: what a trial's program printed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tradewind.cli import completion

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tradewind.engine.remote_logs import RemoteLog
    from tradewind.problem import Run, Trial
    from tradewind.store.base import Store, StudyRow

WHOLE = 4 * 2**20
"""Bytes up to which a log is printed whole; of a larger one the last lines are."""

SHORTENED = 1000
POLL_SECONDS = 0.2
"""How often ``-f`` looks for more."""

FAR_SECONDS = 1.0
"""How often it asks a run that is elsewhere."""


def logs(
    study: Annotated[
        str, typer.Argument(help="A study's name, its id or a job.yaml.", autocompletion=completion.studies)
    ],
    trial: Annotated[
        str,
        typer.Argument(help="A trial's number, best, or last (the one that was started last); of a workflow, a task."),
    ] = "last",
    stderr: Annotated[bool, typer.Option("--stderr", help="Its standard error instead of its output.")] = False,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until the run ends.")] = False,
    tail: Annotated[
        int | None, typer.Option("--tail", min=0, help="Only the last lines; 0 for all, however large.", metavar="N")
    ] = None,
    store: Annotated[str | None, typer.Option("--store", help="Address of the store.", metavar="URL")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print where the log is, not the log.")] = False,
) -> None:
    """Print what the program of a trial printed, in its last run; of a workflow's run that of a task.

    Of a job that has single runs (tradewind run) beside its search, last is the one of both that was started last. The
    log of a run that is running elsewhere is read there, if its runner can do that, and on this machine when the
    run has ended.
    """
    from contextlib import closing
    from pathlib import Path

    from tradewind.cli.common import emit_json, open_store
    from tradewind.errors import InputError

    if as_json and follow:
        raise InputError("--json and -f do not go together", hint="leave one out")
    with closing(open_store(store, must_exist=True)) as opened:
        row = _study(opened, study, trial)
        study_id = row.id
        if row.kind == "workflow":
            from tradewind.cli.workflow.stored_runs import print_task_log

            name = "stderr" if stderr else "stdout"
            print_task_log(opened, study_id, trial, name, follow=follow, tail=tail, as_json=as_json)
            return
        run = _last_run(opened, study_id, _number(opened, study_id, trial))
        path = Path(run.folder) / ("stderr" if stderr else "stdout")
        taken = [one for one in opened.runs(study_id, trial=run.trial) if one.preemption is not None]
        if as_json:
            size = path.stat().st_size if path.is_file() else None
            facts = {"run": run.run_id, "trial": run.trial, "attempt": run.attempt, "state": run.state.value}
            more = {"taken": [_taken(one) for one in taken]} if taken else {}
            emit_json({**facts, "path": str(path), "bytes": size, **more})
            return
        for one in taken:
            typer.echo(
                "tradewind: attempt {attempt} was taken for tenant {tenant} at {at}".format(**_taken(one)), err=True
            )
        if not path.is_file() and not run.state.ended and run.folder and _elsewhere(row):
            _print_far(opened, row, run, path, tail, follow)
            return
        _check(run, path, follow)
        _print(opened, study_id, run, path, tail, follow)
        if not stderr and _only_error_output(path):
            typer.echo("tradewind: it printed nothing; --stderr shows its standard error", err=True)


def _taken(run: Run) -> dict[str, Any]:
    """Say for whom a run was taken on its cluster, and when."""
    import time

    assert run.preemption is not None
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.preemption.at))
    return {"attempt": run.attempt, "tenant": run.preemption.tenant, "at": at, "pays": run.preemption.pays}


def _only_error_output(path: Path) -> bool:
    """True where an output is empty, and the standard error beside it is not."""
    errors = path.with_name("stderr")
    return path.is_file() and not path.stat().st_size and errors.is_file() and errors.stat().st_size > 0


_MOST_SINGLE_RUNS = 50
"""Studies of single runs that are looked through: there is one for each problem, and for runs at the same time."""


def _study(store: Store, name: str, trial: str) -> StudyRow:
    """The study of a name whose trial is meant: its search, or the single runs of the same job.

    Raises:
        StudyNotFoundError: There is neither.
    """
    from tradewind.cli.common import find_single_runs, find_study
    from tradewind.errors import StudyNotFoundError

    singles = find_single_runs(store, name)[:_MOST_SINGLE_RUNS]
    try:
        found = find_study(store, name)
    except StudyNotFoundError:
        if not singles:
            raise
        found = singles[0]
    if trial != "last":
        return found
    begun = {one.id: _started(_last_started(store, one.id)) for one in (found, *singles)}
    return max((found, *singles), key=lambda one: begun[one.id])


def _started(trial: Trial | None) -> float:
    return -1.0 if trial is None or trial.started is None else trial.started


def _last_started(store: Store, study_id: int) -> Trial | None:
    """The trial that was started last, or None."""
    total = sum(store.summaries([study_id])[0].counts.values())
    # Trials are started in the order of their numbers, and only the last few may still wait for their first run.
    recent = store.trials(study_id, since=max(0, total - 1000))
    return max((one for one in recent if one.attempts), key=lambda one: one.number, default=None)


def _elsewhere(study: StudyRow) -> bool:
    from tradewind.engine.remote_logs import has_remote_logs

    return has_remote_logs(study)


def _print_far(store: Store, study: StudyRow, run: Run, path: Path, tail: int | None, follow: bool) -> None:
    """Print the log of a run where it runs; with ``follow`` until it ends."""
    import sys
    import time
    from contextlib import closing

    from tradewind.engine.remote_logs import RemoteLog
    from tradewind.errors import UnreachableError
    from tradewind.utils.paths import data_folder

    with closing(RemoteLog(study, path.name, data_folder())) as log:
        _begin(log, run, tail)
        said = log.problem
        if said and not follow:
            raise UnreachableError(said)
        while follow and not run.state.ended:
            time.sleep(FAR_SECONDS)
            run = _latest(store, study.id, run)
            for text in log.read(run):
                write_text(text)
            sys.stdout.flush()
            if log.problem and log.problem != said:
                print(f"tradewind: {log.problem}; trying again", file=sys.stderr)
            said = log.problem
        # Of a run that has ended the whole log is here: what was not read there is read here.
        here = run.state.ended and path.is_file() and path.stat().st_size >= log.offset
        if here:
            _print(store, study.id, run, path, None, follow, offset=log.offset)
        else:
            write_text(log.rest())
            sys.stdout.flush()


def _begin(log: RemoteLog, run: Run, tail: int | None) -> None:
    """Print what there is already, or its last lines."""
    import sys
    from collections import deque

    if not tail:
        for text in log.read(run):
            write_text(text)
    else:
        kept: deque[str] = deque(maxlen=tail)
        part = ""
        for text in log.read(run):
            *whole, part = (part + text).split("\n")
            kept.extend(f"{line}\n" for line in whole)
        if part:
            kept.append(part)
        write_text("".join(kept))
    sys.stdout.flush()


def _number(store: Store, study_id: int, trial: str) -> int:
    """The number of the trial that the user means."""
    from tradewind.errors import InputError

    if trial.isdigit():
        return int(trial)
    if trial == "best":
        best = store.summaries([study_id])[0].best
        if best is None:
            raise InputError("there is no best trial: none is feasible yet", hint="name a trial by its number")
        return best.number
    if trial != "last":
        raise InputError(f"{trial!r} is no trial", hint="write its number, best or last")
    if (started := _last_started(store, study_id)) is None:
        raise InputError("no trial has been started yet", hint="tradewind status shows how far the study is")
    return started.number


def _last_run(store: Store, study_id: int, number: int) -> Run:
    from tradewind.errors import InputError

    runs = store.runs(study_id, trial=number)
    if runs:
        return runs[-1]
    exists = any(one.number == number for one in store.trials(study_id, since=number, limit=1))
    if exists:
        raise InputError(f"trial {number} has not been started", hint="tradewind status shows its state")
    raise InputError(f"there is no trial {number} in this study", hint="tradewind status --all lists them")


def _check(run: Run, path: Path, follow: bool) -> None:
    """One clear line when there is nothing to print."""
    from tradewind.errors import InputError

    if path.is_file() or (follow and not run.state.ended):
        return
    what = f"trial {run.trial} (run {run.run_id}, {run.state.value}) has no {path.name}"
    if not run.folder:
        raise InputError(f"{what}: this run keeps no files", hint="replayed and imported trials have no logs")
    if not path.parent.is_dir():
        raise InputError(f"{what}: its folder {path.parent} is gone", hint="it was removed, or is on another machine")
    raise InputError(f"{what} in {path.parent}", hint=run.reason or None)


def _print(
    store: Store, study_id: int, run: Run, path: Path, tail: int | None, follow: bool, *, offset: int | None = None
) -> None:
    begin = offset_of(path, tail) if offset is None else offset
    print_log(path, begin, lambda: not follow or _latest(store, study_id, run).state.ended)


def print_log(path: Path, offset: int, has_ended: Callable[[], bool]) -> None:
    """Print a log from an offset on, and what is added to it until its writer has ended.

    Args:
        path: The file.
        offset: Bytes before it are left out.
        has_ended: Says whether its writer has ended.
    """
    import sys
    import time

    from tradewind.reporting.log_files import LogFileReader

    reader = LogFileReader(path, offset)
    while True:
        # Asked before reading: what a program writes before it ends is then never missed.
        ended = has_ended()
        for text in reader.read():
            write_text(text)
        sys.stdout.flush()
        if ended:
            break
        time.sleep(POLL_SECONDS)
    write_text(reader.rest())
    sys.stdout.flush()


def offset_of(path: Path, tail: int | None) -> int:
    """The place in a log at which to begin; of a large one only the last lines are printed, which is said."""
    import sys

    from tradewind.reporting.log_files import tail_offset
    from tradewind.utils.units import format_memory

    if not path.is_file() or tail == 0:
        return 0
    size = path.stat().st_size
    if tail is None and size <= WHOLE:
        return 0
    if tail is None:
        words = f"the last {SHORTENED} lines of {format_memory(size)}; --tail 0 prints all of {path}"
        print(f"tradewind: {words}", file=sys.stderr)
    return tail_offset(path, tail or SHORTENED)


def _latest(store: Store, study_id: int, run: Run) -> Run:
    """The row of a run as it is now."""
    return next((one for one in store.runs(study_id, trial=run.trial) if one.run_id == run.run_id), run)


def write_text(text: str) -> None:
    """Print text on any terminal: what its encoding lacks is replaced."""
    import sys

    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
