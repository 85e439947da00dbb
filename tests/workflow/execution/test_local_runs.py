"""Plans carried out by processes of this machine."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.waiting import eventually
from tests.workflow.execution.plans import (
    QUICK,
    agents,
    carry,
    chunks,
    counted,
    flow_of,
    heft,
    history,
    local,
    lopsided,
    plan_of,
    sh,
    two_after_another,
)

from tradewind.errors import DeployError, MissingProgramError, StudyBusyError, WorkflowError
from tradewind.workflow.execution.events import ExecutionEnding
from tradewind.workflow.execution.journal import FileJournal
from tradewind.workflow.execution.options import ExecutionProgress
from tradewind.workflow.execution.pilots import PilotSettings
from tradewind.workflow.execution.task_states import RetryLimits
from tradewind.workflow.files import Plan
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.platform import Platform, Vm
from tradewind.workflow.schedule import held_cost

pytestmark = pytest.mark.slow


def test_programs_get_their_inputs_and_leave_outputs_logs_and_times(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("b\na\n")
    plan = plan_of(
        flow_of(
            sh("sort", "sort text > sorted; echo $TRADEWIND_TASK on $TRADEWIND_MACHINE", after="text", writes="sorted"),
            sh("first", "head -1 sorted > one; echo oh >&2", after="sorted", writes="one"),
        )
    )
    carried = carry(plan, tmp_path / "run")
    assert carried.ending is ExecutionEnding.DONE
    files = tmp_path / "run" / "files"
    assert (files / "one").read_text() == "a\n"
    assert (tmp_path / "run/tasks/sort/1/stdout").read_text().startswith("sort on vm-")
    assert (tmp_path / "run/tasks/first/1/stderr").read_text() == "oh\n"
    rows = {row["task"]: row for row in json.loads((tmp_path / "run/results.json").read_text())["tasks"]}
    assert rows["sort"]["actual_finish"] <= rows["first"]["actual_start"]
    assert 0 < rows["sort"]["seconds"] < 5
    assert rows["first"]["attempts"] == 1
    assert not agents(tmp_path / "run")


def test_sleeping_tasks_take_what_the_plan_says(tmp_path: Path) -> None:
    tasks = tuple(Task(f"t{n}", "a", 0.2, (), ()) for n in range(6))
    plan = plan_of(Workflow("sleep", tasks, ((), (), (0,), (1,), (2, 3), ())), speed=2.0, slots=2)
    carried = carry(plan, tmp_path / "run", synthetic=True)
    actual, planned = carried.results["actual"]["makespan"], carried.results["planned"]["makespan"]
    assert planned == pytest.approx(0.3)
    assert planned <= actual < planned + 2.0
    assert all(row["seconds"] >= 0.1 for row in carried.results["tasks"])


def test_a_file_that_several_tasks_write_is_not_taken_from_the_others(tmp_path: Path) -> None:
    """Montage's tasks all write fit.txt: who begins later must not remove what the others have written."""
    tasks = tuple(Task(f"t{n}", "a", 0.2 + 0.05 * n, (), ("fit.txt", f"own{n}")) for n in range(8))
    plan = plan_of(Workflow("common", tasks, ((),) * 8), slots=2)
    carried = carry(plan, tmp_path / "run", synthetic=True)
    assert carried.ending is ExecutionEnding.DONE
    assert [row["attempts"] for row in carried.results["tasks"]] == [1] * 8


def test_scaled_time_is_told_in_seconds_of_the_plan(tmp_path: Path) -> None:
    plan = plan_of(Workflow("long", (Task("t", "a", 100.0),), ((),)), vms=1, price_per_hour=36.0)
    carried = carry(plan, tmp_path / "run", synthetic=True, scale=0.002)
    assert 100.0 <= carried.results["actual"]["makespan"] < 1000.0
    assert carried.results["tasks"][0]["seconds"] >= 100.0
    assert carried.results["kept_cost"] >= 1.0


