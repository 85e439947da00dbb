"""Builds the server's ASGI application: REST, XML-RPC and pages."""

from __future__ import annotations

from functools import cache, partial

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.routing import BaseRoute

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
    app.router.routes.extend(_routes())
    web.show_errors_as_pages(app)

    def refused(address: str, call: str, error: TradewindError) -> None:
        context.audit.record_of("", "", address, "call.refused", call, "refused", {"code": error.code})

    app.add_middleware(RequestGuard, settings=context.settings, refused=refused, page=error_pages.refusal_page)
    # The last to be added is the first that a call passes.
    app.state.traffic = CallMetrics()
    app.state.health = HealthChecks(context, app.state.traffic)
    app.add_middleware(CallMetricsMiddleware, traffic=app.state.traffic, prefix=PREFIX)
    return app


@cache
def _routes() -> tuple[BaseRoute, ...]:
    """The routes of all applications of this process: to prepare them takes as long as hundreds of calls."""
    made = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, generate_unique_id_function=openapi.operation_id)
    for router in api.ROUTERS:
        made.include_router(router, prefix=PREFIX)
    made.include_router(xmlrpc.router)
    made.include_router(health.router)
    web.add_pages(made)
    return tuple(made.routes)


def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, TradewindError)
    authentication.record_refusal(request, error)
    if error_pages.wants_page(request):
        return error_pages.page_of(request, error)
    return responses.problem_response(error)
