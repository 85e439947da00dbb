"""The catalogue: thousands of offers in one table that filters as one types."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response

from tradewind.service.http.responses import etag_headers, etag_of, not_modified
from tradewind.service.web.page_access import Shared, Viewer
from tradewind.service.web.rendering import render

offer_router = APIRouter(include_in_schema=False)


@offer_router.get("/offers")
def offers(request: Request, who: Viewer) -> HTMLResponse:
    """The table's page; the offers come by themselves."""
    return render(request, who, "offers.html.j2")


@offer_router.get("/offers/columns")
def columns(request: Request, who: Viewer, shared: Shared) -> Response:
    """All offers by column, for the page's script."""
    stamp, body = shared.offers.all_json(who)
    tag = etag_of("offers", stamp)
    return not_modified(request, tag) or Response(body, 200, etag_headers(tag), "application/json")
