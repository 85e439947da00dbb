"""Runs of workflows on this machine take slots of it: all of their machines together, or they wait."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

from tests.waiting import eventually
from tests.workflow.execution.plans import Command, carry, flow_of, plan_of, sh

from tradewind.deployer.runner import resource_limits
from tradewind.deployer.runner.warden.slots import SlotRegistry, describe_slots
from tradewind.utils.paths import slots_folder
from tradewind.workflow.execution.events import ExecutionEnding
from tradewind.workflow.graph import Task, Workflow

HERE = resource_limits.cpus_here()
FULL = f"{HERE} of {HERE} CPUs are used by"


def used() -> str:
    return describe_slots(str(slots_folder()), os.sched_getaffinity(0))


def every_cpu() -> SlotRegistry:
    """Somebody with all CPUs of this machine."""
    held = SlotRegistry.of_this_process()
    nothing = {"memory": 0, "memory_here": 1, "device": 0, "devices_here": [], "group": ""}
    wanted = {"folder": str(slots_folder()), "cpu": HERE, "search": "other", "name": "tea", **nothing}
    held.take("held", wanted, os.sched_getaffinity(0))
    return held


def lasting(folder: Path) -> Any:
    """A plan of one task on each of two machines, which end when the file ``end`` is there."""
    waits = f"while [ ! -e {folder}/end ]; do sleep 0.05; done"
    return plan_of(flow_of(sh("a", waits, runtime=5), sh("b", waits, runtime=5)), vms=2)


def test_a_workflow_waits_for_its_machines_and_says_for_whom(tmp_path: Path) -> None:
    held, notes, ended = every_cpu(), list[str](), list[Any]()

    def run() -> None:
        ended.append(carry(lasting(tmp_path), tmp_path / "run", watch=lambda progress: notes.extend(progress.notes)))

    thread = threading.Thread(target=run)
    thread.start()
    eventually(lambda: f"machines are waited for: {FULL} search tea" in notes)
    held.give_back("held")
    eventually(lambda: used() == f"{min(2, HERE)} of {HERE} CPUs are used by workflow test")
    (tmp_path / "end").touch()
    thread.join()
    assert ended[0].ending is ExecutionEnding.DONE
    assert used() == "no run has any"


def test_two_at_once_on_more_machines_than_there_are_cpus_both_come_to_their_end(tmp_path: Path) -> None:
    """Neither has a part of the machine while it waits for the rest."""
    tasks = [sh(f"t{n}", f"touch f{n}", after=f"f{n - 1}" if n else "", writes=f"f{n}") for n in range(3)]
    tasks += [sh(f"u{n}", "true") for n in range(2 * HERE + 1)]
    ended = dict[str, ExecutionEnding]()

    def run(name: str) -> None:
        plan = plan_of(flow_of(*tasks), vms=2 * HERE + 1)
        ended[name] = carry(plan, tmp_path / name).ending

    threads = [threading.Thread(target=run, args=(name,)) for name in ("one", "other")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(ended.values()) == {ExecutionEnding.DONE}
    assert len(ended) == 2
    assert used() == "no run has any"


def test_tasks_that_only_sleep_take_no_slot(tmp_path: Path) -> None:
    held = every_cpu()
    plan = plan_of(Workflow("sleep", (Task("t", "a", 0.05, (), ()),), ((),)))
    assert carry(plan, tmp_path / "run", synthetic=True).ending is ExecutionEnding.DONE
    held.give_back("held")


def test_a_killed_run_keeps_its_slot_while_its_tasks_go_on_and_the_next_command_shares_it(tmp_path: Path) -> None:
    command = Command(lasting(tmp_path), tmp_path, program=Path(sys.executable).with_name("tradewind"))
    with command.start() as killed:
        eventually(lambda: used() == f"{min(2, HERE)} of {HERE} CPUs are used by workflow test", 60)
        killed.kill()
    assert "workflow test" in used()
    with command.start() as again:
        (tmp_path / "end").touch()
        assert again.wait() == 0
    assert used() == "no run has any"