def test_machines_that_went_while_nobody_was_there_are_paid_until_then(tmp_path: Path) -> None:
    run = tmp_path / "run"
    plan = plan_of(Workflow("short", (Task("t", "a", 0.1),), ((),)), vms=1, price_per_hour=3600.0)
    carry(plan, run, synthetic=True)
    journal = run / "journal.jsonl"
    lines = [line for line in journal.read_text().splitlines(keepends=True) if '"down"' not in line]
    [(_, up, _)] = history(run).ups
    journal.write_text("".join(lines[:-1]))  # as if its controller had been killed
    (run / "machines/vm-1/1/left.json").write_text(json.dumps({"at": up + 0.05}))
    assert history(run).there == ["vm-1"]
    carried = carry(plan, run, synthetic=True)
    assert history(run).ups == [("vm-1", up, up + 0.05)]
    assert carried.results["kept_cost"] == 1.0


def test_a_machine_whose_first_task_is_late_comes_just_in_time_and_is_billed_so(tmp_path: Path) -> None:
    plan, scale = two_after_another(1000.0), 0.002
    seen: list[ExecutionProgress] = []
    carried = carry(plan, tmp_path / "run", synthetic=True, scale=scale, watch=seen.append)
    assert carried.ending is ExecutionEnding.DONE
    assert {each.later for each in seen} == {0, 1}
    past = history(tmp_path / "run")
    assert past.began is not None
    [asked] = [(at - past.began) / scale for at in past.requested["vm-2"]]
    assert 850 <= asked < 1050  # 1100 s less twice the boot time
    late = carried.results["actual"]["makespan"] - carried.results["planned"]["makespan"]
    assert late < 600  # 1.2 s of this machine; waiting for a machine that boots then would not add more than 100 s
    # One machine for 1100 s and one for 1200 s, and what this machine took longer.
    held = held_cost(plan.platform, plan.schedule)
    assert held == pytest.approx(1100.0 + 1200.0)
    assert carried.results["kept_cost"] == pytest.approx(held, abs=600.0)


def quicker(plan: Plan, script: str) -> Plan:
    """The same plan, of programs that take no time."""
    tasks = tuple(replace(task, command=("sh", "-c", script)) for task in plan.flow.tasks)
    return replace(plan, flow=replace(plan.flow, tasks=tasks))


def test_a_machine_that_was_to_come_later_comes_when_the_run_is_ahead_of_its_plan(tmp_path: Path) -> None:
    carried = carry(quicker(two_after_another(1000.0), "true"), tmp_path / "run")
    assert carried.ending is ExecutionEnding.DONE
    assert carried.results["actual"]["makespan"] < 30


def test_a_run_that_goes_on_asks_for_a_later_machine_once(tmp_path: Path) -> None:
    """The first task of a machine waits for nothing any more when the second session begins, long before it is due."""
    plan, run = quicker(two_after_another(1000.0), "test $TRADEWIND_TASK = first || sleep 1"), tmp_path / "run"
    seen: list[ExecutionProgress] = []
    carry(plan, run, watch=seen.append, wanted=lambda: not (seen and seen[-1].done))
    before = len(history(run).requested.get("vm-2", ()))
    assert carry(plan, run).ending is ExecutionEnding.DONE
    assert len(history(run).requested["vm-2"]) == before + 1


def test_a_machine_that_does_not_linger_stays_as_long_as_it_is_wanted(tmp_path: Path) -> None:
    plan = plan_of(Workflow("beat", (Task("t", "a", 1.2),), ((),)), vms=1)
    assert (
        carry(plan, tmp_path / "run", synthetic=True, terms=replace(QUICK, linger=0.0)).ending is ExecutionEnding.DONE
    )


def masters(run: Path) -> list[psutil.Process]:
    """The agents of a run, without what they have forked for tasks that only sleep."""
    there = agents(run)
    numbers = {each.pid for each in there}
    return [each for each in there if each.is_running() and each.ppid() not in numbers]


