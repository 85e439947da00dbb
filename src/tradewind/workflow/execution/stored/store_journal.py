"""The journal of a run in the store: a study of the kind ``workflow``, its records, and a row for each machine."""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tradewind.errors import StoreError, StudyBusyError, StudyNotFoundError, TradewindError, WorkflowError
from tradewind.passwords import hide_password
from tradewind.problem import Run, RunState
from tradewind.store.base import Change, Store, StudyRow, store_at, this_process
from tradewind.store.studies.sql_store import SqlStore
from tradewind.store.workflows.workflow_store import WorkflowStore
from tradewind.utils.atomic_files import remove_empty, write_atomically
from tradewind.workflow.execution.journal import FileJournal, JournalRecord, open_locked
from tradewind.workflow.execution.plan_run import plan_digest
from tradewind.workflow.execution.recovery import pilot_owner
from tradewind.workflow.execution.run_folder import WorkflowRunFolder
from tradewind.workflow.execution.stored.machine_rows import MachineRows
from tradewind.workflow.files import Plan, plan_document

_HOLD_SECONDS, _RENEW_SECONDS, _SYNC_SECONDS = 60.0, 10.0, 1.0

_LOCK = ".lock"

TAKEN = "journal.jsonl.in-store"
"""Name of a journal in the folder whose records the store has taken over."""


@dataclass(frozen=True)
class RunnerChoice:
    """The engine that gives the machines, for the commands that end what is left.

    Attributes:
        use: Name of the runner.
        settings: Its settings.
        data_folder: Folder in which it keeps what it needs between processes.
    """

    use: str
    settings: Mapping[str, Any]
    data_folder: Path

    def document(self) -> dict[str, Any]:
        """The choice as a document, for the study."""
        return {"use": self.use, **self.settings, "data_folder": str(self.data_folder)}


