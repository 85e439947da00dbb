"""Reads what Snakemake says of a workflow: ``--dag``, ``--rulegraph``, ``--detailed-summary``, and benchmark files."""

from __future__ import annotations

import ast
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.readers.builder import WorkflowBuilder
from tradewind.workflow.readers.systems.graph_text import DrawnGraph
from tradewind.workflow.readers.systems.tables import TableRow, columns_of, rows_of

_MOST_FILES = 10_000
_MEBIBYTE = 2**20
_TIMES = {"s", "h:m:s", "max_rss"}


def is_benchmark(text: str) -> bool:
    """True for the table of a ``benchmark`` of Snakemake."""
    return set(columns_of(text[:4096])) >= _TIMES


def is_summary(text: str) -> bool:
    """True for what ``--summary`` and ``--detailed-summary`` print."""
    columns = columns_of(text[:4096])
    return columns[0] in ("output_file", "filename") and {"rule", "status", "plan"} <= set(columns)


@dataclass
class BenchmarkedJob:
    """The measurements of one job, of all its repetitions.

    Attributes:
        rule: Its rule; empty where the file does not say it.
        wildcards: Values of its wildcards, by name.
        seconds: Wall time of each repetition.
        threads: Threads that it had; None if not known.
        memory_bytes: Memory asked for, else the most that it used; None if not known.
        line: Line that has it first.
        gpus: GPUs asked for.
        disk_bytes: Disk asked for; None if not known.
        priority: Its priority.
    """

    rule: str
    wildcards: dict[str, str]
    seconds: list[float] = field(default_factory=list)
    threads: int | None = None
    memory_bytes: int | None = None
    line: int = 0
    gpus: int = 0
    disk_bytes: int | None = None
    priority: int = 0

    @property
    def mean(self) -> float:
        """Seconds that it takes, on average over its repetitions."""
        return sum(self.seconds) / len(self.seconds)


def read_benchmark(text: str, file: str, *, lenient: bool = False, declared_edges: bool = False) -> Workflow:
    """Read the jobs of a benchmark table, whose order it does not say.

    Args:
        text: The table.
        file: Name of the file, for messages.
        lenient: As `WorkflowBuilder` has it.
        declared_edges: Likewise.

    Raises:
        WorkflowError: A row is not whole, or holds no numbers; with the line.
    """
    builder = WorkflowBuilder(file, _stem(file), lenient, declared_edges)
    jobs = _benchmarks(builder, text, file)
    ids = _unique([_name(job.rule or _stem(file), job.wildcards) for job in jobs], [str(job.line) for job in jobs])
    for task_id, job in zip(ids, jobs, strict=True):
        builder.task(Task(task_id, job.rule or _stem(file), job.mean, cores=job.threads or 1,
                          memory_bytes=job.memory_bytes, gpus=job.gpus, disk_bytes=job.disk_bytes,
                          priority=job.priority), job.line)  # fmt: skip
    if len(jobs) > 1:
        builder.note("jobs whose order is not known, for want of their graph (--dag), and that wait for nothing", *ids)
    return builder.workflow()


def read_snakemake_graph(
    graph: DrawnGraph, file: str, *, lenient: bool = False, declared_edges: bool = False
) -> Workflow:
    """Read the jobs of ``--dag``, or the rules of ``--rulegraph``; their times are those of benchmark files beside it.

    Benchmark files are looked for in the folder of the graph, and below its folders whose names begin with
    ``benchmark``. A file that does not name its rule is that of the rule which its folder or its name begins with.

    Args:
        graph: The graph.
        file: Its path.
        lenient: As `WorkflowBuilder` has it.
        declared_edges: Likewise.

    Raises:
        WorkflowError: A node has no label, or there is a cycle.
    """
    builder = WorkflowBuilder(file, _stem(file), lenient, declared_edges)
    rules, wildcards = [], []
    for name, node in graph.nodes.items():
        rule, *pairs = re.split(r"\\n|\n", node.label or "")
        if not rule:
            raise builder.fail(f"node {name!r} has no label", node.line)
        rules.append(rule)
        wildcards.append(
            {key.strip(): value.strip() for key, found, value in (p.partition(":") for p in pairs) if found}
        )
    ids = _unique([_name(rule, found) for rule, found in zip(rules, wildcards, strict=True)], list(graph.nodes))
    measured = _beside(builder, Path(file), set(rules))
    for task_id, rule, found, node in zip(ids, rules, wildcards, graph.nodes.values(), strict=True):
        builder.task(_measured(builder, Task(task_id, rule, 0.0), found, measured), node.line)
    by_node = dict(zip(graph.nodes, ids, strict=True))
    for (start, end), line in graph.edges.items():
        builder.edge(by_node[start], by_node[end], line)
    done = [by_node[name] for name, node in graph.nodes.items() if "dashed" in node.style]
    builder.note("jobs that Snakemake had already done, which are tasks as the others", *done)
    return builder.workflow()


