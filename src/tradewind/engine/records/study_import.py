"""Takes a file of records into the store: into a study that is there, or as a study of its own."""

from __future__ import annotations

import itertools
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tradewind.engine.deployment import run_folder
from tradewind.engine.records.foreign_trials import ForeignTrial, fitted_trials, foreign_records
from tradewind.engine.records.optuna_storages import is_optuna_storage
from tradewind.engine.records.optuna_studies import CONSTRAINT, read_optuna_trials
from tradewind.engine.records.ray_results import is_ray_results, read_ray_trials
from tradewind.engine.records.trial_tables import read_csv_trials
from tradewind.engine.search_builder import build_problem, new_owner
from tradewind.errors import InputError, RecordError, SpecError
from tradewind.problem import Objective, Problem
from tradewind.problem.job_spec.spec import JobSpec
from tradewind.store.base import IMPORTED, ImportedTrials, Store, StudyRow, this_process
from tradewind.store.studies.records import VERSION, StudyRecord, is_study_record, read_records, read_study_record
from tradewind.utils.atomic_files import write_atomically
from tradewind.utils.interrupts import without_collection
from tradewind.utils.json_documents import JsonDocument, read_json_documents
from tradewind.utils.log_copies import check_copies, write_copies
from tradewind.utils.units import count

_HOLD_SECONDS = 600.0
_SHOWN = 8
_LONGEST_VALUE = 40


@dataclass(frozen=True, slots=True)
class StudyImport:
    """The result of an import.

    Attributes:
        trials: The study, and the trials that it took.
        made: True where the study was made of the records.
        notes: Sentences about what is not as one may expect.
        files: Files that were written into the job's folder, the job YAML first.
    """

    trials: ImportedTrials
    made: bool
    notes: list[str] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)


def import_study(
    path: Path, store: Store, data_folder: Path, into: StudyRow | None = None, *, job_folder: Path | None = None
) -> StudyImport:
    """Take the records of a file, all of them or none.

    Without a study that takes them they go into the one that they were exported from, where the store has it, and
    otherwise into a new one. Logs among them are put where those of this machine's runs are.

    Args:
        path: The file.
        store: The store.
        data_folder: The runs' folders are made below it.
        into: The study that takes them; one with the id 0 is made.
        job_folder: Write the job YAML, and the files that its parts read, into this folder.

    Raises:
        RecordError: The file is damaged, is something else, or its study cannot take it; nothing is left of it.
        StudyBusyError: A process is running the study.
    """
    written: list[Path] = []
    try:
        return _import(path, store, data_folder, into, job_folder, written)
    except BaseException as error:
        for folder in written:
            shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, RecordError) and error.file is None:
            raise RecordError(error.message, hint=error.hint, file=str(path)) from None
        raise


def import_foreign_trials(
    source: str, store: Store, data_folder: Path, into: StudyRow, said: Mapping[str, str] | None = None
) -> StudyImport:
    """Take the trials that another tool has run, all of them or none.

    Args:
        source: An Optuna study (see `read_optuna_trials`), a folder of results of Ray Tune, or a CSV file.
        store: The store.
        data_folder: For refreshed prices.
        into: The study that takes them; one with the id 0 is made.
        said: Names of parameters of the study by those of the other tool, where they are not alike.

    Raises:
        InputError: The study has no parameter that ``said`` names.
        RecordError: It cannot be read, or a trial does not fit the study; nothing is left of it.
        StudyBusyError: A process is running the study.
    """
    spec = JobSpec.from_json(into.spec)
    problem = build_problem(spec, data_folder)
    seen, names = _Noted(), said or {}
    for name in names.values():
        if name not in problem.space.names:
            raise InputError(f"the job has no parameter {name!r}", hint=f"it has {', '.join(problem.space.names)}")
    try:
        with without_collection():
            given = _read(source, problem, names)
            left = {} if _is_table(source) else names  # a table has its columns called otherwise already
            found = fitted_trials(given, problem.space.names, seen.constants, left)
            row = into if into.id else replace(into, reason=IMPORTED)
            taken = _put(store, row, foreign_records(problem, seen.ended(found)))
        return StudyImport(replace(taken, unfinished=len(seen.unfinished)), not into.id, seen.notes(problem))
    except RecordError as error:
        if error.file is None:
            raise RecordError(error.message, hint=error.hint, file=source) from None
        raise


