"""Machines of a workflow, and what is no set of them."""

from __future__ import annotations

import time

import numpy as np
import pytest

from tradewind.errors import WorkflowError
from tradewind.plugins import Settings
from tradewind.problem import Offer
from tradewind.workflow.bounds import lower_bound
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.planner.heft import HeftPlanner
from tradewind.workflow.platform import Platform, Vm, gpus_for_tasks
from tradewind.workflow.schedule import Schedule, check, figures, held_cost, vm_request_times

GIB = 2**30


def bag(*needs: tuple[int, float | None]) -> Workflow:
    """Tasks of 10 s that wait for nothing, of so many cores and GiB."""
    tasks = tuple(
        Task(f"t{place}", "t", 10.0, cores=cores, memory_bytes=None if gib is None else int(gib * GIB))
        for place, (cores, gib) in enumerate(needs)
    )
    return Workflow("bag", tasks, ((),) * len(tasks))


def vm(slots: int, gib: float | None, name: str = "vm") -> Vm:
    return Vm(name, slots=slots, memory_bytes=None if gib is None else int(gib * GIB))


@pytest.mark.parametrize(
    ("needs", "slots", "gib", "left"),
    [
        ([(1, 4), (1, 1)], 8, 16, 8),  # they differ: memory is counted
        ([(1, 4)], 2, 16, 2),
        ([(1, 4)], 8, None, 8),
        ([(1, None)], 8, 1, 8),
        ([(4, 8)], 8, 16, 8),  # 2 GiB for each core
        ([(2, 6)], 8, 16, 5),  # 3 GiB for a core
    ],
)
def test_slots_that_memory_holds(
    needs: list[tuple[int, float | None]], slots: int, gib: float | None, left: int
) -> None:
    assert Platform((vm(slots, gib),)).holding(bag(*needs)).vms[0].slots == left


def test_tasks_that_memory_does_not_hold_at_a_time_run_one_after_the_other() -> None:
    flow = bag(*[(1, 4.0)] * 4)
    platform = Platform((vm(4, 8),)).holding(flow)
    plan = HeftPlanner(settings=Settings()).plan(flow, platform)
    check(flow, platform, plan)
    assert plan.makespan == 20.0
    assert platform.holding(flow) == platform


def test_a_task_that_fits_on_no_machine() -> None:
    platform = Platform((vm(8, 64, "large"), vm(16, 2, "wide")))
    for refused in (platform.check, platform.holding, platform.seconds):
        for needs, said in (
            ((1, 80), "task 't1' needs 80 GiB of memory, and no machine has as much: the largest, 'large', has 64 GiB"),
            ((20, 1), "task 't1' uses 20 cores, and no machine has as many: the largest, 'wide', has 16 slots"),
            ((12, 32), "task 't1' uses 12 cores and 32 GiB of memory, and no machine has both: the largest with the "
                       "cores, 'wide', has 2 GiB"),
        ):  # fmt: skip
            with pytest.raises(WorkflowError) as refusal:
                refused(bag((1, 1), needs))
            assert refusal.value.message == said
            assert refusal.value.hint


def test_a_task_runs_where_it_fits() -> None:
    flow = bag((1, 1), (1, 48), (12, 1))
    platform = Platform((vm(8, 64, "large"), vm(16, 32, "wide"), vm(2, 0.5, "none"), vm(4, None, "unknown")))
    held = platform.holding(flow)
    assert held.fits(flow).tolist() == [
        [True, True, False, True],
        [True, False, False, True],  # enough memory is known of one, and nothing of another
        [False, True, False, False],
    ]
    assert held == platform
    assert held.tight(flow)  # memory is counted on the large one
    seconds = held.seconds(flow)
    assert np.isfinite(seconds).tolist() == held.fits(flow).tolist()
    assert held.misfit(flow, 1, 0) == ""
    assert held.misfit(flow, 1, 1) == "it needs 48 GiB of memory, and the machine has 32 GiB"
    assert held.misfit(flow, 2, 0) == "it uses 12 cores, and the machine has 8 slots"


def test_a_wide_task_and_one_of_much_memory_share_a_machine() -> None:
    flow = bag((4, 1), (1, 6), (1, 6), (1, 1))
    platform = Platform((vm(8, 8),)).holding(flow)
    assert platform.vms[0].slots == 8
    plan = HeftPlanner(settings=Settings()).plan(flow, platform)
    check(flow, platform, plan)
    # All four would find cores; the two of 6 GiB are not there together, and all else is beside the first of them.
    assert plan.makespan == 20.0
    assert sorted(plan.start) == [0.0, 0.0, 0.0, 10.0]
    assert lower_bound(flow, platform) == pytest.approx(70 / 4)  # 14 GiB for 10 s each, on 8 GiB
    together = Schedule(plan.vm, np.zeros(4), np.full(4, 10.0))
    with pytest.raises(WorkflowError, match=r"'vm' runs more than it has memory for at 0\.000 s"):
        check(flow, platform, together)


