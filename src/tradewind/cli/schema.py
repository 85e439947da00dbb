"""``tradewind schema``: the JSON schema of the job YAML."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def schema(
    out: Annotated[Path | None, typer.Option("--out", help="Write it to this file instead of printing it.")] = None,
    built_in: Annotated[bool, typer.Option("--built-in", help="Leave out parts of other packages.")] = False,
) -> None:
    """Print the JSON schema of the job YAML, for completion in editors."""
    from tradewind.problem.job_spec.json_schema import json_schema

    text = schema_text(json_schema(built_in_only=built_in))
    if out is None:
        typer.echo(text, nl=False)
        return
    write_file(out, text)
    typer.echo(f"wrote {out}")


def schema_text(document: dict[str, object]) -> str:
    """A schema as the text of a file."""
    import json

    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def write_file(path: Path, text: str) -> None:
    """Write a file and the folders above it.

    Raises:
        InputError: It cannot be written.
    """
    from tradewind.errors import InputError

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot write {path}: {reason}", hint="choose another place") from None
