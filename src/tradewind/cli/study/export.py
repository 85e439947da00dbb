"""``tradewind export`` and ``tradewind import``: trials out of the store and into it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tradewind.cli import completion

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import IO

    from tradewind.engine.records.study_import import StudyImport
    from tradewind.store.base import Store, StudyRow


class ExportFormat(StrEnum):
    """Formats in which trials are written.

    ``csv``: one row a trial. ``json``: an array of documents. ``jsonl``: one document a line. ``records``: the full
    records, one a line, which ``tradewind import`` takes. ``parquet``: one row a trial; it needs polars. ``optuna``: a
    study of Optuna, in a file of SQLite, a journal or a database; it needs optuna.
    """

    CSV = "csv"
    JSON = "json"
    JSONL = "jsonl"
    RECORDS = "records"
    PARQUET = "parquet"
    OPTUNA = "optuna"


def export(
    study: Annotated[
        str | None,
        typer.Argument(
            help="A study's name, its id or a job.yaml; the newest study without it.", autocompletion=completion.studies
        ),
    ] = None,
    format_: Annotated[
        ExportFormat | None,
        typer.Option(
            "--format", help="What to write; by the ending of --out, csv without one. records can be imported."
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            "-o",
            help="The file; standard output without it. A study of Optuna may also go to the address of a database.",
            metavar="FILE",
        ),
    ] = None,
    with_logs: Annotated[
        bool, typer.Option("--with-logs", help="With records, also what the runs printed, reported and kept.")
    ] = False,
    log_limit: Annotated[
        str, typer.Option("--log-limit", help="With --with-logs, the most of each file; the middle is left out.")
    ] = "1MiB",
    to: Annotated[
        str | None,
        typer.Option(
            "--to", help="Write the trials there as a callback does: mlflow, tensorboard. What is there already stays."
        ),
    ] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--setting", help="With --to, a setting of it, folder=runs; repeatable.")
    ] = None,
    store: Annotated[str | None, typer.Option("--store", help="Address of the store.", metavar="URL")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --out, say what was written as JSON; else as --format json.")
    ] = False,
) -> None:
    """Write all trials of a study as CSV, JSON, records, Parquet or an Optuna study; of a workflow's run its tasks."""
    from tradewind.errors import InputError

    if to is None and setting:
        raise InputError("--setting is for --to", hint="say --to mlflow, or leave it out")
    if to is None:
        _export(study, format_, out, store, with_logs=with_logs, log_limit=log_limit, as_json=as_json)
    elif format_ is not None or out is not None or with_logs:
        raise InputError("--to has a form of its own", hint="leave out --format, --out and --with-logs")
    else:
        _write_to(to, setting or [], study, store, as_json=as_json)


def _export(
    study: str | None,
    format_: ExportFormat | None,
    out: str | None,
    store: str | None,
    *,
    with_logs: bool,
    log_limit: str,
    as_json: bool,
) -> None:
    from contextlib import closing

    from tradewind.cli.common import emit_json, find_study, open_store
    from tradewind.errors import InputError
    from tradewind.passwords import hide_password
    from tradewind.utils import units

    chosen = _format(format_, out, as_json)
    log_bytes = _log_bytes(chosen, log_limit, with_logs=with_logs)
    if chosen in (ExportFormat.PARQUET, ExportFormat.OPTUNA) and out is None:
        name = "trials.parquet" if chosen is ExportFormat.PARQUET else "study.log"
        raise InputError(f"{chosen.value} is no text", hint=f"name a file: --out {name}")
    with closing(open_store(store, must_exist=True)) as opened:
        found = find_study(opened, study)
        study_id = found.id
        if found.kind == "workflow":
            _check_of_run(found.name, chosen, with_logs=with_logs)
        if out is None:
            import io
            import sys

            if isinstance(sys.stdout, io.TextIOWrapper) and not sys.stdout.isatty():
                sys.stdout.reconfigure(encoding="utf-8", errors="strict")  # as in a file: no character is lost
            _write(opened, study_id, chosen, sys.stdout, log_bytes)
            return
        try:
            if chosen is ExportFormat.OPTUNA:
                place, count = _write_optuna(opened, study_id, out)
            else:
                place, count = out, _write_file(opened, study_id, chosen, Path(out), log_bytes)
        except OSError as error:
            shown = hide_password(out) if "://" in out else out
            raise InputError(f"cannot write {shown}: {error.strerror or error}", hint="choose another file") from None
    if as_json:
        emit_json({"file": place, "format": chosen.value, f"{_what(found)}s": count})
    else:
        typer.echo(f"wrote {units.count(count, _what(found))} to {place}")