def test_a_machine_with_nothing_left_to_do_is_given_back_at_once(tmp_path: Path) -> None:
    run = tmp_path / "run"
    seen: list[tuple[int, int, int]] = []

    def watch(progress: ExecutionProgress) -> None:
        if progress.running == 1 and progress.done == 1:
            seen.append((progress.up, progress.back, len(masters(run))))

    carried = carry(lopsided(2.0), run, synthetic=True, watch=watch)
    assert carried.ending is ExecutionEnding.DONE
    assert carried.results["machines_lost"] == []
    assert seen[-1] == (1, 2, 1)
    held = {name: down - up for name, up, down in history(run).ups if down is not None}
    assert held["vm-1"] >= 2.0
    assert held["vm-2"] < 1.5
    assert "vm-3" not in held  # it was never asked for


def test_all_machines_are_kept_where_that_is_wanted(tmp_path: Path) -> None:
    carry(lopsided(1.0), tmp_path / "run", synthetic=True, give_back=False)
    held = {name: down - up for name, up, down in history(tmp_path / "run").ups if down is not None}
    assert len(held) == 3
    assert min(held.values()) >= 1.0


def test_a_machine_that_was_given_back_comes_again_when_another_is_lost(tmp_path: Path) -> None:
    run = tmp_path / "run"
    killed: list[psutil.Process] = []

    def watch(progress: ExecutionProgress) -> None:
        there = masters(run)
        if progress.back == 2 and len(there) == 1 and not killed:
            killed.append(there[0])
            there[0].kill()

    carried = carry(lopsided(2.0), run, synthetic=True, watch=watch)
    assert killed
    assert carried.ending is ExecutionEnding.DONE
    assert {row["task"]: row["attempts"] for row in carried.results["tasks"]} == {"long": 2, "short": 1}
    past = history(run)
    assert [each["vm"] for each in past.lost] == ["vm-1"]
    assert set(past.pilots) - {"vm-1"}, "nobody was asked for again"
    assert not agents(run)


def test_machines_play_the_time_that_they_take_to_start(tmp_path: Path) -> None:
    plan = plan_of(Workflow("boot", (Task("t", "a", 0.1),), ((),)), vms=1, boot_seconds=0.5)
    carried = carry(plan, tmp_path / "run", synthetic=True)
    assert carried.results["tasks"][0]["actual_start"] >= 0.5


def test_the_plans_order_is_kept(tmp_path: Path) -> None:
    plan = plan_of(flow_of(*chunks(6, 0.05)))
    carry(plan, tmp_path / "run")
    starts = [(each.vm, each.task) for each in history(tmp_path / "run").attempts.values()]
    for vm, tasks in plan.schedule.order_in(plan.flow).items():
        name = plan.platform.vms[vm].name
        assert [task for where, task in starts if where == name] == [plan.flow.tasks[task].id for task in tasks]


def test_a_working_folder_of_its_own_has_the_inputs_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("x")
    plan = plan_of(
        flow_of(
            sh("one", "ls > seen; touch hidden", after="in", writes="seen"),
            sh("two", "ls > sub/also", after="seen", writes="sub/also"),
        )
    )
    carry(plan, tmp_path / "run", isolated=True)
    files = tmp_path / "run" / "files"
    assert (files / "seen").read_text().split() == ["in", "seen"]
    assert (files / "sub/also").read_text().split() == ["seen", "sub"]
    assert not (files / "hidden").exists()


def test_a_failure_is_tried_again(tmp_path: Path) -> None:
    script = "echo x >> tries; test $(wc -l < tries) -ge 2 && touch done"
    notes: list[str] = []
    plan = plan_of(flow_of(sh("shaky", script, writes="done")))
    carried = carry(plan, tmp_path / "run", watch=lambda seen: notes.extend(seen.notes))
    assert carried.ending is ExecutionEnding.DONE
    assert carried.results["tasks"][0]["attempts"] == 2
    assert notes[0] == "shaky failed (attempt 1): it exited with code 1"


