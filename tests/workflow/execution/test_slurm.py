"""Plans carried out on a Slurm of three nodes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.engines.slurm import SlurmCluster, slurm
from tests.waiting import eventually
from tests.workflow.execution.plans import (
    Command,
    agents,
    asked_just_in_time,
    carry,
    chunks,
    counted,
    elsewhere,
    flow_of,
    history,
    lopsided,
    plan_of,
    sh,
    two_after_another,
)

from tradewind import plugins
from tradewind.deployer.runner.base import Runner
from tradewind.errors import DeployError, WorkflowError
from tradewind.workflow.execution.events import ExecutionEnding
from tradewind.workflow.execution.options import ExecutionProgress
from tradewind.workflow.execution.pilots import PilotSettings
from tradewind.workflow.graph import Task, Workflow

__all__ = ["slurm"]
pytestmark = pytest.mark.xdist_group("slurm")

TERMS = PilotSettings(linger=10.0, poll_seconds=1.0, silence=10.0)


@pytest.fixture(autouse=True)
def _here(slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm.heal()
    monkeypatch.setenv("SLURM_CONF", str(slurm.conf))


def on(folder: Path, *words: str) -> Runner:
    given = {"sbatch": ["--mem=300M", *words], "interval": 0.2}
    runner: Runner = plugins.create("runner", "slurm", given, data_folder=folder / "machines" / ".runner")
    return runner


def test_each_machine_of_the_plan_is_one_job(slurm: SlurmCluster, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    plan = plan_of(
        flow_of(*(sh(f"t{n}", f"echo $SLURMD_NODENAME > out{n}; sleep 0.2", writes=f"out{n}") for n in range(6))),
        vms=3,
        slots=2,
    )
    carried = carry(plan, folder, runner=on(folder), terms=TERMS)
    assert carried.ending is ExecutionEnding.DONE
    nodes = {(folder / f"files/out{n}").read_text().strip() for n in range(6)}
    assert nodes == set(slurm.nodes)
    eventually(lambda: slurm.jobs() == [])
    assert not agents(folder)


@pytest.mark.thorough
def test_a_machine_whose_first_task_is_late_is_asked_for_shortly_before(slurm: SlurmCluster, tmp_path: Path) -> None:
    plan, folder, scale = two_after_another(1000.0), tmp_path / "run", 0.01
    seen: list[int] = []
    carried = carry(
        plan, folder, runner=on(folder), terms=TERMS, synthetic=True, scale=scale,
        watch=lambda _: seen.append(len(slurm.jobs())),
    )  # fmt: skip
    asked_just_in_time(folder, carried, plan, scale)
    assert seen[: len(seen) // 4] and max(seen[: len(seen) // 4]) == 1  # it is no job before, not even one that waits
    eventually(lambda: slurm.jobs() == [])


def test_a_job_ends_when_its_machine_has_nothing_left_to_do(slurm: SlurmCluster, tmp_path: Path) -> None:
    folder, seen = tmp_path / "run", [0]

    def watch(progress: ExecutionProgress) -> None:
        if progress.back == 2 and progress.running:
            seen.append(len(slurm.jobs()))

    carried = carry(lopsided(6.0), folder, runner=on(folder), terms=TERMS, synthetic=True, watch=watch)
    assert carried.ending is ExecutionEnding.DONE
    assert seen[-1] == 1
    eventually(lambda: slurm.jobs() == [])


@pytest.mark.slow
def test_a_cancelled_job_in_the_middle_loses_nothing(slurm: SlurmCluster, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    cancelled: list[str] = []

    def watch(seen: ExecutionProgress) -> None:
        if not cancelled and seen.done >= 2:
            cancelled.append(slurm.jobs()[0])
            slurm.call("scancel", cancelled[0])

    carried = carry(plan_of(flow_of(*chunks(9, 0.6)), vms=3), folder, runner=on(folder), terms=TERMS, watch=watch)
    assert cancelled
    assert carried.ending is ExecutionEnding.DONE
    assert len(carried.results["machines_lost"]) == 1
    assert (folder / "files/total").read_text().split() == [str(n) for n in range(9)]
    finished = [each.task for each in history(folder).attempts.values() if each.end and each.end["outcome"] == "done"]
    assert len(finished) == len(set(finished)) == 10


@pytest.mark.slow
def test_a_node_that_dies_loses_nothing(slurm: SlurmCluster, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    dead: list[int] = []

    def watch(seen: ExecutionProgress) -> None:
        if not dead and seen.done >= 2:
            slurm.kill_node(slurm.nodes[1])
            for each in agents(folder):
                if each.environ().get("SLURMD_NODENAME") == slurm.nodes[1]:
                    dead.append(each.pid)
                    each.kill()

    carried = carry(
        plan_of(flow_of(*chunks(9, 0.6)), vms=3, slots=2), folder, runner=on(folder), terms=TERMS, watch=watch
    )
    assert dead
    assert carried.ending is ExecutionEnding.DONE
    assert (folder / "files/total").read_text().split() == [str(n) for n in range(9)]


@pytest.mark.slow
def test_an_interruption_leaves_no_job_and_the_next_call_goes_on(slurm: SlurmCluster, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    plan = plan_of(flow_of(*chunks(5, 0.5)), vms=2)
    done: list[int] = [0]
    carried = carry(
        plan,
        folder,
        runner=on(folder),
        terms=TERMS,
        watch=lambda seen: done.append(seen.done),
        wanted=lambda: done[-1] < 2,
    )
    assert carried.ending is ExecutionEnding.INTERRUPTED
    eventually(lambda: slurm.jobs() == [])
    finished = [row["task"] for row in carried.results["tasks"] if row["vm"]]
    assert carry(plan, folder, runner=on(folder), terms=TERMS).ending is ExecutionEnding.DONE
    assert all(counted(folder)[task] == 1 for task in finished)


@pytest.mark.slow
def test_jobs_of_a_killed_command_end_before_another_engine_does_their_work(
    slurm: SlurmCluster, tmp_path: Path, quick: Path
) -> None:
    plan = plan_of(flow_of(*chunks(3, 4.0)), vms=2)
    words = ["--set", "sbatch=[--mem=300M]", "--set", "interval=0.2"]
    command = Command(plan, tmp_path, "--on", "slurm", *words, program=quick)
    process = command.start()
    eventually(lambda: len(counted(command.run)) == 2)
    process.kill()
    process.communicate()
    with pytest.raises(WorkflowError, match=r"2 machines of this run are still on slurm: vm-1, vm-2 \(--on slurm goes"):
        carry(plan, command.run, runner=elsewhere(command.run), terms=TERMS)
    assert len(slurm.jobs()) == 2
    assert (
        carry(plan, command.run, runner=elsewhere(command.run), terms=TERMS, dismiss=True).ending
        is ExecutionEnding.DONE
    )
    eventually(lambda: slurm.jobs() == [])
    assert (command.run / "files/total").read_text().split() == ["0", "1", "2"]
    assert max(counted(command.run).values()) == 2  # begun there, and begun again here
    assert not agents(command.run)


@pytest.mark.slow
def test_machines_that_wait_in_the_queue_are_given_up(slurm: SlurmCluster, tmp_path: Path) -> None:
    """Each of the three nodes has two CPUs: the fourth machine of two slots never comes."""
    folder = tmp_path / "run"
    plan = plan_of(Workflow("w", tuple(Task(f"t{n}", "a", 0.3) for n in range(8)), ((),) * 8), vms=4, slots=2)
    carried = carry(
        plan, folder, runner=on(folder), terms=TERMS, synthetic=True, gather=1.0, give_up=2.0, give_back=False
    )
    assert carried.ending is ExecutionEnding.DONE
    assert "has not come" in carried.results["machines_lost"][0]["reason"]
    eventually(lambda: slurm.jobs() == [])


def test_what_slurm_refuses_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with pytest.raises(DeployError, match="nosuch"):
        carry(plan_of(flow_of(sh("a", "true"))), folder, runner=on(folder, "--partition=nosuch"), terms=TERMS)
