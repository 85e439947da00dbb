"""Errors of machines that never answered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tradewind.errors import DeployError
from tradewind.problem import Fault, Run, RunState
from tradewind.workflow.execution.machines.pilot_errors import error_of


def test_what_the_agent_said_last_is_in_the_error(tmp_path: Path) -> None:
    row = Run(
        "r-m1-1", 0, 1, state=RunState.FAILED, fault=Fault.JOB, reason="the program exited with code 1", exit_code=1,
        folder=str(tmp_path),
    )  # fmt: skip
    assert error_of("vm-1", row, "python3").message == "vm-1 does not work: the program exited with code 1"
    (tmp_path / "stderr").write_text("Traceback\n  File x\nImportError: no module named json\n\n")
    error = error_of("vm-1", row, "python3")
    assert isinstance(error, DeployError)
    assert error.message == ("vm-1 does not work: the program exited with code 1: ImportError: no module named json")
    assert error.hint == f"all of it is in {tmp_path}/stderr"


def test_a_machine_that_was_lost_before_its_first_task_is_named(tmp_path: Path) -> None:
    row = Run("r-m1-1", 0, 1, state=RunState.PREEMPTED, fault=Fault.INFRASTRUCTURE, reason="its pod was taken away",
              folder=str(tmp_path))  # fmt: skip
    assert error_of("vm-1", row, "python3").message == "vm-1 was lost before its first task: its pod was taken away"
    ended = replace(row, state=RunState.DONE, reason="")
    assert error_of("vm-1", ended, "python3").message == "vm-1 ended before it answered"
    missing = replace(row, state=RunState.FAILED, exit_code=127)
    assert error_of("vm-1", missing, "python9").message == "there is no program python9 on vm-1"
