"""The pages, one module a kind of thing."""

from __future__ import annotations

from fastapi import APIRouter

from tradewind.service.web.pages import start

ROUTERS: tuple[APIRouter, ...] = (start.router,)
"""All routers of pages."""