def _write_to(name: str, settings: Sequence[str], study: str | None, store: str | None, *, as_json: bool) -> None:
    """Give the trials of a study to a callback; its settings are those of the job, where that has it."""
    from contextlib import closing

    from tradewind.cli.common import emit_json, find_study, open_store
    from tradewind.engine.records.trial_callbacks import write_trials
    from tradewind.engine.search_builder import build_problem
    from tradewind.errors import InputError
    from tradewind.problem.job_spec.choices import PluginChoice
    from tradewind.problem.job_spec.spec import JobSpec
    from tradewind.utils import units
    from tradewind.utils.paths import data_folder

    given: dict[str, str] = {}
    for text in settings:
        key, sign, value = text.partition("=")
        if not sign or not key:
            raise InputError(f"--setting {text}: that is no setting with a value", hint="write --setting folder=runs")
        given[key] = value
    with closing(open_store(store, must_exist=True)) as opened:
        found = find_study(opened, study)
        if found.kind == "workflow":
            raise InputError(f"{found.name} is a run of a workflow, which has no trials", hint="say --format csv")
        spec = JobSpec.from_json(found.spec)
        own = next((one.settings for one in spec.callbacks if one.name == name), {})
        problem = build_problem(spec, data_folder())
        written, place = write_trials(
            PluginChoice(name, {**own, **given}), found, problem, opened, spec.base, data_folder()
        )
    if as_json:
        emit_json({"to": name, "place": place, "trials": written})
    else:
        typer.echo(f"wrote {units.count(written, 'trial')} to {place}")


def _what(study: StudyRow) -> str:
    return "task" if study.kind == "workflow" else "trial"


def _check_of_run(name: str, chosen: ExportFormat, *, with_logs: bool) -> None:
    """Refuse what only a search has."""
    from tradewind.errors import InputError

    if chosen is ExportFormat.OPTUNA:
        raise InputError(f"{name} is a run of a workflow, which Optuna has no place for", hint="say --format csv")
    if with_logs:
        hint = "tradewind logs prints them; they are in the run's folder"
        raise InputError(f"--with-logs: {name} is a run of a workflow, whose records have no logs", hint=hint)


def _format(wanted: ExportFormat | None, out: str | None, as_json: bool) -> ExportFormat:
    from tradewind.errors import InputError

    if out is not None and "://" in out:
        if wanted not in (None, ExportFormat.OPTUNA):
            raise InputError("only a study of Optuna is written into a database", hint="name a file")
        return ExportFormat.OPTUNA
    if wanted is not None:
        return wanted
    if out is not None:
        ending = Path(out).suffix.lower()
        known = {"": ExportFormat.CSV} | {
            f".{one.value}": one for one in ExportFormat if one not in (ExportFormat.RECORDS, ExportFormat.OPTUNA)
        }
        if ending not in known:
            from tradewind.engine.records.optuna_storages import is_optuna_storage

            if is_optuna_storage(out):
                return ExportFormat.OPTUNA
            raise InputError(
                f"--out {out}: no format has the ending {Path(out).suffix}",
                hint="end it with .csv, .json, .jsonl, .parquet or .db, or say --format",
            )
        return known[ending]
    return ExportFormat.JSON if as_json else ExportFormat.CSV


def _log_bytes(chosen: ExportFormat, limit: str, *, with_logs: bool) -> int | None:
    """Bytes that are kept of each log; None where no logs are wanted."""
    from tradewind.errors import InputError
    from tradewind.utils.units import parse_memory

    if not with_logs:
        return None
    if chosen is not ExportFormat.RECORDS:
        raise InputError(f"--with-logs: {chosen.value} has no place for logs", hint="say --format records")
    return parse_memory(limit)


def _write(store: Store, study_id: int, chosen: ExportFormat, stream: IO[str], log_bytes: int | None) -> int:
    from tradewind.reporting.study import documents as writers
    from tradewind.store.studies.tabular import trial_documents

    if store.study(study_id).kind == "workflow":
        from tradewind.cli.workflow.stored_runs import write_run

        return write_run(store, study_id, chosen.value, stream)
    if chosen is ExportFormat.CSV:
        return writers.write_csv(store, study_id, stream)
    if chosen is ExportFormat.JSON:
        return writers.write_json(trial_documents(store, study_id), stream)
    if chosen is ExportFormat.JSONL:
        return writers.write_json_lines(trial_documents(store, study_id), stream)
    from tradewind.engine.records.study_export import StudyExport
    from tradewind.utils.paths import data_folder

    exported = StudyExport(store, study_id, data_folder(), log_bytes=log_bytes)
    writers.write_json_lines(exported.documents(), stream)
    for note in exported.notes:
        typer.echo(f"tradewind: {note}", err=True)
    return exported.trials