def test_machines_that_differ_in_what_fits_are_classes_of_their_own() -> None:
    platform = Platform((vm(1, 8, "a"), vm(1, 2, "b"), vm(1, 9, "c"), vm(1, None, "d")))
    assert platform.classes_for(bag((1, 4), (1, 1))) == ((0, 2, 3), (1,))
    assert platform.classes_for(bag((1, 2))) == platform.classes == ((0, 1, 2, 3),)


def test_memory_that_leaves_no_machine_the_slots_of_a_task() -> None:
    assert Platform((vm(4, 8),)).holding(bag((1, 4), (4, 4))).vms[0].slots == 4
    with pytest.raises(WorkflowError, match="uses 4 cores, and no machine has as many"):
        Platform((vm(2, 8),)).holding(bag((4, 4))).check(bag((4, 4)))


def test_two_machines_of_one_name() -> None:
    with pytest.raises(WorkflowError, match="two machines are called 'b'"):
        Platform((Vm("a"), Vm("b"), Vm("c"), Vm("b")))


@pytest.mark.slow
def test_many_machines_are_a_platform_at_once() -> None:
    vms = tuple(Vm(f"vm{place}") for place in range(20_000))
    begin = time.process_time()
    assert len(Platform(vms).vms) == 20_000
    assert time.process_time() - begin < 1.0  # comparing each with each takes several seconds


def test_machines_are_held_from_the_beginning_however_late_their_first_task_is() -> None:
    boots = {"price_per_hour": 3600.0, "boot_seconds": 5.0}
    platform = Platform((Vm("early", **boots), Vm("late", **boots), Vm("unused", **boots)))  # type: ignore[arg-type]
    flow = Workflow("two", (Task("a", "a", 10.0), Task("b", "b", 10.0)), ((), (0,)))
    plan = Schedule(np.array([0, 1], dtype=np.int32), np.array([5.0, 15.0]), np.array([15.0, 25.0]))
    assert figures(flow, platform, plan, 0.0).cost == pytest.approx(15.0 + 15.0)
    assert held_cost(platform, plan, ahead=None) == pytest.approx(15.0 + 25.0)
    assert held_cost(platform, plan, ahead=None, give_back=False) == pytest.approx(25.0 + 25.0)


def test_machines_that_cost_money_are_asked_for_shortly_before_their_first_task() -> None:
    facts: dict[str, float] = {"price_per_hour": 3600.0, "boot_seconds": 40.0}
    vms = (Vm("early", **facts), Vm("late", **facts), Vm("unused", **facts), Vm("free", boot_seconds=40.0))  # type: ignore[arg-type]
    platform = Platform(vms)
    flow = Workflow("three", tuple(Task(name, "a", 300.0) for name in "abc"), ((), (0,), (0,)))
    start = np.array([40.0, 340.0, 340.0])
    plan = Schedule(np.array([0, 1, 3], dtype=np.int32), start, start + 300.0)
    assert list(vm_request_times(platform, plan)) == [0.0, 260.0, 0.0, 0.0]  # twice its boot time before
    assert list(vm_request_times(platform, plan, 100.0)) == [0.0, 240.0, 0.0, 0.0]
    assert list(vm_request_times(platform, plan, None)) == [0.0] * 4
    planned = figures(flow, platform, plan, 0.0).cost
    assert planned == pytest.approx(340.0 + 340.0)
    assert held_cost(platform, plan) == pytest.approx(planned + 40.0)
    assert held_cost(platform, plan, ahead=100.0) == pytest.approx(planned + 60.0)
    assert held_cost(platform, plan, ahead=None) == pytest.approx(planned + 300.0)


