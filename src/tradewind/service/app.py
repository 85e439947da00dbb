"""Builds the server's ASGI application: REST, XML-RPC and pages."""

from __future__ import annotations

from functools import partial

from fastapi import FastAPI, Request
from fastapi.responses import Response

from tradewind import __version__
from tradewind.errors import TradewindError
from tradewind.service import api, web
from tradewind.service.api import authentication, openapi
from tradewind.service.context import Context
from tradewind.service.http import responses
from tradewind.service.http.call_metrics import CallMetrics, CallMetricsMiddleware
from tradewind.service.http.request_guard import RequestGuard
from tradewind.service.operations import health
from tradewind.service.operations.health import HealthChecks
from tradewind.service.web import error_pages
from tradewind.service.xmlrpc import endpoint as xmlrpc

PREFIX = "/api/v1"
"""Below it is REST; a change that breaks programs gets another one."""


def create_app(context: Context) -> FastAPI:
    """Build the server's ASGI application.

    Args:
        context: The server's shared context; it is not closed with the application.
    """
    # The pages that FastAPI offers for its document load their scripts from other hosts.
    app = FastAPI(
        title="Tradewind",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        generate_unique_id_function=openapi.operation_id,
    )
    app.openapi = partial(openapi.describe, app)  # type: ignore[method-assign]
    app.state.context = context
    responses.install_error_handlers(app)
    app.add_exception_handler(TradewindError, _refuse)
    for router in api.ROUTERS:
        app.include_router(router, prefix=PREFIX)
    app.include_router(xmlrpc.router)
    app.include_router(health.router)
    web.install(app)

    def refused(address: str, call: str, error: TradewindError) -> None:
        context.audit.record_of("", "", address, "call.refused", call, "refused", {"code": error.code})

    app.add_middleware(RequestGuard, settings=context.settings, refused=refused, page=error_pages.refusal_page)
    # The last to be added is the first that a call passes.
    app.state.traffic = CallMetrics()
    app.state.health = HealthChecks(context, app.state.traffic)
    app.add_middleware(CallMetricsMiddleware, traffic=app.state.traffic, prefix=PREFIX)
    return app


def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, TradewindError)
    authentication.record_refusal(request, error)
    if error_pages.wants_page(request):
        return error_pages.page_of(request, error)
    return responses.problem_response(error)
