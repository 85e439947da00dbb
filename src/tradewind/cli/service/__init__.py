"""The commands of the service: start it, and look after it."""

from __future__ import annotations

import typer

from tradewind.cli.service import serve
from tradewind.cli.service.application import application_app, backend_app
from tradewind.cli.service.manage import service_app
from tradewind.cli.service.user import user_app


def add_to(app: typer.Typer) -> None:
    """Add all commands of the service to the table of commands."""
    app.command("serve")(serve.serve)
    app.add_typer(application_app, name="application")
    app.add_typer(backend_app, name="backend")
    app.add_typer(user_app, name="user")
    app.add_typer(service_app, name="service")
