"""Which notices follow from something that happened to a request."""

from __future__ import annotations

from typing import Any

from tradewind.service.notifications.preferences import NotificationPreferences, Occasion
from tradewind.store.service.notices import NoticeRow, RequestTransition
from tradewind.store.service.requests import ENDED


def notices_of(happening: RequestTransition, url: str) -> list[NoticeRow]:
    """The notices of an event: none for most.

    Args:
        happening: What happened.
        url: Where people come to the server; empty where that is not known.
    """
    occasion = _occasion(happening)
    user = happening.user
    if occasion is None or user.state != "active":
        return []
    wishes = NotificationPreferences.of(user).of_request(happening.request.document)
    document = document_of(happening, occasion, url)
    made = []
    if user.email and occasion in wishes.email:
        made.append(NoticeRow(0, user.id, "email", user.email, document, happening.request.id))
    if wishes.webhook and occasion in wishes.calls:
        made.append(NoticeRow(0, user.id, "webhook", wishes.webhook, document, happening.request.id))
    return made


def _occasion(happening: RequestTransition) -> Occasion | None:
    stage, before = happening.event.stage, happening.before
    if stage == before:
        return None  # a remark
    if stage == "pending":
        return "submitted" if not before or before in ENDED else None
    if stage in ENDED and before not in ENDED:
        return "finished" if stage in ("done", "cancelled") else "failed"
    return None


def document_of(happening: RequestTransition, occasion: Occasion, url: str) -> dict[str, Any]:
    """What a notice tells: the body of a call, and what an e-mail is written from."""
    request, event = happening.request, happening.event
    progress = request.progress
    facts: dict[str, Any] = {
        "id": request.id,
        "name": request.name,
        "kind": request.kind,
        "application": request.application,
        "state": event.stage,
        "problem": request.problem if event.stage in ENDED else "",
        "hint": request.hint if event.stage in ENDED else "",
        "cost": request.cost,
        "created": request.created,
        "started": request.started,
        "ended": request.ended,
        "user": happening.user.name,
        "tenant": request.tenant,
        "results": str(request.document.get("results") or ""),
        "best": progress.get("best"),
        "metric": progress.get("metric"),
    }
    if url:
        facts["url"] = f"{url.rstrip('/')}/requests/{request.id}"
    return {"event": f"request.{occasion}", "at": event.at, "request": facts}
