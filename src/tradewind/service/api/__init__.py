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

# What programs ask for all the time comes first: a call is compared with one router after the other.
ROUTERS: tuple[APIRouter, ...] = (
    requests.router,
    events.router,
    admin.router,
    applications.router,
    cluster.router,
    links.router,
    me.router,
    notices.router,
    offers.router,
    proposals.router,
    results.router,
    studies.router,
    tokens.router,
    users.router,
)
"""All routers; they are mounted below ``/api/v1``."""