def test_what_fails_for_good_leaves_out_what_needs_it(tmp_path: Path) -> None:
    plan = plan_of(
        flow_of(
            sh("bad", "exit 3", writes="a"),
            sh("child", "touch b", after="a", writes="b"),
            sh("other", "touch c", writes="c"),
        )
    )
    carried = carry(plan, tmp_path / "run", retry_limits=RetryLimits(retries=1))
    assert (carried.ending, carried.failures) == (ExecutionEnding.FAILED, {"bad": "it exited with code 3"})
    assert (tmp_path / "run/files/c").exists()
    rows = {row["task"]: row for row in carried.results["tasks"]}
    assert [rows[name]["attempts"] for name in ("bad", "child", "other")] == [2, 0, 1]
    assert carried.results["actual"] is None
    (tmp_path / "run/files/a").touch()  # as if the user had mended it
    mended = plan_of(plan.flow)
    assert carry(mended, tmp_path / "run", retry_limits=RetryLimits(retries=0)).results["tasks"][0]["attempts"] == 3


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("true", "it ended without writing its output out and 1 more"),
        ("kill -9 $$", "signal 9 ended it"),
        ("touch out; exit 127", "it exited with code 127"),
    ],
)
def test_why_a_task_failed(tmp_path: Path, script: str, reason: str) -> None:
    plan = plan_of(flow_of(sh("t", script, writes="out more")), vms=1)
    assert carry(plan, tmp_path / "run", retry_limits=RetryLimits(retries=0)).failures == {"t": reason}


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    task = Task("t", "t", 0.1, command=("no-such-program", "x"))
    carried = carry(plan_of(flow_of(task), vms=1), tmp_path / "run", retry_limits=RetryLimits(retries=0))
    assert carried.failures["t"] == "it cannot be started: No such file or directory: no-such-program"


def test_an_output_of_an_earlier_attempt_does_not_count(tmp_path: Path) -> None:
    script = "test -e again && exit 0; touch out again; exit 1"
    carried = carry(
        plan_of(flow_of(sh("t", script, writes="out")), vms=1), tmp_path / "run", retry_limits=RetryLimits(1)
    )
    assert carried.failures == {"t": "it ended without writing its output out"}


