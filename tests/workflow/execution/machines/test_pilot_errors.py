"""Errors of machines that never answered."""

from __future__ import annotations

from pathlib import Path

from tradewind.errors import DeployError
from tradewind.problem import Fault, Run, RunState
from tradewind.workflow.execution.machines.pilot_errors import error_of


def test_what_the_agent_said_last_is_in_the_error(tmp_path: Path) -> None:
    row = Run(
        "r-m1-1", 0, 1, state=RunState.FAILED, fault=Fault.JOB, reason="the program exited with code 1", exit_code=1,
        folder=str(tmp_path),
    )  # fmt: skip
    assert error_of("vm-1", row, "python3").message == "vm-1: the program exited with code 1"
    (tmp_path / "stderr").write_text("Traceback\n  File x\nImportError: no module named json\n\n")
    error = error_of("vm-1", row, "python3")
    assert isinstance(error, DeployError)
    assert error.message == ("vm-1 does not work: the program exited with code 1: ImportError: no module named json")
    assert error.hint == f"all of it is in {tmp_path}/stderr"