class StoreJournal:
    """The journal of a run in the store; the row is made with the first record, so that what cannot begin leaves none.

    A record is in the database's log when `write` returns. It outlives the process, and the disk has it within a
    second, as with `FileJournal`. What is said of machines is there before they are asked for, power cut or not.

    Args:
        url: Address of the store.
        plan: The plan.
        folder: The run's folder.
        runner: The engine of this session.
        more: Further facts of the run for those who read its study.

    Attributes:
        records: The records that were in it.

    Raises:
        StudyBusyError: Another process carries the run out.
        StoreError: The store cannot be opened, or keeps no runs of workflows.
        WorkflowError: The folder is of another store, or cannot be used.
    """

    def __init__(
        self,
        url: str,
        plan: Plan,
        folder: WorkflowRunFolder,
        runner: RunnerChoice,
        *,
        lenient: bool = False,
        **more: Any,
    ) -> None:
        self._plan, self._folder, self._runner, self._more = plan, folder, runner, more
        self._made = folder.make()
        try:
            self._lock, self._alone = _locked(folder)
        except WorkflowError:
            remove_empty(self._made)
            raise
        self._saving = threading.RLock()
        self._dirty, self._closed = threading.Event(), threading.Event()
        self._trouble: TradewindError | None = None
        self._study: StudyRow | None = None
        self._token, self._number = "", 0
        self._earlier: tuple[int, str] | None = None
        self._noted = False
        self.records: list[JournalRecord] = []
        self._machines = MachineRows(plan.platform)
        try:
            self._store, self._rows = _open(url)
        except BaseException:
            self._unlock()
            raise
        self._keeper = threading.Thread(target=self._keep, name="tradewind-journal", daemon=True)
        try:
            self._find(lenient=lenient)
        except BaseException:
            self._let_go()
            raise
        self._keeper.start()

    # ------------------------------------------------------------------ the journal

    def write(self, *records: JournalRecord) -> list[JournalRecord]:
        """Add records, all of them or none, and return them, each with the time; none is a question if it is held.

        Raises:
            StudyBusyError: Another process has taken the run.
            StoreError: They cannot be written.
        """
        now = time.time()
        dated = [{"at": now, **record} for record in records]
        if self._trouble is not None:
            raise self._trouble
        if not dated:
            return dated
        study = self._study or self._begin()
        with self._saving:
            self._say_of_machines(study, dated)
        self._rows.append(study.id, self._token, self._number, dated, lasting=False)
        self._number += len(dated)
        self._dirty.set()
        return dated

    def save_run(self, run: Run) -> None:
        """Keep the row of a machine's run; it is on the disk when this returns."""
        with self._saving:
            assert self._study is not None, "the pilot's record is written first"
            trials = self._machines.take(run)
            self._store.write(self._study.id, Change(trials, [run]), self._token)

    def saved_runs(self) -> list[Run]:
        """The rows of machines' runs of all sessions, as they were saved last."""
        with self._saving:
            return self._machines.runs

    def clear(self) -> None:
        """Begin anew: the earlier run stays in the store, and its folder is the next one's once that has a record."""
        if self._study is not None:
            self._earlier, self._study = (self._study.id, self._token), None
            self._machines.end_all("it was begun anew", time.time())
            self._store.write(self._earlier[0], Change(*self._machines.changed()), self._token)
        self._machines = MachineRows(self._plan.platform)
        self.records, self._number = [], 0

    def finish(self, ending: str, seconds: float) -> None:
        """Say how this session ended, for those who read the study."""
        if self._study is not None:
            over = ending in ("done", "failed")
            state = "finished" if over else "interrupted"
            fields = {"state": state, "reason": _REASONS.get(ending, ending), "elapsed": seconds}
            self._store.write(self._study.id, Change(study=fields), self._token)

    def close(self) -> None:
        """Write it to the disk and let go of it."""
        self._closed.set()
        self._keeper.join()
        try:
            if self._study is not None:
                self._rows.sync()
                self._store.release(self._study.id, self._token)
            if self._earlier is not None:
                self._store.release(*self._earlier)
        finally:
            self._let_go()

    # ------------------------------------------------------------------ the study

    @property
    def study(self) -> StudyRow | None:
        """The run's study; None before the first record."""
        return self._study

    def _find(self, *, lenient: bool) -> None:
        """Find the run of the folder in the store, and take it; or the records of a journal in the folder."""
        note = _read_note(self._folder)
        if note is not None:
            self._noted = True
            study = self._of_note(note, lenient=lenient)
            if study is not None:
                self._take(study)
        if self._folder.journal.exists():
            self._take_over(lenient=lenient)

    def _of_note(self, note: Mapping[str, Any], *, lenient: bool) -> StudyRow | None:
        if note["store"] != self._rows.place:
            hint = "set TRADEWIND_STORE to it, or name another folder with --folder"
            raise WorkflowError(f"the run in {self._folder.path} is in another store: {note['store']}", hint=hint)
        try:
            study = self._store.study(note["study"])
        except StudyNotFoundError:
            study = None
        if study is not None and study.spec.get("workflow", {}).get("key") == note["key"]:
            return study
        if lenient:
            return None
        raise WorkflowError(
            f"the run in {self._folder.path} is not in the store {self._rows.place} any more",
            hint="put the store back, or begin anew with --fresh",
        )

    def _take(self, study: StudyRow) -> None:
        try:
            self._token = self._store.hold(study.id, this_process(), _HOLD_SECONDS)
        except StudyBusyError as error:
            raise _busy(self._folder, error.message.rpartition(" by ")[2]) from None
        self._study = study
        self.records = self._rows.records(study.id)
        self._number = len(self.records)
        self._machines.restore(self._store.trials(study.id), self._store.runs(study.id))
        for record in self.records:
            with suppress(KeyError, TypeError):  # what is wrong there is said by who reads it
                self._machines.see(record)
        self._machines.changed()

    def _take_over(self, *, lenient: bool) -> None:
        """Take the records of the folder's own journal, which an earlier version or --no-store has written."""
        old = FileJournal(self._folder.journal, lenient=lenient)
        try:
            if old.records and not self.records:  # else they have been taken, and only its name had not changed
                study = self._study or self._begin()
                with self._saving:
                    self._say_of_machines(study, old.records)
                self._rows.append(study.id, self._token, 0, old.records, lasting=True)
                self.records, self._number = list(old.records), len(old.records)
            self._folder.journal.rename(self._folder.path / TAKEN)
        finally:
            old.close()

    def _begin(self) -> StudyRow:
        """Make the study of a new run, and note in the folder where it is."""
        row = StudyRow(
            id=0,
            name=self._plan.flow.name or self._folder.path.stem,
            problem_key=f"workflow-{plan_digest(self._plan)[:32]}",
            spec={"workflow": self._facts(secrets.token_hex(8))},
            created=time.time(),
            kind="workflow",
        )
        study = self._not_noted(row) or self._rows.create_run(
            row, str(self._folder.path), json.dumps(plan_document(self._plan))
        )
        self._token = self._store.hold(study.id, this_process(), _HOLD_SECONDS)
        note = {"store": self._rows.place, "study": study.id, "key": study.spec["workflow"]["key"]}
        if not _write_note(self._folder, note, anew=self._noted):
            self._store.release(study.id, self._token)
            raise _busy(self._folder, "another machine")
        self._study, self._noted = study, True
        if self._earlier is not None:
            (number, token), self._earlier = self._earlier, None
            gone = {"state": "interrupted", "reason": f"begun anew as study {study.id}"}
            self._store.write(number, Change(study=gone), token)
            self._store.release(number, token)
        return study

    def _not_noted(self, row: StudyRow) -> StudyRow | None:
        """The study that a command before made for this folder, and was killed before it noted that; or None."""
        wanted = {name: row.spec["workflow"][name] for name in ("folder", "host")}
        for each in self._store.find_studies(row.name, row.problem_key):
            facts = each.spec.get("workflow", {})
            ours = {name: facts.get(name) for name in wanted} == wanted
            if ours and each.kind == "workflow" and not self._rows.records(each.id):
                return each
        return None

    def _facts(self, key: str) -> dict[str, Any]:
        return {
            "key": key,
            "planner": self._plan.planner,
            "tasks": len(self._plan.flow),
            "machines": len(self._plan.platform.vms),
            "folder": str(self._folder.path),
            "runner": self._runner.document(),
            "host": socket.gethostname(),
            **self._more,
        }

    # ------------------------------------------------------------------ rows of machines

    def _say_of_machines(self, study: StudyRow, records: Sequence[JournalRecord]) -> None:
        """Bring the rows up to date before the records are written: what is asked for then is known to ``reap``."""
        fields: dict[str, Any] = {}
        for record in records:
            match record["e"]:
                case "run":
                    fields["owner"] = pilot_owner(record["run"])
                case "session":
                    key = study.spec["workflow"]["key"]
                    fields |= {"state": "open", "reason": "", "spec": {"workflow": self._facts(key)}}
            self._machines.see(record)
        trials, runs = self._machines.changed()
        if trials or runs or fields:
            asked = any(run.state is RunState.PENDING for run in runs)
            self._store.write(study.id, Change(trials, runs, fields, lasting=asked), self._token)

    # ------------------------------------------------------------------ in the thread

    def _keep(self) -> None:
        """Write to the disk what a power cut could take, and keep the hold."""
        renewed = time.monotonic()
        while not self._closed.wait(_SYNC_SECONDS):
            try:
                study = self._study
                if self._dirty.is_set():
                    self._dirty.clear()
                    self._rows.sync()
                if study is not None and time.monotonic() - renewed > _RENEW_SECONDS:
                    renewed = time.monotonic()
                    self._store.renew(study.id, self._token, _HOLD_SECONDS)
            except StudyBusyError as error:
                if study is self._study:
                    self._trouble = error
            except StoreError as error:
                self._trouble = error

    def _let_go(self) -> None:
        self._rows.close()
        self._store.close()
        self._unlock()

    def _unlock(self) -> None:
        """Let go of the folder; one in which nothing was begun is left as it was found."""
        if self._alone and not self._noted and self._study is None:
            with suppress(OSError):
                (self._folder.path / _LOCK).unlink()
            remove_empty(self._made)
        os.close(self._lock)


