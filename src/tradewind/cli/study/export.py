"""``tradewind export`` and ``tradewind import``: trials out of the store and into it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tradewind.cli import completion

if TYPE_CHECKING:
    from typing import IO

    from tradewind.store.base import Store


class ExportFormat(StrEnum):
    """Formats in which trials are written.

    ``csv``: one row a trial. ``json``: an array of documents. ``jsonl``: one document a line. ``records``: the full
    records, one a line, which ``tradewind import`` takes. ``parquet``: one row a trial; it needs polars.
    """

    CSV = "csv"
    JSON = "json"
    JSONL = "jsonl"
    RECORDS = "records"
    PARQUET = "parquet"


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
        Path | None, typer.Option("--out", "-o", help="The file; standard output without it.", metavar="FILE")
    ] = None,
    store: Annotated[str | None, typer.Option("--store", help="Address of the store.", metavar="URL")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --out, say what was written as JSON; else as --format json.")
    ] = False,
) -> None:
    """Write all trials of a study as CSV, JSON, JSON lines, full records or Parquet."""
    from contextlib import closing

    from tradewind.cli.common import emit_json, find_study, open_store
    from tradewind.errors import InputError
    from tradewind.utils import units

    chosen = _format(format_, out, as_json)
    if chosen is ExportFormat.PARQUET and out is None:
        raise InputError("Parquet is no text", hint="name a file: --out trials.parquet")
    with closing(open_store(store, must_exist=True)) as opened:
        study_id = find_study(opened, study).id
        if out is None:
            import io
            import sys

            if isinstance(sys.stdout, io.TextIOWrapper) and not sys.stdout.isatty():
                sys.stdout.reconfigure(encoding="utf-8", errors="strict")  # as in a file: no character is lost
            _write(opened, study_id, chosen, sys.stdout)
            return
        try:
            count = _write_file(opened, study_id, chosen, out)
        except OSError as error:
            raise InputError(f"cannot write {out}: {error.strerror}", hint="choose another file") from None
    if as_json:
        emit_json({"file": str(out), "format": chosen.value, "trials": count})
    else:
        typer.echo(f"wrote {units.count(count, 'trial')} to {out}")


def _format(wanted: ExportFormat | None, out: Path | None, as_json: bool) -> ExportFormat:
    from tradewind.errors import InputError

    if wanted is not None:
        return wanted
    if out is not None:
        ending = out.suffix.lower()
        known = {"": ExportFormat.CSV} | {
            f".{one.value}": one for one in ExportFormat if one is not ExportFormat.RECORDS
        }
        if ending not in known:
            raise InputError(
                f"--out {out}: no format has the ending {out.suffix}",
                hint="end it with .csv, .json, .jsonl or .parquet, or say --format",
            )
        return known[ending]
    return ExportFormat.JSON if as_json else ExportFormat.CSV


def _write(store: Store, study_id: int, chosen: ExportFormat, stream: IO[str]) -> int:
    from tradewind.reporting.study import documents as writers
    from tradewind.store.studies.tabular import trial_documents

    if chosen is ExportFormat.CSV:
        return writers.write_csv(store, study_id, stream)
    if chosen is ExportFormat.JSON:
        return writers.write_json(trial_documents(store, study_id), stream)
    if chosen is ExportFormat.JSONL:
        return writers.write_json_lines(trial_documents(store, study_id), stream)
    return writers.write_json_lines(store.export_records(study_id), stream)


def _write_file(store: Store, study_id: int, chosen: ExportFormat, out: Path) -> int:
    """Write a file beside the wanted one and put it in its place: a reader never sees half of it; a pipe gets all."""
    from tradewind.utils.atomic_files import atomic_user_path

    with atomic_user_path(out) as part:
        if chosen is ExportFormat.PARQUET:
            from tradewind.store.studies import tabular
            from tradewind.store.studies import tabular as frames

            frame = frames.to_polars(tabular.flat_columns(store, study_id))
            frame.write_parquet(part)
            count = len(frame)
        else:
            with part.open("w", encoding="utf-8", newline="") as stream:
                count = _write(store, study_id, chosen, stream)
    return count


class _Counted(Iterator[Mapping[str, Any]]):
    """Records, counted as they are taken.

    Args:
        records: The records.
    """

    def __init__(self, records: Iterator[Mapping[str, Any]]) -> None:
        self._records = records
        self.count = 0

    def __next__(self) -> Mapping[str, Any]:
        record = next(self._records)
        self.count += 1
        return record


def import_records(
    file: Annotated[Path, typer.Argument(help="Records that tradewind export --format records wrote.")],
    study: Annotated[
        str,
        typer.Option(
            "--study", help="The study that takes them: name, id or job.yaml.", autocompletion=completion.studies
        ),
    ],
    store: Annotated[str | None, typer.Option("--store", help="Address of the store.", metavar="URL")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Take records of trials into a study; trials that it has already are left as they are."""
    from contextlib import closing

    from tradewind.cli.common import emit_json, find_study, open_store
    from tradewind.errors import RecordError
    from tradewind.reporting.log_files import read_records
    from tradewind.store.base import this_process
    from tradewind.utils import units

    if not file.is_file():
        raise RecordError("there is no such file", file=str(file))
    with closing(open_store(store, must_exist=True)) as opened:
        row = find_study(opened, study)
        # A search that is running numbers its own trials: records must not come in between.
        token = opened.hold(row.id, this_process(), 600.0)
        try:
            read = _Counted(read_records(file))
            count = opened.import_records(row.id, read)
        except RecordError as error:
            if error.file is None:
                raise RecordError(error.message, hint=error.hint, file=str(file)) from None
            raise
        finally:
            opened.release(row.id, token)
    if as_json:
        emit_json({"file": str(file), "study": row.name, "id": row.id, "imported": count, "known": read.count - count})
        return
    typer.echo(f"took {units.count(count, 'trial')} into study {row.name} (id {row.id})")
    if read.count > count:
        known = units.count(read.count - count, "number")
        typer.echo(f"left out {known} that it has already; records of another search belong into a study of its own")
