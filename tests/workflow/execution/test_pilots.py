"""Tests of the resources that pilots request, and of what they are paid for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from tests.waiting import eventually
from tests.workflow.execution.plans import agents, carry, flow_of, plan_of, sh

from tradewind.deployer.runner.base import HasOwnMachines, Runner
from tradewind.errors import DeployError
from tradewind.problem import Handle, Machine, RunRequest, RunStatus
from tradewind.workflow.execution.events import ExecutionEnding
from tradewind.workflow.execution.machines.rows import FileRows
from tradewind.workflow.execution.pilots import PilotManager, PilotSettings
from tradewind.workflow.execution.run_folder import WorkflowRunFolder
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.platform import needs_of_slot

GB = 10**9


class Refuses(Runner, HasOwnMachines):
    """Writes down what is asked for, and gives nothing."""

    name = "refuses"

    def submit(self, request: RunRequest, machines: Sequence[Machine]) -> Handle:
        asked[request.env["TRADEWIND_MACHINE"]] = request.offer.memory_gib * 2**30
        raise DeployError("no", retryable=False)

    def poll(self, handles: Sequence[Handle]) -> Mapping[str, RunStatus]:
        return {}

    def cancel(self, handle: Handle, reason: str = "") -> None:
        raise AssertionError("there is nothing")

    def find(self, owner: str | None) -> list[Handle]:
        return []


asked: dict[str, float] = {}


def memory(folder: Path, *tasks: Task, slots: int = 8, has: int | None = None) -> Mapping[str, float]:
    """Memory that each machine of a plan is requested with."""
    asked.clear()
    plan = plan_of(Workflow("w", tasks, tuple(() for _ in tasks)), vms=1, slots=slots, memory_bytes=has)
    runner = Refuses(settings=Refuses.Settings(), data_folder=folder / "machines")
    with pytest.raises(DeployError, match="no"):
        carry(plan, folder, runner=runner, terms=PilotSettings(slot_bytes=needs_of_slot(plan.flow)), synthetic=True)
    return asked


def test_a_machine_is_asked_for_with_what_may_run_there_at_a_time(tmp_path: Path) -> None:
    wide, small = Task("wide", "a", 1.0, cores=8, memory_bytes=24 * GB), Task("small", "a", 1.0, memory_bytes=GB)
    assert memory(tmp_path / "1", wide, small) == {"vm-1": 24 * GB}
    assert memory(tmp_path / "2", small, slots=4) == {"vm-1": 4 * GB}
    assert memory(tmp_path / "3", Task("t", "a", 1.0)) == {"vm-1": 0}
    uneven = Task("uneven", "a", 1.0, cores=3, memory_bytes=10)
    assert memory(tmp_path / "4", uneven, slots=3) == {"vm-1": 12}


def test_a_machine_is_asked_for_with_no_more_than_it_has(tmp_path: Path) -> None:
    one = Task("one", "a", 1.0, memory_bytes=10 * GB)
    assert memory(tmp_path, one, slots=8, has=64 * GB) == {"vm-1": 64 * GB}


def test_machines_that_ended_after_a_kill_of_the_command_are_paid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, run = plan_of(flow_of(sh("a", "sleep 0.3")), vms=1, price_per_hour=3600.0), tmp_path / "run"
    with monkeypatch.context() as killed:  # the machine has its order to stop, and nobody sees it go
        killed.setattr(PilotManager, "close", lambda self: self.halt())
        assert carry(plan, run, give_back=False).ending is ExecutionEnding.DONE
    eventually(lambda: not agents(run))
    [row] = FileRows(WorkflowRunFolder(run).rows).saved_runs()
    assert not row.state.ended
    assert carry(plan, run, give_back=False).ending is ExecutionEnding.DONE
    [row] = FileRows(WorkflowRunFolder(run).rows).saved_runs()
    assert row.state.ended
    assert row.cost >= 1.0
    assert row.runtime > 0.3
