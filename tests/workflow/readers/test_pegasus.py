"""Workflows of Pegasus 5, as its Python API writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tradewind.errors import WorkflowError
from tradewind.workflow.execution.run_folder import check_commands
from tradewind.workflow.files import read_workflow
from tradewind.workflow.graph import Workflow

TEXT = """\
x-pegasus: {apiLang: python, createdBy: someone, createdOn: 11-21-26T20:15:36Z}
pegasus: 5.0.4
name: diamond
replicaCatalog:
  replicas:
  - lfn: f.a
    pfns: [{site: local, pfn: /data/f.a}]
    metadata: {size: 1000}
transformationCatalog:
  transformations:
  - name: preprocess
    sites: [{name: local, pfn: /usr/bin/keg, type: installed}]
    profiles: {pegasus: {runtime: 12, cores: 2, memory: 2048}}
  - {namespace: diamond, name: findrange, version: '4.0', sites: [{name: local, pfn: /usr/bin/keg2}]}
jobs:
- type: job
  name: preprocess
  id: ID0000001
  arguments: [-i, f.a, -o, f.b1, 007]
  uses:
  - {lfn: f.b2, type: output, stageOut: true, registerReplica: true}
  - {lfn: f.b1, metadata: {size: 55}, size: 55, type: output}
  - {lfn: f.a, type: input}
- type: job
  namespace: diamond
  version: '4.0'
  name: findrange
  id: ID0000002
  arguments: [-n, 3, f.b1]
  uses:
  - {lfn: f.c1, type: output}
  - {lfn: f.b1, size: 56, type: input}
  - {lfn: state, type: checkpoint}
  profiles: {pegasus: {runtime: '3'}}
  metadata: {size: '3'}
- type: pegasusWorkflow
  file: analyze
  id: ID0000003
  arguments: []
  uses:
  - {lfn: f.c1, type: inout}
  - {lfn: f.b2, type: input}
jobDependencies:
- id: ID0000001
  children: [ID0000002, ID0000003]
- {id: ID0000002, children: [ID0000003]}
"""


def read(tmp_path: Path, text: str, *, lenient: bool = False) -> Workflow:
    path = tmp_path / "workflow.yml"
    path.write_text(text)
    return read_workflow(path, lenient=lenient)


def test_a_diamond(tmp_path: Path) -> None:
    flow = read(tmp_path, TEXT)
    first, second, third = flow.tasks
    assert flow.name == "diamond"
    assert flow.parents == ((), (0,), (0, 1))
    assert (first.activity, first.runtime, first.cores, first.memory_bytes) == ("preprocess", 12.0, 2, 2048 << 20)
    assert first.command == ("/usr/bin/keg", "-i", "f.a", "-o", "f.b1", "007")
    assert (first.inputs, first.outputs) == (("f.a",), ("f.b2", "f.b1"))
    assert (second.runtime, second.cores, second.command[0]) == (3.0, 1, "/usr/bin/keg2")
    assert (third.activity, third.inputs, third.outputs) == ("analyze", ("f.c1", "f.b2"), ("f.c1",))
    assert flow.sizes == {"f.a": 1000, "f.b1": 56}
    assert set(flow.warnings) == {
        "files that are checkpoints and are left out: state",
        "tasks that are workflows of their own, each taken as one task: ID0000003",
        "tasks without a run time, which count as 0 s: ID0000003",
        "files declared with several sizes, of which the first as an input holds: f.b1",
        "files written by several tasks: f.c1",
        "files without a size, which count as empty: f.b2, f.c1",
    }


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("pegasus: 5.0.4", "pegasus: 6.1", 2, "Pegasus version is 6.1"),
        ("id: ID0000003\n", "id: ID0000001\n", 36, "two tasks 'ID0000001'"),
        ("children: [ID0000003]", "children: [ID7]", 46, "names task 'ID7', which is not there"),
        ("size: 56", "size: -56", 32, "file 'f.b1' of task 'ID0000002' has a size of -56"),
        ("size: 56", "size: large", 32, "the size of 'f.b1' is 'large'"),
        ("runtime: '3'", "runtime: soon", 34, "the runtime of 'ID0000002' is 'soon'"),
        ("runtime: '3'", "cores: inf", 34, "the cores of 'ID0000002' is 'inf', not a number"),
        ("runtime: '3'", "memory: 1e400", 34, "the memory of 'ID0000002' is '1e400', not a number"),
        ("type: inout", "type: sideways", 41, "is 'sideways'"),
        ("  id: ID0000002\n", "", 24, "a job has no id"),
        ("{lfn: f.c1, type: output}", "{type: output}", 31, "has no lfn"),
        ("  file: analyze\n", "", 36, "names no program"),
        ("arguments: []\n  uses:\n", "uses:\n  - 3\n", 40, "an item of 'uses' is no mapping"),
        ("children: [ID0000002, ID0000003]", "children: [ID0000001]", 45, "waits for itself"),
        ("{id: ID0000002, children: [ID0000003]}", "{id: ID0000002, children: [ID0000001]}", None, "in a circle"),
    ],
)  # fmt: skip
def test_what_is_wrong_has_its_line(tmp_path: Path, old: str, new: str, line: int | None, words: str) -> None:
    assert TEXT.count(old) == 1
    with pytest.raises(WorkflowError, match=words) as caught:
        read(tmp_path, TEXT.replace(old, new))
    assert caught.value.file == str(tmp_path / "workflow.yml")
    assert line is None or caught.value.line == line


def test_sizes_and_times_below_zero_may_be_taken(tmp_path: Path) -> None:
    text = TEXT.replace("size: 56", "size: -56").replace("runtime: '3'", "runtime: -3")
    flow = read(tmp_path, text, lenient=True)
    assert flow.sizes["f.b1"] == 56
    assert flow.tasks[1].runtime == 0.0


def test_kinds_of_use(tmp_path: Path) -> None:
    text = """\