def read_summary(text: str, file: str, *, lenient: bool = False, declared_edges: bool = False) -> Workflow:
    """Read the jobs and files of ``--detailed-summary``; their times are those of benchmark files beside it.

    Rows that follow each other, with one rule, one command and the same inputs, are outputs of one job.

    Args:
        text: The table.
        file: Its path.
        lenient: As `WorkflowBuilder` has it.
        declared_edges: Likewise.

    Raises:
        WorkflowError: It is what ``--summary`` prints, which has no inputs, or a row is not whole.
    """
    builder = WorkflowBuilder(file, _stem(file), lenient, declared_edges)
    columns = columns_of(text)
    inputs = next((each for each in columns if each.startswith("input-file")), None)
    if inputs is None:
        raise builder.fail("it is a summary of Snakemake without input files, which say what waits for what", 1,
                           "snakemake --detailed-summary writes them")  # fmt: skip
    jobs: list[tuple[tuple[str, ...], list[str], int]] = []
    for row in rows_of(text, file):
        key = (row.text("rule"), row.text(inputs), row.text("shellcmd"), row.text("log-file(s)"))
        if jobs and jobs[-1][0] == key:
            jobs[-1][1].append(row.text(columns[0]))
        else:
            jobs.append((key, [row.text(columns[0])], row.line))
    measured = _beside(builder, Path(file), {key[0] for key, _, _ in jobs})
    writers = {name: outputs[0] for _, outputs, _ in jobs for name in outputs}
    for (rule, given, command, _), outputs, line in jobs:
        read = tuple(dict.fromkeys(each.strip() for each in given.split(",") if each.strip()))
        words = ("/bin/sh", "-c", command) if command else ()
        task = Task(outputs[0], rule or outputs[0], 0.0, read, tuple(dict.fromkeys(outputs)), command=words)
        builder.task(_measured(builder, task, {}, measured), line)
        for name in read:
            builder.size(name, None, task.id, output=False)
            if name in writers:
                builder.edge(writers[name], task.id, line, by_file=name)
    return builder.workflow()


def _stem(file: str) -> str:
    return Path(file).name.removesuffix(".gz").rsplit(".", 1)[0]


def _name(rule: str, wildcards: Mapping[str, str]) -> str:
    return f"{rule} ({', '.join(f'{key}={value}' for key, value in wildcards.items())})" if wildcards else rule


def _unique(names: list[str], marks: list[str]) -> list[str]:
    """Names of which those that occur several times have a mark behind them."""
    several = Counter(names)
    return [name if several[name] == 1 else f"{name} #{mark}" for name, mark in zip(names, marks, strict=True)]


def _benchmarks(builder: WorkflowBuilder, text: str, file: str) -> list[BenchmarkedJob]:
    found: dict[tuple[str, ...], BenchmarkedJob] = {}
    for row in rows_of(text, file):
        rule, wildcards = row.text("rule", "rule_name"), _pairs(row.text("wildcards"))
        key = (row.text("jobid"), rule, *(f"{name}={value}" for name, value in wildcards.items()))
        job = found.setdefault(key, BenchmarkedJob(rule, wildcards, line=row.line))
        job.seconds.append(_number(builder, row, "s") or 0.0)
        job.threads = int(_number(builder, row, "threads") or 0) or job.threads
        wanted = _pairs(row.text("resources"))
        asked = _asked(wanted, "mem")
        job.disk_bytes = _asked(wanted, "disk") or job.disk_bytes
        gpus = next((wanted[key] for key in ("gpu", "gpus", "nvidia_gpu") if key in wanted), "")
        job.gpus = int(gpus) if re.fullmatch(r"\d{1,9}", gpus) else job.gpus
        job.priority = int(_number(builder, row, "priority") or 0) or job.priority
        used = math.ceil((_number(builder, row, "max_rss") or 0.0) * _MEBIBYTE)
        job.memory_bytes = asked or max(used, job.memory_bytes or 0) or None
    return list(found.values())


