"""The pages, one module a kind of thing."""

from __future__ import annotations

from fastapi import APIRouter

from tradewind.service.web.pages import account, applications, door, new, requests, results, studies

ROUTERS: tuple[APIRouter, ...] = (
    account.router,
    applications.router,
    door.router,
    new.router,
    requests.router,
    results.router,
    studies.router,
)
"""All routers of pages."""
