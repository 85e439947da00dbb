"""Actual times beside the planned ones, and what the next plan learns from them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.errors import WorkflowError
from tradewind.plugins import Settings
from tradewind.problem import Billing
from tradewind.workflow.execution.journal import RunHistory, subtract_spans
from tradewind.workflow.execution.options import vm_stays
from tradewind.workflow.execution.results import (
    actual_schedule,
    measured_runtimes,
    read_results,
    results_gantt,
    results_of,
)
from tradewind.workflow.files import Plan
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.planner.heft import HeftPlanner
from tradewind.workflow.platform import Platform, Storage, Vm
from tradewind.workflow.schedule import RepeatedAttempt

FLOW = Workflow("w", (Task("a", "x", 10.0), Task("b", "x", 20.0), Task("c", "y", 5.0)), ((), (0,), (0,)))
PLATFORM = Platform((Vm("slow", 1.0, kind="s", price_per_hour=3.6), Vm("fast", 2.0, kind="f", price_per_hour=7.2)))


def heft() -> HeftPlanner:
    return HeftPlanner(settings=Settings())


def history_of(*records: dict[str, Any]) -> RunHistory:
    found = RunHistory()
    for record in records:
        found.take(record)
    return found


def end(task: str, start: float, seconds: float, outcome: str = "done", attempt: int = 1) -> dict[str, Any]:
    return {"e": "end", "at": start + seconds, "task": task, "attempt": attempt, "outcome": outcome,
            "start": start, "finish": start + seconds, "seconds": seconds, "reason": "r"}  # fmt: skip


def start(task: str, at: float, vm: str = "fast", attempt: int = 1) -> dict[str, Any]:
    return {"e": "start", "at": at, "task": task, "attempt": attempt, "vm": vm, "pilot": 1}


RUN = [
    {"e": "run", "at": 90.0, "run": "tw1", "plan": "p", "scale": 1.0},
    {"e": "session", "at": 90.0},
    {"e": "up", "at": 99.0, "vm": "fast"},
    {"e": "began", "at": 100.0},
    start("a", 100.0),
    end("a", 100.0, 6.0),
    start("b", 106.0),
    start("c", 106.0, "slow"),
    end("c", 106.0, 20.0),
    end("b", 106.0, 30.0),
]


def plan() -> Plan:
    return Plan(FLOW, PLATFORM, heft().plan(FLOW, PLATFORM), "heft")


def test_planned_and_actual_times() -> None:
    found = results_of(plan(), history_of(*RUN), engine="process", ending="done", now=136.0)
    assert found["planned"]["makespan"] == pytest.approx(15.0)
    assert found["actual"]["makespan"] == pytest.approx(36.0)
    rows = {row["task"]: row for row in found["tasks"]}
    assert (rows["c"]["vm"], rows["c"]["actual_start"], rows["c"]["actual_finish"]) == ("slow", 6.0, 26.0)
    assert (rows["b"]["expected"], rows["c"]["expected"]) == (10.0, 5.0)
    assert found["kept_cost"] == pytest.approx(37 * 7.2 / 3600, rel=0.7)  # billed by the minute
    drawn = results_gantt(found)
    assert drawn["tasks"][2] == {
        "task": "c", "activity": "y", "cores": 1, "vm": "fast" if rows["c"]["planned_vm"] == "fast" else "slow",
        "start": rows["c"]["planned_start"], "finish": rows["c"]["planned_finish"],
        "actual_vm": "slow", "actual_start": 6.0, "actual_finish": 26.0,
    }  # fmt: skip


def test_a_start_that_was_only_played_is_paid_once() -> None:
    boots = Platform(tuple(replace(vm, boot_seconds=20.0) for vm in PLATFORM.vms))
    played = [
        {**RUN[0], "synthetic": True, "scale": 0.5},
        *RUN[1:],
        {"e": "down", "at": 140.0, "vm": "fast", "lost": False},
    ]
    assert vm_stays(history_of(*played), boots, 150.0) == [(1, 2 * (41.0 - 20.0 * 0.5))]
    assert vm_stays(history_of(*RUN), boots, 150.0) == [(1, 51.0)]  # who came after its start was not there meanwhile
    early = [*played[:4], {"e": "down", "at": 104.0, "vm": "fast", "lost": False}]
    assert vm_stays(history_of(*early), boots, 150.0) == [(1, 2 * 1.0)]


def test_a_machine_that_is_asked_for_again_is_billed_for_each_start() -> None:
    boots = Platform(tuple(replace(vm, boot_seconds=20.0) for vm in PLATFORM.vms), billing=Billing(0.0, 60.0, 1.0))
    asked = {"e": "pilot", "at": 80.0, "vm": "fast", "pilot": 1}
    back = {"e": "down", "at": 120.0, "vm": "fast", "lost": False}
    again = [{**asked, "at": 150.0, "pilot": 2}, {"e": "up", "at": 170.0, "vm": "fast"}]
    records = [*RUN[:2], asked, *RUN[2:6], back, *again, start("b", 170.0), start("c", 170.0), end("c", 170.0, 20.0),
               end("b", 170.0, 100.0)]  # fmt: skip
    history = history_of(*records)
    assert vm_stays(history, boots, 280.0) == [(1, 21.0), (1, 110.0)]
    made = Plan(FLOW, boots, heft().plan(FLOW, boots), "heft")
    found = results_of(made, history, engine="process", ending="done", now=280.0)
    # 41 s of the first are a minute at least, and the second is there for 110 s after its start of 20 s.
    assert found["kept_cost"] == pytest.approx((60.0 + 130.0) * 7.2 / 3600)
    # The same machine for the next controller is still the same stay.
    killed = [*records[:7], {"e": "session", "at": 125.0}, {"e": "up", "at": 130.0, "vm": "fast"}]
    assert vm_stays(history_of(*killed), boots, 140.0) == [(1, 41.0)]


def test_pauses_are_left_out() -> None:
    records = [*RUN[:6], {"e": "session", "at": 1000.0}, {"e": "up", "at": 1002.0, "vm": "fast"}]
    records += [start("b", 1003.0), start("c", 1003.0, "slow"), end("c", 1003.0, 1.0), end("b", 1003.0, 10.0)]
    found = results_of(plan(), history_of(*records), engine="process", ending="done", now=1013.0)
    assert found["paused"] == 1002.0 - 106.0
    assert found["actual"]["makespan"] == pytest.approx(106 - 100 + 1013 - 1002)


def test_time_without_a_controller_counts_where_tasks_ran_on() -> None:
    records = [*RUN[:6], start("b", 106.0), {"e": "session", "at": 1000.0}, {"e": "up", "at": 1002.0, "vm": "fast"}]
    records += [end("b", 106.0, 500.0), start("c", 1003.0, "slow"), end("c", 1003.0, 1.0)]
    found = results_of(plan(), history_of(*records), engine="process", ending="done", now=1013.0)
    assert found["paused"] == 1002.0 - 606.0
    assert found["actual"]["makespan"] == pytest.approx(1004 - 100 - (1002 - 606))
    rows = {row["task"]: row for row in found["tasks"]}
    assert (rows["b"]["actual_start"], rows["b"]["actual_finish"]) == pytest.approx((6.0, 506.0))


_SPANS = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 8)), max_size=5)


@pytest.mark.slow
@given(_SPANS, _SPANS)
def test_spans_without_others(own: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    def ticks(spans: Iterable[tuple[float, float]]) -> list[int]:
        return sorted({tick for begin, end in spans for tick in range(int(begin), int(end))})

    mine = [(5.0 * at, 5.0 * at + min(size, 5)) for at, size in dict(own).items()]  # apart from each other
    theirs = [(float(at), float(at + size)) for at, size in others]
    left = subtract_spans(mine, theirs)
    assert ticks(left) == [tick for tick in ticks(mine) if tick not in ticks(theirs)]
    assert left == sorted(left) and all(begin < end for begin, end in left)


def test_attempts_that_failed_or_were_lost_are_paid() -> None:
    failed = [*RUN[:4], start("a", 100.0, "slow"), end("a", 100.0, 60.0, "failed")]
    lost = [start("a", 160.0, "slow", 2), {"e": "end", "at": 190.0, "task": "a", "attempt": 2, "outcome": "lost"}]
    last = [start("a", 190.0, "fast", 3), end("a", 190.0, 6.0, attempt=3)]
    rest = [start("b", 196.0), end("b", 196.0, 30.0), start("c", 226.0), end("c", 226.0, 4.0)]
    found = results_of(plan(), history_of(*failed, *lost, *last, *rest), engine="process", ending="done", now=230.0)
    said = found["actual"]
    assert said["serial"] == pytest.approx(60 + 30 + 6 + 30 + 4)
    assert said["utilisation"] == pytest.approx(130 / 260)
    assert said["cost"] == pytest.approx(PLATFORM.cost(np.array([90.0, 40.0])))


def test_an_output_that_went_later_does_not_change_when_its_task_ran() -> None:
    gone = {"e": "end", "at": 5000.0, "task": "a", "attempt": 1, "outcome": "gone", "reason": "r"}
    again = [start("a", 5003.0, attempt=2), end("a", 5003.0, 6.0, attempt=2)]
    later = [{"e": "session", "at": 5000.0}, gone, {"e": "up", "at": 5002.0, "vm": "fast"}, *again]
    history = history_of(*RUN, *later)
    assert history.pauses == [(136.0, 5002.0)]
    found = actual_schedule(plan(), history, 1.0)
    assert found.repeated == (RepeatedAttempt(0, 1, 0.0, 6.0),)
    assert found.attempts[0] == 2


def test_an_unfinished_run_has_rows_of_what_was_done() -> None:
    records = [*RUN[:6], start("b", 106.0), end("b", 106.0, 1.0, "failed")]
    found = results_of(plan(), history_of(*records), engine="process", ending="failed", now=110.0)
    assert found["actual"] is None
    rows = {row["task"]: row for row in found["tasks"]}
    assert (rows["b"]["vm"], rows["b"]["reason"], rows["c"]["attempts"]) == (None, "r", 0)
    assert "actual_start" not in results_gantt(found)["tasks"][1]


def test_the_next_plan_has_the_median_of_measured_over_expected() -> None:
    found = results_of(plan(), history_of(*RUN), engine="process", ending="done", now=136.0)
    learned = measured_runtimes(FLOW, [found])
    # a took 6 s for 5, b 30 s for 10: the median of 1.2 and 3; c took 20 s for 5.
    assert [task.runtime for task in learned.tasks] == pytest.approx([10 * 2.1, 20 * 2.1, 20.0])
    assert learned.parents == FLOW.parents


def test_what_is_learned_holds_when_the_next_plan_was_made_with_it() -> None:
    """Each round plans the same file with all that the rounds before have measured; the truth stays as it is."""
    records = [*RUN[:6], start("b", 106.0), end("b", 106.0, 12.0), start("c", 118.0), end("c", 118.0, 9.0)]
    flow, found = FLOW, []
    for _ in range(3):
        made = Plan(flow, PLATFORM, heft().plan(flow, PLATFORM), "heft")
        found.append(results_of(made, history_of(*records), engine="process", ending="done", now=130.0))
        for known in (found[-1:], found):
            flow = measured_runtimes(FLOW, known)
            assert [task.runtime for task in flow.tasks] == pytest.approx([12.0, 24.0, 18.0])
    other = measured_runtimes(replace(FLOW, name="other"), found[:1])  # of which only ratios are known
    assert [task.runtime for task in other.tasks] == pytest.approx([12.0, 24.0, 18.0])
    for row in found[0]["tasks"]:
        del row["runtime"], row["transfer"]
    assert measured_runtimes(FLOW, found[:1]).tasks == other.tasks


def carried_out(made: Plan, late: float = 0.0) -> dict[str, Any]:
    """The results of a run that went as planned, but that each task ran some seconds longer."""
    spans = zip(made.flow.tasks, made.schedule.vm, made.schedule.start, made.schedule.finish, strict=True)
    records = [*RUN[:2], RUN[3]]
    for task, vm, begin, finish in spans:
        name = made.platform.vms[vm].name
        records += [start(task.id, 100.0 + begin, name), end(task.id, 100.0 + begin, finish - begin + late)]
    return results_of(made, history_of(*records), engine="process", ending="done", now=500.0)


@pytest.mark.parametrize("storage", ["shared", "local"])
def test_the_time_of_files_is_not_learned_as_run_time(storage: Storage) -> None:
    read = replace(FLOW.tasks[0], inputs=("big",))
    flow = replace(FLOW, tasks=(read, *FLOW.tasks[1:]), sizes={"big": 1_500_000_000})
    slow = Platform((Vm("slow", 1.0, kind="s"),), storage, bandwidth=15.0)
    made = Plan(flow, slow, heft().plan(flow, slow), "heft")
    assert made.schedule.makespan == pytest.approx(135.0)
    found = carried_out(made)
    assert found["actual"]["makespan"] == pytest.approx(135.0)
    assert [row["transfer"] for row in found["tasks"]] == pytest.approx([100.0, 0.0, 0.0])
    assert [task.runtime for task in measured_runtimes(flow, [found]).tasks] == pytest.approx([10.0, 20.0, 5.0])
    late = measured_runtimes(flow, [carried_out(made, 5.0)])
    assert [task.runtime for task in late.tasks] == pytest.approx([10 * 1.375, 20 * 1.375, 10.0])  # of 1.5 and 1.25
    bare = replace(flow, tasks=tuple(replace(task, runtime=0.0) for task in flow.tasks))
    found = carried_out(replace(made, flow=bare, schedule=heft().plan(bare, slow)), 5.0)
    assert [task.runtime for task in measured_runtimes(bare, [found]).tasks] == pytest.approx([5.0] * 3)


def test_without_expectations_the_measured_time_is_taken_at_the_machines_speed() -> None:
    bare = Workflow("w", tuple(Task(task.id, task.activity, 0.0) for task in FLOW.tasks), FLOW.parents)
    found = results_of(
        Plan(bare, PLATFORM, plan().schedule, "heft"), history_of(*RUN), engine="p", ending="done", now=136.0
    )
    assert [task.runtime for task in measured_runtimes(bare, [found]).tasks] == pytest.approx([36.0, 36.0, 20.0])


def test_results_of_something_else_are_refused(tmp_path: Path) -> None:
    found = results_of(plan(), history_of(*RUN), engine="process", ending="done", now=136.0)
    with pytest.raises(WorkflowError, match="nothing of workflow v was measured there"):
        measured_runtimes(Workflow("v", (Task("q", "z", 1.0),), ((),)), [found])
    (tmp_path / "x.json").write_text('{"format": "other"}')
    with pytest.raises(WorkflowError, match="these are no results of a run"):
        read_results(tmp_path / "x.json")
    (tmp_path / "y.json").write_text("{")
    with pytest.raises(WorkflowError, match="it is no JSON"):
        read_results(tmp_path / "y.json")
    with pytest.raises(WorkflowError, match="there is no file"):
        read_results(tmp_path)
