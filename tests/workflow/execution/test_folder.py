"""The files that a run takes from outside."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.workflow.execution.plans import carry, plan_of, sh

from tradewind.errors import WorkflowError
from tradewind.workflow.execution.events import Ending
from tradewind.workflow.execution.folder import RunFolder
from tradewind.workflow.graph import Task, Workflow


def test_a_file_that_is_updated_in_place_comes_from_outside_once(tmp_path: Path) -> None:
    (tmp_path / "db").write_text("old\n")
    (tmp_path / "later").write_text("first\n")
    tasks = (
        sh("update", "echo new >> db; test -e tried || { touch tried; exit 3; }", after="db", writes="db"),
        sh("read", "cat db later > seen", after="db later", writes="seen"),
        sh("overwrite", "echo second > later", writes="later"),
    )
    flow = Workflow("update", tasks, ((), (0,), (1,)))
    assert carry(plan_of(flow, vms=1), tmp_path / "run").ending is Ending.DONE
    assert (tmp_path / "run/files/seen").read_text() == "old\nnew\nnew\nfirst\n"  # a second try finds what is there
    assert (tmp_path / "run/files/later").read_text() == "second\n"
    assert (tmp_path / "db").read_text() == "old\n"


def refused(folder: Path, parents: tuple[tuple[int, ...], ...], *tasks: Task) -> str:
    with pytest.raises(WorkflowError) as caught:
        RunFolder(folder / "run").require(Workflow("w", tasks, parents), folder, only=range(len(tasks)))
    return str(caught.value)


def test_an_input_that_is_written_too_late(tmp_path: Path) -> None:
    said = refused(tmp_path, ((), ()), sh("a", "cat x", after="x"), sh("b", "touch x", writes="x"))
    assert said == (
        f"there is no file {tmp_path / 'x'}, which task 'a' reads and no task writes before it "
        "(name the folder of the inputs with --inputs, or let 'a' wait for 'b', which writes it)"
    )


def test_an_input_that_only_its_reader_writes(tmp_path: Path) -> None:
    said = refused(tmp_path, ((),), sh("a", "touch x", after="x", writes="x"))
    assert said.endswith("with --inputs, or leave it out of the inputs of 'a' if that makes it)")
