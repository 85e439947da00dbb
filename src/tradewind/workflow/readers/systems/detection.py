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


def read_system_text(text: str, file: str, *, lenient: bool = False) -> Workflow | None:
    """Read a workflow in the text format of another system.

    Args:
        text: Content of the file.
        file: Its path; files that belong to it are looked for beside it.
        lenient: As `WorkflowBuilder` has it.

    Returns:
        The workflow, or None where the text is in none of these formats.

    Raises:
        WorkflowError: It is in one of them, and something in it is wrong or not supported.
    """
    from tradewind.workflow.readers.systems import dagman, makeflow, nextflow, snakemake, stg
    from tradewind.workflow.readers.systems.graph_text import read_dot, read_mermaid

    if re.match(r"\s*(/\*.*?\*/\s*|//[^\n]*\n\s*|#[^\n]*\n\s*)*(strict\s+)?digraph\b", text, re.DOTALL):
        graph = read_dot(text, file)
        if nextflow.is_graph(graph):
            return nextflow.read_nextflow_graph(graph, file, lenient=lenient)
        if graph.name.startswith("snakemake"):
            return snakemake.read_snakemake_graph(graph, file, lenient=lenient)
        hint = f"known are {KNOWN}"
        raise WorkflowError("it is a graph of neither Nextflow nor Snakemake", file=file, hint=hint)
    if re.search(
        r"^\s*(<pre class=\"mermaid\"[^>]*>\s*)?(flowchart|graph)\s+(TB|TD|BT|LR|RL);?\s*$", text[:20000], re.M
    ):
        return nextflow.read_nextflow_graph(read_mermaid(text, file), file, mermaid=True, lenient=lenient)
    if dagman.is_dag(text):
        return dagman.read_dag(text, file, lenient=lenient)
    if re.search(r"^\s*queue\b", text, re.M | re.I) and re.search(r"^\s*(executable|universe)\s*=", text, re.M | re.I):
        hint = "give the .dag that names it"
        raise WorkflowError("it is a submit description of HTCondor, one job and no workflow", file=file, hint=hint)
    if snakemake.is_benchmark(text):
        return snakemake.read_benchmark(text, file, lenient=lenient)
    if snakemake.is_summary(text):
        return snakemake.read_summary(text, file, lenient=lenient)
    if nextflow.is_trace(text):
        return nextflow.read_nextflow_trace(text, file, lenient=lenient)
    if stg.is_stg(text):
        return stg.read_stg(text, file, lenient=lenient)
    if makeflow.is_makeflow(text):
        return makeflow.read_makeflow(text, file, lenient=lenient)
    return None


def read_system_document(document: Mapping[str, Any], file: str, *, lenient: bool = False) -> Workflow | None:
    """Read a workflow in the JSON or YAML of another system; see `read_system_text`."""
    from tradewind.workflow.readers.systems import cwl, makeflow

    if cwl.is_cwl(document):
        return cwl.read_cwl(document, file, lenient=lenient)
    if "rules" in document:
        return makeflow.read_makeflow_json(document, file, lenient=lenient)
    return None
