"""``tradewind application`` and ``tradewind backend``: what the service runs, on the machine that has its database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tradewind.service.applications.functions import Applications
    from tradewind.service.backends import Backend, Backends
    from tradewind.service.people import Principal
    from tradewind.store.applications import ApplicationRow

application_app = typer.Typer(
    name="application",
    help="Register the programs that people run by their forms.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
backend_app = typer.Typer(
    name="backend",
    help="Say where the service's jobs run.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

File = Annotated[Path, typer.Argument(help="A job YAML with a block 'application'.", show_default=False)]
Tenant = Annotated[str, typer.Option(help="Whose it is; without it everybody's.", show_default=False)]
Name = Annotated[str, typer.Argument(help="NAME, or NAME@VERSION.", show_default=False)]
Called = Annotated[str, typer.Argument(help="Its name.", show_default=False)]
Database = Annotated[
    str | None, typer.Option(help="Address of the store: sqlite:///FILE or postgresql://...", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@application_app.command("check")
def check(
    file: File,
    as_user: Annotated[bool, typer.Option("--as-user", help="As one that no administrator registers.")] = False,
    database: Database = None,
) -> None:
    """Say whether a document can be registered, and register nothing."""
    with _opened(database, "") as (applications, _, who):
        from dataclasses import replace

        user = replace(who, role="user", tenant="nobody") if as_user else who
        known = applications.check(user, _text(file), file=str(file))
    fields = ", ".join(known.model.fields) or "none"
    typer.echo(f"{file}: {known.name} can be registered; fields: {fields}")


@application_app.command("register")
def register(file: File, tenant: Tenant = "", as_json: Json = False, database: Database = None) -> None:
    """Register an application, or the next version of one."""
    with _opened(database, tenant) as (applications, _, who):
        row = applications.register(who, _text(file), shared=not tenant, file=str(file))
    if as_json:
        _emit(_document(row))
    else:
        typer.echo(f"{row.reference} is registered for {_whose(row)}")


@application_app.command("list")
def list_applications(
    retired: Annotated[bool, typer.Option("--all", help="Also what was retired.")] = False,
    as_json: Json = False,
    database: Database = None,
) -> None:
    """List the applications, with the newest version of each."""
    with _opened(database, "") as (applications, _, who):
        rows = applications.list(who, retired=retired)
    if as_json:
        _emit([_document(row) for row in rows])
        return
    if not rows:
        typer.echo("There is no application yet: tradewind application register FILE")
        return
    from tradewind.cli.service.common import print_table
    from tradewind.service.applications.checked import checked

    cells = [(row.reference, checked(row).model.title or row.name, _whose(row), row.author, row.state) for row in rows]
    print_table(("application", "title", "for", "by", "state"), cells)


@application_app.command("show")
def show(
    name: Name,
    tenant: Tenant = "",
    source: Annotated[bool, typer.Option("--yaml", help="Print the document itself.")] = False,
    as_json: Json = False,
    database: Database = None,
) -> None:
    """Show an application's form."""
    from tradewind.service.applications.checked import checked
    from tradewind.service.applications.form import form_of

    with _opened(database, tenant) as (applications, _, who):
        row = applications.get(who, f"{tenant}/{name}" if tenant else name, retired=True)
    if source:
        typer.echo(row.document.rstrip("\n"))
        return
    form = form_of(row, checked(row))
    if as_json:
        from dataclasses import asdict

        _emit({**_document(row), **asdict(form)})
        return
    from tradewind.cli.service.common import print_table

    typer.echo(f"{row.reference}: {form.title}" + ("" if row.state == "active" else f" ({row.state})"))
    if form.description:
        typer.echo(form.description.strip())
    rows = [
        (one.name, one.type, _range(one.min, one.max, one.unit, one.choices), _default(one.default), one.help)
        for one in form.fields
    ]
    if rows:
        print_table(("field", "type", "values", "default", ""), rows)
    typer.echo(f"chosen for each run: {', '.join(form.space)}; {form.objective}")