def _write_file(store: Store, study_id: int, chosen: ExportFormat, out: Path, log_bytes: int | None) -> int:
    """Write a file beside the wanted one and put it in its place: a reader never sees half of it; a pipe gets all."""
    from tradewind.utils.atomic_files import atomic_user_path

    with atomic_user_path(out) as part:
        if chosen is ExportFormat.PARQUET:
            from tradewind.store.studies import tabular

            if store.study(study_id).kind == "workflow":
                from tradewind.cli.workflow.stored_runs import task_columns

                columns = task_columns(store, study_id)
            else:
                columns = tabular.flat_columns(store, study_id)
            frame = tabular.to_polars(columns)
            frame.write_parquet(part)
            count = len(frame)
        else:
            with part.open("w", encoding="utf-8", newline="") as stream:
                count = _write(store, study_id, chosen, stream, log_bytes)
    return count


def _write_optuna(store: Store, study_id: int, out: str) -> tuple[str, int]:
    """Write an Optuna study, and say what is not in it; where it is, and how many trials."""
    from tradewind.engine.records.optuna_export import write_optuna_study
    from tradewind.engine.search_builder import build_problem
    from tradewind.problem.job_spec.spec import JobSpec
    from tradewind.utils.paths import data_folder

    row = store.study(study_id)
    problem = build_problem(JobSpec.from_json(row.spec), data_folder())
    done = write_optuna_study(out, row.name, problem, store.trials(study_id), store.runs(study_id))
    notes = list(done.notes)
    if left := done.left:
        numbers = ", ".join(map(str, left[:_SHOWN])) + (", ..." if len(left) > _SHOWN else "")
        notes.append(f"had not ended, and left out: trial{'s' if len(left) > 1 else ''} {numbers}")
    for note in notes:
        typer.echo(f"tradewind: {note}", err=True)
    return done.place, done.written


