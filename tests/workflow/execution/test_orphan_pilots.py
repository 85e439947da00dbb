"""Machines that an earlier session has left, and that the runner of the next one does not know."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.waiting import eventually
from tests.workflow.execution.plans import Command, agents, carry, counted, elsewhere, flow_of, history, plan_of, sh

from tradewind import plugins
from tradewind.errors import WorkflowError
from tradewind.workflow.execution import recovery
from tradewind.workflow.execution.events import ExecutionEnding
from tradewind.workflow.execution.journal import RunHistory
from tradewind.workflow.execution.machines.engine import PilotEngine, plain_provisioner
from tradewind.workflow.execution.machines.rows import FileRows
from tradewind.workflow.execution.run_folder import WorkflowRunFolder
from tradewind.workflow.files import Plan

pytestmark = pytest.mark.slow

PLAN = plan_of(flow_of(sh("a", "echo a >> log")), vms=1)


def left_behind(folder: Path, on: str = "slurm", **more: Any) -> Path:
    """A run whose controller was killed before a task began; the folder of its machine, which tells of a far host."""
    assert carry(PLAN, folder).ending is ExecutionEnding.DONE
    journal = folder / "journal.jsonl"
    records = [json.loads(line) for line in journal.read_text().splitlines()]
    kept = [{**each, "on": on, **more} if each["e"] == "session" else each for each in records]
    kept = [{name: value for name, value in each.items() if value is not None} for each in kept]
    journal.write_text("".join(json.dumps(each) + "\n" for each in kept if each["e"] in ("run", "session", "pilot")))
    shutil.rmtree(folder / "tasks")
    (folder / "files/log").unlink()
    machine = WorkflowRunFolder(folder).pilot("vm-1", 1)
    (machine / "left.json").unlink()
    address = json.loads((machine / "address.json").read_text())
    (machine / "address.json").write_text(json.dumps({**address, "host": "far", "places": ["127.0.0.1"]}))
    return machine


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "_END_SECONDS", 8.0)


def refused(folder: Path, **more: Any) -> str:
    before = (folder / "journal.jsonl").read_text()
    with pytest.raises(WorkflowError) as error:
        carry(PLAN, folder, **more)
    assert (folder / "journal.jsonl").read_text() == before
    assert counted(folder) == {}
    return str(error.value)


def test_another_engine_is_refused_while_machines_may_still_work(tmp_path: Path) -> None:
    machine = left_behind(tmp_path / "run")
    said = refused(tmp_path / "run")
    assert "a machine of this run may still be on slurm: vm-1" in said
    assert "--on slurm goes on with it, --dismiss ends it" in said
    assert not (machine / "fenced").exists()


def test_fresh_is_refused_while_machines_may_still_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "_END_SECONDS", 0.3)
    machine = left_behind(tmp_path / "run")
    assert "a machine of this run may still be on slurm: vm-1 (--folder names another" in refused(
        tmp_path / "run", fresh=True
    )
    assert (machine / "fenced").exists()
    assert (tmp_path / "run/files").is_dir()


@pytest.mark.parametrize("fresh", [False, True])
def test_dismiss_goes_on_without_machines_that_do_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh: bool
) -> None:
    monkeypatch.setattr(recovery, "_END_SECONDS", 0.3)
    left_behind(tmp_path / "run")
    assert carry(PLAN, tmp_path / "run", dismiss=True, fresh=fresh).ending is ExecutionEnding.DONE
    assert counted(tmp_path / "run") == {"a": 1}
    assert history(tmp_path / "run").pilots == {"vm-1": 2}  # the number is not given again, not even after --fresh


@pytest.mark.parametrize("fresh", [False, True])
def test_machines_that_say_that_they_have_ended_are_in_nobodys_way(tmp_path: Path, fresh: bool) -> None:
    (left_behind(tmp_path / "run") / "left.json").write_text("{}")
    assert carry(PLAN, tmp_path / "run", fresh=fresh).ending is ExecutionEnding.DONE
    assert counted(tmp_path / "run") == {"a": 1}


def test_a_machine_of_this_host_that_does_not_answer_has_ended(tmp_path: Path) -> None:
    machine = left_behind(tmp_path / "run")
    address = json.loads((machine / "address.json").read_text())
    (machine / "address.json").write_text(json.dumps({**address, "host": socket.gethostname()}))
    assert carry(PLAN, tmp_path / "run").ending is ExecutionEnding.DONE


def test_a_machine_that_has_never_come_is_kept_from_beginning(tmp_path: Path) -> None:
    machine = left_behind(tmp_path / "run")
    (machine / "address.json").unlink()
    assert carry(PLAN, tmp_path / "run").ending is ExecutionEnding.DONE
    assert (machine / "fenced").exists()


def test_a_machine_that_may_come_after_fresh_finds_no_folder(tmp_path: Path) -> None:
    machine = left_behind(tmp_path / "run")
    (machine / "address.json").unlink()
    assert carry(PLAN, tmp_path / "run", fresh=True).ending is ExecutionEnding.DONE
    assert not machine.exists()


def test_after_a_proper_stop_any_engine_goes_on(tmp_path: Path) -> None:
    left_behind(tmp_path / "run")
    with (tmp_path / "run/journal.jsonl").open("a") as journal:
        journal.write('{"at": 0.0, "e": "stop", "ending": "interrupted"}\n')
    assert carry(PLAN, tmp_path / "run").ending is ExecutionEnding.DONE


def test_a_journal_without_settings_goes_on_with_the_same_engine(tmp_path: Path) -> None:
    left_behind(tmp_path / "run", "process", settings=None)
    assert carry(PLAN, tmp_path / "run").ending is ExecutionEnding.DONE


@pytest.mark.parametrize(
    ("more", "hint"),
    [
        ({"settings": "0" * 64}, "the same --set as before goes on with it"),
        ({"host": "login1"}, "the same command on login1 goes on with it"),
    ],
)
def test_other_settings_and_processes_of_another_host_are_refused(
    tmp_path: Path, more: dict[str, Any], hint: str
) -> None:
    left_behind(tmp_path / "run", "process", **more)
    assert hint in refused(tmp_path / "run")


def test_fresh_takes_a_journal_as_far_as_it_can_be_read(tmp_path: Path) -> None:
    (left_behind(tmp_path / "run") / "left.json").write_text("{}")
    with (tmp_path / "run/journal.jsonl").open("a") as journal:
        journal.write('{"e": "session"}\n{"e": "pilot", "at": 0.0}\n')
    assert carry(PLAN, tmp_path / "run", fresh=True).ending is ExecutionEnding.DONE


def test_what_was_left_is_neither_lost_nor_paid_nor_asked_for_any_more() -> None:
    past = RunHistory()
    records: list[dict[str, Any]] = [
        {"e": "session", "on": "slurm"}, {"e": "pilot", "vm": "vm-1", "pilot": 1}, {"e": "up", "vm": "vm-1"},
        {"e": "began"}, {"e": "left", "vm": "vm-1", "at": 90.0}, {"e": "session", "on": "process", "at": 91.0},
        {"e": "pilot", "vm": "vm-1", "pilot": 2, "at": 92.0}, {"e": "up", "vm": "vm-1", "at": 93.0},
    ]  # fmt: skip
    for at, record in enumerate(records):
        past.take({"at": float(at), **record})
    assert past.ups == [("vm-1", 2.0, 90.0), ("vm-1", 93.0, None)]
    assert past.pauses == [(3.0, 93.0)]  # nobody was there from the last sign of the first session
    assert past.lost == []
    assert past.pilot_sessions["vm-1"]["on"] == "process"


def test_the_mark_of_settings_tells_nothing_and_differs_with_them(tmp_path: Path) -> None:
    made = [plugins.create("runner", "process", {"grace": grace}, data_folder=tmp_path) for grace in (0.5, 0.5, 2.0)]
    engines = [PilotEngine(plain_provisioner(tmp_path), each, FileRows(tmp_path)) for each in made]
    same, again, other = (each.fingerprint("secret") for each in engines)
    assert same == again != other
    assert engines[0].fingerprint("another secret") != same
    assert "grace" not in same


# ---------------------------------------------------------------------- with machines that live


def watched(count: int, seconds: float) -> Plan:
    """Tasks that write down when another is at the same output at the same time."""
    return plan_of(flow_of(*(
        sh(f"t{n}", f"exec 9>lock{n}; flock -n 9 || echo t{n} >> twice; echo t{n} >> log; sleep {seconds}; "
           f"echo $TRADEWIND_ATTEMPT > out{n}", writes=f"out{n}", runtime=seconds, activity="work")
        for n in range(count)
    )))  # fmt: skip


@pytest.fixture
def killed(tmp_path: Path, quick: Path) -> Iterator[tuple[Plan, Path, list[psutil.Process]]]:
    """A run whose controller was killed while two of its four tasks run: the plan, the folder, its machines."""
    plan = watched(4, 2.0)
    command = Command(plan, tmp_path, "--no-store", program=quick)
    process = command.start()
    eventually(lambda: len(counted(command.run)) == 2)
    process.kill()
    process.communicate()
    served = agents(command.run)
    assert len(served) == 2
    yield plan, command.run, served
    for each in agents(command.run):
        each.kill()


@pytest.mark.thorough
@pytest.mark.slow
def test_refused_by_another_engine_the_tasks_go_on_undisturbed(
    killed: tuple[Plan, Path, list[psutil.Process]], quick: Path
) -> None:
    plan, folder, served = killed
    with pytest.raises(WorkflowError, match="2 machines of this run are still on local: vm-1, vm-2"):
        carry(plan, folder, runner=elsewhere(folder))
    assert agents(folder) == served
    done = Command(plan, folder.parent, "--no-store", program=quick).finish()
    assert done.returncode == 0, done.stderr
    assert counted(folder) == {f"t{n}": 1 for n in range(4)}
    assert counted(folder, "twice") == {}


@pytest.mark.slow
@pytest.mark.parametrize("more", [{"dismiss": True}, {"fresh": True}])
def test_what_is_dismissed_has_ended_before_another_engine_begins(
    killed: tuple[Plan, Path, list[psutil.Process]], more: dict[str, Any]
) -> None:
    plan, folder, served = killed
    assert carry(plan, folder, runner=elsewhere(folder, grace=2.0), **more).ending is ExecutionEnding.DONE
    assert not any(each.is_running() for each in served)
    assert counted(folder, "twice") == {}
    assert all((folder / f"files/out{n}").exists() for n in range(4))
    times = [1, 1, 1, 1] if "fresh" in more else [1, 1, 2, 2]  # two ran, and were begun again
    assert sorted(counted(folder).values()) == times


@pytest.mark.slow
def test_the_same_engine_with_other_settings_goes_on_with_its_machines(
    killed: tuple[Plan, Path, list[psutil.Process]], quick: Path
) -> None:
    plan, folder, served = killed
    done = Command(plan, folder.parent, "--no-store", "--set", "grace=1", program=quick).finish()
    assert done.returncode == 0, done.stderr
    assert counted(folder) == {f"t{n}": 1 for n in range(4)}
    assert history(folder).pilots == {"vm-1": 1, "vm-2": 1}
    assert not any(each.is_running() for each in served)
