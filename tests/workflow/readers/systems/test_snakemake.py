"""What Snakemake says of a workflow: graphs, detailed summaries and benchmark files."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.workflow.datasets import DATASETS, needs_datasets

from tradewind.errors import WorkflowError
from tradewind.workflow.files import read_workflow
from tradewind.workflow.graph import Workflow

DOT = """\
digraph snakemake_dag {
    graph[bgcolor=white, margin=0];
    node[shape=box, style=rounded, fontname=sans,                 fontsize=10, penwidth=2];
    edge[penwidth=2, color=grey];
\t0[label = "all", color = "0.57 0.6 0.85", style="rounded"];
\t1[label = "sort\\nsample: a", color = "0.29 0.6 0.85", style="rounded,dashed"];
\t2[label = "sort\\nsample: b", color = "0.29 0.6 0.85", style="rounded"];
\t3[label = "index", color = "0.1 0.6 0.85", style="rounded"];
\t4[label = "index", color = "0.1 0.6 0.85", style="rounded"];
\t1 -> 0
\t2 -> 0
\t3 -> 1
\t4 -> 2
}            \n"""
PLAIN = "s\th:m:s\tmax_rss\tmax_vms\tmax_uss\tmax_pss\tio_in\tio_out\tmean_load\tcpu_time\n"
LONG = "jobid\trule\twildcards\tresources\tthreads\ts\th:m:s\tmax_rss\n"
SUMMARY = """\
output_file\tdate\trule\tversion\tlog-file(s)\tinput-file(s)\tshellcmd\tstatus\tplan
a.bam\t-\tmap\t-\t-\ta.fq,ref.fa\tmap a.fq > a.bam\tmissing\tupdate pending
a.bai\t-\tmap\t-\t-\ta.fq,ref.fa\tmap a.fq > a.bam\tmissing\tupdate pending
b.bam\t-\tmap\t-\t-\tb.fq,ref.fa\tmap b.fq > b.bam\tmissing\tupdate pending
all.vcf\tFri Nov 27 10:00:00 2026\tcall\t-\tcall.log\ta.bam,b.bam\t-\tok\tno update
"""


def edges(flow: Workflow) -> set[tuple[str, str]]:
    return {(flow.tasks[p].id, flow.tasks[c].id) for c, parents in enumerate(flow.parents) for p in parents}


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_jobs_of_a_graph(tmp_path: Path) -> None:
    flow = read_workflow(written(tmp_path, "dag.dot", DOT))
    first, second = "sort (sample=a)", "sort (sample=b)"
    assert edges(flow) == {(first, "all"), (second, "all"), ("index #3", first), ("index #4", second)}
    assert [task.activity for task in flow.tasks] == ["all", "sort", "sort", "index", "index"]
    assert "jobs that Snakemake had already done, which are tasks as the others: sort (sample=a)" in flow.warnings
    ids = ", ".join(task.id for task in flow.tasks)
    said = "tasks without a run time, for want of a benchmark beside the file, which count as 0 s"
    assert f"{said}: {ids}" in flow.warnings


def test_times_are_those_of_the_benchmark_files_beside(tmp_path: Path) -> None:
    written(tmp_path, "benchmarks/sort/a.txt", PLAIN + "10\t0:00:10\t100.5\t1\t1\t1\t0\t0\t99\t9\n")
    written(
        tmp_path,
        "benchmarks/sort/b.txt",
        PLAIN + "20\t0:00:20\t1\t1\t1\t1\t0\t0\t99\t9\n22\t0:00:22\t2\t1\t1\t1\t0\t0\t9\t9\n",
    )
    written(tmp_path, "index.tsv", LONG + "7\tindex\tNA\t_cores=2;mem_mib=64\t2\t4.5\t0:00:04\t1.5\n")
    flow = read_workflow(written(tmp_path, "dag.dot", DOT))
    assert [task.runtime for task in flow.tasks] == [0.0, 10.0, 21.0, 4.5, 4.5]
    assert [task.cores for task in flow.tasks] == [1, 1, 1, 2, 2]
    assert [(task.memory_bytes or 0) / 2**20 for task in flow.tasks] == [0, 100.5, 2, 64, 64]


def test_benchmark_alone_is_its_jobs(tmp_path: Path) -> None:
    twice = "1\tsort\tsample=a\tmem_mb=1000\t4\t10\t0:00:10\t5\n1\tsort\tsample=a\tmem_mb=1000\t4\t12\t0:00:12\t5\n"
    rows = twice + "2\tsort\tsample=b\tNA\t1\t1.5\t0:00:01\tNA\n"
    flow = read_workflow(written(tmp_path, "benchmark.tsv", LONG + rows))
    found = [(task.id, task.runtime, task.cores, task.memory_bytes) for task in flow.tasks]
    assert found == [("sort (sample=a)", 11.0, 4, 1_000_000_000), ("sort (sample=b)", 1.5, 1, None)]


def test_detailed_summary_has_jobs_files_and_edges(tmp_path: Path) -> None:
    flow = read_workflow(written(tmp_path, "summary.tsv", SUMMARY))
    assert [task.outputs for task in flow.tasks] == [("a.bam", "a.bai"), ("b.bam",), ("all.vcf",)]
    assert edges(flow) == {("a.bam", "all.vcf"), ("b.bam", "all.vcf")}
    assert flow.tasks[0].command == ("/bin/sh", "-c", "map a.fq > a.bam")
    assert flow.tasks[0].inputs == ("a.fq", "ref.fa")
    assert flow.tasks[2].activity == "call"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            SUMMARY.replace("\tinput-file(s)", "").replace("\ta.fq,ref.fa", ""),
            "snakemake --detailed-summary writes them",
        ),
        (LONG + "1\tsort\tNA\tNA\t1\tfast\t0:00:01\t2\n", "x.txt:2: s is 'fast', not a number"),
        (LONG + "1\tsort\tNA\n", "x.txt:2: a row has 3 cells, and there are 8 columns"),
        (DOT.replace('label = "all"', 'label = ""'), "x.txt:5: node '0' has no label"),
        (DOT.replace("->", "--"), "it is no graph of Graphviz: '--' is not expected"),
        (DOT.replace("snakemake_dag", "other"), "it is a graph of neither Nextflow nor Snakemake (known are Nextflow"),
        (DOT.replace("}", "0 -> 3\n}"), "in a circle"),
    ],
)
def test_mistakes_are_told(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(WorkflowError) as caught:
        read_workflow(written(tmp_path, "x.txt", text))
    assert words in str(caught.value)


@needs_datasets
@pytest.mark.parametrize(
    ("name", "tasks", "count"),
    [
        ("back-reference-qc-dag.dot", 15, 18),
        ("SPIsnake-dag.dot", 7, 6),
        ("benchmark.tsv", 4, 0),
        ("test.benchmark_run.txt", 1, 0),
    ],
)
def test_real_files(name: str, tasks: int, count: int) -> None:
    flow = read_workflow(DATASETS / "formats/snakemake" / name)
    assert (len(flow), flow.edges) == (tasks, count)


def test_gpus_disk_and_priority(tmp_path: Path) -> None:
    head = "s\th:m:s\tmax_rss\tjobid\trule_name\twildcards\tparams\tthreads\tpriority\tresources"
    row = "1.5\t0:00:01\t1\t1\ttrain\t\t\t2\t9\t{'gpu': 1, 'disk_mb': 500}"
    (task,) = read_workflow(written(tmp_path, "train.tsv", f"{head}\n{row}\n")).tasks
    assert (task.cores, task.gpus, task.disk_bytes, task.priority) == (2, 1, 500_000_000, 9)
