"""WorkflowSim's own makespans come out, and by hand where a hand can."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from tests.workflow.datasets import dax, needs_datasets, table

from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.platform import Platform, Storage
from tradewind.workflow.platform import Vm as Machine
from tradewind.workflow.simulator.replications import WORKFLOWSIM_POLICIES, simulate_like_workflowsim
from tradewind.workflow.simulator.workflowsim import WorkflowSim, WorkflowSimVm, dheft

ROWS = table("workflowsim", "makespans_sample.csv")


def vms_of(vcpu: int, model: str, order: str) -> list[WorkflowSimVm]:
    """Paper 3's VM sets: eight slow VMs and some of eight vCPUs, each of which is a VM in the model ``vcpu``."""
    count = (vcpu - 8) // 8
    slow = [WorkflowSimVm(1000.0)] * 8
    fast = [WorkflowSimVm(4156.0, 8)] * count if model == "vm" else [WorkflowSimVm(4156.0)] * (8 * count)
    return [*slow, *fast] if order == "slowfirst" else [*fast, *slow]


@pytest.mark.slow
@needs_datasets
@pytest.mark.parametrize("graph", sorted({row["dax"] for row in ROWS}))
def test_every_makespan_of_workflowsim_itself(graph: str) -> None:
    rows = [row for row in ROWS if row["dax"] == graph]
    assert len(rows) == 112
    for row in rows:
        vms = vms_of(int(row["vcpu"]), row["model"], row["vm_order"])
        storage = "SHARED" if row["file_system"] == "SHARED" else "LOCAL"
        outcome = WorkflowSim(dax(graph), vms, row["scheduler"], storage).run()  # type: ignore[arg-type]
        assert outcome.makespan == pytest.approx(float(row["makespan_s"]), abs=1e-4), row


def chain() -> Workflow:
    tasks = (Task("a", "first", 2.0, (), ("x",)), Task("b", "second", 4.0, ("x",), ()))
    return Workflow("chain", tasks, ((), (0,)), {"x": 30_000_000})


def test_a_chain_by_hand() -> None:
    # 0.1 s, the stage-in job of 110 MI, 2 s, then 2 s of transfer at 15 MB/s and 4 s: 8.21 s on a VM of 1000 MIPS.
    outcome = WorkflowSim(chain(), [WorkflowSimVm(1000.0)], "FCFS").run()
    assert outcome.makespan == pytest.approx(8.21, abs=0.03)
    assert outcome.starts[1] == pytest.approx(outcome.ends[0], abs=1e-9)
    # LOCAL: the file is where it was made.
    local = WorkflowSim(chain(), [WorkflowSimVm(1000.0)], "FCFS", "LOCAL").run()
    assert local.makespan == pytest.approx(6.21, abs=0.03)


def test_a_vm_runs_one_task_at_a_time_whatever_its_cores() -> None:
    tasks = tuple(Task(str(i), "t", 10.0) for i in range(4))
    flow = Workflow("four", tasks, ((), (), (), ()))
    outcome = WorkflowSim(flow, [WorkflowSimVm(1000.0, 8)], "FCFS").run()
    assert outcome.makespan == pytest.approx(40.21, abs=0.1)


@pytest.mark.parametrize("policy", WORKFLOWSIM_POLICIES)
def test_every_task_runs_once_after_its_parents(policy: str) -> None:
    tasks = tuple(Task(str(i), f"a{i % 3}", 1.0 + i % 5, (f"f{i - 1}",), (f"f{i}",)) for i in range(30))
    parents = tuple(tuple(sorted({i // 2, i // 3} - {i})) if i else () for i in range(30))
    flow = Workflow("made", tasks, parents, {f"f{i}": 1_000_000 * (i + 1) for i in range(30)})
    outcome = WorkflowSim(
        flow, [WorkflowSimVm(1000.0), WorkflowSimVm(2000.0, 2), WorkflowSimVm(4156.0, 8)], policy, "LOCAL"
    ).run()
    for task, before in enumerate(parents):
        for parent in before:
            assert outcome.starts[task] >= outcome.ends[parent] - 1e-9
    for vm in range(3):
        mine = sorted((outcome.starts[t], outcome.ends[t]) for t in range(30) if outcome.vms[t] == vm)
        assert all(end <= start + 1e-9 for (_, end), (start, _) in itertools.pairwise(mine))
    assert outcome.makespan == max(outcome.ends)


def test_dheft_fixes_the_vm_and_not_the_order() -> None:
    assert dheft(chain(), [WorkflowSimVm(1000.0), WorkflowSimVm(2000.0)]) == [1, 1]


@pytest.mark.parametrize("storage", ["shared", "local"])
def test_its_bandwidth_is_that_of_its_figures(storage: Storage) -> None:
    platform = Platform((Machine("a"),), storage, bandwidth=0.5, latency=3.0)
    result = simulate_like_workflowsim(chain(), platform, "FCFS")
    assert 0.0 <= result.figures[0].gap < 0.1
    assert result.figures == simulate_like_workflowsim(chain(), Platform((Machine("a"),), storage), "FCFS").figures


def test_a_task_takes_one_core_whatever_it_asks_for() -> None:
    flow = chain()
    wide = Workflow(flow.name, (replace(flow.tasks[0], cores=4), flow.tasks[1]), flow.parents, flow.sizes)
    platform = Platform((Machine("a", slots=4),), "shared")
    found, plain = simulate_like_workflowsim(wide, platform, "FCFS"), simulate_like_workflowsim(flow, platform, "FCFS")
    assert found.figures == plain.figures
    assert ("cores", "a task takes one there: so do 1 that ask for more") in found.notes
    assert "cores" not in dict(plain.notes)
