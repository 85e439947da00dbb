"""The pages, one module a kind of thing."""

from __future__ import annotations

from fastapi import APIRouter

from tradewind.service.web.pages import (
    account,
    admin,
    applications,
    clusters,
    door,
    machines,
    new,
    offers,
    requests,
    results,
    studies,
    workflows,
)

ROUTERS: tuple[APIRouter, ...] = (
    account.router,
    admin.router,
    applications.router,
    clusters.router,
    door.router,
    machines.router,
    new.router,
    offers.router,
    requests.router,
    results.router,
    studies.router,
    workflows.router,
)
"""All routers of pages."""
