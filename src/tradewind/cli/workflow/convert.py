"""``tradewind workflow convert``: a workflow in another format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tradewind.cli.workflow.common import DeclaredEdges, File, Json, Lenient

if TYPE_CHECKING:
    from tradewind.workflow.graph import Workflow
    from tradewind.workflow.writers.common import WorkflowSource, WrittenWorkflow

_FORMATS = ("own", "pegasus", "dagman", "wfformat")


def convert(
    file: File,
    to: Annotated[
        str | None,
        typer.Option(
            help="own (YAML), pegasus (5, YAML), dagman, wfformat (1.5), wfformat-1.4, wfformat-1.6; without it, own "
            "or dagman for a name in .dag.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The file; the terminal without it.", show_default=False)] = None,
    lenient: Lenient = False,
    declared_edges: DeclaredEdges = False,
    as_json: Json = False,
) -> None:
    """Write a workflow as Tradewind's own YAML or as WfFormat; also for Pegasus and DAGMan, which carry out its plan.

    With --to pegasus or dagman the file may be a plan: each task then asks for its machine, in the order of the plan.
    """
    from tradewind.cli.common import emit_json
    from tradewind.cli.workflow.common import check_folder
    from tradewind.utils.units import count
    from tradewind.workflow.files import read_workflow, write_text
    from tradewind.workflow.readers.tradewind_yaml import to_document

    kind = to or ("dagman" if out is not None and out.suffix == ".dag" else "own")
    _check_format(kind, out)
    check_folder("--out", out)
    flow = read_workflow(file, lenient=lenient, declared_edges=declared_edges)
    source = _source(file, flow)
    written = _written(kind, source, out)
    if out is not None:
        for name, text in written.others.items():
            path = out.parent / name
            _make_folder(path.parent)
            write_text(path, text)
        write_text(out, written.text)
    said = [*(f"warning: {each}" for each in flow.warnings), *(f"note: {each}" for each in written.notes)]
    if as_json:
        emit_json({"workflow": flow.name, "tasks": len(flow), "to": kind, "out": None if out is None else str(out),
                   "planned": source.plan is not None, "files": [str(name) for name in written.others],
                   "warnings": list(flow.warnings), "notes": list(written.notes),
                   "document": to_document(flow)})  # fmt: skip
        return
    if out is None:
        typer.echo(written.text.rstrip("\n"))
    else:
        more = f", and {count(len(written.others), 'submit description')}" if written.others else ""
        typer.echo(f"written: {out} ({count(len(flow), 'task')}{more})")
    for line in said:
        typer.echo(line, err=out is None)


def _check_format(to: str, out: Path | None) -> None:
    """See that a format can be written, and that there is a place for its files."""
    from tradewind.errors import InputError
    from tradewind.workflow.readers.wfformat import VERSIONS

    kind, _, version = to.partition("-")
    if kind not in _FORMATS or (version and (kind != "wfformat" or version not in VERSIONS)):
        known = ", ".join((*_FORMATS, *(f"wfformat-{each}" for each in VERSIONS)))
        raise InputError(f"--to {to!r} is no format that is written", hint=f"one of {known}")
    if kind == "dagman" and out is None:
        raise InputError("--to dagman writes a DAG and a folder of submit descriptions", hint="--out flow.dag")


def _source(file: Path, flow: Workflow) -> WorkflowSource:
    """The workflow with its plan, if the file is one, and with the folder that its files are in."""
    from tradewind.workflow.files import is_plan, read_plan
    from tradewind.workflow.writers.common import WorkflowSource

    if not is_plan(file):
        return WorkflowSource(flow, file.absolute().parent)
    plan = read_plan(file)
    return WorkflowSource(plan.flow, plan.folder or file.absolute().parent, plan)


def _written(to: str, source: WorkflowSource, out: Path | None) -> WrittenWorkflow:
    """The workflow in its format."""
    from tradewind.workflow.readers.tradewind_yaml import write_tradewind_yaml
    from tradewind.workflow.readers.wfformat import VERSION, write_wfformat
    from tradewind.workflow.writers.common import WrittenWorkflow
    from tradewind.workflow.writers.dagman import write_dagman
    from tradewind.workflow.writers.pegasus import write_pegasus

    kind, _, version = to.partition("-")
    if kind == "dagman" and out is not None:
        return write_dagman(source, out)
    if kind == "pegasus":
        return write_pegasus(source, out or Path("workflow.yml"))
    if kind == "wfformat":
        return WrittenWorkflow(write_wfformat(source.flow, version=version or VERSION), {})
    return WrittenWorkflow(write_tradewind_yaml(source.flow), {})


def _make_folder(path: Path) -> None:
    from tradewind.errors import InputError

    try:
        path.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make folder {path}: {error.strerror or error}") from None
