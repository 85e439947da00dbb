"""``tradewind application``: what the service runs; on the machine that has its database, or on a server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tradewind.cli.common import command_group
from tradewind.cli.service.connection import Database, Server

if TYPE_CHECKING:
    from tradewind.client import ApplicationInfo
    from tradewind.client import FormInfo as TheirForm
    from tradewind.client import ProposalInfo as TheirProposal
    from tradewind.service.accounts.identity import Principal
    from tradewind.service.applications.application_service import ApplicationService
    from tradewind.service.applications.backends import BackendService
    from tradewind.service.applications.form import ApplicationForm
    from tradewind.service.applications.proposals import ConfigurationProposal
    from tradewind.service.settings import ServiceSettings
    from tradewind.store.service.applications import ApplicationRow

application_app = command_group("application", "Register the programs that people run by their forms.")

File = Annotated[Path, typer.Argument(help="A job YAML with a block 'application'.", show_default=False)]
Tenant = Annotated[
    str, typer.Option(help="The tenant that has it, on this machine's store; else all tenants.", show_default=False)
]
Vouch = Annotated[
    bool,
    typer.Option("--vouch", help="You have read it: typed text is data wherever it says so. Administrators only."),
]
Name = Annotated[str, typer.Argument(help="NAME, or NAME@VERSION.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@application_app.command("check")
def check(
    file: File,
    as_user: Annotated[bool, typer.Option("--as-user", help="As one that no administrator registers.")] = False,
    vouch: Vouch = False,
    database: Database = None,
) -> None:
    """Say whether a document can be registered, and register nothing."""
    from dataclasses import replace

    with open_local_service(database, "") as here:
        user = replace(here.who, role="user", tenant="nobody") if as_user else here.who
        known = here.applications.check(user, _text(file), vouch=vouch, file=str(file))
    typer.echo(f"{file}: {known.name} can be registered; fields: {', '.join(known.model.fields) or 'none'}")


@application_app.command("register")
def register(
    file: File,
    shared: Annotated[
        bool, typer.Option("--shared", help="For all tenants, on a server; administrators only.")
    ] = False,
    tenant: Tenant = "",
    vouch: Vouch = False,
    as_json: Json = False,
    server: Server = None,
    database: Database = None,
) -> None:
    """Register an application, or the next version of one."""
    row: ApplicationRow | ApplicationInfo
    if server and database is None:
        from tradewind.cli.service.connection import open_client

        _refuse_tenant(tenant)
        text = _text(file)
        with open_client(server) as client:
            row = client.register(text, shared=shared, vouch=vouch)
    else:
        with open_local_service(database, tenant) as here:
            text = _text(file)
            row = here.applications.register(here.who, text, shared=not tenant, vouch=vouch, file=str(file))
    _emit(_document(row)) if as_json else typer.echo(f"{row.reference} is registered for {_whose(row)}")


@application_app.command("list")
def list_applications(
    retired: Annotated[bool, typer.Option("--all", help="Also what was retired, on this machine's store.")] = False,
    as_json: Json = False,
    server: Server = None,
    database: Database = None,
) -> None:
    """List the applications, with the newest version of each."""
    rows: Sequence[ApplicationRow | ApplicationInfo]
    if server and database is None:
        from tradewind.cli.service.connection import open_client

        with open_client(server) as client:
            rows = client.applications()
    else:
        with open_local_service(database, "") as here:
            rows = here.applications.list(here.who, retired=retired)
    if as_json:
        _emit([_document(row) for row in rows])
    elif not rows:
        typer.echo("There is no application yet: tradewind application register FILE")
    else:
        from tradewind.cli.service.common import print_table

        cells = [(row.reference, _whose(row), row.author, row.state) for row in rows]
        print_table(("application", "for", "by", "state"), cells)


@application_app.command("show")
def show(
    name: Name,
    tenant: Tenant = "",
    source: Annotated[bool, typer.Option("--yaml", help="Print the document itself.")] = False,
    as_json: Json = False,
    server: Server = None,
    database: Database = None,
) -> None:
    """Show an application's form."""
    row: ApplicationRow | ApplicationInfo
    form: ApplicationForm | TheirForm
    if server and database is None:
        from tradewind.cli.service.connection import open_client

        _refuse_tenant(tenant)
        with open_client(server) as client:
            row, form = client.application(name), client.form(name)
    else:
        from tradewind.service.applications.form import form_of
        from tradewind.service.applications.validation import stored_application

        with open_local_service(database, tenant) as here:
            row = here.applications.get(here.who, f"{tenant}/{name}" if tenant else name, retired=True)
        form = form_of(row, stored_application(row))
    if source:
        typer.echo(row.document.rstrip("\n"))
    elif as_json:
        from dataclasses import asdict

        _emit({**_document(row), **asdict(form)})
    else:
        _show(row, form)


