"""A run of a workflow as a file of records, and back into a store: its plan, its machines and its journal."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tradewind.errors import RecordError, WorkflowError
from tradewind.problem import Run, RunState
from tradewind.store.base import Store, StudyRow
from tradewind.store.studies.records import TrialRecord, read_records, trial_record
from tradewind.store.workflows.workflow_store import WorkflowStore
from tradewind.workflow.execution.journal import RunHistory
from tradewind.workflow.files import parse_plan

VERSION = 1
KEY = "workflow_record"
"""Key of each document of a file; its value is `VERSION`."""

_STUDY = ("name", "problem_key", "spec", "created", "state", "reason", "elapsed")


@dataclass(frozen=True)
class ImportedRun:
    """A run that was taken from a file.

    Attributes:
        study: Its study, which may have been there already.
        new: False where it was.
        records: Number of its journal's records.
    """

    study: StudyRow
    new: bool
    records: int


def export_run(store: Store, study_id: int) -> Iterator[Mapping[str, Any]]:
    """The documents of a run: itself with its plan, a document for each machine, and one for each journal record."""
    study = store.study(study_id)
    with closing(WorkflowStore(store.url)) as rows:
        row, records = rows.run(study_id), rows.records(study_id)
    fields = {name: getattr(study, name) for name in _STUDY}
    yield {KEY: VERSION, "study": fields, "folder": row.folder, "plan": json.loads(row.plan)}
    runs: dict[int, list[Run]] = {}
    for run in store.runs(study_id):
        runs.setdefault(run.trial, []).append(run)
    for trial in store.trials(study_id):
        yield {KEY: VERSION, "machine": trial_record(trial, runs.get(trial.number, ()))}
    for record in records:
        yield {KEY: VERSION, "journal": record}


def is_run_export(path: Path) -> bool:
    """True for a file that `export_run` was written to."""
    try:
        with path.open("rb") as file:
            return file.read(64).lstrip().startswith(f'{{"{KEY}"'.encode())
    except OSError:
        return False


def import_run(path: Path, store: Store) -> ImportedRun:
    """Take a run from a file, all of it or nothing; its machines belong to the store that it came from.

    Raises:
        RecordError: The file is damaged, or something else.
    """
    study, folder, plan, machines, records = _read(path)
    with closing(WorkflowStore(store.url)) as rows:
        for known in store.find_studies(problem_key=study.problem_key):
            if known.spec.get("workflow", {}).get("key") == study.spec["workflow"]["key"]:
                return ImportedRun(known, False, len(records))
        trials = [each.trial for each in machines]
        runs = [_over(run) for each in machines for run in each.runs]
        made = rows.create_run(study, folder, plan, trials=trials, runs=runs, records=records)
    return ImportedRun(made, True, len(records))


def _over(run: Run) -> Run:
    """The row of a run that this store does not watch."""
    if run.state.ended:
        return run
    return replace(run, state=RunState.CANCELLED, reserved=0.0, reason="it had not ended when the run was exported")


def _read(path: Path) -> tuple[StudyRow, str, str, list[TrialRecord], list[dict[str, Any]]]:
    documents = list(_documents(path))
    head = documents[0] if documents else {}
    try:
        fields, folder = {name: head["study"][name] for name in _STUDY}, head["folder"]
        facts = fields["spec"]["workflow"]
        texts = (fields["name"], fields["problem_key"], fields["reason"], folder, facts["key"], facts["folder"])
        numbers = (fields["created"], fields["elapsed"])
        whole = (facts["tasks"], facts["machines"])
        states = fields["state"] in ("open", "finished", "interrupted")
        right = all(isinstance(text, str) for text in texts) and all(type(number) is int for number in whole)
        if not (right and states and isinstance(facts["runner"]["use"], str) and all(map(_finite, numbers))):
            raise TypeError
        study = StudyRow(id=0, kind="workflow", **fields)
        plan = json.dumps(head["plan"])
    except (KeyError, TypeError, AttributeError):
        raise RecordError("its first record is not that of a workflow's run", file=str(path), line=1) from None
    try:
        parse_plan(plan.encode(), str(path))
    except WorkflowError as error:
        raise RecordError(f"its plan cannot be read: {error.message}", file=str(path), line=1) from None
    machines = [document["machine"] for document in documents[1:] if "machine" in document]
    try:
        read = list(read_records(machines))
    except RecordError as error:
        raise RecordError(f"of its machines, {error.message}", file=str(path)) from None
    return study, folder, plan, read, _journal(documents, path)


def _journal(documents: list[dict[str, Any]], path: Path) -> list[dict[str, Any]]:
    """The records of the journal, each of which can be put together with those before."""
    history, found = RunHistory(), []
    for line, document in enumerate(documents, 1):
        if line == 1 or "machine" in document:
            continue
        record = document.get("journal")
        try:
            if not (isinstance(record, dict) and isinstance(record["e"], str) and _finite(record["at"])):
                raise TypeError
            history.take(record)
        except (KeyError, TypeError):
            raise RecordError("it is no record of a run's journal", file=str(path), line=line) from None
        found.append(record)
    return found


def _documents(path: Path) -> Iterator[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(f"it cannot be read: {error}", file=str(path)) from None
    for line, words in enumerate(text.splitlines(), 1):
        try:
            document = json.loads(words)
        except (ValueError, RecursionError):
            raise RecordError("it is no JSON", file=str(path), line=line) from None
        if not isinstance(document, dict) or KEY not in document:
            raise RecordError("it is no record of a workflow's run", file=str(path), line=line)
        if document[KEY] != VERSION:
            hint = "upgrade Tradewind" if isinstance(document[KEY], int) and document[KEY] > VERSION else None
            what = f"it is a record of version {document[KEY]!r}, and this program reads version {VERSION}"
            raise RecordError(what, file=str(path), line=line, hint=hint)
        yield document


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
