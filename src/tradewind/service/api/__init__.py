"""REST: one module a kind of thing, below ``/api/v1``."""

from __future__ import annotations

from fastapi import APIRouter

from tradewind.service.api import me

ROUTERS: tuple[APIRouter, ...] = (me.router,)
"""All routers; they are mounted below ``/api/v1``."""