def _asked(wanted: Mapping[str, str], what: str) -> int | None:
    """Bytes of a resource, ``mem_mib`` or ``mem_mb``; None where it is neither."""
    for key, unit in ((f"{what}_mib", _MEBIBYTE), (f"{what}_mb", 1_000_000)):
        if re.fullmatch(r"\d+(\.\d+)?", wanted.get(key, "")):
            return int(float(wanted[key]) * unit)
    return None


def _number(builder: WorkflowBuilder, row: TableRow, column: str) -> float | None:
    text = row.text(column)
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise builder.fail(f"{column} is {text!r}, not a number", row.line)
    return number


def _pairs(text: str) -> dict[str, str]:
    """Pairs of ``a=1;b=2``, or of a dictionary as Python prints it."""
    if text.startswith("{"):
        try:
            found = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            return {}
        return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}
    return {
        key.strip(): value.strip() for key, equal, value in (part.partition("=") for part in text.split(";")) if equal
    }


def _beside(builder: WorkflowBuilder, path: Path, rules: set[str]) -> dict[str, list[BenchmarkedJob]]:
    """The benchmarked jobs of some rules, in the files beside one."""
    folders = [each for each in path.parent.iterdir() if each.is_dir() and each.name.lower().startswith("benchmark")]
    files = [each for each in path.parent.iterdir() if each.suffix in (".tsv", ".txt", ".benchmark")]
    files += [each for folder in folders for each in folder.rglob("*")]
    found: dict[str, list[BenchmarkedJob]] = {}
    for file in sorted(each for each in files if each != path and each.is_file())[:_MOST_FILES]:
        try:
            text = file.read_text("utf-8-sig")
        except (OSError, UnicodeDecodeError):
            continue  # no table of Snakemake, and nobody has asked for it
        if text.strip() and is_benchmark(text):
            for job in _benchmarks(builder, text, str(file)):
                rule = job.rule or _rule_of(file, path.parent, rules)
                if rule in rules:
                    job.wildcards = job.wildcards or {"": re.sub(r"\.benchmark$", "", file.stem)}
                    found.setdefault(rule, []).append(job)
    return found


def _rule_of(file: Path, root: Path, rules: set[str]) -> str:
    """The rule of a benchmark file that does not say it: of those that its path names, the longest."""
    parts = file.relative_to(root).parts[:-1]
    fitting = [r for r in rules if r in parts or re.match(rf"{re.escape(r)}([._-]|$)", file.name)]
    return max(fitting, key=len, default="")


def _measured(
    builder: WorkflowBuilder, task: Task, wildcards: Mapping[str, str], measured: Mapping[str, list[BenchmarkedJob]]
) -> Task:
    """A task with the times of its own benchmark, or with the mean of its rule's."""
    jobs = measured.get(task.activity, [])
    if not jobs:
        builder.note("tasks without a run time, for want of a benchmark beside the file, which count as 0 s", task.id)
        return task
    values = set(wildcards.values())
    own = [job for job in jobs if job.wildcards == wildcards]
    own = own or [job for job in jobs if "" in job.wildcards and values and any(v in job.wildcards[""] for v in values)]
    if not own and len(jobs) > 1:
        builder.note("tasks without a benchmark of their own, which take the mean of their rule's", task.id)
    used = own or jobs
    cores = max((job.threads or 1 for job in used), default=1)
    memory = max((job.memory_bytes or 0 for job in used), default=0) or None
    return Task(task.id, task.activity, sum(job.mean for job in used) / len(used), task.inputs, task.outputs, cores,
                memory, task.command, gpus=max((job.gpus for job in used), default=0),
                disk_bytes=max((job.disk_bytes or 0 for job in used), default=0) or None,
                priority=max((job.priority for job in used), default=0))  # fmt: skip
