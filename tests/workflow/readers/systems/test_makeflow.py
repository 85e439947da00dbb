"""Makeflow: rules in the syntax of make and in JSON, variables, resources, and who waits for whom."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.workflow.datasets import DATASETS, needs_datasets

from tradewind.errors import WorkflowError
from tradewind.workflow.files import read_workflow
from tradewind.workflow.graph import Workflow

TEXT = """\
# rules stand in any order
BIN=./sum
OPTIONS="-a -b"
OPTIONS+=-c
CATEGORY="last"
CORES=4
MEMORY=512
report.txt log: left.sum right.sum tool->bin/tool
\tLOCAL cat left.sum right.sum > report.txt; awk '{print $1}' report.txt > log

CATEGORY="halves"
CORES=2
left.sum : $BIN left.txt
\t@MEMORY=100
\t${BIN} $(OPTIONS) left.txt \\
   > left.sum
right.sum: $BIN right.txt
\t${BIN} right.txt > right.sum
left.txt right.txt:
\tperl split.pl $$HOME
"""
DOCUMENT = {
    "define": {"N": 2},
    "categories": {"big": {"resources": {"cores": 4, "memory": 512}}},
    "rules": [
        {
            "command": "split in",
            "inputs": ["in"],
            "outputs": ["a", {"dag_name": "b", "task_name": "x"}],
            "local_job": True,
        },
        {
            "command": "join a b > c",
            "inputs": ["a", "b"],
            "outputs": ["c"],
            "category": "big",
            "resources": {"cores": 8},
        },
    ],
}


def edges(flow: Workflow) -> set[tuple[str, str]]:
    return {(flow.tasks[p].id, flow.tasks[c].id) for c, parents in enumerate(flow.parents) for p in parents}


def written(folder: Path, text: str, name: str = "flow.mf") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_rules(tmp_path: Path) -> None:
    flow = read_workflow(written(tmp_path, TEXT))
    tasks = {task.id: task for task in flow.tasks}
    assert edges(flow) == {
        ("left.txt", "left.sum"),
        ("left.txt", "right.sum"),
        ("left.sum", "report.txt"),
        ("right.sum", "report.txt"),
    }
    assert tasks["report.txt"].command[2] == "cat left.sum right.sum > report.txt; awk '{print $1}' report.txt > log"
    assert tasks["report.txt"].inputs == ("left.sum", "right.sum", "tool")
    assert tasks["report.txt"].outputs == ("report.txt", "log")
    assert tasks["left.sum"].command == ("/bin/sh", "-c", "./sum -a -b -c left.txt > left.sum")
    assert tasks["left.txt"].command[2] == "perl split.pl $HOME"
    assert {name: task.cores for name, task in tasks.items()} == {
        "report.txt": 4,
        "left.sum": 2,
        "right.sum": 2,
        "left.txt": 2,
    }
    assert [tasks[each].memory_bytes for each in ("report.txt", "left.sum", "right.sum")] == [2**29, 100 * 2**20, None]
    assert [tasks[each].activity for each in ("report.txt", "left.sum", "left.txt")] == ["cat", "sum", "split.pl"]


def test_json(tmp_path: Path) -> None:
    flow = read_workflow(written(tmp_path, json.dumps(DOCUMENT), "flow.json"))
    assert edges(flow) == {("a", "c")}
    assert flow.tasks[0].outputs == ("a", "b")
    assert (flow.tasks[1].cores, flow.tasks[1].memory_bytes) == (8, 2**29)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: b\n\tx\na c: b\n\ty\n", "flow.mf:3: two rules write file 'a'"),
        ("a: b\n\tx\nb: a\n\ty\n", "in a circle"),
        ("a: b\n\tx\nb: c\nd: b\n\tx\n", "flow.mf:3: a rule has no command"),
        ("a: b\n\tx\nb: c\n", "flow.mf:3: a rule has no command"),
        ("a: b\n\tx\n\ty\n", "flow.mf:3: a command has no rule before it: 'y'"),
        ("a: b\n\tx\nsome words\n\ty\n", "flow.mf:3: it is no rule of Makeflow: 'some words'"),
        ("CORES=many\na: b\n\tx\n", "flow.mf:2: CORES is 'many', not a number"),
        ('{"rules": [{"command": "x", "inputs": [1]}]}', "inputs of rule 1 has 1, which names no file"),
        ('{"rules": {"a": 1}}', "its 'rules' are no list of mappings"),
        ('{"rules": [{"command": template("x {i}")} for i in range(3)]}', "jx2json"),
    ],
)
def test_mistakes_are_told_with_their_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(WorkflowError) as caught:
        read_workflow(written(tmp_path, text))
    assert words in str(caught.value)


@needs_datasets
@pytest.mark.parametrize(
    ("name", "tasks", "count"),
    [
        ("blast.mf", 23, 60),
        ("blast.json", 23, 60),
        ("bwa.mf", 14, 40),
        ("ssaha.mf", 102, 200),
        ("shakespeare.mf", 12, 18),
        ("snpexp.mf", 32, 50),
        ("hello_world.mf", 1, 0),
        ("benchmark.mf", 100, 0),
    ],
)
def test_real_files(name: str, tasks: int, count: int) -> None:
    flow = read_workflow(DATASETS / "formats/makeflow" / name)
    assert (len(flow), flow.edges) == (tasks, count)


@needs_datasets
def test_real_jx_is_refused() -> None:
    with pytest.raises(WorkflowError, match="JX of Makeflow, whose expressions are not evaluated"):
        read_workflow(DATASETS / "formats/makeflow/blast.jx")


def test_gpus_and_disk(tmp_path: Path) -> None:
    flow = read_workflow(written(tmp_path, "GPUS=2\nDISK=100\nout: in\n\trun in > out\n"))
    assert (flow.tasks[0].gpus, flow.tasks[0].disk_bytes) == (2, 100 * 2**20)


def test_directives_say_sizes_and_resources(tmp_path: Path) -> None:
    text = (
        ".SIZE data 10M\n.MAKEFLOW CATEGORY simulate\n.MAKEFLOW CORES 4\n.MAKEFLOW MEMORY 512\n"
        ".MAKEFLOW SIZE big 1.5K\n.MAKEFLOW MODE FIXED\n.UMBRELA SPEC env.json\n"
        "out: data big\n\t.MAKEFLOW MEMORY 100\n\t@DISK=5\n\t./sim data > out\n"
        "last: out\n\t./p out > last\n.MAKEFLOW CATEGORY other\nplain: out\n\t./p out > plain\n"
    )
    (tmp_path / "w.mf").write_text(text)
    flow = read_workflow(tmp_path / "w.mf")
    needs = [(task.id, task.cores, task.memory_bytes, task.disk_bytes) for task in flow.tasks]
    mib = 2**20
    assert needs == [("out", 4, 100 * mib, 5 * mib), ("last", 4, 512 * mib, None), ("plain", 1, None, None)]
    assert (flow.sizes["data"], flow.sizes["big"]) == (10 * mib, 1536)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (".SIZE data", "w.mf:1: '.SIZE data' says no size of a file"),
        (".SIZE data much", "w.mf:1: '.SIZE data much' says no size of a file"),
        (".COLOUR red", "w.mf:1: .COLOUR is no directive of Makeflow"),
    ],
)
def test_directives_that_makeflow_does_not_have(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "w.mf").write_text(f"{line}\nout: data\n\tp data\n")
    with pytest.raises(WorkflowError, match=re.escape(message)):
        read_workflow(tmp_path / "w.mf")


def test_a_circle_that_is_declared_has_no_advice_that_was_followed(tmp_path: Path) -> None:
    path = tmp_path / "a.mf"
    path.write_text("a: b\n\tcp b a\nb: a\n\tcp a b\n")
    with pytest.raises(WorkflowError, match="wait for each other in a circle") as caught:
        read_workflow(path, declared_edges=True)
    assert caught.value.hint is None
