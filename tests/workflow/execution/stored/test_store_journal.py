"""The journal of a run in the store: where it is found again, who may write, and the rows of its machines."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.workflow.execution.plans import carry, counted, flow_of, plan_of, records, sh

from tradewind.errors import StoreError, StudyBusyError, WorkflowError
from tradewind.problem import Handle, RunState, TrialState
from tradewind.store.base import Store, store_at
from tradewind.store.workflows.workflow_store import WorkflowStore
from tradewind.testing.stores import ELSEWHERE
from tradewind.utils.paths import store_url
from tradewind.workflow.execution.events import ExecutionEnding
from tradewind.workflow.execution.journal import FileJournal
from tradewind.workflow.execution.run_folder import WorkflowRunFolder
from tradewind.workflow.execution.stored import store_journal
from tradewind.workflow.execution.stored.store_journal import TAKEN, RunnerChoice, StoreJournal
from tradewind.workflow.execution.stored.stored_run import StoredRun
from tradewind.workflow.files import Plan
from tradewind.workflow.graph import Task, Workflow

HEADER = {"e": "run", "run": "tw12", "plan": "digest", "scale": 1.0, "synthetic": False}
SESSION = {"e": "session", "pid": 1, "host": "h", "on": "process"}


def small(name: str = "test", vms: int = 2) -> Plan:
    tasks = (Task("a", "a", 0.1), Task("b", "a", 0.1))
    return plan_of(Workflow(name, tasks, ((), ())), vms=vms, price_per_hour=3600.0)


def opened(folder: Path, plan: Plan | None = None, *, url: str | None = None, lenient: bool = False) -> StoreJournal:
    choice = RunnerChoice("process", {}, folder / "machines/.runner")
    place = WorkflowRunFolder(folder)
    return StoreJournal(url or store_url(), plan or small(), place, choice, lenient=lenient, scale=1.0)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "plan.run"


@pytest.fixture
def store() -> Iterator[Store]:
    with closing(store_at(store_url())) as found:
        yield found


def test_a_run_is_a_study_and_is_found_again_by_its_folder(run: Path, store: Store) -> None:
    with closing(opened(run)) as journal:
        assert journal.records == []
        assert store.list_studies() == []  # what cannot begin leaves no row
        journal.write(HEADER, SESSION)
    with closing(opened(run)) as journal:
        assert [each["e"] for each in journal.records] == ["run", "session"]
        journal.write({"e": "began"})
        journal.finish("done", 2.5)
    assert [each["e"] for each in records(run)] == ["run", "session", "began"]
    (study,) = store.find_studies()
    assert (study.kind, study.name, study.owner, study.state) == ("workflow", "test", "workflow-tw12", "finished")
    assert study.elapsed == 2.5
    assert study.spec["workflow"]["tasks"] == 2
    assert store.list_studies()[0].holder == ""


def test_a_command_that_was_killed_before_it_noted_its_study_leaves_none_behind(
    run: Path, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any, **__: Any) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as early, closing(opened(run)) as journal:
        early.setattr(store_journal, "_write_note", killed)
        with pytest.raises(KeyboardInterrupt):
            journal.write(HEADER)
    with closing(opened(tmp_path / "other.run")) as journal:  # the same plan in another folder
        journal.write(HEADER)
    with closing(opened(run)) as journal:
        journal.write(HEADER, SESSION)
    assert [each["e"] for each in records(run)] == ["run", "session"]
    assert [each.id for each in store.list_studies()] == [2, 1]


def test_two_at_once_are_refused_in_a_line(run: Path) -> None:
    with closing(opened(run)) as journal:
        with pytest.raises(StudyBusyError, match="another process is carrying out the plan in"):
            opened(run)
        journal.write(HEADER)
        with pytest.raises(StudyBusyError, match="another process is carrying out the plan in"):
            opened(run)
    opened(run).close()


def test_one_that_another_host_carries_out_is_refused_in_a_line(run: Path, store: Store) -> None:
    with closing(opened(run)) as journal:
        journal.write(HEADER)
    store.hold(1, ELSEWHERE, 60)
    with pytest.raises(StudyBusyError, match=r"carrying out the plan in .*: process another-host.example:17"):
        opened(run)


def test_who_has_lost_it_writes_nothing(run: Path, store: Store) -> None:
    journal = opened(run)
    journal.write(HEADER)
    store.hold(1, ELSEWHERE, 60, force=True)
    with pytest.raises(StudyBusyError, match="no longer carries out test"):
        journal.write({"e": "start", "task": "a", "attempt": 1, "vm": "vm-1", "pilot": 1})
    journal.close()
    assert len(records(run)) == 1


def test_another_store_than_the_folders_is_refused(run: Path, tmp_path: Path) -> None:
    with closing(opened(run)) as journal:
        journal.write(HEADER)
    with pytest.raises(WorkflowError, match=r"the run in .* is in another store: .*tradewind.db"):
        opened(run, url=f"sqlite:///{tmp_path}/other.db")


def test_a_run_that_the_store_has_lost_is_refused_and_begins_anew_if_wanted(run: Path, tmp_path: Path) -> None:
    with closing(opened(run)) as journal:
        journal.write(HEADER)
    for file in (tmp_path / "home").glob("tradewind.db*"):
        file.unlink()
    with pytest.raises(WorkflowError, match=r"is not in the store .* any more") as found:
        opened(run)
    assert "--fresh" in str(found.value.hint)
    with closing(opened(run, lenient=True)) as journal:
        assert journal.records == []
        journal.write(HEADER)
    with closing(opened(run)) as journal:
        assert len(journal.records) == 1


def test_a_note_that_is_none_is_refused_with_its_file(run: Path) -> None:
    run.mkdir()
    for text in ("", "[]", '{"store": "x"}', '{"store": "x", "study": "one", "key": "k"}'):
        (run / "store.json").write_text(text)
        with pytest.raises(WorkflowError, match="does not say in which store") as found:
            opened(run)
        assert found.value.file == str(run / "store.json")


def test_a_store_of_a_newer_version_is_refused(run: Path, store: Store, tmp_path: Path) -> None:
    import sqlite3

    store.list_studies()
    with closing(sqlite3.connect(tmp_path / "home/tradewind.db")) as file:
        file.execute("UPDATE tradewind_version SET version_num = '9999'")
        file.commit()
    with pytest.raises(StoreError, match="was made by a newer Tradewind"):
        opened(run)


def test_the_journal_of_a_folder_is_taken_over(run: Path, store: Store) -> None:
    plan = plan_of(flow_of(sh("a", "echo a >> log"), sh("b", "echo b >> log")))
    carry(plan, run)
    before = (run / "journal.jsonl").read_bytes()
    carried = carry(plan, run, journal=opened(run, plan))
    assert carried.ending is ExecutionEnding.DONE
    assert counted(run) == {"a": 1, "b": 1}
    assert not (run / "journal.jsonl").exists()
    assert (run / TAKEN).read_bytes() == before
    assert len(records(run)) > before.count(b"\n")
    (study,) = store.find_studies()
    assert all(each.state.ended for each in store.runs(study.id))
    with pytest.raises(WorkflowError, match="has its journal in a store"):
        carry(plan, run)


def test_a_takeover_that_was_killed_is_done_again(run: Path) -> None:
    carry(small(), run, synthetic=True)
    text = (run / "journal.jsonl").read_bytes()
    with closing(opened(run)):
        pass
    (run / "journal.jsonl").write_bytes(text)  # killed before it had its other name
    with closing(opened(run)) as journal:
        assert len(journal.records) == text.count(b"\n")
    assert not (run / "journal.jsonl").exists()


def test_a_journal_in_the_folder_that_is_in_use_is_not_taken(run: Path) -> None:
    run.mkdir()
    with closing(FileJournal(run / "journal.jsonl")), pytest.raises(StudyBusyError, match="another process"):
        opened(run)


def test_fresh_makes_another_study_and_the_earlier_one_has_ended(run: Path, store: Store) -> None:
    plan = plan_of(flow_of(sh("a", "echo a >> log")), vms=1)
    carry(plan, run, journal=opened(run, plan))
    carry(plan, run, journal=opened(run, plan, lenient=True), fresh=True)
    assert counted(run) == {"a": 1}
    new, old = store.find_studies()
    assert (old.state, old.reason) == ("interrupted", f"begun anew as study {new.id}")
    assert new.state == "finished"
    assert json.loads((run / "store.json").read_text())["study"] == new.id
    assert [each["pilot"] for each in records(run) if each["e"] == "pilot"] == [1, 2]  # no number is given twice


def machine(kind: str, at: float, vm: str = "vm-1", **more: Any) -> dict[str, Any]:
    return {"e": kind, "at": at, "vm": vm, **more}


def test_machines_are_rows_that_say_what_they_cost(run: Path, store: Store) -> None:
    with closing(opened(run)) as journal:
        journal.write({**HEADER, "at": 10.0}, {**SESSION, "at": 10.0})
        journal.write(machine("pilot", 10.0, pilot=1), machine("pilot", 10.0, vm="vm-2", pilot=1))
        assert [each.state for each in store.runs(1)] == [RunState.PENDING] * 2
        assert store.open_studies() == {1}
        journal.write(machine("up", 12.0))
        assert {each.run_id: each.state for each in store.runs(1)} == {
            "tw12-m1-1": RunState.EXECUTING, "tw12-m2-1": RunState.PENDING,
        }  # fmt: skip
        journal.write(machine("down", 15.0, lost=True, reason="vm-1 is gone"), machine("pilot", 15.0, pilot=2))
        journal.write(
            machine("up", 20.0), machine("down", 21.0, lost=False), {"e": "stop", "at": 22.0, "ending": "done"}
        )
    first, second, other = store.runs(1)
    assert (first.state, first.cost, first.reason, first.runtime) == (RunState.PREEMPTED, 3.0, "vm-1 is gone", 3.0)
    assert (second.state, second.cost, second.attempt) == (RunState.DONE, 1.0, 2)
    assert (other.state, other.cost) == (RunState.CANCELLED, 0.0)  # it never came
    trials = store.trials(1)
    assert [(each.state, each.spent, each.attempts) for each in trials] == [
        (TrialState.SUCCEEDED, 4.0, 2), (TrialState.SUCCEEDED, 0.0, 1),
    ]  # fmt: skip
    assert store.summaries([1])[0].spent == 4.0


def test_rows_that_whoever_makes_machines_has_saved_stay(run: Path, store: Store) -> None:
    with closing(opened(run)) as journal:
        journal.write({**HEADER, "at": 1.0}, machine("pilot", 1.0, pilot=1))
        (row,) = journal.saved_runs()
        saved = replace(row, handle=Handle(row.run_id, "process", {}), reserved=2.0, state=RunState.BOOTING)
        journal.save_run(saved)
        journal.write(machine("up", 2.0), machine("down", 3.0, lost=False))
    assert store.runs(1) == [saved]
    with closing(opened(run)) as journal:
        assert journal.saved_runs() == [saved]
        journal.write({"e": "stop", "at": 4.0, "ending": "done"})
    assert store.runs(1) == [saved]


def test_results_follow_from_the_store(run: Path, store: Store) -> None:
    plan = small(vms=1)
    carried = carry(plan, run, journal=opened(run, plan), synthetic=True)
    (study,) = store.find_studies()
    found = StoredRun.load(store, study.id)
    now = found.history.last
    assert found.results(now) == carried.results
    assert found.ending == "done"
    assert store.summaries([study.id])[0].spent == pytest.approx(carried.results["kept_cost"])


def test_a_record_that_is_none_is_refused_with_its_number(run: Path, store: Store) -> None:
    from tradewind.errors import RecordError

    with closing(opened(run)) as journal:
        journal.write(HEADER)
    token = store.hold(1, ELSEWHERE, 60)
    with closing(WorkflowStore(store_url())) as rows:
        rows.append(1, token, 1, [{"e": "up", "at": 1.0}], lasting=True)
    with pytest.raises(RecordError, match="record 1 of the run is no record"):
        StoredRun.load(store, 1)


@pytest.mark.parametrize("stored", [True, False])
def test_a_run_that_was_refused_leaves_no_folder(tmp_path: Path, *, stored: bool) -> None:
    plan = plan_of(flow_of(sh("a", "true", after="missing")))
    place = tmp_path / "new" / "plan.run"
    there = tmp_path / "there"
    there.mkdir()
    for folder in (place, there):
        with pytest.raises(WorkflowError, match="there is no file"):
            carry(plan, folder, journal=opened(folder, plan) if stored else None)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "home") == ["there"]
    assert list(there.iterdir()) == []


def test_a_folder_that_is_refused_keeps_what_lies_in_it(run: Path, tmp_path: Path) -> None:
    run.mkdir()
    (run / "mine").touch()
    with closing(opened(run)):
        assert (run / ".lock").exists()
    assert [path.name for path in run.iterdir()] == ["mine"]
    with pytest.raises(StoreError):
        opened(tmp_path / "other", url=f"sqlite:////{run}/mine/x.db")
    assert not (tmp_path / "other").exists()


def test_a_lock_that_was_removed_while_it_was_waited_for_is_no_lock(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run.mkdir()
    first, real = opened(run), fcntl.flock

    def late(descriptor: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", real)
        first.close()  # between the opening of its lock by the second one, and the locking
        real(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with closing(opened(run)), pytest.raises(StudyBusyError):
        opened(run)
