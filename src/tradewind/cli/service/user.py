"""``tradewind user``: who may use the service, on the machine that has its database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tradewind.service.accounts.identity import Principal
    from tradewind.service.accounts.user_administration import UserAdministration
    from tradewind.store.service.accounts import TokenRow, UserRow

user_app = typer.Typer(
    name="user",
    help="Say who may use the service, and as what.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(help="The user.", show_default=False)]
Database = Annotated[
    str | None,
    typer.Option(help="Address of the store: sqlite:///FILE or postgresql://...", metavar="URL", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Stdin = Annotated[bool, typer.Option("--password-stdin", help="Read the password from standard input.")]


@user_app.command("add")
def add(
    name: Name,
    admin: Annotated[bool, typer.Option("--admin", help="An administrator: as --role admin.")] = False,
    role: Annotated[str, typer.Option(help="admin or user.")] = "user",
    tenant: Annotated[
        str | None,
        typer.Option(help="The tenant whose requests the user sees and makes; else its own.", show_default=False),
    ] = None,
    email: Annotated[str | None, typer.Option(help="Where notices go.", show_default=False)] = None,
    password_stdin: Stdin = False,
    no_password: Annotated[bool, typer.Option("--no-password", help="Do not ask for a password: tokens only.")] = False,
    token: Annotated[
        str | None, typer.Option(help="Make a token of this name, and print it once.", show_default=False)
    ] = None,
    days: Annotated[float | None, typer.Option(help="Days until the token runs out.", show_default=False)] = None,
    as_json: Json = False,
    database: Database = None,
) -> None:
    """Add a user; on a terminal it asks for a password, twice."""
    from tradewind.errors import InputError

    if password_stdin and no_password:
        raise InputError("--password-stdin and --no-password cannot both be given", hint="leave one out")
    if days is not None and token is None:
        raise InputError("--days is for a token", hint="write --token NAME as well")
    with _users(database) as (users, who):
        from tradewind.service.accounts.account_service import check_token_request

        users.check_new(who, name, tenant or "")
        if token is not None:
            check_token_request(token, days)
        password = None if no_password else _password(password_stdin, needed=False)
        user = users.add(
            who, name, role="admin" if admin else role, tenant=tenant or "", email=email or "", password=password
        )
        secret = users.make_token(who, user.name, token, days=days) if token is not None else None
    if as_json:
        _emit({**_document(user), **({"token": secret} if secret else {})})
        return
    typer.echo(f"{user.name} is {_kind(user)} of the tenant {user.tenant}")
    if secret:
        _say_token(secret)
    elif password is None:
        typer.echo(f"and can sign in with nothing yet: tradewind user password {user.name}, or user token {user.name}")


@user_app.command("list")
def list_users(
    removed: Annotated[bool, typer.Option("--all", help="Also those that were removed, but have requests.")] = False,
    as_json: Json = False,
    database: Database = None,
) -> None:
    """List the users."""
    with _users(database) as (users, who):
        found = users.list(who, removed=removed)
    if as_json:
        _emit([_document(user) for user in found])
        return
    if not found:
        typer.echo("There is no user yet: tradewind user add NAME --admin")
        return
    rows = [
        (
            user.name,
            user.role,
            user.tenant,
            user.state,
            "yes" if user.password else "no",
            user.email,
            _day(user.created),
        )
        for user in found
    ]
    from tradewind.cli.service.common import print_table

    print_table(("name", "role", "tenant", "state", "password", "e-mail", "since"), rows)


@user_app.command("token")
def token(
    name: Name,
    called: Annotated[str, typer.Option("--name", help="Where it is used.")] = "command line",
    days: Annotated[float | None, typer.Option(help="Days until it runs out; else never.", show_default=False)] = None,
    show: Annotated[bool, typer.Option("--list", help="List the user's tokens instead.")] = False,
    as_json: Json = False,
    database: Database = None,
) -> None:
    """Make a token, which is printed once; or list those that there are."""
    with _users(database) as (users, who):
        if show:
            _list_tokens(users.tokens(who, name), as_json=as_json)
            return
        secret = users.make_token(who, name, called, days=days)
    if as_json:
        _emit({"user": name, "name": called, "token": secret})
        return
    _say_token(secret)


@user_app.command("revoke")
def revoke(
    name: Name,
    number: Annotated[
        int | None, typer.Argument(help="The token's number in user token --list.", min=1, max=2**31 - 1)
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All tokens of the user.")] = False,
    as_json: Json = False,
    database: Database = None,
) -> None:
    """Take a token of a user away, or all of them."""
    from tradewind.errors import InputError

    if (number is None) is not everything:
        raise InputError(
            "say which token" if number is None else "a token and --all cannot both be given",
            hint=f"tradewind user token {name} --list shows their numbers; --all takes all away",
        )
    with _users(database) as (users, who):
        count = users.revoke_token(who, name, number)
    if as_json:
        _emit({"user": name, "revoked": count})
        return
    typer.echo(f"{count} {'token' if count == 1 else 'tokens'} of {name} taken away")


@user_app.command("lock")
def lock(name: Name, as_json: Json = False, database: Database = None) -> None:
    """Let a user in no more: sessions end, tokens open nothing."""
    _change(name, as_json, database, state="locked")


@user_app.command("unlock")
def unlock(name: Name, as_json: Json = False, database: Database = None) -> None:
    """Let a user in again; the tokens are those of before."""
    _change(name, as_json, database, state="active")


@user_app.command("role")
def role(
    name: Name,
    role: Annotated[str, typer.Argument(help="admin or user.", show_default=False)],
    as_json: Json = False,
    database: Database = None,
) -> None:
    """Make a user an administrator, or an ordinary user again."""
    _change(name, as_json, database, role=role)


@user_app.command("password")
def password(name: Name, password_stdin: Stdin = False, as_json: Json = False, database: Database = None) -> None:
    """Set a password, asked for twice on a terminal; sessions end."""
    with _users(database) as (users, who):
        users.get(who, name)
        changed = users.change(who, name, password=_password(password_stdin, needed=True))
    if as_json:
        _emit(_document(changed))
        return
    typer.echo(f"{changed.name} has another password, and must sign in again everywhere")


@user_app.command("remove")
def remove(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Json = False,
    database: Database = None,
) -> None:
    """Remove a user; the requests stay with the tenant."""
    import sys

    from tradewind.errors import InputError

    with _users(database) as (users, who):
        user = users.get(who, name)
        if not yes and not sys.stdin.isatty():
            raise InputError(f"{user.name} is not removed without being asked", hint="write --yes")
        if not yes and not typer.confirm(f"Remove {user.name}?"):
            typer.echo("nothing is changed")
            return
        gone = users.remove(who, user.name)
    if as_json:
        _emit({"name": user.name, "state": "gone" if gone else "removed"})
        return
    typer.echo(
        f"{user.name} is removed" + ("" if gone else "; the name stays with the requests, and is not free again")
    )


def _change(name: str, as_json: bool, database: str | None, **fields: str) -> None:
    with _users(database) as (users, who):
        user = users.change(who, name, **fields)
    if as_json:
        _emit(_document(user))
        return
    typer.echo(
        f"{user.name} is {'locked, ' if user.state == 'locked' else ''}{_kind(user)} of the tenant {user.tenant}"
    )


@contextmanager
def _users(database: str | None) -> Iterator[tuple[UserAdministration, Principal]]:
    """Open the administration of users, with the person at this machine as its administrator."""
    import getpass
    from contextlib import closing

    from tradewind.cli.service.common import open_settings, require_service

    require_service()
    from tradewind.service.accounts.account_service import AccountService
    from tradewind.service.accounts.audit_log import AuditLog
    from tradewind.service.accounts.identity import Principal
    from tradewind.service.accounts.user_administration import UserAdministration
    from tradewind.store.clusters.cluster_store import ClusterStore
    from tradewind.store.sql.database import Database

    settings, url = open_settings({} if database is None else {"database": database})
    with closing(Database(url, busy_timeout=30.0)) as opened, closing(ClusterStore(url)) as cluster:
        audit = AuditLog(opened, settings.audit_days)
        users = UserAdministration(AccountService(opened, settings, audit), cluster, audit)
        yield users, Principal(0, f"{getpass.getuser()} (command line)", "admin", "")


def _password(from_stdin: bool, *, needed: bool) -> str | None:
    """A password of standard input, or asked for twice; None where nobody can be asked and none is needed."""
    import getpass
    import sys

    from tradewind.errors import InputError

    if from_stdin:
        return sys.stdin.readline().rstrip("\r\n")
    if not sys.stdin.isatty():
        if needed:
            raise InputError("there is no terminal to ask for the password on", hint="write --password-stdin")
        return None
    first = getpass.getpass("Password: " if needed else "Password (empty for none, tokens only): ")
    if not first and not needed:
        return None
    if getpass.getpass("The same once more: ") != first:
        raise InputError("the two passwords differ", hint="nothing is changed; try again")
    return first


def _kind(user: UserRow) -> str:
    return "an administrator" if user.role == "admin" else "a user"


def _say_token(secret: str) -> None:
    typer.echo("The token, which is shown this once:")
    typer.echo(secret)


def _list_tokens(found: list[TokenRow], *, as_json: bool) -> None:
    if as_json:
        _emit([{key: getattr(row, key) for key in ("id", "name", "created", "used", "expires")} for row in found])
        return
    if not found:
        typer.echo("There is no token.")
        return
    rows = [(str(row.id), row.name, _day(row.created), _day(row.used), _day(row.expires)) for row in found]
    from tradewind.cli.service.common import print_table

    print_table(("id", "name", "made", "used last", "runs out"), rows)


def _document(user: UserRow) -> dict[str, Any]:
    shown = {key: getattr(user, key) for key in ("name", "role", "tenant", "email", "state", "created")}
    return {**shown, "password": user.password is not None}


def _emit(document: Any) -> None:
    from tradewind.cli.common import emit_json

    emit_json(document)


def _day(at: float | None) -> str:
    import datetime

    return "never" if at is None else datetime.datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M")
