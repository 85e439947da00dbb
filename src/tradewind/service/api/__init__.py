"""REST: one module a kind of thing, below ``/api/v1``."""

from __future__ import annotations

from fastapi import APIRouter

from tradewind.service.api import events, links, me, requests, tokens, users

ROUTERS: tuple[APIRouter, ...] = (
    events.router,
    links.router,
    me.router,
    requests.router,
    tokens.router,
    users.router,
)
"""All routers; they are mounted below ``/api/v1``."""