_REASONS = {
    "done": "all tasks are done",
    "failed": "tasks failed",
    "machines": "no machine is left",
    "impossible": "what is left fits on no machine that is left",
    "interrupted": "interrupted",
}


def _open(url: str) -> tuple[Store, WorkflowStore]:
    store = store_at(url)
    if not isinstance(store, SqlStore):
        store.close()
        hint = "use SQLite or PostgreSQL, or --no-store"
        raise StoreError(f"the store {hide_password(url)} keeps no runs of workflows", hint=hint)
    try:
        return store, WorkflowStore(url)
    except BaseException:
        store.close()
        raise


def _locked(folder: WorkflowRunFolder) -> tuple[int, bool]:
    """Lock a folder against other processes of this machine; the store's hold is for those of others.

    Returns:
        The descriptor of the lock, and False where the file system has none.

    Raises:
        WorkflowError: Nothing can be written there.
        StudyBusyError: Another process has locked it.
    """
    path = folder.path / _LOCK
    try:
        return open_locked(path, 0)
    except BlockingIOError:
        raise _busy(folder, "") from None
    except OSError as error:
        raise WorkflowError(f"cannot write {path}: {error.strerror}", hint="--folder names another folder") from None


def _busy(folder: WorkflowRunFolder, who: str) -> StudyBusyError:
    by = f": {who}" if who else ""
    return StudyBusyError(
        f"another process is carrying out the plan in {folder.path}{by}",
        hint="wait for it, or give another folder with --folder",
    )


def _read_note(folder: WorkflowRunFolder) -> dict[str, Any] | None:
    try:
        note = json.loads(folder.store_note.read_bytes())
        return {"store": str(note["store"]), "study": int(note["study"]), "key": str(note["key"])}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        hint = "name another folder with --folder, or remove this one"
        raise WorkflowError(
            "it does not say in which store the run is", file=str(folder.store_note), hint=hint
        ) from None


def _write_note(folder: WorkflowRunFolder, note: Mapping[str, Any], *, anew: bool) -> bool:
    """Write where the run is; False where there is a note already, and it is not to be written anew."""
    text = json.dumps(note) + "\n"
    if anew:
        write_atomically(folder.store_note, text, durable=True)
        return True
    part = folder.path / f".store.{secrets.token_hex(4)}"
    write_atomically(part, text, durable=True)
    try:
        os.link(part, folder.store_note)
    except FileExistsError:
        return False
    finally:
        part.unlink()
    return True
