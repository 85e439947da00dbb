"""``tradewind backend``: where the service's jobs run, on the machine that has its database."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tradewind.cli.common import command_group

if TYPE_CHECKING:
    from tradewind.service.applications.backends import Backend

backend_app = command_group("backend", "Say where the service's jobs run.")

Name = Annotated[str, typer.Argument(help="Its name.", show_default=False)]
Database = Annotated[
    str | None,
    typer.Option(help="Address of the store: sqlite:///FILE or postgresql://...", metavar="URL", show_default=False),
]


@backend_app.command("set")
def set_backend(
    name: Name,
    file: Annotated[
        Path,
        typer.Argument(help="YAML with title, users, own_code, deploy, offers, catalogues.", show_default=False),
    ],
    database: Database = None,
) -> None:
    """Add a place where jobs run, or replace the one of that name."""
    from tradewind.cli.service.application import open_local_service
    from tradewind.problem.yaml_source import read_source

    read_source(file)
    with open_local_service(database, "") as here:
        made = here.backends.set(here.who, name, file.read_text(encoding="utf-8-sig"), file=str(file))
    typer.echo(_words(made))


@backend_app.command("list")
def list_backends(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False, database: Database = None
) -> None:
    """List the places where jobs run."""
    from tradewind.cli.service.application import open_local_service

    with open_local_service(database, "") as here:
        found = here.backends.list(here.who)
    if as_json:
        from dataclasses import asdict

        from tradewind.cli.common import emit_json

        emit_json([asdict(one) for one in found])
        return
    from tradewind.cli.service.common import print_table

    rows = [(one.name, one.title, one.runner, one.users, _programs(one)) for one in found]
    print_table(("backend", "title", "runner", "open to", "runs programs of"), rows)


@backend_app.command("remove")
def remove_backend(name: Name, database: Database = None) -> None:
    """Remove a place where jobs run; requests that run there go on."""
    from tradewind.cli.service.application import open_local_service

    with open_local_service(database, "") as here:
        here.backends.remove(here.who, name)
    typer.echo(f"{name} is removed")


def _programs(backend: Backend) -> str:
    return "everybody" if backend.own_code else "administrators"


def _words(backend: Backend) -> str:
    who = "everybody" if backend.users == "everyone" else "administrators"
    return f"{backend.name}: {backend.runner}, open to {who}, runs programs of {_programs(backend)}"
