"""The REST interface, below ``/api/v1``."""

from __future__ import annotations

from fastapi import APIRouter

from tradewind.service.api.routes import (
    accounts,
    admin,
    applications,
    cluster,
    notices,
    proposals,
    requests,
    results,
    studies,
)
from tradewind.service.api.routes import accounts as tokens
from tradewind.service.api.routes import accounts as users
from tradewind.service.api.routes import proposals as offers
from tradewind.service.api.routes import requests as events
from tradewind.service.api.routes import results as links

# What programs ask for all the time comes first: a call is compared with one router after the other.
ROUTERS: tuple[APIRouter, ...] = (
    requests.router,
    events.event_router,
    admin.router,
    applications.router,
    cluster.router,
    links.link_router,
    accounts.router,
    notices.router,
    offers.offer_router,
    proposals.router,
    results.router,
    studies.router,
    tokens.token_router,
    users.user_router,
)
"""All routers; they are mounted below ``/api/v1``."""
