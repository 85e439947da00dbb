"""DAGs of HTCondor's DAGMan: nodes, orders, what submit descriptions ask for, and DAGs in DAGs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.workflow.datasets import DATASETS, needs_datasets

from tradewind.errors import WorkflowError
from tradewind.workflow.files import read_workflow
from tradewind.workflow.graph import Workflow

DAG = """\
# two halves of one input
JOB split split.sub
job left work.sub
JOB right work.sub DONE
JOB join {
  executable = /bin/cat
  arguments = "left.sum 'right sum' \"\"x\"\"\"
  request_memory = 2 GB
  queue
}
VARS left side="left" request_cpus="4"
VARS right side="right"
SCRIPT POST join check.sh $JOB
RETRY left 3
PARENT split CHILD left right
parent left right child join
FINAL clean clean.sub NOOP
"""
SPLIT = "executable = split\ntransfer_output_files = left.txt, \\\n right.txt\nRequest_Memory = 500\nqueue\n"
WORK = """\
executable = bin/sum.py
arguments = -i $(side).txt $(extra:-q)
transfer_input_files = $(side).txt
transfer_output_files = out
transfer_output_remaps = "out=$(side).sum"
request_memory = ifthenelse(isUndefined(MemoryUsage), 1000, MemoryUsage)
queue 2
"""


def edges(flow: Workflow) -> set[tuple[str, str]]:
    return {(flow.tasks[p].id, flow.tasks[c].id) for c, parents in enumerate(flow.parents) for p in parents}


def written(folder: Path, dag: str = DAG, **others: str) -> Path:
    for name, text in {"split": SPLIT, "work": WORK, **others}.items():
        (folder / f"{name}.sub").write_text(text)
    path = folder / "flow.dag"
    path.write_text(dag)
    return path


def test_nodes_have_what_their_submit_descriptions_ask_for(tmp_path: Path) -> None:
    flow = read_workflow(written(tmp_path))
    tasks = {task.id: task for task in flow.tasks}
    halves = {(each, "join") for each in ("left", "right")} | {("split", each) for each in ("left", "right")}
    assert edges(flow) == {*halves, ("join", "clean")}
    assert tasks["split"].memory_bytes == 500 * 2**20
    assert tasks["split"].outputs == ("left.txt", "right.txt")
    assert (tasks["left"].inputs, tasks["left"].outputs) == (("left.txt",), ("left.sum",))
    assert tasks["left"].command == ("bin/sum.py", "-i", "left.txt", "-q")
    assert tasks["left"].activity == tasks["right"].activity == "sum"
    assert [tasks[each].cores for each in ("left", "right")] == [4, 1]
    assert tasks["join"].command == ("/bin/cat", "left.sum", "right sum", '"x"')
    assert tasks["join"].memory_bytes == 2**31
    said = " ".join(flow.warnings)
    assert "several jobs, each taken as one task: left, right" in said
    assert "requests that are expressions, which are not read: request_memory of left, request_memory of right" in said
    assert "submit descriptions that are not there: clean.sub" in said


def test_splices_and_sub_dags_are_opened(tmp_path: Path) -> None:
    (tmp_path / "inner.dag").write_text("JOB a x.sub\nJOB b x.sub\nJOB c x.sub\nPARENT a CHILD b c\n")
    dag = (
        "JOB first x.sub\nSPLICE s inner.dag\nSUBDAG EXTERNAL d inner.dag\nSUBDAG EXTERNAL gone no.dag\n"
        "JOB last x.sub\n"
        "PARENT first CHILD s\nPARENT s CHILD d\nPARENT d CHILD gone last\n"
    )
    flow = read_workflow(written(tmp_path, dag, x="executable = x\nqueue\n"))
    assert [task.id for task in flow.tasks if "+" in task.id] == ["s+a", "s+b", "s+c", "d+a", "d+b", "d+c"]
    assert edges(flow) == {
        ("first", "s+a"), ("s+a", "s+b"), ("s+a", "s+c"), ("s+b", "d+a"), ("s+c", "d+a"), ("d+a", "d+b"),
        ("d+a", "d+c"), ("d+b", "last"), ("d+c", "last"), ("d+b", "gone"), ("d+c", "gone"),
    }  # fmt: skip
    assert "sub-DAGs that are not there, each taken as one task: gone" in flow.warnings


def test_files_of_two_folders_are_not_the_same_file(tmp_path: Path) -> None:
    dag = "JOB a one.sub DIR one\nJOB b one.sub DIR two\n"
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "one.sub").write_text("executable = x\ntransfer_output_files = out\nqueue\n")
    flow = read_workflow(written(tmp_path, dag))
    assert [task.outputs for task in flow.tasks] == [("one/out",), ("two/out",)]


@pytest.mark.parametrize(
    ("dag", "words"),
    [
        ("JOB a\n", "flow.dag:1: JOB has no name and file"),
        ("JOB a x.sub\nJOB a x.sub\n", "flow.dag:2: there are two nodes 'a'"),
        ("JOB a x.sub\nPARENT a CHILD b\n", "flow.dag:2: PARENT or CHILD names node 'b', which is not there"),
        ("JOB a x.sub\nPARENT a\n", "flow.dag:2: PARENT names no parents and children"),
        ("JOB a x.sub\nPROVISIONER p x.sub\n", "flow.dag:2: PROVISIONER of DAGMan is not supported"),
        ("JOB a x.sub\nPARRENT a CHILD b\n", "flow.dag:2: it is no command of DAGMan: 'PARRENT a CHILD b'"),
        ("SPLICE a no.dag\n", "of SPLICE 'a'"),
        ("JOB a {\nexecutable = x\n", "flow.dag:1: a submit description in { has no }"),
        ("JOB a x\nJOB b x\nPARENT a CHILD b\nPARENT b CHILD a\n", "in a circle"),
        ("TASK a -c 2 /bin/echo\n", "Pegasus MPI Cluster (TASK, EDGE), which is not read"),
        ("SPLICE a flow.dag\n", "in another one"),
        ("executable = x\nqueue 3\n", "it is a submit description of HTCondor"),
    ],
)
def test_mistakes_are_told_with_their_line(tmp_path: Path, dag: str, words: str) -> None:
    with pytest.raises(WorkflowError) as caught:
        read_workflow(written(tmp_path, dag))
    assert words in str(caught.value)


@needs_datasets
@pytest.mark.parametrize(
    ("name", "tasks", "count"),
    [
        ("abcd.dag", 4, 5),
        ("genome.dag", 41, 95),
        ("blackdiamond/inner.dag", 15, 20),
        ("hierarchical/hierarchical-workflow-0.dag", 13, 17),
    ],
)
def test_real_files(name: str, tasks: int, count: int) -> None:
    flow = read_workflow(DATASETS / "formats/dagman" / name)
    assert (len(flow), flow.edges) == (tasks, count)


@needs_datasets
def test_real_files_of_other_kinds_are_refused() -> None:
    for path in sorted((DATASETS / "formats/dagman").rglob("*")):
        if path.suffix == ".sub" or path.parent.name == "pmc":
            with pytest.raises(WorkflowError, match=r"Pegasus MPI Cluster|a submit description of HTCondor"):
                read_workflow(path)


@pytest.mark.parametrize(("declared", "found"), [(True, set()), (False, {("a", "b")})])
def test_order_that_files_imply(tmp_path: Path, declared: bool, found: set[tuple[str, str]]) -> None:
    one, two = "executable = x\ntransfer_output_files = f\nqueue\n", "executable = x\ntransfer_input_files = f\nqueue\n"
    path = written(tmp_path, "JOB b two.sub\nJOB a one.sub\n", one=one, two=two)
    assert edges(read_workflow(path, declared_edges=declared)) == found


@pytest.mark.parametrize("form", ["request_{}", "Request{}", "+Request{}", "MY.Request{}"])
def test_requests_by_the_names_of_their_attributes(tmp_path: Path, form: str) -> None:
    needs = {"Cpus": "$(n)", "Memory": "1.5 GB", "Disk": "500000", "GPUs": "1"}
    lines = [f"{form.format(name)} = {value}" for name, value in needs.items()]
    (tmp_path / "a.sub").write_text("\n".join(["executable = p", *lines, "queue\n"]))
    (tmp_path / "w.dag").write_text('JOB A a.sub\nVARS A n="4"\n')
    [task] = read_workflow(tmp_path / "w.dag").tasks
    assert (task.cores, task.memory_bytes, task.disk_bytes, task.gpus) == (4, 3 << 29, 512_000_000, 1)


@pytest.mark.parametrize(
    ("lines", "seconds", "said"),
    [
        ("allowed_execute_duration = 90\nallowed_job_duration = 900", 90.0, "for which their time limit is taken: a"),
        ("allowed_job_duration = 900", 900.0, "for which their time limit is taken: a"),
        ("allowed_execute_duration = 90\n+pegasus_job_runtime = 7", 7.0, ""),
        ("allowed_execute_duration = x * 2", 0.0, "which count as 0 s: a"),
    ],
)
def test_limits_of_time_are_taken_where_no_time_is_said(tmp_path: Path, lines: str, seconds: float, said: str) -> None:
    flow = read_workflow(written(tmp_path, "JOB a a.sub\n", a=f"executable = x\n{lines}\nqueue\n"))
    assert flow.tasks[0].runtime == seconds
    assert flow.warnings == ((f"tasks without a run time, {said}",) if said else ())