pegasus: 5.0.4
name: u
jobs:
- type: job
  id: A
  name: a
  arguments: []
  uses:
  - {lfn: x, type: none}
  - {lfn: tool, type: input, executable: true, size: "150000000"}
  - {lfn: big, type: input, optional: true, size: "9000000000"}
  - {lfn: f, type: output, metadata: {size: 12 MB}}
  - {lfn: built, type: output, executable: true, size: 7}
- {type: job, id: B, name: b, arguments: [], uses: [{lfn: built, type: input, executable: true}]}
"""
    flow = read(tmp_path, text)
    first, second = flow.tasks
    assert (first.inputs, first.outputs, first.optional) == (("big",), ("f", "built"), ("big",))
    assert (second.inputs, flow.parents) == (("built",), ((), (0,)))
    assert flow.sizes == {"big": 9_000_000_000, "f": 12_000_000, "built": 7}


def test_streams_of_a_job(tmp_path: Path) -> None:
    text = """\
pegasus: 5.0.4
name: list
jobs:
- {type: job, name: ls, id: A, stdout: listing.txt, arguments: [-l, /], uses: [{lfn: listing.txt, type: output}]}
- {type: job, name: wc, id: B, stdin: listing.txt, stdout: n.txt, stderr: n.txt, arguments: [-l]}
"""
    first, second = read(tmp_path, text).tasks
    assert first.command == ("sh", "-c", 'exec "$0" "$@" >listing.txt', "ls", "-l", "/")
    assert second.command == ("sh", "-c", 'exec "$0" "$@" <listing.txt >n.txt 2>&1', "wc", "-l")
    # A stream is a use, too, where the file does not list it.
    assert (second.inputs, second.outputs) == (("listing.txt",), ("n.txt",))


def test_a_workflow_within_another_is_no_program_to_run(tmp_path: Path) -> None:
    flow = read(tmp_path, TEXT)
    assert flow.tasks[2].command == ()
    with pytest.raises(WorkflowError, match="no command for 1 of 3 tasks, the first is 'ID0000003'"):
        check_commands(flow)
