"""Notices to users, by e-mail and webhook, and their settings."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from tradewind.service.api.authentication import Caller, Shared
from tradewind.service.http.responses import Number
from tradewind.service.notifications.notification_service import NotificationChannels
from tradewind.service.notifications.preferences import Occasion
from tradewind.store.service.notices import NoticeRow

router = APIRouter(tags=["notices"])


class NoticeWays(BaseModel):
    """Ways in which you are notified."""

    address: str = Field(description="Your e-mail address, as your account has it.")
    mail: bool = Field(description="Whether this server sends e-mails at all.")
    email: list[Occasion] = Field(description="When an e-mail is sent: submitted, finished, failed.")
    webhook: str = Field(description="The URL that calls go to; empty for none.")
    calls: list[Occasion] = Field(description="When one goes there.")


class ChangeWays(BaseModel):
    """Changes to the ways in which you are notified; what is left out stays as it is."""

    model_config = ConfigDict(extra="forbid")

    email: list[Occasion] | None = Field(default=None, max_length=3, description="When an e-mail is sent.")
    webhook: str | None = Field(default=None, max_length=2000, description="The URL that calls go to; empty for none.")
    calls: list[Occasion] | None = Field(default=None, max_length=3, description="When one goes there.")


class Key(BaseModel):
    """A key that calls are signed with."""

    key: str = Field(description="The key; it is shown this once, and an older one no longer counts.")


class Notice(BaseModel):
    """A notice, and how it went."""

    id: int = Field(description="Its number.")
    request: int | None = Field(description="The request that it is about.")
    kind: Literal["email", "webhook"] = Field(description="How it is sent.")
    event: str = Field(description="What it tells: request.finished.")
    target: str = Field(description="The address, or the URL.")
    delivery: str = Field(description="Its name on the wire, the same for every attempt.")
    state: Literal["waiting", "sending", "sent", "failed"] = Field(description="How far it is.")
    problem: str = Field(description="Why the last attempt went wrong.")
    attempts: int = Field(description="How often it was tried.")
    created: float = Field(description="When it happened, seconds since the epoch.")
    due: float = Field(description="When it is tried next.")
    ended: float | None = Field(description="When it was sent, or given up.")


@router.get("/me/notices")
def notice_ways(who: Caller, shared: Shared) -> NoticeWays:
    """Ways in which you are notified."""
    return _ways(shared.notices.ways(who))


@router.patch("/me/notices")
def change_notice_ways(who: Caller, shared: Shared, wanted: ChangeWays) -> NoticeWays:
    """Change how you are told of things."""
    changed = shared.notices.change(who, email=wanted.email, webhook=wanted.webhook, calls=wanted.calls)
    return _ways(changed)


@router.post("/me/notices/key")
def make_notice_key(who: Caller, shared: Shared) -> Key:
    """Make another key that calls to you are signed with."""
    return Key(key=shared.notices.key(who))


@router.post("/me/notices/test", status_code=202)
def send_test_notice(
    who: Caller,
    shared: Shared,
    kind: Annotated[Literal["email", "webhook"], Query(description="How it is sent.")],
) -> Notice:
    """Send yourself a notice that says nothing, to see whether it arrives."""
    return _notice(shared.notices.test(who, kind))


@router.get("/me/notices/recent")
def recent_notices(
    who: Caller, shared: Shared, limit: Annotated[int, Query(ge=1, le=200, description="So many at most.")] = 20
) -> list[Notice]:
    """The last notices to you, the newest first, with how they went."""
    return [_notice(row) for row in shared.notices.recent(who, limit)]


@router.get("/requests/{number}/notices")
def notices_of_request(who: Caller, shared: Shared, number: Number) -> list[Notice]:
    """The notices of a request, the oldest first."""
    return [_notice(row) for row in shared.notices.of_request(who, number)]


def _ways(ways: NotificationChannels) -> NoticeWays:
    preferences = ways.preferences
    return NoticeWays(
        address=ways.address,
        mail=ways.mail,
        email=list(preferences.email),
        webhook=preferences.webhook,
        calls=list(preferences.calls),
    )


def _notice(row: NoticeRow) -> Notice:
    return Notice(
        id=row.id,
        request=row.request_id,
        kind=row.kind,
        event=str(row.document.get("event", "")),
        target=row.target,
        delivery=row.delivery,
        state=row.state,
        problem=row.problem,
        attempts=row.attempts,
        created=row.created,
        due=row.due,
        ended=row.ended,
    )
