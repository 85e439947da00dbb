"""Finds the reader of a text by its content, for the formats of other workflow systems."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tradewind.errors import WorkflowError
from tradewind.workflow.graph import Workflow

KNOWN = (
    "Nextflow (trace or graph), HTCondor DAGMan, Snakemake (--dag, --detailed-summary, benchmarks), Makeflow, CWL, STG"
)
"""Names of the formats, for messages."""

_HEAD = 100_000
"""Characters in which a text shows its format."""

_CATALOGUES = {"replicas", "sites", "transformations"}
"""Keys of Pegasus' catalogues."""


def read_system_text(text: str, file: str, *, lenient: bool = False, declared_edges: bool = False) -> Workflow | None:
    """Read a workflow in the text format of another system.

    Args:
        text: Content of the file.
        file: Its path; files that belong to it are looked for beside it.
        lenient: As `WorkflowBuilder` has it.
        declared_edges: Likewise.

    Returns:
        The workflow, or None where the text is in none of these formats.

    Raises:
        WorkflowError: It is in one of them, and something in it is wrong or not supported.
    """
    from tradewind.workflow.readers.systems import dagman, makeflow, nextflow, snakemake, stg
    from tradewind.workflow.readers.systems.graph_text import is_dot, read_dot, read_mermaid

    head = text[:_HEAD]
    if is_dot(head):
        graph = read_dot(text, file)
        if nextflow.is_graph(graph):
            return nextflow.read_nextflow_graph(graph, file, lenient=lenient, declared_edges=declared_edges)
        if graph.name.startswith("snakemake"):
            return snakemake.read_snakemake_graph(graph, file, lenient=lenient, declared_edges=declared_edges)
        hint = f"known are {KNOWN}"
        raise WorkflowError("it is a graph of neither Nextflow nor Snakemake", file=file, hint=hint)
    if re.search(
        r"^[ \t]*(<pre class=\"mermaid\"[^>]*>[ \t]*)?(flowchart|graph)[ \t]+(TB|TD|BT|LR|RL);?[ \t\r]*$", head, re.M
    ):
        return nextflow.read_nextflow_graph(
            read_mermaid(text, file), file, mermaid=True, lenient=lenient, declared_edges=declared_edges
        )
    if dagman.is_dag(text):
        return dagman.read_dag(text, file, lenient=lenient, declared_edges=declared_edges)
    if all(re.search(rf"^[ \t]*{each}", head, re.M | re.I) for each in (r"queue\b", r"(executable|universe)[ \t]*=")):
        hint = "give the .dag that names it"
        raise WorkflowError("it is a submit description of HTCondor, one job and no workflow", file=file, hint=hint)
    if snakemake.is_benchmark(text):
        return snakemake.read_benchmark(text, file, lenient=lenient, declared_edges=declared_edges)
    if snakemake.is_summary(text):
        return snakemake.read_summary(text, file, lenient=lenient, declared_edges=declared_edges)
    if nextflow.is_trace(text):
        return nextflow.read_nextflow_trace(text, file, lenient=lenient, declared_edges=declared_edges)
    _refuse_programs(head, file)
    if stg.is_stg(text):
        return stg.read_stg(text, file, lenient=lenient, declared_edges=declared_edges)
    # What is YAML by its name has a tab by mistake.
    if makeflow.is_makeflow(text) and not file.removesuffix(".gz").endswith((".yml", ".yaml")):
        return makeflow.read_makeflow(text, file, lenient=lenient, declared_edges=declared_edges)
    return None


def _refuse_programs(text: str, file: str) -> None:
    """Refuse the programs that make workflows: their tasks are known when they run."""
    if re.search(r"^[ \t]*(process\s+\w+\s*\{|nextflow\.(enable|preview)\.)", text, re.M):
        hint = "give its trace, with its graph beside it: nextflow run ... -with-trace -with-dag dag.dot"
        raise WorkflowError("it is a script of Nextflow, whose tasks are known when it runs", file=file, hint=hint)
    if re.search(r"^(rule|checkpoint)\s+\w+\s*:\s*$", text, re.M):
        hint = "give its graph: snakemake --dag > dag.dot"
        raise WorkflowError("it is a Snakefile, whose jobs are known when Snakemake plans them", file=file, hint=hint)


def read_system_document(
    document: Mapping[str, Any], file: str, *, lenient: bool = False, declared_edges: bool = False
) -> Workflow | None:
    """Read a workflow in the JSON or YAML of another system; see `read_system_text`."""
    from tradewind.workflow.readers.systems import cwl, makeflow

    if "pegasus" in document and "jobs" not in document and document.keys() & _CATALOGUES:
        hint = "give the workflow that it belongs to"
        raise WorkflowError("it is a catalogue of Pegasus, not a workflow", file=file, hint=hint)
    if "$schema" in document and "properties" in document:
        raise WorkflowError("it is a JSON schema, not a workflow", file=file)
    if cwl.is_cwl(document):
        return cwl.read_cwl(document, file, lenient=lenient, declared_edges=declared_edges)
    if "rules" in document:
        return makeflow.read_makeflow_json(document, file, lenient=lenient, declared_edges=declared_edges)
    return None