def import_records(
    file: Annotated[
        str,
        typer.Argument(
            help="Records that tradewind export --format records wrote; or what another tool has run: an Optuna study "
            "(its database or journal, #NAME where it has several), a folder of results of Ray Tune, or a CSV file "
            "with a column for each parameter.",
            show_default=False,
        ),
    ],
    study: Annotated[
        str | None,
        typer.Option(
            "--study",
            help="The study that takes them: name, id or job.yaml, of which one is made. Without it the one that they "
            "were exported from, or a new one; what another tool has run needs it.",
            autocompletion=completion.studies,
        ),
    ] = None,
    rename: Annotated[
        list[str] | None,
        typer.Option(
            "--rename",
            help="The job's name of a parameter that another tool calls otherwise; repeatable. What is alike is found.",
            metavar="THEIRS=OURS",
        ),
    ] = None,
    job: Annotated[
        Path | None,
        typer.Option("--job", help="Write the job YAML, and the files that it names, there.", metavar="FOLDER"),
    ] = None,
    store: Annotated[str | None, typer.Option("--store", help="Address of the store.", metavar="URL")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Take the trials of a study, those that another tool has run, or the run of a workflow into the store."""
    from contextlib import closing

    from tradewind.cli.common import open_store
    from tradewind.engine.records.study_import import import_foreign_trials, import_study
    from tradewind.passwords import hide_password
    from tradewind.utils.paths import data_folder
    from tradewind.workflow.execution.stored.run_records import is_run_export

    path, shown = Path(file), hide_password(file) if "://" in file else file
    foreign = _is_foreign(file, has_job=study is not None and job is None)
    names = _renamed(rename or [], foreign=foreign)
    made_of_job = study is None or _is_job(study)
    with closing(open_store(store, must_exist=not made_of_job)) as opened:
        if not foreign and is_run_export(path):
            _import_run(path, opened, study, job, as_json=as_json)
            return
        into = _taker(opened, study) if study is not None else None
        if foreign and into is not None:
            done = import_foreign_trials(file, opened, data_folder(), into, names)
        else:
            done = import_study(path, opened, data_folder(), into, job_folder=job)
    _print_import(done, shown, as_json=as_json)


def _is_foreign(file: str, *, has_job: bool) -> bool:
    """True for trials of another tool, which have no job; what is not there, or is nothing, is refused."""
    from tradewind.engine.records.study_import import is_foreign
    from tradewind.errors import RecordError

    path, foreign = Path(file), is_foreign(file)
    if "://" not in file and not (foreign and "#" in file) and (not path.exists() or (path.is_dir() and not foreign)):
        raise _no_source(path)
    if foreign and not has_job:
        hint = "name the study that takes them: --study NAME, or --study job.yaml, of which one is made"
        raise RecordError("these trials have no job", hint=hint, file=file)
    return foreign


def _renamed(words: Sequence[str], *, foreign: bool) -> dict[str, str]:
    """Names of the job by those of another tool; those may have any sign in them."""
    from tradewind.errors import InputError

    if words and not foreign:
        raise InputError("--rename is for the trials of another tool", hint="leave it out")
    names: dict[str, str] = {}
    for word in words:
        theirs, sign, ours = word.rpartition("=")
        if not sign or not theirs or not ours:
            raise InputError(f"--rename {word}: that is no name with another one", hint="write --rename 'größe=size'")
        if theirs in names or ours in names.values():
            twice = theirs if theirs in names else ours
            raise InputError(f"--rename {word}: {twice} stands in another --rename already", hint="keep one of them")
        names[theirs] = ours
    return names


def _no_source(path: Path) -> Exception:
    """The error that nothing can be read there; of a folder of several experiments with their names."""
    from tradewind.engine.records.study_import import is_foreign
    from tradewind.errors import RecordError

    if not path.exists():
        return RecordError("there is no such file", file=str(path))
    within = sorted(one.name for one in path.iterdir() if one.is_dir() and is_foreign(str(one)))
    hint = f"name one of its experiments: {', '.join(within[:_SHOWN])}" if within else ""
    return RecordError("it is a folder, without results of Ray Tune", hint=hint, file=str(path))


def _import_run(path: Path, store: Store, study: str | None, job: Path | None, *, as_json: bool) -> None:
    """Take the run of a workflow."""
    from tradewind.cli.common import emit_json
    from tradewind.errors import InputError
    from tradewind.utils.units import count
    from tradewind.workflow.execution.stored.run_records import import_run

    if study is not None or job is not None:
        what = "--study" if study is not None else "--job"
        raise InputError(f"{what} is for trials, and {path} has a run of a workflow", hint="leave it out")
    done = import_run(path, store)
    row = done.study
    if as_json:
        emit_json({"file": str(path), "study": row.name, "id": row.id, "made": done.new, "records": done.records})
    elif done.new:
        typer.echo(f"took the run {row.name} (id {row.id}) with {count(done.records, 'record')}")
    else:
        typer.echo(f"the run {row.name} is there already (id {row.id})")


def _import_document(done: StudyImport) -> dict[str, Any]:
    row, trials = done.trials.study, done.trials
    return {
        "study": row.name,
        "id": row.id,
        "made": done.made,
        "imported": trials.new,
        "known": trials.known,
        "unfinished": trials.unfinished,
        "renumbered": [{"from": old, "to": new} for old, new in trials.renumbered.items()],
        "files": [str(path) for path in done.files],
    }


def _is_job(study: str) -> bool:
    return Path(study).suffix in (".yaml", ".yml") and Path(study).is_file()


def _taker(store: Store, study: str) -> StudyRow:
    """The study that takes records; of a job YAML without one, the row of a new one."""
    from tradewind.cli.common import find_search
    from tradewind.errors import StudyNotFoundError

    try:
        return find_search(store, study)
    except StudyNotFoundError:
        if not _is_job(study):
            raise
    from tradewind.engine.search_builder import new_study
    from tradewind.problem.job_spec.spec import load_spec

    return new_study(load_spec(Path(study)))


def _print_import(done: StudyImport, shown: str, *, as_json: bool) -> None:
    from tradewind.cli.common import emit_json
    from tradewind.utils.units import count

    for note in done.notes:
        typer.echo(f"tradewind: {shown}: {note}", err=True)
    if as_json:
        emit_json({"file": shown, **_import_document(done)})
        return
    row, trials = done.trials.study, done.trials
    into = f"{'a new study' if done.made else 'study'} {row.name} (id {row.id})"
    typer.echo(f"took {count(trials.new, 'trial')} into {into}")
    if trials.known:
        typer.echo(f"left out {count(trials.known, 'trial')} that it has already")
    if trials.unfinished:
        typer.echo(f"left out {count(trials.unfinished, 'trial')} that had not ended when they were exported")
    if trials.renumbered:
        pairs = [f"{old} is {new}" for old, new in trials.renumbered.items()]
        shown = ", ".join(pairs[:_SHOWN]) + (", ..." if len(pairs) > _SHOWN else "")
        typer.echo(f"renumbered {count(len(pairs), 'trial')} whose numbers it has already: {shown}")
    for path in done.files:
        typer.echo(f"wrote {path}")
    code = [path.name for path in done.files if path.suffix == ".py"]
    if code:
        typer.echo(f"read {', '.join(code)} before you use the job: it is code of whoever made the records")


_SHOWN = 8
