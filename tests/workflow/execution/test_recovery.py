"""Tests of a later session that finds tasks armed by an earlier one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tradewind.workflow.execution.agent import write_document
from tradewind.workflow.execution.events import ExecutionOpened
from tradewind.workflow.execution.journal import RunHistory, end_record, start_record
from tradewind.workflow.execution.recovery import departures, recover
from tradewind.workflow.execution.run_folder import WorkflowRunFolder
from tradewind.workflow.execution.task_states import ArmedTask
from tradewind.workflow.graph import Task, Workflow

FLOW = Workflow("w", tuple(Task(name, "a", 1.0) for name in ("one", "two", "three")), ((), (0,), (0, 1)))


class Run:
    """The journal and the folder of a run whose controller was killed."""

    def __init__(self, folder: Path, *records: dict[str, Any]) -> None:
        self.folder, self.history = WorkflowRunFolder(folder), RunHistory()
        self.written: list[dict[str, Any]] = []
        for record in records:
            self.history.take({"at": 0.0, **record})

    def record(self, *records: dict[str, Any]) -> None:
        for record in records:
            self.written.append(record)
            self.history.take({"at": 1.0, **record})

    def leave(self, task: str, attempt: int, outcome: str | None = None) -> None:
        place = self.folder.path / self.folder.attempt(task, attempt)
        place.mkdir(parents=True)
        if outcome:
            write_document(place / "end.json", {"outcome": outcome, "reason": "", "began": 5.0, "seconds": 2.0})

    def opened(self, *, there: bool) -> ExecutionOpened:
        machines = {"vm": (0, 1)} if there else {}
        return recover(FLOW, self.folder, self.history, machines, self.record)


def start(task: str, attempt: int = 1) -> dict[str, Any]:
    return start_record(task, attempt, "vm", 1)


def arm(task: str, *after: str, attempt: int = 1) -> dict[str, Any]:
    return {**start(task, attempt), "e": "arm", "after": list(after)}


def end(task: str, outcome: str, attempt: int = 1) -> dict[str, Any]:
    return end_record(task, attempt, {"outcome": outcome, "reason": ""}, 0.0)


def test_when_machines_went_that_nobody_has_seen_go(tmp_path: Path) -> None:
    """As they say themselves, or when their last task had ended and they had waited for long enough."""
    names = ("said", "worked", "silent", "later")
    run = Run(tmp_path, *({"e": "pilot", "vm": name, "pilot": 1} for name in names), {**start("one"), "vm": "worked"})
    run.leave("one", 1, "done")  # it ended at 7 s
    (run.folder.pilot("said", 1)).mkdir(parents=True)
    write_document(run.folder.pilot("said", 1) / "left.json", {"at": 5.5})
    (run.folder.pilot("silent", 1)).mkdir(parents=True)
    found = departures(run.folder, run.history, names[:3], last=3.0, linger=60.0)
    assert {each["vm"]: each["at"] for each in found} == {"said": 5.5, "worked": 67.0, "silent": 63.0}
    soon = time.time()
    [late] = departures(run.folder, run.history, ["later"], last=soon, linger=60.0)
    assert soon <= late["at"] <= time.time(), "it is gone now"


def test_while_what_it_waits_for_runs_it_is_armed_again(tmp_path: Path) -> None:
    run = Run(tmp_path, start("one"), arm("two", "one#1"))
    opened = run.opened(there=True)
    assert opened.running == {0: (0, 1)}
    assert opened.armed == {0: ArmedTask(1, 1, frozenset({0}))}
    assert opened.attempts == {0: 1, 1: 1}
    assert run.written == []


def test_of_several_only_those_that_have_not_ended_are_waited_for(tmp_path: Path) -> None:
    run = Run(tmp_path, start("one"), start("two"), arm("three", "one#1", "two#1"), end("one", "done"))
    assert run.opened(there=True).armed == {0: ArmedTask(2, 1, frozenset({1}))}


def test_when_what_it_waited_for_has_ended_well_it_runs(tmp_path: Path) -> None:
    run = Run(tmp_path, start("one"), arm("two", "one#1"), end("one", "done"))
    opened = run.opened(there=True)
    assert (opened.finished, opened.running, opened.armed) == (frozenset({0}), {1: (0, 1)}, {})
    assert run.written == [start("two")]


@pytest.mark.parametrize("outcome", ["failed", "lost"])
def test_what_the_machine_has_forgotten_is_no_attempt(tmp_path: Path, outcome: str) -> None:
    run = Run(tmp_path, start("one"), arm("two", "one#1", attempt=3), end("one", outcome))
    opened = run.opened(there=True)
    assert (opened.running, opened.armed) == ({}, {})
    assert opened.attempts == {0: 1, 1: 2}
    assert run.written == []


def test_what_a_machine_that_is_gone_had_begun_is_not_run_again_if_it_ended(tmp_path: Path) -> None:
    run = Run(tmp_path, start("one"), arm("two", "one#1"))
    run.leave("one", 1, "done")
    run.leave("two", 1, "done")
    opened = run.opened(there=False)
    assert opened.finished == frozenset({0, 1})
    assert [(each["e"], each["task"]) for each in run.written] == [("end", "one"), ("start", "two"), ("end", "two")]


def test_what_a_machine_that_is_gone_had_begun_is_lost_if_nobody_knows_its_end(tmp_path: Path) -> None:
    run = Run(tmp_path, start("one"), arm("two", "one#1"), end("one", "done"))
    run.leave("two", 1)
    opened = run.opened(there=False)
    assert (opened.finished, opened.attempts) == (frozenset({0}), {0: 1, 1: 1})
    assert [each["e"] for each in run.written] == ["start", "end"]
    assert run.written[1]["outcome"] == "lost"


def test_what_a_machine_had_not_begun_when_it_went_is_not_lost(tmp_path: Path) -> None:
    run = Run(tmp_path, start("one"), arm("two", "one#1"))
    run.leave("one", 1, "done")
    opened = run.opened(there=False)
    assert opened.finished == frozenset({0})
    assert opened.attempts == {0: 1, 1: 1}  # the number is not given again
    assert [each["e"] for each in run.written] == ["end"]


def test_with_the_machine_gone_it_waits_as_before(tmp_path: Path) -> None:
    run = Run(tmp_path, start("one"), arm("two", "one#1"))
    opened = run.opened(there=False)
    assert (opened.running, opened.armed, opened.attempts) == ({}, {}, {0: 1, 1: 1})
    assert [each["outcome"] for each in run.written] == ["lost"]


def test_a_later_start_settles_what_was_armed(tmp_path: Path) -> None:
    run = Run(tmp_path, start("one"), arm("two", "one#1"), end("one", "done"), start("two"), end("two", "done"))
    opened = run.opened(there=True)
    assert (opened.finished, opened.armed, run.history.armings) == (frozenset({0, 1}), {}, {})