@application_app.command("propose")
def propose(
    name: Name,
    param: Annotated[
        list[str] | None, typer.Option("--param", "-p", help="A field of the form: size=4000; repeatable.")
    ] = None,
    deadline: Annotated[str | None, typer.Option(help="Time of one run: 30m.", show_default=False)] = None,
    backend: Annotated[str, typer.Option(help="Where it would run.", show_default=False)] = "",
    top: Annotated[int, typer.Option(min=1, max=100, help="Show this many configurations.")] = 5,
    tenant: Tenant = "",
    as_json: Json = False,
    server: Server = None,
    database: Database = None,
) -> None:
    """Say which configuration to use for what is typed into the form; nothing is run."""
    from tradewind.cli.common import pairs

    found: ConfigurationProposal | TheirProposal
    given: dict[str, Any] = {"backend": backend, "deadline": deadline, "count": top}
    parameters = pairs(param, "--param")
    if server and database is None:
        from tradewind.cli.service.connection import open_client

        _refuse_tenant(tenant)
        with open_client(server) as client:
            found = client.propose(name, parameters, **given)
    else:
        from tradewind.service.applications.proposals import ProposalService
        from tradewind.utils.paths import data_folder

        with open_local_service(database, tenant) as here:
            made = ProposalService(here.applications, here.backends, here.settings, data_folder())
            found = made.propose(here.who, name, parameters, **given)
    if as_json:
        from dataclasses import asdict

        _emit(asdict(found))
    else:
        _show_proposal(found)


@application_app.command("retire")
def retire(name: Name, tenant: Tenant = "", server: Server = None, database: Database = None) -> None:
    """Retire an application, or one version of it: no new request can use it."""
    if server and database is None:
        from tradewind.cli.service.connection import open_client

        _refuse_tenant(tenant)
        with open_client(server) as client:
            client.retire(name)
    else:
        with open_local_service(database, tenant) as here:
            here.applications.retire(here.who, f"{tenant}/{name}" if tenant else name)
    typer.echo(f"{name} is retired; requests that have begun go on")


class LocalService:
    """Applications and backends of this machine's store, and the one who sits before it.

    Attributes:
        settings: The server's settings.
        applications: The applications.
        backends: Where they run.
        who: An administrator, of the tenant that was named.
    """

    def __init__(
        self, settings: ServiceSettings, applications: ApplicationService, backends: BackendService, who: Principal
    ) -> None:
        self.settings, self.applications, self.backends, self.who = settings, applications, backends, who


@contextmanager
def open_local_service(database: str | None, tenant: str) -> Iterator[LocalService]:
    """The store of this machine.

    Args:
        database: Its address, or None for the user's own.
        tenant: Whose applications are meant; empty for everybody's.

    Raises:
        NotFoundError: There is no such tenant.
    """
    import getpass
    from contextlib import closing

    from tradewind.cli.service.common import open_settings, require_service

    require_service()
    from tradewind.service.accounts.identity import Principal
    from tradewind.service.applications.application_service import ApplicationService
    from tradewind.service.applications.backends import BackendService
    from tradewind.store.clusters.cluster_store import ClusterStore
    from tradewind.store.sql.database import Database
    from tradewind.utils.paths import data_folder

    settings, url = open_settings({} if database is None else {"database": database})
    with closing(Database(url, busy_timeout=30.0)) as store, closing(ClusterStore(url)) as cluster:
        if tenant:
            _require_tenant(tenant, [row.name for row in cluster.tenants()])
        backends = BackendService(store, data_folder())
        applications = ApplicationService(store, settings, data_folder(), backends)
        yield LocalService(
            settings, applications, backends, Principal(0, f"{getpass.getuser()} (command line)", "admin", tenant)
        )


