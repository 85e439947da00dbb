"""``tradewind workflow convert``: a workflow in another format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tradewind.cli.workflow.common import DeclaredEdges, File, Json, Lenient

_FORMATS = ("wfformat", "own")


def convert(
    file: File,
    to: Annotated[str, typer.Option(help="wfformat (1.5), wfformat-1.4, wfformat-1.6, or own (YAML).")] = "own",
    out: Annotated[Path | None, typer.Option(help="The file; the terminal without it.", show_default=False)] = None,
    lenient: Lenient = False,
    declared_edges: DeclaredEdges = False,
    as_json: Json = False,
) -> None:
    """Write a workflow as WfFormat (JSON) or as Tradewind's own YAML."""
    from tradewind.cli.common import emit_json
    from tradewind.cli.workflow.common import check_folder
    from tradewind.errors import InputError
    from tradewind.utils.units import count
    from tradewind.workflow.files import read_workflow, write_text
    from tradewind.workflow.readers.tradewind_yaml import to_document, write_tradewind_yaml
    from tradewind.workflow.readers.wfformat import VERSION, VERSIONS, write_wfformat

    kind, _, version = to.partition("-")
    if kind not in _FORMATS or (version and (kind != "wfformat" or version not in VERSIONS)):
        known = ", ".join(("own", "wfformat", *(f"wfformat-{each}" for each in VERSIONS)))
        raise InputError(f"--to {to!r} is no format that is written", hint=f"one of {known}")
    check_folder("--out", out)
    flow = read_workflow(file, lenient=lenient, declared_edges=declared_edges)
    text = write_tradewind_yaml(flow) if kind == "own" else write_wfformat(flow, version=version or VERSION)
    if out is not None:
        write_text(out, text)
    if as_json:
        emit_json({"workflow": flow.name, "tasks": len(flow), "to": to, "out": None if out is None else str(out),
                   "warnings": list(flow.warnings), "document": to_document(flow)})  # fmt: skip
        return
    if out is None:
        typer.echo(text.rstrip("\n"))
        for warning in flow.warnings:
            typer.echo(f"warning: {warning}", err=True)
        return
    typer.echo(f"written: {out} ({count(len(flow), 'task')})")
    for warning in flow.warnings:
        typer.echo(f"warning: {warning}")
