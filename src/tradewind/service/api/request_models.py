"""Pydantic models of requests: the REST schema, and its examples."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field, TypeAdapter
from pydantic.config import JsonDict

from tradewind.service.applications.parameter_words import given_values
from tradewind.service.requests.run_files import RunFileEntry
from tradewind.store.service.requests import RequestEvent, RequestRow

_LIST: JsonDict = {
    "id": 7,
    "name": "matrix, 4000",
    "kind": "run",
    "state": "executing",
    "wanted": "run",
    "application": "matrix@2",
    "tenant": "physics",
    "user": "ann",
    "problem": "",
    "hint": "",
    "cost": 0.0125,
    "reserved": 0.5,
    "study": 12,
    "created": 1795305600.0,
    "updated": 1795305609.25,
    "started": 1795305601.5,
    "ended": None,
    "progress": {"stage": "executing"},
    "parameters": {"size": 4000},
}


class RequestSummary(BaseModel):
    """A request, as lists show it."""

    model_config = {"json_schema_extra": {"examples": [_LIST]}}

    id: int = Field(description="Its number.")
    name: str = Field(description="What the user calls it.")
    kind: str = Field(description="run (one run) or search (a study with a budget).")
    state: str = Field(
        description="pending, booting, bootstrapping, submitting, executing or collecting; or how it ended: done, "
        "failed, timed_out, preempted or cancelled."
    )
    wanted: str = Field(description="What becomes of it: run, cancel or delete.")
    application: str = Field(description="name@version of its application; empty for a program of its own.")
    tenant: str = Field(description="Whose it is.")
    user: str = Field(description="Who made it.")
    problem: str = Field(description="Why it did not end well; empty where it did, or has not ended.")
    hint: str = Field(description="What to do about that; may be empty.")
    cost: float = Field(description="USD that it has cost so far, total.")
    reserved: float = Field(description="USD of the tenant's quota that are set aside for it.")
    study: int | None = Field(description="Its study, once it has one.")
    created: float = Field(description="When it was made, seconds since the epoch.")
    updated: float = Field(description="When anything of it last changed, seconds since the epoch.")
    started: float | None = Field(description="When it was first carried out, seconds since the epoch.")
    ended: float | None = Field(description="When it was over, seconds since the epoch.")
    progress: dict[str, Any] = Field(description="How far it is, for people: trials, best, spent, stage.")
    parameters: dict[str, Any] = Field(description="The values of its application's form.")


class RequestAnswer(RequestSummary):
    """A request with all that is known of it."""

    model_config = {
        "json_schema_extra": {
            "examples": [
                {**_LIST, "document": {"application": "matrix", "parameters": {"size": 4000}}, "plan": {"nodes": 2}}
            ]
        }
    }

    document: dict[str, Any] = Field(description="What was asked, as it was given.")
    plan: dict[str, Any] = Field(
        description="What was decided before it began: its configuration, its code, when a search ends (stops)."
    )


class Event(BaseModel):
    """Something that happened to a request."""

    model_config = {
        "json_schema_extra": {
            "examples": [
                {"id": 41, "request": 7, "at": 1795305601.5, "stage": "booting", "text": "2 machines", "details": {}}
            ]
        }
    }

    id: int = Field(description="Its number: what `since` and Last-Event-ID take.")
    request: int = Field(description="The request's number.")
    at: float = Field(description="Seconds since the epoch.")
    stage: str = Field(description="The request's state from then on.")
    text: str = Field(description="What happened, in words.")
    details: dict[str, Any] = Field(description="Facts by name.")


class File(BaseModel):
    """A file that a run has left."""

    model_config = {"json_schema_extra": {"examples": [{"path": "outputs/result.csv", "size": 1834}]}}

    path: str = Field(description="Its path, with /.")
    size: int = Field(description="Bytes.")


SUMMARIES = TypeAdapter(list[RequestSummary])
EVENT_LIST = TypeAdapter(list[Event])
FILES = TypeAdapter(list[File])


def summary_of(row: RequestRow) -> RequestSummary:
    """Build the list entry of a request."""
    return RequestSummary.model_construct(**_plain(row))


def request_of(row: RequestRow) -> RequestAnswer:
    """A request with all that is known of it."""
    return RequestAnswer.model_construct(**_plain(row), document=dict(row.document), plan=dict(row.plan))


def event_of(event: RequestEvent) -> Event:
    """Build the answer for an event."""
    return Event.model_construct(
        id=event.id,
        request=event.request_id,
        at=event.at,
        stage=event.stage,
        text=event.text,
        details=dict(event.details),
    )


def file_of(entry: RunFileEntry) -> File:
    """Build the answer for a file."""
    return File.model_construct(path=entry.path, size=entry.size)


def _plain(row: RequestRow) -> dict[str, Any]:
    # The row is the store's own: there is nothing left to validate.
    return {
        "id": row.id,
        "name": row.name,
        "kind": row.kind,
        "state": row.state,
        "wanted": row.wanted,
        "application": row.application,
        "tenant": row.tenant,
        "user": row.user,
        "problem": row.problem,
        "hint": row.hint,
        "cost": row.cost,
        "reserved": row.reserved,
        "study": row.study_id,
        "created": row.created,
        "updated": row.updated,
        "started": row.started,
        "ended": row.ended,
        "progress": dict(row.progress),
        "parameters": given_values(row),
    }
