"""The catalogue: thousands of offers in one table that filters as one types."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response

from tradewind.service.api.answers import headers_of, tag_of, unchanged
from tradewind.service.web.access import Shared, Viewer
from tradewind.service.web.page import render

router = APIRouter(include_in_schema=False)


@router.get("/offers")
def offers(request: Request, who: Viewer) -> HTMLResponse:
    """The table's page; the offers come by themselves."""
    return render(request, who, "offers.html.j2")


@router.get("/offers/columns")
def columns(request: Request, who: Viewer, shared: Shared) -> Response:
    """All offers by column, for the page's script."""
    stamp, body = shared.offers.all_json(who)
    tag = tag_of("offers", stamp)
    return unchanged(request, tag) or Response(body, 200, headers_of(tag), "application/json")