def test_a_gpu_is_for_one_task_at_a_time() -> None:
    tasks = tuple(Task(f"t{place}", "t", 10.0, gpus=1) for place in range(4))
    flow = Workflow("gpus", (*tasks, Task("other", "t", 10.0)), ((),) * 5)
    platform = Platform((Vm("large", slots=8, gpus=2), Vm("plain", slots=8)))
    assert platform.fits(flow).tolist() == [[True, False]] * 4 + [[True, True]]
    assert (platform.scarce_names(flow), platform.scarce(flow)[1].tolist()) == (("GPUs",), [[2], [0]])
    assert lower_bound(flow, platform) == pytest.approx(20.0, rel=1e-5)
    plan = HeftPlanner(settings=Settings()).plan(flow, platform)
    check(flow, platform, plan)
    assert plan.makespan == 20.0
    crowded = Schedule(np.zeros(5, dtype=np.int32), np.zeros(5), np.full(5, 10.0))
    with pytest.raises(WorkflowError, match=r"'large' runs more than it has GPUs for at 0\.000 s"):
        check(flow, platform, crowded)
    # Where all tasks take the same, slots are counted, and nothing else.
    held = Platform(platform.vms[:1]).holding(Workflow("gpus", tasks, ((),) * 4))
    assert (held.vms[0].slots, held.tight(flow)) == (2, False)


@pytest.mark.parametrize(
    ("task", "said"),
    [
        (Task("t", "t", 1.0, gpus=3), "task 't' uses 3 GPUs, and no machine has as many: the largest, 'a', has 1 GPU"),
        (
            Task("t", "t", 1.0, disk_bytes=9 * GIB),
            "task 't' needs 9 GiB of disk, and no machine has as much: the largest, 'a', has 4 GiB",
        ),
        (
            Task("t", "t", 1.0, cores=4, gpus=1),
            "task 't' uses 4 cores and 1 GPU, and no machine has both: the largest with the cores, 'b', has none",
        ),
        (
            Task("t", "t", 1.0, cores=2, gpus=1, memory_bytes=8 * GIB),
            "task 't' uses 2 cores, 8 GiB of memory and 1 GPU, and no machine has all of it: the largest with the "
            "others, 'b', has none",
        ),
    ],
)
def test_what_no_machine_has_is_told_by_task_and_requirement(task: Task, said: str) -> None:
    small = Vm("a", slots=2, memory_bytes=4 * GIB, gpus=1, disk_bytes=4 * GIB)
    platform = Platform((small, Vm("b", slots=4, memory_bytes=16 * GIB, disk_bytes=GIB)))
    with pytest.raises(WorkflowError) as refusal:
        platform.check(Workflow("w", (task,), ((),)))
    assert refusal.value.message == said


def test_no_machine_has_any_gpu() -> None:
    flow = Workflow("w", (Task("train", "t", 1.0, gpus=1),), ((),))
    with pytest.raises(WorkflowError, match=r"^task 'train' uses 1 GPU, and no machine has any "):
        Platform((Vm("a"),)).check(flow)
    assert Platform((Vm("a"),)).misfit(flow, 0, 0) == "it uses 1 GPU, and the machine has none"


def _disks(*gib: float | None) -> Platform:
    sizes = [None if each is None else int(each * GIB) for each in gib]
    return Platform(tuple(Vm(f"m-{i}", kind=f"k{i}", slots=4, disk_bytes=size) for i, size in enumerate(sizes)))


def test_a_disk_that_is_not_known_is_enough_and_told_in_one_sentence() -> None:
    flow = Workflow("bag", (Task("t", "t", 1.0, disk_bytes=20 * GIB), Task("u", "u", 1.0)), ((), ()))
    assert _disks(None).fits(flow).all()
    assert "task 't' needs 20 GiB of disk, and nothing says how much k0, k2 have: it is not" in (
        _disks(None, 30, None).disk_note(flow)
    )
    assert "how much k0, k1, k2 and 1 more have" in _disks(*[None] * 4).disk_note(flow)
    assert _disks(30, 10).disk_note(flow) == ""
    assert _disks(None).disk_note(bag((1, 1))) == ""


def test_an_offers_disk_is_known_where_the_machine_itself_does_not_say() -> None:
    offer = Offer("here", "m", 4, 8, 0.1, facts={"disk_gib": 100.0})
    flow = Workflow("bag", (Task("t", "t", 1.0, disk_bytes=20 * GIB),), ((),))
    assert Platform((Vm("m-1", slots=4, offer=offer),)).disk_note(flow) == ""


@pytest.mark.parametrize(
    ("accelerator", "gpus"),
    [
        ("L4", 2), ("A100-80GB", 2), ("", 2), ("MI300X", 2), ("Inferentia2", 0), ("Trainium", 0), ("tpu-v4-8", 0),
        ("Gaudi HL-205", 0), ("Xilinx U30", 0),
    ],
)  # fmt: skip
def test_accelerators_of_other_kinds_are_no_gpus(accelerator: str, gpus: int) -> None:
    facts = {"accelerator": accelerator} if accelerator else {}
    assert gpus_for_tasks(Offer("here", "m", 4, 8, 0.1, gpus=2, facts=facts)) == gpus
