"""The first page leads on to the requests."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse

from tradewind.service.web.access import Viewer
from tradewind.service.web.page import redirect

router = APIRouter(include_in_schema=False)


@router.get("/")
def start(request: Request, who: Viewer) -> RedirectResponse:
    """What one works with comes first."""
    return redirect(request, "/requests")
