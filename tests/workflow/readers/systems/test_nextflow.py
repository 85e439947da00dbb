"""What a run of Nextflow leaves: traces with readable and raw units, and graphs of several versions."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.workflow.datasets import DATASETS, needs_datasets

from tradewind.errors import WorkflowError
from tradewind.workflow.files import read_workflow
from tradewind.workflow.graph import Workflow

HEAD = "task_id\thash\tnative_id\tname\tstatus\texit\tsubmit\tduration\trealtime\t%cpu\tpeak_rss"
ROWS = (
    # of two samples the one that was indexed last is aligned last; the report reads all
    "1\ta/1\t1\tINDEX (1)\tCOMPLETED\t0\t2026-01-01 10:00:00.000\t1m\t55s\t99.0%\t10 MB",
    "2\ta/2\t2\tQC (s1)\tCOMPLETED\t0\t2026-01-01 10:00:00.000\t20s\t15s\t380.0%\t1.5 GB",
    "3\ta/3\t3\tQC (s2)\tFAILED\t1\t2026-01-01 10:00:00.000\t20s\t15s\t-\t-",
    "4\ta/4\t4\tQC (s2)\tCOMPLETED\t0\t2026-01-01 10:00:25.000\t20s\t16s\t400.0%\t1 GB",
    "5\ta/5\t5\tALIGN (s1)\tCOMPLETED\t0\t2026-01-01 10:01:01.000\t1h 2m\t1h 1m\t99.0%\t2 GB",
    "6\ta/6\t6\tALIGN (s2)\tCOMPLETED\t0\t2026-01-01 10:01:01.000\t2m\t90.5s\t99.0%\t512 KB",
    "7\ta/7\t7\tREPORT\tCOMPLETED\t0\t2026-01-01 11:03:05.000\t488ms\t374ms\t5.0%\t100 B",
)
DOT = """\
digraph "dag" {
p0 [shape=point,label="",fixedsize=true,width=0.1,xlabel="Channel.fromPath"];
p1 [label="QC"];
p0 -> p1 [label="reads"];
p2 [label="INDEX"];
p3 [label="ALIGN"];
p1 -> p3; p2 -> p3 [label="index"];
p4 [shape=circle,label="",fixedsize=true,width=0.1,xlabel="collect"];
p3 -> p4; p4 -> p5; p1 -> p4;
p5 [label="REPORT"];
}
"""
NEW_MERMAID = """\
flowchart TB
    subgraph " "
    v0["Channel.fromPath"]
    end
    subgraph MAIN [MAIN]
    v1([QC])
    v2([INDEX])
    v3([ALIGN])
    v5([REPORT])
    v4(( ))
    end
    v0 --> v1
    v1 --> v3
    v2 --> v3
    v3 --> v4
    v1 --> v4
    v4 --> v5
"""
OLD_MERMAID = """\
flowchart TD
    p0((Channel.fromPath))
    p1[QC]
    p2[INDEX]
    p3[ALIGN]
    p4([collect])
    p5[REPORT]
    p0 -->|reads| p1
    p1 --> p3
    p2 -->|index| p3
    p3 --> p4
    p1 --> p4
    p4 --> p5
