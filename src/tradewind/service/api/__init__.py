"""REST: one module a kind of thing, below ``/api/v1``."""

from __future__ import annotations

from fastapi import APIRouter

from tradewind.service.api import (
    admin,
    applications,
    cluster,
    events,
    links,
    me,
    notices,
    offers,
    proposals,
    requests,
    results,
    studies,
    tokens,
    users,
)

ROUTERS: tuple[APIRouter, ...] = (
    admin.router,
    applications.router,
    cluster.router,
    events.router,
    links.router,
    me.router,
    notices.router,
    offers.router,
    proposals.router,
    requests.router,
    results.router,
    studies.router,
    tokens.router,
    users.router,
)
"""All routers; they are mounted below ``/api/v1``."""