@application_app.command("retire")
def retire(name: Name, tenant: Tenant = "", database: Database = None) -> None:
    """Let no request begin with an application, or with one version of it, any more."""
    with _opened(database, tenant) as (applications, _, who):
        applications.retire(who, f"{tenant}/{name}" if tenant else name)
    typer.echo(f"{name} is retired; requests that have begun go on")


# ---------------------------------------------------------------------- backends


@backend_app.command("set")
def set_backend(
    name: Called,
    file: Annotated[Path, typer.Argument(help="YAML with title, users, own_code, deploy, offers, catalogues.")],
    database: Database = None,
) -> None:
    """Add a place where jobs run, or replace the one of that name."""
    with _opened(database, "") as (_, backends, who):
        made = backends.set(who, name, _text(file), file=str(file))
    typer.echo(_words(made))


@backend_app.command("list")
def list_backends(as_json: Json = False, database: Database = None) -> None:
    """List the places where jobs run."""
    with _opened(database, "") as (_, backends, who):
        found = backends.list(who)
    if as_json:
        from dataclasses import asdict

        _emit([asdict(one) for one in found])
        return
    from tradewind.cli.service.common import print_table

    rows = [(one.name, one.title, one.runner, one.users, "anybody's" if one.own_code else "ours") for one in found]
    print_table(("backend", "title", "runner", "open to", "programs"), rows)


@backend_app.command("remove")
def remove_backend(name: Called, database: Database = None) -> None:
    """Remove a place where jobs run; requests that run there go on."""
    with _opened(database, "") as (_, backends, who):
        backends.remove(who, name)
    typer.echo(f"{name} is removed")


@contextmanager
def _opened(database: str | None, tenant: str) -> Iterator[tuple[Applications, Backends, Principal]]:
    """Applications and backends, and the one who sits before this machine."""
    import getpass
    from contextlib import closing

    from tradewind.cli.service.common import open_settings, require_service

    require_service()
    from tradewind.paths import data_folder
    from tradewind.service.applications.functions import Applications
    from tradewind.service.backends import Backends
    from tradewind.service.people import Principal
    from tradewind.store.cluster import ClusterStore
    from tradewind.store.database import Database

    settings, url = open_settings({} if database is None else {"database": database})
    with closing(Database(url, busy_timeout=30.0)) as opened, closing(ClusterStore(url)) as cluster:
        if tenant:
            _require_tenant(tenant, [row.name for row in cluster.tenants()])
        backends = Backends(opened, data_folder())
        applications = Applications(opened, settings, data_folder(), backends)
        yield applications, backends, Principal(0, f"{getpass.getuser()} (command line)", "admin", tenant)


def _require_tenant(name: str, known: list[str]) -> None:
    from tradewind.errors import NotFoundError
    from tradewind.problem.spec_errors import near

    if name not in known:
        raise NotFoundError(f"there is no tenant {name!r}", hint=near(name, known, "there are:"))


def _text(file: Path) -> str:
    """The text of a YAML file, read within the bounds of a job YAML."""
    from tradewind.problem.yaml_source import read_source

    read_source(file)
    return file.read_text(encoding="utf-8-sig")


def _emit(document: Any) -> None:
    from tradewind.cli.common import emit_json

    emit_json(document)


def _document(row: ApplicationRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "version": row.version,
        "tenant": row.tenant,
        "shared": row.shared,
        "author": row.author,
        "trusted": row.trusted,
        "state": row.state,
        "created": row.created,
    }


def _whose(row: ApplicationRow) -> str:
    return "everybody" if row.shared else row.tenant


def _range(low: float | None, high: float | None, unit: str, choices: tuple[Any, ...]) -> str:
    if choices:
        return ", ".join(str(one) for one in choices)
    from tradewind.problem.configuration import plain_number

    bounds = ["" if bound is None else str(plain_number(bound)) for bound in (low, high)]
    return f"{'..'.join(bounds) if any(bounds) else ''} {unit}".strip()


def _default(value: Any) -> str:
    return "" if value is None else str(value)


def _words(backend: Backend) -> str:
    who = "everybody" if backend.users == "everyone" else "administrators"
    own = "" if backend.own_code else ", programs that administrators registered"
    return f"{backend.name}: {backend.runner}, open to {who}{own}"
