"""The pages, one module a kind of thing."""

from __future__ import annotations

from fastapi import APIRouter

from tradewind.service.web.pages import applications, door, new, requests, results

ROUTERS: tuple[APIRouter, ...] = (applications.router, door.router, new.router, requests.router, results.router)
"""All routers of pages."""