def test_what_a_task_leaves_in_the_background_is_ended(tmp_path: Path) -> None:
    plan = plan_of(flow_of(sh("t", "sleep 60 & echo $! > pid", writes="pid")), vms=1)
    carry(plan, tmp_path / "run")
    pid = int((tmp_path / "run/files/pid").read_text())
    eventually(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    assert not agents(tmp_path / "run")


def test_a_machine_that_is_lost_loses_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    killed: list[int] = []

    def watch(seen: ExecutionProgress) -> None:
        if not killed and seen.done >= 2:
            victim = agents(folder)[0]
            victim.kill()
            killed.append(victim.pid)

    plan = plan_of(flow_of(*chunks(8, 0.3)))
    carried = carry(plan, folder, watch=watch)
    assert killed
    assert carried.ending is ExecutionEnding.DONE
    assert len(carried.results["machines_lost"]) == 1
    assert carried.results["replans"] == 1
    lost = carried.results["machines_lost"][0]["vm"]
    runs = history(folder).attempts.values()
    again = {each.task for each in runs if each.end and each.end["outcome"] == "lost"}
    assert {each.vm for each in runs if each.task in again} == {lost, *({"vm-1", "vm-2"} - {lost})}
    assert counted(folder) == {task: 2 if task in again else 1 for task in (t.id for t in plan.flow.tasks)}
    assert (folder / "files/total").read_text().split() == [str(n) for n in range(8)]


@pytest.mark.slow
def test_a_machine_that_does_not_answer_is_given_up(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    stopped: list[psutil.Process] = []

    def watch(seen: ExecutionProgress) -> None:
        if not stopped and seen.done >= 1:
            stopped.append(agents(folder)[0])
            stopped[0].suspend()

    terms = PilotSettings(linger=5.0, poll_seconds=0.2, silence=1.0)
    carried = carry(plan_of(flow_of(*chunks(4, 0.3))), folder, watch=watch, terms=terms)
    assert carried.ending is ExecutionEnding.DONE
    assert "has not answered for 1 s" in carried.results["machines_lost"][0]["reason"]
    assert not stopped[0].is_running() or stopped[0].status() == psutil.STATUS_ZOMBIE


def test_the_last_machine_is_lost_and_the_next_call_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    plan = plan_of(flow_of(*chunks(3, 0.3)), vms=1)

    def watch(seen: ExecutionProgress) -> None:
        if seen.done == 1:
            for each in agents(folder):
                each.kill()

    assert carry(plan, folder, watch=watch).ending is ExecutionEnding.MACHINES
    carried = carry(plan, folder)
    assert carried.ending is ExecutionEnding.DONE
    assert carried.results["sessions"] == 2
    assert counted(folder)["work0"] == 1


def test_an_interruption_ends_all_processes_and_can_be_gone_on_from(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    plan = plan_of(flow_of(*chunks(5, 0.4)))
    seen: list[int] = []
    carried = carry(plan, folder, watch=lambda now: seen.append(now.done), wanted=lambda: not seen or seen[-1] < 2)
    assert carried.ending is ExecutionEnding.INTERRUPTED
    assert not agents(folder)
    finished = [row["task"] for row in carried.results["tasks"] if row["vm"]]
    assert 2 <= len(finished) < 6
    carried = carry(plan, folder)
    assert carried.ending is ExecutionEnding.DONE
    assert all(counted(folder)[task] == 1 for task in finished)
    assert carried.results["paused"] > 0
    # A pause between two commands is no time of the run.
    assert carried.results["actual"]["makespan"] < 30


def test_what_is_missing_of_finished_tasks_is_made_again_where_it_is_needed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    plan = plan_of(
        flow_of(
            sh("a", "echo a >> log; touch a", writes="a"),
            sh("b", "echo b >> log; touch b", after="a", writes="b"),
            sh("c", "echo c >> log; touch c", after="b", writes="c"),
        ),
        vms=1,
    )
    carry(plan, folder)
    (folder / "files/a").unlink()
    assert carry(plan, folder).ending is ExecutionEnding.DONE
    assert counted(folder) == {"a": 1, "b": 1, "c": 1}  # b is there, so nobody needs a
    (folder / "files/c").unlink()
    (folder / "files/b").unlink()
    carry(plan, folder)
    assert counted(folder) == {"a": 2, "b": 2, "c": 2}


def test_fresh_forgets_what_was_done(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    plan = plan_of(flow_of(sh("a", "echo a >> log; touch a", writes="a")), vms=1)
    carry(plan, folder)
    (folder / "mine.txt").write_text("kept")
    assert carry(plan, folder, fresh=True).results["sessions"] == 1
    assert counted(folder) == {"a": 1}
    assert (folder / "mine.txt").exists()


# ---------------------------------------------------------------- what is refused


def refused(plan: Plan, folder: Path, **more: Any) -> str:
    with pytest.raises((WorkflowError, DeployError, StudyBusyError)) as caught:
        carry(plan, folder, **more)
    assert not agents(folder)
    return str(caught.value)


def test_an_input_that_is_not_there(tmp_path: Path) -> None:
    plan = plan_of(flow_of(sh("a", "cat x", after="x y")))
    said = refused(plan, tmp_path / "run")
    assert said == (
        f"there is no file {tmp_path / 'x'} and 1 more, which task 'a' reads and no task writes "
        "(name the folder of the inputs with --inputs)"
    )


def test_a_folder_of_inputs_that_is_not_there(tmp_path: Path) -> None:
    plan = plan_of(flow_of(sh("a", "cat x", after="x")))
    seen: list[ExecutionProgress] = []
    said = refused(plan, tmp_path / "run", inputs=tmp_path / "gone", watch=seen.append)
    assert f"there is no folder {tmp_path / 'gone'} with 'x', which task 'a' reads" in said
    assert seen == [], "no machine is waited for"


def test_where_the_inputs_were_does_not_make_it_another_plan(tmp_path: Path) -> None:
    plan, folder = plan_of(flow_of(sh("a", "true")), vms=1), tmp_path / "run"
    carry(plan, folder)
    assert carry(replace(plan, folder=tmp_path), folder).results["sessions"] == 2


def test_tasks_without_a_command(tmp_path: Path) -> None:
    plan = plan_of(Workflow("w", (Task("a", "a", 1.0),), ((),)))
    assert "no command for 1 of 1 task, the first is 'a' (--synthetic" in refused(plan, tmp_path / "run")


@pytest.mark.parametrize(("name", "words"), [("/tmp/out", "not in the folder of the run"), ("../x", "leave out ..")])
def test_files_outside_of_the_folder(tmp_path: Path, name: str, words: str) -> None:
    plan = plan_of(flow_of(Task("a", "a", 1.0, (), (name,), command=("true",))))
    assert words in refused(plan, tmp_path / "run")


def test_a_folder_of_another_plan(tmp_path: Path) -> None:
    carry(plan_of(flow_of(sh("a", "true"))), tmp_path / "run")
    assert "has a run of another plan (--fresh" in refused(plan_of(flow_of(sh("b", "true"))), tmp_path / "run")


def test_another_scale_than_the_run_was_begun_with(tmp_path: Path) -> None:
    plan = plan_of(Workflow("w", (Task("a", "a", 0.1),), ((),)), vms=1)
    carry(plan, tmp_path / "run", synthetic=True, scale=0.5)
    assert "was begun with --scale 0.5" in refused(plan, tmp_path / "run", synthetic=True)


def test_a_run_that_another_process_carries_out(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    held = FileJournal(tmp_path / "run/journal.jsonl")
    said = refused(plan_of(flow_of(sh("a", "true"))), tmp_path / "run")
    held.close()
    assert said.startswith("another process is carrying out the plan in")


def test_a_python_that_is_not_there(tmp_path: Path) -> None:
    plan = plan_of(flow_of(sh("a", "true")))
    with pytest.raises(MissingProgramError, match=r"there is no program /no-python on vm-\d \(--python names one\)"):
        carry(plan, tmp_path / "run", terms=PilotSettings(python="/no-python"))


def test_a_machine_that_does_not_see_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    runner = local(folder)
    submit = runner.submit

    def elsewhere(request: Any, machines: Any) -> Any:
        moved = tuple("/nowhere" if word == str(folder) else word for word in request.argv)
        assert moved != request.argv
        return submit(replace(request, argv=moved), machines)

    runner.submit = elsewhere  # type: ignore[method-assign]
    with pytest.raises(DeployError, match=r"vm-. does not see the folder .*--folder"):
        carry(plan_of(flow_of(sh("a", "true"))), folder, runner=runner, terms=QUICK)


@pytest.mark.parametrize(
    ("needs", "said"),
    [
        ({"cores": 2}, "task 'large' uses 2 cores, and no machine has as many: the largest, 'little', has 1 slot"),
        (
            {"memory_bytes": 16 << 30},
            "task 'large' needs 16 GiB of memory, and no machine has as much: the largest, 'little', has 2 GiB",
        ),
    ],
)
def test_what_fits_on_no_machine_that_is_left(tmp_path: Path, needs: dict[str, Any], said: str) -> None:
    flow = flow_of(sh("small", "sleep 0.5"), sh("large", "sleep 0.5", **needs))
    big, little = Vm("big", slots=2, memory_bytes=32 << 30), Vm("little", memory_bytes=2 << 30)
    platform = Platform((big, little)).holding(flow)
    plan = Plan(flow, platform, heft().plan(flow, Platform((platform.vms[0],))), "hand")

    def watch(seen: ExecutionProgress) -> None:
        if seen.running:
            for each in agents(tmp_path / "run"):
                if "/big/" in " ".join(each.cmdline()):
                    each.kill()

    ended = carry(plan, tmp_path / "run", watch=watch)
    assert ended.ending is ExecutionEnding.IMPOSSIBLE
    assert ended.reason == said
