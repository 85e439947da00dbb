"""The files that a run takes from outside."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.workflow.execution.plans import carry, plan_of, sh

from tradewind.errors import WorkflowError
from tradewind.workflow.execution.events import ExecutionEnding
from tradewind.workflow.execution.run_folder import WorkflowRunFolder
from tradewind.workflow.graph import Task, Workflow


@pytest.mark.slow
def test_a_file_that_is_updated_in_place_comes_from_outside_once(tmp_path: Path) -> None:
    (tmp_path / "db").write_text("old\n")
    (tmp_path / "later").write_text("first\n")
    tasks = (
        sh("update", "echo new >> db; test -e tried || { touch tried; exit 3; }", after="db", writes="db"),
        sh("read", "cat db later > seen", after="db later", writes="seen"),
        sh("overwrite", "echo second > later", writes="later"),
    )
    flow = Workflow("update", tasks, ((), (0,), (1,)))
    assert carry(plan_of(flow, vms=1), tmp_path / "run").ending is ExecutionEnding.DONE
    assert (tmp_path / "run/files/seen").read_text() == "old\nnew\nnew\nfirst\n"  # a second try finds what is there
    assert (tmp_path / "run/files/later").read_text() == "second\n"
    assert (tmp_path / "db").read_text() == "old\n"


@pytest.mark.slow
def test_a_new_run_that_cannot_begin_leaves_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("in")
    run = tmp_path / "run"
    plan = plan_of(Workflow("w", (sh("a", "cat x > y", after="x", writes="y"),), ((),)), vms=1)
    carry(plan, run)
    (tmp_path / "x").unlink()
    bare = plan_of(Workflow("w", (Task("a", "a", 1.0),), ((),)), vms=1)
    out = plan_of(Workflow("w", (sh("a", "true", writes="../y"),), ((),)), vms=1)
    for wrong, said in ((plan, f"no file {tmp_path / 'x'}"), (bare, "no command"), (out, "leave out ..")):
        with pytest.raises(WorkflowError, match=said):
            carry(wrong, run, fresh=True)
    with pytest.raises(WorkflowError, match=r"the inputs are in .*files, which --fresh removes"):
        carry(plan, run, fresh=True, inputs=run / "files")
    assert (run / "files/y").read_text() == "in"
    assert carry(plan, run).results["sessions"] == 2  # the old run is whole, and has ended well


@pytest.mark.slow
def test_tasks_that_only_sleep_touch_nothing_outside_the_folder(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/data").write_text("precious")
    (tmp_path / "up").write_text("precious")
    names = (str(tmp_path / "mine"), str(tmp_path / "mine/data"), "../../up", ".", "made")
    flow = Workflow("w", (Task("a", "a", 0.01, outputs=names), Task("b", "b", 0.01, inputs=names)), ((), (0,)))
    plan = plan_of(flow, vms=1)
    assert carry(plan, tmp_path / "run", synthetic=True).ending is ExecutionEnding.DONE
    assert (tmp_path / "mine/data").read_text() == (tmp_path / "up").read_text() == "precious"
    assert [path.name for path in (tmp_path / "run/files").iterdir()] == ["made"]
    again = carry(plan, tmp_path / "run", synthetic=True)
    assert again.results["attempts"] == 2, "what is not written is not missed either"


def test_the_folder_of_the_run_itself_is_no_output(tmp_path: Path) -> None:
    plan = plan_of(Workflow("w", (sh("a", "true", writes="./"),), ((),)), vms=1)
    with pytest.raises(WorkflowError, match=r"has a file '\./'"):
        carry(plan, tmp_path / "run")


def refused(folder: Path, parents: tuple[tuple[int, ...], ...], *tasks: Task) -> str:
    with pytest.raises(WorkflowError) as caught:
        WorkflowRunFolder(folder / "run").require(Workflow("w", tasks, parents), folder, only=range(len(tasks)))
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


def test_inputs_that_may_be_missing(tmp_path: Path) -> None:
    able, strict = replace(sh("a", "true", after="x y"), optional=("x",)), sh("b", "true", after="x")
    folder = WorkflowRunFolder(tmp_path / "run")
    (tmp_path / "y").write_text("")
    alone = Workflow("w", (able,), ((),))
    assert folder.require(alone, tmp_path, only=[0]) == {tmp_path / "y": folder.files / "y"}
    both = Workflow("w", (able, strict), ((), ()))
    with pytest.raises(WorkflowError, match=r"no file .*x, which task 'b' reads"):
        folder.require(both, tmp_path, only=[0, 1])
    (tmp_path / "x").write_text("")
    assert set(folder.require(alone, tmp_path, only=[0])) == {tmp_path / "x", tmp_path / "y"}


def test_raw_files_are_taken_from_where_the_workflow_knows_them(tmp_path: Path) -> None:
    folder = WorkflowRunFolder(tmp_path / "run")
    folder.prepare()
    for name in ("far", "near"):
        (tmp_path / name).mkdir()
    (tmp_path / "far" / "one").write_text("far")
    (tmp_path / "near" / "c").write_text("near")
    task = Task("t", "t", 1.0, ("a", "b", "c"), command=("true",))
    one = str(tmp_path / "far" / "one")
    flow = Workflow("w", (task,), ((),), locations=dict.fromkeys("abc", one))
    folder.stage(flow, tmp_path / "near", only=[0])
    # One file may have two names, and what is in the folder of the inputs goes first.
    assert {name: (folder.files / name).read_text() for name in "abc"} == {"a": "far", "b": "far", "c": "near"}
    lost = Workflow("w", (Task("t", "t", 1.0, ("x",), command=("true",)),), ((),), locations={"x": "/no/x"})
    with pytest.raises(WorkflowError, match="there is no file /no/x, which task 't' reads"):
        folder.stage(lost, tmp_path / "near", only=[0])
