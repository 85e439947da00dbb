"""Links to the results of requests."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, ConfigDict, Field

from tradewind.service.api.authentication import Caller, Shared
from tradewind.service.http.responses import Number
from tradewind.store.links import LinkRow

link_router = APIRouter(tags=["links"])

LinkId = Annotated[str, Path(max_length=64, description="The id of the link.")]


class NewLink(BaseModel):
    """What a new link is to be like."""

    model_config = ConfigDict(extra="forbid")

    days: float | None = Field(default=None, gt=0, le=3650, description="Days that it leads anywhere.")
    path: str = Field(default="", max_length=1000, description="Only this file, or what is below this folder.")


class Link(BaseModel):
    """A link to results; its secret was shown once, when it was made."""

    id: str = Field(description="What takes it away.")
    request: int = Field(description="The request.")
    path: str = Field(description="Only this file, or what is below this folder; empty for all.")
    created: float = Field(description="When it was made, seconds since the epoch.")
    expires: float | None = Field(description="When it leads nowhere any more.")


class MadeLink(Link):
    """A new link."""

    url: str = Field(description="The link; it is shown this once.")


@link_router.post("/requests/{number}/links", status_code=201)
def make_link(request: Request, who: Caller, shared: Shared, number: Number, body: NewLink | None = None) -> MadeLink:
    """Make a link to the files of a request: whoever has it may look at them, without signing in."""
    wanted = body or NewLink()
    row, path = shared.links.make(who, number, days=wanted.days, path=wanted.path)
    place = shared.settings.public_url or str(request.base_url)
    return MadeLink(**_shown(row), url=place.rstrip("/") + path)


@link_router.get("/requests/{number}/links")
def list_links(who: Caller, shared: Shared, number: Number) -> list[Link]:
    """The links of a request that still lead anywhere."""
    return [Link(**_shown(row)) for row in shared.links.list(who, number)]


@link_router.delete("/requests/{number}/links/{link}", status_code=204)
def revoke_link(who: Caller, shared: Shared, number: Number, link: LinkId) -> None:
    """Take a link away."""
    shared.links.revoke(who, number, link)


def _shown(row: LinkRow) -> dict[str, object]:
    return {
        "id": row.id,
        "request": row.request_id,
        "path": row.path,
        "created": row.created,
        "expires": row.expires,
    }
