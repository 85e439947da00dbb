"""Workflows of CWL: packed and not, workflows in workflows, and whose requirements hold."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.workflow.datasets import DATASETS, needs_datasets

from tradewind.errors import WorkflowError
from tradewind.workflow.files import read_workflow
from tradewind.workflow.graph import Workflow

PACKED = """\
#!/usr/bin/env cwl-runner
cwlVersion: v1.2
$graph:
- id: main
  class: Workflow
  requirements: {ResourceRequirement: {coresMin: 8, ramMin: 8000}}
  inputs: {reads: File, ref: File}
  outputs:
    out: {type: File, outputSource: call/vcf}
  steps:
    call:
      in: {bams: {source: [sub/bam, trim/log]}, ref: ref}
      out: [vcf]
      run: "#tool"
      requirements: [{class: ResourceRequirement, coresMin: 2.5, ramMin: 1000}]
    trim:
      in: {reads: reads}
      out: [fq, log]
      scatter: reads
      run: {class: CommandLineTool, baseCommand: /usr/bin/trim, inputs: [], outputs: [],
            requirements: [{class: ResourceRequirement, coresMin: $(inputs.n), ramMax: 16}]}
    sub:
      in: {fq: trim/fq, ref: ref}
      out: [bam]
      run: "#flow"
- id: flow
  class: Workflow
  inputs: [{id: fq, type: File}, {id: ref, type: File}]
  outputs: [{id: bam, type: File, outputSource: sort/out}]
  steps:
  - {id: index, in: [{id: ref, source: ref}], out: [idx], run: "#tool"}
  - {id: map, in: [{id: fq, source: fq}, {id: idx, source: index/idx}], out: [out], run: gone.cwl}
  - {id: sort, in: [{id: x, source: map/out}], out: [{id: out}], run: tools.cwl#sort}
- id: tool
  class: CommandLineTool
  baseCommand: [call, -x]
  hints: [{class: ResourceRequirement, coresMin: 64}]
  inputs: {}
  outputs: {}
"""
TOOLS = """\
cwlVersion: v1.0
$graph:
- {id: "#sort", class: CommandLineTool, baseCommand: sort, inputs: [], outputs: [],
   requirements: {ResourceRequirement: {coresMax: 3, ramMin: 20}}}
"""
STEP = "cwlVersion: v1.2\nclass: Workflow\ninputs: []\noutputs: []\nsteps:\n"


def edges(flow: Workflow) -> set[tuple[str, str]]:
    return {(flow.tasks[p].id, flow.tasks[c].id) for c, parents in enumerate(flow.parents) for p in parents}


def written(folder: Path, text: str, name: str = "flow.cwl") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_steps_of_a_packed_workflow_and_those_in_it(tmp_path: Path) -> None:
    written(tmp_path, TOOLS, "tools.cwl")
    flow = read_workflow(written(tmp_path, PACKED))
    assert edges(flow) == {
        ("trim", "sub/map"),
        ("sub/index", "sub/map"),
        ("sub/map", "sub/sort"),
        ("sub/sort", "call"),
        ("trim", "call"),
    }
    tasks = {task.id: task for task in flow.tasks}
    assert {name: task.cores for name, task in tasks.items()} == {
        "trim": 1,
        "call": 3,
        "sub/index": 8,
        "sub/map": 8,
        "sub/sort": 3,
    }, "a requirement of the tool before the step's, before the workflow's, before any hint"
    assert [(tasks[each].memory_bytes or 0) >> 20 for each in ("trim", "call", "sub/sort")] == [16, 1000, 20]
    assert [tasks[each].activity for each in ("trim", "call", "sub/map")] == ["trim", "call", "sub/map"]
    said = " ".join(flow.warnings)
    assert "requirements that are expressions, which are not evaluated: coresMin of trim" in said
    assert "steps whose tools are not there, and what they need is not known: gone.cwl" in said
    assert "scattered steps" in said


def test_tool_alone_is_one_task(tmp_path: Path) -> None:
    flow = read_workflow(written(tmp_path, "cwlVersion: v1.0\nclass: CommandLineTool\nbaseCommand: ls\ninputs: []\n"))
    assert [(task.id, task.activity) for task in flow.tasks] == [("main", "ls")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            STEP.replace("v1.2", "draft-3") + "  a: {in: [], out: [], run: x}\n",
            "flow.cwl:1: cwlVersion 'draft-3' is not read",
        ),
        (STEP + "  a: {in: {x: b/o}, out: [], run: x}\n", "source 'b/o' names step 'b', which is not there"),
        (STEP + "  a: {in: [], out: []}\n", "step 'a' runs nothing"),
        (STEP + '  a: {in: [], out: [], run: "#b"}\n', "flow.cwl:6: step 'a' runs '#b', which is not there"),
        (STEP + "  a: {in: [], out: [], run: {$import: b.cwl}}\n", "step 'a' runs '$import', which is not supported"),
        (STEP + "  a: {in: {x: b/o}, out: [o], run: x}\n  b: {in: {x: a/o}, out: [o], run: x}\n", "in a circle: "),
        (STEP + "  a: {in: [], out: [], run: {class: Loop}}\n", "'a' is of class 'Loop', which is not supported"),
        (STEP + "  []\n", "workflow 'main' has no steps"),
        (
            "cwlVersion: v1.0\n$graph:\n- {id: x, class: CommandLineTool}\n",
            "there is no process 'main' in its '$graph'",
        ),
        (
            STEP + "  a:\n    in: []\n    out: []\n    run: flow.cwl\n",
            "its workflows are nested too deeply, or hold each other",
        ),
        (
            STEP + "  a: {in: [], out: [], run: x, hints: {ResourceRequirement: {coresMin: few}}}\n",
            "flow.cwl:6: coresMin of 'a' is 'few', not a number of 0 or more",
        ),
    ],
)
def test_mistakes_are_told(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(WorkflowError) as caught:
        read_workflow(written(tmp_path, text))
    assert words in str(caught.value)


@needs_datasets
@pytest.mark.parametrize(
    ("name", "tasks", "count", "memory"),
    [
        ("scatter-wf4.json", 1, 0, 10 * 2**20),
        ("scatter-wf4.cwl", 1, 0, 10 * 2**20),
        ("expect_packed.cwl", 2, 1, 0),
        ("env-wf2_subwf-packed.cwl", 1, 0, 0),
        ("steplevel-resreq.cwl", 1, 0, 0),
    ],
)
def test_real_files(name: str, tasks: int, count: int, memory: int) -> None:
    flow = read_workflow(DATASETS / "formats/cwl" / name)
    assert (len(flow), flow.edges, flow.needs[:2]) == (tasks, count, (1, memory))


def test_gpus_and_disk(tmp_path: Path) -> None:
    text = """\
cwlVersion: v1.2
class: CommandLineTool
baseCommand: train
inputs: []
outputs: []
requirements:
  ResourceRequirement: {coresMin: 2, tmpdirMin: 100, outdirMin: 50}
hints:
  cwltool:CUDARequirement: {cudaDeviceCountMin: 2}
"""
    (task,) = read_workflow(written(tmp_path, text)).tasks
    assert (task.cores, task.gpus, task.disk_bytes) == (2, 2, 150 * 2**20)
