"""Puts the server together."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from tradewind import __version__
from tradewind.errors import TradewindError
from tradewind.service import api, web
from tradewind.service.context import Context
from tradewind.service.faults import problem_of, status_of
from tradewind.service.operations.traffic import Traffic, TrafficMiddleware

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
    web.install(app)
    # The last to be added is the first that a call passes.
    app.state.traffic = Traffic()
    app.add_middleware(TrafficMiddleware, traffic=app.state.traffic)
    return app


def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, TradewindError)
    if web.faults.wants_page(request):
        return web.faults.page_of(request, error)
    headers = {"WWW-Authenticate": "Bearer"} if status_of(error) == 401 else {}
    return JSONResponse(problem_of(error), status_of(error), headers, "application/problem+json")
