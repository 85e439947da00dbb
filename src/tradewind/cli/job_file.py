"""``tradewind init``: a commented job.yaml to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

SCHEMA_FILE = ".tradewind/job.schema.json"
"""Where the schema is put, seen from the job YAML: completion then works without a network."""


def init(
    path: Annotated[Path, typer.Argument(help="The file to write, or a folder for it.")] = Path("job.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write a commented job.yaml that runs as it is, and the schema that editors complete it with."""
    from tradewind.cli.schema import schema_text, write_file
    from tradewind.errors import InputError
    from tradewind.problem.job_spec.json_schema import json_schema
    from tradewind.problem.starter import STARTER

    target = path / "job.yaml" if path.is_dir() else path
    if target.exists() and not force:
        raise InputError(f"{target} is there already", hint="--force replaces it")
    write_file(target.parent / SCHEMA_FILE, schema_text(json_schema()))
    write_file(target, STARTER.replace("@SCHEMA@", SCHEMA_FILE))
    typer.echo(f"wrote {target}; try it with: tradewind tune {target}")