def _read(source: str, problem: Problem, said: Mapping[str, str]) -> list[ForeignTrial]:
    path, objective = Path(source), problem.objective
    if is_optuna_storage(source):
        return list(read_optuna_trials(source, objective))
    if not _is_table(source):
        return list(read_ray_trials(path))
    bounds = [bound.metric for bound in problem.constraints.thresholds]
    metrics = [objective.metric, *(one.metric for one in objective.also), *bounds]
    return list(read_csv_trials(path, problem.space.names, metrics, said))


@dataclass(slots=True)
class _Noted:
    """Collects remarks about trials that another tool has run, until they have been taken.

    Attributes:
        unfinished: Places of those that had not ended, which are left out.
        timeless: How many have no known run time.
        nones: How many have None, by parameter.
        constants: What is the same in all trials and no parameter of the job.
        broken: How many broke constraints of their tool.
        names: The other tool's name of each parameter that the job calls otherwise, by the job's.
    """

    unfinished: list[str] = field(default_factory=list)
    timeless: int = 0
    nones: Counter[str] = field(default_factory=Counter)
    constants: dict[str, Any] = field(default_factory=dict)
    broken: int = 0
    names: dict[str, str] = field(default_factory=dict)

    def ended(self, trials: Iterable[ForeignTrial]) -> Iterator[ForeignTrial]:
        """The trials that have ended.

        Raises:
            RecordError: None has.
        """
        taken = False
        for each in trials:
            if each.state == "unfinished":
                self.unfinished.append(f"{each.place} ({each.reason})" if each.reason else each.place)
                continue
            self.timeless += each.timeless
            self.nones.update(each.nones)
            self.names |= each.names
            self.broken += any(value > 0 for name, value in each.metrics.items() if name.startswith(CONSTRAINT))
            taken = True
            yield each
        if not taken:
            hint = f"{count(len(self.unfinished), 'trial')} had not ended" if self.unfinished else "it has none at all"
            raise RecordError("it has no trial that has ended", hint=hint)

    def notes(self, problem: Problem) -> list[str]:
        """The sentences about them."""
        found = []
        if self.names:
            pairs = [f"{theirs} is {ours}" for ours, theirs in self.names.items()]
            more = ", ..." if len(pairs) > _SHOWN else ""
            found.append(f"called otherwise in the job: {', '.join(pairs[:_SHOWN])}{more}")
        if self.constants:
            listed = ", ".join(f"{name}={_shortly(value)}" for name, value in list(self.constants.items())[:_SHOWN])
            more = ", ..." if len(self.constants) > _SHOWN else ""
            found.append(f"the same in all trials, no parameter of the job, and left out: {listed}{more}")
        if self.broken and not any(one.metric.startswith(CONSTRAINT) for one in problem.constraints.thresholds):
            many = f"{count(self.broken, 'trial')} broke constraints of the study, which the job does not have"
            found.append(f"{many} (say constraints: {{metrics: {{{CONSTRAINT}0: '<= 0'}}}})")
        if self.timeless:
            many = f"{count(self.timeless, 'trial')} without a run time: it counts as 0 s"
            found.append(f"{many} (in a CSV file the column runtime has it, in seconds)")
        if self.unfinished:
            more = ", ..." if len(self.unfinished) > _SHOWN else ""
            found.append(f"had not ended, and left out: {', '.join(self.unfinished[:_SHOWN])}{more}")
        for name, many_ in self.nones.items():
            found.append(f"{name} is None in {count(many_, 'trial')}: the job has the word None for it")
        return found


