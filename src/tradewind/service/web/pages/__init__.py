"""Routes of the pages, one module per kind of thing."""

from __future__ import annotations

from fastapi import APIRouter

from tradewind.service.web.pages import (
    account,
    admin,
    applications,
    home,
    infrastructure,
    new_request,
    request_results,
    requests,
    shared_results,
    studies,
)
from tradewind.service.web.pages import account as door
from tradewind.service.web.pages import infrastructure as clusters
from tradewind.service.web.pages import infrastructure as offers
from tradewind.service.web.pages import studies as workflows

ROUTERS: tuple[APIRouter, ...] = (
    account.router,
    admin.router,
    applications.router,
    clusters.cluster_router,
    home.router,
    door.sign_in_router,
    infrastructure.router,
    new_request.router,
    offers.offer_router,
    request_results.router,
    requests.router,
    shared_results.router,
    studies.router,
    workflows.workflow_router,
)
"""All routers of pages."""
