"""``tradewind service``: look after the service's database, on the machine that has it or reaches it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tradewind.store.service.operations import ServiceMetrics

service_app = typer.Typer(
    name="service",
    help="Look after the service: copies, versions, figures, what is too old.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

Database = Annotated[
    str | None,
    typer.Option(help="Address of the store: sqlite:///FILE or postgresql://...", metavar="URL", show_default=False),
]
Config = Annotated[Path | None, typer.Option(help="YAML file of the server's settings.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@service_app.command("backup")
def backup(
    file: Annotated[Path, typer.Argument(help="The copy.", show_default=False)],
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that is there.")] = False,
    database: Database = None,
    config: Config = None,
) -> None:
    """Copy the database, of one moment, while the service runs."""
    from tradewind.service.secret_vault import KEY_FILE
    from tradewind.store.sql.backups import back_up
    from tradewind.utils.paths import data_folder
    from tradewind.utils.units import format_memory

    settings, url = _settings(database, config)
    back_up(url, file, force=force)
    typer.echo(f"{file}: {format_memory(file.stat().st_size)}")
    key = data_folder() / KEY_FILE
    if not settings.secret_key and key.exists():
        typer.echo(f"Keep a copy of {key} elsewhere: without it, the passwords that users gave cannot be read.")


@service_app.command("restore")
def restore(
    file: Annotated[Path, typer.Argument(help="The copy.", show_default=False)],
    force: Annotated[bool, typer.Option("--force", help="Replace a store that is there.")] = False,
    database: Database = None,
    config: Config = None,
) -> None:
    """Put a copy in the place of the database; all servers must have ended."""
    from tradewind.store.sql import backups

    _, url = _settings(database, config)
    kept = backups.restore(url, file, force=force)
    typer.echo(f"{file} is in its place" + (f"; what was there is {kept}" if kept else ""))


@service_app.command("migrate")
def migrate(
    check: Annotated[bool, typer.Option("--check", help="Only say whether it is needed; exit code 1 if so.")] = False,
    database: Database = None,
    config: Config = None,
) -> None:
    """Bring the database to the version that this program works with; a server does so when it starts."""
    from contextlib import closing

    from tradewind.store.sql.backups import schema_version_at
    from tradewind.store.sql.database import Database as Opened
    from tradewind.store.sql.schema import REVISIONS

    _, url = _settings(database, config)
    before, newest = schema_version_at(url), REVISIONS[-1]
    if before == newest:
        typer.echo(f"The database has version {newest} already.")
        return
    was = f"version {before}" if before else "nothing in it"
    if check:
        typer.echo(f"The database has {was}, this program works with {newest}: tradewind service migrate")
        raise typer.Exit(1)
    with closing(Opened(url, busy_timeout=30.0)):
        typer.echo(f"The database had {was}, and has version {newest} now.")


@service_app.command("status")
def status(as_json: Json = False, database: Database = None, config: Config = None) -> None:
    """Say how much there is, and how it goes."""
    from contextlib import closing
    from dataclasses import asdict

    from tradewind.cli.common import emit_json
    from tradewind.errors import StoreError
    from tradewind.store.service.operations import OperationsStore
    from tradewind.store.sql.backups import schema_version_at
    from tradewind.store.sql.database import Database as Opened

    _, url = _settings(database, config)
    version = schema_version_at(url)
    if version is None:
        raise StoreError("there is no store yet", hint="tradewind serve makes one")
    with closing(Opened(url, busy_timeout=30.0)) as opened:
        figures = OperationsStore(opened).figures()
        place = opened.place
    if as_json:
        document = asdict(figures)
        document["notices"] = [
            {"kind": kind, "state": state, "count": count} for (kind, state), count in figures.notices.items()
        ]
        document["durations"] = {
            state: {"count": count, "seconds": seconds} for state, (count, seconds) in figures.durations.items()
        }
        emit_json({"database": place, "schema": version, **document})
        return
    typer.echo(f"{place} (schema {version})")
    for name, words in _lines(figures):
        typer.echo(f"  {name:<14}{words}")


@service_app.command("prune")
def prune(
    older: Annotated[str, typer.Option("--older", help="How old: 90d, 36h.", show_default=False)],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    as_json: Json = False,
    database: Database = None,
    config: Config = None,
) -> None:
    """Remove requests that were over before a time, with their files, and what has run out.

    Studies stay with what was measured, because proposals are made from it; and so does what requests have cost.
    """
    import getpass
    from contextlib import closing
    from dataclasses import asdict

    from tradewind.cli.common import emit_json
    from tradewind.errors import InputError
    from tradewind.utils.paths import data_folder
    from tradewind.utils.units import parse_duration

    settings, url = _settings(database, config)
    seconds = parse_duration(older)
    if seconds < 3600.0:
        raise InputError(f"--older {older}: this would remove what has just ended", hint="write 1h or more: 90d")
    from tradewind.service.accounts.identity import Principal
    from tradewind.service.context import open_context
    from tradewind.service.operations.pruning import prune as remove

    who = Principal(0, f"{getpass.getuser()} (command line)", "admin", "")
    with closing(open_context(settings, url, data_folder())) as context:
        found = asdict(remove(context, who, seconds, only_count=dry_run))
    if as_json:
        emit_json(found)
        return
    done = "would be removed" if dry_run else "removed"
    kept = found.pop("kept")
    typer.echo(", ".join(f"{count} {_named(name, count)}" for name, count in found.items()) + f" {done}")
    if kept:
        typer.echo(f"{kept} {_named('requests', kept)} could not be removed: the log says why")


def _settings(database: str | None, config: Path | None) -> tuple[Any, str]:
    from tradewind.cli.service.common import open_settings, require_service

    require_service()
    return open_settings({} if database is None else {"database": database}, file=config)


def _lines(figures: ServiceMetrics) -> list[tuple[str, str]]:
    from tradewind.utils.units import format_duration, format_money

    states = ", ".join(f"{count} {state.replace('_', ' ')}" for state, count in sorted(figures.requests.items()))
    notice_states: dict[str, int] = {}
    for (_, state), count in figures.notices.items():
        notice_states[state] = notice_states.get(state, 0) + count
    waiting = f"the oldest for {format_duration(figures.oldest)}" if figures.oldest else "none"
    return [
        ("requests", states or "none"),
        ("waiting", waiting),
        ("carried out", f"{figures.held} now" + (f", {figures.lost} by nobody any more" if figures.lost else "")),
        ("spent", f"{format_money(figures.spent)}, and {format_money(figures.reserved)} set aside"),
        ("notices", ", ".join(f"{count} {state}" for state, count in sorted(notice_states.items())) or "none"),
    ]


def _named(name: str, count: int) -> str:
    words = {"audit": ("line of the audit log", "lines of the audit log")}
    one, many = words.get(name, (name.removesuffix("s"), name))
    return one if count == 1 else many