def _shortly(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"


def is_foreign(source: str) -> bool:
    """Test that trials come from another tool, and not from ``tradewind export --format records``."""
    path = Path(source)
    return is_optuna_storage(source) or is_ray_results(path) or path.suffix.lower() == ".csv"


def _is_table(source: str) -> bool:
    return not is_optuna_storage(source) and not is_ray_results(Path(source))


def _put(store: Store, row: StudyRow, records: Iterable[Mapping[str, Any]]) -> ImportedTrials:
    if not row.id:
        return store.import_records(row, records)
    # A search that is running numbers its own trials: records must not come in between.
    token = store.hold(row.id, this_process(), _HOLD_SECONDS)
    try:
        return store.import_records(row, records)
    finally:
        store.release(row.id, token)


def _import(
    path: Path,
    store: Store,
    data_folder: Path,
    into: StudyRow | None,
    job_folder: Path | None,
    written: list[Path],
) -> StudyImport:
    documents = read_json_documents(path)
    first = next(documents)
    record = read_study_record(first.content) if is_study_record(first.content) else None
    opening = list(itertools.islice(documents, 1)) if record is not None else [first]
    notes = _lacks(first.content, record)
    row = _own_study(record, opening, store) if into is None else into
    notes += [] if into is None else _differences(record, into)
    texts = {} if job_folder is None else _job_texts(record, job_folder)
    taken = _with_folders(itertools.chain(opening, documents), row, data_folder, written)
    trials = _put(store, row, taken)
    return StudyImport(trials, not row.id, notes, _write_job(texts))


def _lacks(first: Mapping[str, Any], record: StudyRecord | None) -> list[str]:
    """Say what the records do not have that those of today have."""
    if record is not None:
        return []
    if first.get("record") == VERSION:
        return ["the file lacks the study's own record: its job, searcher, interpreters, versions and offers"]
    version = first.get("record")
    what = "the job, its searcher and interpreters, versions, offers and logs"
    return [f"these records are of version {version}: they lack {what}"] if version == 1 else []


def _own_study(record: StudyRecord | None, opening: Iterable[JsonDocument], store: Store) -> StudyRow:
    """The row of the study that records come from: of this store where it is there, or else a new one."""
    if record is None:
        for _ in read_records(one.content for one in opening):
            hint = "name the study that takes them: --study NAME, or --study job.yaml, of which one is made"
            raise RecordError("these records have no job that a study could be made of", hint=hint)
    assert record is not None  # what is no record at all was refused
    spec = specification_of(record)
    kind = record.study.problem_key.partition("/")[2]
    key = spec.problem_key + (f"/{kind}" if kind else "")
    ids = {
        run["run_id"]
        for one in opening
        for run in _runs(one.content)
        if isinstance(run, Mapping) and isinstance(run.get("run_id"), str)
    }
    for row in store.find_studies(record.study.name, key):
        if ids and any(run.run_id in ids for run in store.runs(row.id)):
            return row
    return replace(record.study, id=0, problem_key=key, spec=_document(record), owner=new_owner())


def specification_of(record: StudyRecord, base: Path | None = None) -> JobSpec:
    """The specification of a study's record, with the offers that it was exported with.

    Args:
        record: The record.
        base: The folder that relative paths are seen from; without it the one of the machine that exported it.

    Raises:
        RecordError: This version cannot read it.
    """
    try:
        return JobSpec.from_json(_document(record), base)
    except (SpecError, TypeError, LookupError, ValueError, ArithmeticError, AttributeError) as error:
        words = error.message if isinstance(error, SpecError) else f"{type(error).__name__} {error}"
        raise RecordError(f"the job of its study cannot be read: {words}") from None


def _document(record: StudyRecord) -> Mapping[str, Any]:
    document = dict(record.study.spec)
    if record.offers is not None:
        document["known_offers"] = {name: [one.to_json() for one in found] for name, found in record.offers.items()}
    return document


def _differences(record: StudyRecord | None, into: StudyRow) -> list[str]:
    """Say in what the problem of the records differs from that of the study that takes them.

    Raises:
        RecordError: Their objective values cannot be compared.
    """
    if record is None:
        return []
    try:
        theirs, mine = specification_of(record), JobSpec.from_json(into.spec)
    except (RecordError, SpecError):  # a study of which only the trials are known any more
        return []
    if _goal(theirs.objective) != _goal(mine.objective):
        raise RecordError(
            f"its trials were to {_goal(theirs.objective)}, and those of study {into.name} are to "
            f"{_goal(mine.objective)}",
            hint="without --study they make a study of their own",
        )
    others = mine.problem_differences(theirs)
    words = f"the records are of another problem than study {into.name}: {', '.join(others)} differ"
    return [words] if others else []


def _goal(objective: Objective) -> str:
    return f"{objective.goal} {objective.metric}"


def _runs(document: Mapping[str, Any]) -> list[Any]:
    runs = document.get("runs")
    return runs if isinstance(runs, list) else []


def _with_folders(
    documents: Iterable[JsonDocument], row: StudyRow, data_folder: Path, written: list[Path]
) -> Iterator[Mapping[str, Any]]:
    """Records whose runs have folders on this machine, where their logs came along."""
    for line, content in documents:
        runs = _runs(content)
        if not any(isinstance(run, Mapping) and "logs" in run for run in runs):
            yield content
            continue
        try:
            yield {**content, "runs": [_with_folder(run, row, data_folder, written) for run in runs]}
        except RecordError as error:
            raise RecordError(error.message, hint=error.hint, line=line) from None
        except OSError as error:
            raise RecordError(f"its logs cannot be kept here: {error.strerror}", line=line) from None


def _with_folder(run: Any, row: StudyRow, data_folder: Path, written: list[Path]) -> Any:
    if not isinstance(run, Mapping) or "logs" not in run or not isinstance(run.get("run_id"), str):
        return run
    files = check_copies(run["logs"])
    name = quote(run["run_id"].encode("utf-8", "replace"), safe="").replace(".", "%2E")
    folder = run_folder(data_folder, row.owner, name)
    if not folder.exists():
        written.append(folder)
        write_copies(folder, files)
    return {**{key: value for key, value in run.items() if key != "logs"}, "folder": str(folder)}


def _job_texts(record: StudyRecord | None, folder: Path) -> dict[Path, str]:
    """The job YAML of a study's record, and the files that its parts read: their texts by where they go.

    Raises:
        RecordError: There is no such record, a file is there already, or one would lie outside of the folder.
    """
    import yaml

    if record is None:
        raise RecordError("these records have no job that could be written")
    spec = specification_of(record, folder)
    document = dict(record.study.spec["job"])
    document["space"] = {name: document["space"][name] for name in record.study.spec.get("order", document["space"])}
    document["job"] = {**document["job"], "workdir": _seen_from(str(spec.job.workdir), record)}
    texts = {"job.yaml": yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120), **record.files}
    paths = {folder / name: text for name, text in texts.items()}
    for path in paths:
        if not path.resolve().is_relative_to(folder.resolve()):
            raise RecordError(f"{path} would lie outside of the folder")
        if path.exists():
            raise RecordError(f"{path} is there already", hint="name another folder")
    return paths


def _write_job(texts: Mapping[Path, str]) -> list[Path]:
    for path, text in texts.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, text)
        except OSError as error:
            raise InputError(
                f"the records are taken, and {path} cannot be written: {error.strerror}", hint="name another folder"
            ) from None
    return list(texts)


def _seen_from(workdir: str, record: StudyRecord) -> str:
    """The job's folder as the YAML would name it, where it lies below the YAML's own."""
    with suppress(ValueError):
        return str(Path(workdir).relative_to(str(record.study.spec.get("base", ""))))
    return workdir
