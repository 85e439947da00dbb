"""``tradewind serve``: the server with its REST and XML-RPC interfaces, its pages and its worker."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

StoreAddress = Annotated[
    str | None,
    typer.Option(help="Address of the store: sqlite:///FILE or postgresql://...", metavar="URL", show_default=False),
]
User = Annotated[
    str | None,
    typer.Option(help="The user to become, if started as root.", metavar="NAME", show_default="tradewind or nobody"),
]
AllowRoot = Annotated[bool, typer.Option("--allow-root", help="Stay root, and run users' programs as root.")]


def serve(
    host: Annotated[str | None, typer.Option(help="The address to listen on.", show_default="127.0.0.1")] = None,
    port: Annotated[int | None, typer.Option(help="The port; 0 takes a free one.", show_default="8765")] = None,
    database: StoreAddress = None,
    public_url: Annotated[
        str | None, typer.Option(help="What users type to come here, behind a proxy.", show_default=False)
    ] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option(help="PEM file of the certificate chain: HTTPS.", show_default=False)
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM file of its key.", show_default=False)] = None,
    runs: Annotated[
        int | None, typer.Option(help="Requests carried out at a time; 0: only answer.", show_default="4")
    ] = None,
    processes: Annotated[
        int | None, typer.Option(help="Processes that answer, at one port: for more processors.", show_default="1")
    ] = None,
    user: User = None,
    allow_root: AllowRoot = False,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="Any other setting: session_hours=8; repeatable.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="YAML file of settings.", show_default=False)] = None,
) -> None:
    """Start the service: REST, XML-RPC and a web page on one port, and a worker that carries requests out.

    Settings come from flags, then from TRADEWIND_SERVICE_* of the environment, then from --config, then defaults.
    """
    import sys

    from tradewind.cli.service.common import open_settings, require_service

    require_service()
    from tradewind.service.operations.server import Server
    from tradewind.service.operations.server_log import start_logging
    from tradewind.service.settings import check_secrets
    from tradewind.utils.paths import data_folder

    flags: dict[str, Any] = {
        "host": host,
        "port": port,
        "database": database,
        "public_url": public_url,
        "tls_certificate": tls_certificate,
        "tls_key": tls_key,
        "runs": runs,
        "processes": processes,
        "user": user,
        "allow_root": allow_root or None,
    }
    settings, url = open_settings({name: value for name, value in flags.items() if value is not None}, setting, config)
    check_secrets(settings)
    start_logging(settings.log_format, settings.log_level)
    code = Server(settings, url, data_folder()).run(_say, terminal=sys.stdout.isatty())
    if code:
        raise typer.Exit(code)


def _say(line: str) -> None:
    typer.echo(line)
    import sys

    sys.stdout.flush()