"""
EDGES = {
    ("QC (s1)", "ALIGN (s1)"),
    ("QC (s2)", "ALIGN (s2)"),
    ("INDEX (1)", "ALIGN (s1)"),
    ("INDEX (1)", "ALIGN (s2)"),
    *((f"{process} ({sample})", "REPORT") for process in ("QC", "ALIGN") for sample in ("s1", "s2")),
}


def edges(flow: Workflow) -> set[tuple[str, str]]:
    return {(flow.tasks[p].id, flow.tasks[c].id) for c, parents in enumerate(flow.parents) for p in parents}


def written(folder: Path, name: str = "trace.txt", rows: tuple[str, ...] = ROWS, head: str = HEAD) -> Path:
    path = folder / name
    path.write_text("\n".join((head, *rows)) + "\n")
    return path


def test_times_cores_and_memory_are_those_of_the_trace(tmp_path: Path) -> None:
    flow = read_workflow(written(tmp_path))
    found = {task.id: (task.activity, task.runtime, task.cores, task.memory_bytes) for task in flow.tasks}
    assert found == {
        "INDEX (1)": ("INDEX", 55.0, 1, 10 * 2**20),
        "QC (s1)": ("QC", 15.0, 4, 3 * 2**29),
        "QC (s2)": ("QC", 16.0, 4, 2**30),
        "ALIGN (s1)": ("ALIGN", 3660.0, 1, 2**31),
        "ALIGN (s2)": ("ALIGN", 90.5, 1, 2**19),
        "REPORT": ("REPORT", 0.374, 1, 100),
    }
    assert "attempts that failed before another one completed, which are left out: QC (s2)" in flow.warnings
    assert any("for want of their graph" in each for each in flow.warnings)


@pytest.mark.parametrize(
    ("name", "graph"),
    [
        ("dag.dot", DOT),
        ("dag.gv", f"# a comment\n/* another\n one */ {DOT}"),
        ("dag-20260101-1.mmd", NEW_MERMAID),
        ("flow.mmd", OLD_MERMAID),
        (
            "pipeline_dag_2026-01-01_10-00-00.html",
            f'<html><body>\n<pre class="mermaid">\n{NEW_MERMAID}</pre></body></html>',
        ),
    ],
)
def test_edges_are_those_of_the_graph_beside_the_trace(tmp_path: Path, name: str, graph: str) -> None:
    trace = written(tmp_path)
    (tmp_path / name).write_text(graph)
    assert edges(read_workflow(trace)) == EDGES
    assert edges(read_workflow(tmp_path / name)) == EDGES, "the graph finds its trace"


def test_graph_of_another_workflow_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "dag.dot").write_text(DOT.replace("ALIGN", "MAP"))
    assert read_workflow(written(tmp_path)).edges == 0


@pytest.mark.parametrize("graph", [DOT, NEW_MERMAID, OLD_MERMAID])
def test_graph_alone_is_its_processes(tmp_path: Path, graph: str) -> None:
    path = tmp_path / "dag.dot"
    path.write_text(graph)
    flow = read_workflow(path)
    assert edges(flow) == {("QC", "ALIGN"), ("INDEX", "ALIGN"), ("ALIGN", "REPORT"), ("QC", "REPORT")}
    assert any("-with-trace" in each for each in flow.warnings)


def test_numbered_tasks_are_matched_in_the_order_of_the_channel(tmp_path: Path) -> None:
    """The second task of A ended first, so that the first of B read what it wrote."""
    head = "name\tstatus\tsubmit\tcomplete\trealtime"
    rows = (
        "A (1)\tCOMPLETED\t0\t9000\t9000",
        "A (2)\tCOMPLETED\t0\t4000\t4000",
        "B (1)\tCOMPLETED\t4100\t6000\t1000",
        "B (2)\tCOMPLETED\t9100\t9900\t1000",
    )
    trace = written(tmp_path, rows=rows, head=head)
    (tmp_path / "dag.dot").write_text('digraph "dag" { v1 [label="A"]; v2 [label="B"]; v1 -> v2; }')
    flow = read_workflow(trace)
    assert edges(flow) == {("A (2)", "B (1)"), ("A (1)", "B (2)")}
    assert flow.runtimes.tolist() == [9.0, 4.0, 1.0, 1.0], "raw traces count in milliseconds"


def test_a_graph_that_the_times_contradict_is_said(tmp_path: Path) -> None:
    (tmp_path / "dag.dot").write_text('digraph d { v1 [label="ALIGN"]; v2 [label="QC"]; v1 -> v2; }')
    flow = read_workflow(written(tmp_path, rows=tuple(row for row in ROWS if "QC (s" in row or "ALIGN" in row)))
    assert edges(flow) == set()
    said = "processes that wait by the graph, but whose tasks began before any of the one before ended: ALIGN -> QC"
    assert said in flow.warnings
    assert not any("waits for all" in warning for warning in flow.warnings)


def test_columns_that_occur_twice_are_readable_and_raw(tmp_path: Path) -> None:
    head = "task_id\tname\tstatus\trealtime\tpeak_rss\trealtime\tpeak_rss"
    flow = read_workflow(written(tmp_path, rows=("1\tA (1)\tCOMPLETED\t19.7s\t1.4 GB\t19677\t1538088960",), head=head))
    assert (flow.tasks[0].runtime, flow.tasks[0].memory_bytes) == (19.677, 1538088960)


def test_trace_with_commas_and_requests(tmp_path: Path) -> None:
    head = "task_id,name,status,realtime,cpus,memory,peak_rss"
    head = f"# a comment\n{head}"
    flow = read_workflow(written(tmp_path, rows=('1,"A (x, y)",COMPLETED,2s,3,4 GB,1 MB',), head=head))
    assert (flow.tasks[0].id, flow.tasks[0].cores, flow.tasks[0].memory_bytes) == ("A (x, y)", 3, 2**32)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (ROWS[0].replace("55s", "fifty"), "trace.txt:2: realtime is 'fifty', not a time"),
        (ROWS[0].replace("10 MB", "much"), "trace.txt:2: memory or peak_rss is 'much'"),
        (ROWS[0].replace("99.0%", "all"), "trace.txt:2: cpus or %cpu is 'all'"),
        (ROWS[0].rpartition("\t")[0], "trace.txt:2: a row has 10 cells, and there are 11 columns"),
    ],
)
def test_mistakes_are_told_with_their_line(tmp_path: Path, row: str, words: str) -> None:
    with pytest.raises(WorkflowError) as caught:
        read_workflow(written(tmp_path, rows=(row,)))
    assert words in str(caught.value)


@needs_datasets
@pytest.mark.parametrize(
    ("name", "tasks", "count"),
    [
        ("execution-trace-regular.tsv", 8, 0),
        ("execution-trace-raw.tsv", 2, 0),
        ("piper-nf-docker_5-trace.csv", 98, 0),
        ("nmdp-flow-native_8-trace.csv", 48, 0),
        ("cvd-execution_trace.txt", 1, 0),
        ("iscm-nextflow-dag.dot", 4, 3),
    ],
)
def test_real_files(name: str, tasks: int, count: int) -> None:
    flow = read_workflow(DATASETS / "formats/nextflow" / name)
    assert (len(flow), flow.edges) == (tasks, count)


def test_gpus_and_disk(tmp_path: Path) -> None:
    head = "task_id,name,status,realtime,cpus,disk,accelerator"
    flow = read_workflow(written(tmp_path, rows=("1,TRAIN (a),COMPLETED,1m,2,20 GB,1",), head=head))
    assert (flow.tasks[0].gpus, flow.tasks[0].disk_bytes) == (1, 20 * 2**30)