def _require_tenant(name: str, known: list[str]) -> None:
    from tradewind.errors import NotFoundError
    from tradewind.utils.suggestions import did_you_mean

    if name not in known:
        raise NotFoundError(f"there is no tenant {name!r}", hint=did_you_mean(name, known, "there are:"))


def _refuse_tenant(tenant: str) -> None:
    if tenant:
        from tradewind.errors import InputError

        raise InputError("--tenant is for this machine's store", hint="on a server the token says who asks")


def _text(file: Path) -> str:
    """The text of a YAML file, read within the bounds of a job YAML."""
    from tradewind.problem.yaml_source import read_source

    read_source(file)
    return file.read_text(encoding="utf-8-sig")


def _emit(document: Any) -> None:
    from tradewind.cli.common import emit_json

    emit_json(document)


def _document(row: ApplicationRow | ApplicationInfo) -> dict[str, Any]:
    names = ("name", "version", "tenant", "author", "trusted", "state", "created")
    return {name: getattr(row, name) for name in names}


def _whose(row: ApplicationRow | ApplicationInfo) -> str:
    return row.tenant or "everybody"


def _show(row: ApplicationRow | ApplicationInfo, form: ApplicationForm | TheirForm) -> None:
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


def _range(low: float | None, high: float | None, unit: str, choices: Sequence[Any]) -> str:
    if choices:
        return ", ".join(str(one) for one in choices)
    from tradewind.problem.configuration import plain_number

    bounds = ["" if bound is None else str(plain_number(bound)) for bound in (low, high)]
    return f"{'..'.join(bounds) if any(bounds) else ''} {unit}".strip()


def _default(value: Any) -> str:
    return "" if value is None else str(value)


def _show_proposal(found: ConfigurationProposal | TheirProposal) -> None:
    from tradewind.cli.service.common import print_table
    from tradewind.problem import COST, RUNTIME
    from tradewind.reporting.proposal_words import why_words
    from tradewind.utils.units import bill_column, format_duration, format_money

    rows = []
    unit, bill = bill_column(one.cost for one in found.candidates)
    judged = found.metric not in ("", COST, RUNTIME)
    candidates: Sequence[Any] = found.candidates
    for place, one in enumerate(candidates, 1):
        offer = one.offer if isinstance(one.offer, Mapping) else one.offer.to_json()
        time, cost = ("not known yet" if found.runs else "", ""), ("", "")
        if one.runtime is not None:
            time = (
                format_duration(one.runtime),
                f"{format_duration(one.runtime_low)} to {format_duration(one.runtime_high)}",
            )
            cost = bill(one.cost), f"{bill(one.cost_low)} to {bill(one.cost_high)}"
        hourly = format_money(offer["price_per_hour"] * offer["nodes"])
        chosen = " ".join(f"{name}={value}" for name, value in one.configuration.items())
        figures = (*_judged(one), *time, *cost) if judged else (*time, *cost)
        rows.append(
            (str(place), chosen, hourly, *figures, one.likelihood, why_words(one.marks, one.difference, one.reason))
        )
    cost_title = "cost" if unit == "this run" else f"cost, {unit}"
    names = (*((found.metric, "90 % range") if judged else ()), "time", "90 % range", cost_title, "90 % range")
    print_table(("", "configuration", "an hour", *names, "deadline and bounds", "why"), rows)
    trying = "1 is to try: not yet known; a run of it teaches later ones more than it may cost. 2 is the best known"
    for line in (*found.basis, trying if candidates[0].trying else "", found.advice):
        if line:
            typer.echo(f"- {line}")


def _judged(one: Any) -> tuple[str, str]:
    """The metric that a candidate is judged by, and its range."""
    if one.objective is None:
        return "", ""
    return f"{one.objective:.4g}", f"{one.objective_low:.4g} to {one.objective_high:.4g}"
