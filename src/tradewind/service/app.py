"""Puts the server together."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from tradewind import __version__
from tradewind.errors import TradewindError
from tradewind.service import api
from tradewind.service.context import Context
from tradewind.service.faults import problem_of, status_of

PREFIX = "/api/v1"
"""Below it is REST; a change that breaks programs gets another one."""


def create_app(context: Context) -> FastAPI:
    """The server as an ASGI application.

    Args:
        context: What its parts share; it is not closed with the application.
    """
    # The pages that FastAPI offers for its document load their scripts from other hosts.
    app = FastAPI(title="Tradewind", version=__version__, docs_url=None, redoc_url=None, openapi_url="/openapi.json")
    app.state.context = context
    app.add_exception_handler(TradewindError, _refuse)
    for router in api.ROUTERS:
        app.include_router(router, prefix=PREFIX)
    return app


def _refuse(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, TradewindError)
    headers = {"WWW-Authenticate": "Bearer"} if status_of(error) == 401 else {}
    return JSONResponse(problem_of(error), status_of(error), headers, "application/problem+json")
