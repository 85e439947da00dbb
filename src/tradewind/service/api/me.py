"""Who am I."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, Field

from tradewind.service.api.access import Who

router = APIRouter(tags=["me"])


class Me(BaseModel):
    """The user who calls."""

    name: str = Field(description="The user's name.")
    role: str = Field(description="admin or user.")
    tenant: str = Field(description="Whose requests the user sees and makes.")


@router.get("/me")
def me(who: Who) -> Me:
    """Who the token or session belongs to."""
    return Me(name=who.name, role=who.role, tenant=who.tenant)
