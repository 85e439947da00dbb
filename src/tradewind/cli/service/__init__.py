"""The commands of the service: start it, and look after it."""

from __future__ import annotations

import typer

from tradewind.cli.service import login, serve
from tradewind.cli.service.application import application_app
from tradewind.cli.service.backend import backend_app
from tradewind.cli.service.maintenance import service_app
from tradewind.cli.service.request import request_app
from tradewind.cli.service.user import user_app


def add_to(app: typer.Typer) -> None:
    """Add all commands of the service to the table of commands."""
    app.command("serve")(serve.serve)
    app.command("login")(login.login)
    app.command("logout")(login.logout)
    app.add_typer(request_app, name="request")
    app.add_typer(application_app, name="application")
    app.add_typer(backend_app, name="backend")
    app.add_typer(user_app, name="user")
    app.add_typer(service_app, name="service")
