"""Backends that jobs run on, and resources left over at providers."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from tradewind.service.api.authentication import AdminCaller, Caller, Shared
from tradewind.service.api.request_bodies import Document, described
from tradewind.service.applications.backends import Backend, BackendFile

router = APIRouter(tags=["admin"])

Name = Annotated[str, Path(max_length=200, description="Its name.", examples=["local"])]

_EXAMPLE = """\
title: The institute's cluster
users: everyone
deploy:
  runner: {use: slurm, partition: batch}
"""
_DOCUMENT = {
    "type": "object",
    "properties": {
        name: {"type": kind, "description": BackendFile.model_fields[name].description}
        for name, kind in {
            "title": "string",
            "description": "string",
            "users": "string",
            "own_code": "boolean",
            "deploy": "object",
            "offers": "object",
            "catalogues": "object",
        }.items()
    },
    "additionalProperties": False,
}


class BackendSummary(BaseModel):
    """A place where jobs run, as its users see it."""

    name: str = Field(description="Its name, as requests name it.")
    title: str = Field(description="What people call it.")
    description: str = Field(description="What stands there.")
    users: str = Field(description="Who may choose it: everyone or admins.")
    own_code: bool = Field(description="Whether programs that users bring may run there.")
    runner: str = Field(description="Who runs jobs there.")


class BackendAnswer(BackendSummary):
    """A place where jobs run, as administrators see it."""

    deploy: dict[str, Any] = Field(description="The deploy section of a job YAML.")
    offers: dict[str, Any] = Field(description="The offers that there are, as in a job YAML.")
    catalogues: dict[str, Any] = Field(description="Settings of catalogues, by name.")


class LeftOver(BaseModel):
    """List what providers and engines have of ours, and what is left over of it."""

    model_config = ConfigDict(extra="allow")

    asked: float = Field(description="When they were asked, seconds since the epoch.")
    left_over: list[dict[str, Any]] = Field(description="What nobody needs any more: reap gives it back.")
    kept: list[dict[str, Any]] = Field(description="What is in use.")
    problems: list[str] = Field(description="What could not be asked, and why.")


class Reap(BaseModel):
    """Resources to give back."""

    model_config = ConfigDict(extra="forbid")

    ids: list[str] = Field(max_length=1000, description="The ids of what is left over.")


class Reaped(BaseModel):
    """Outcome of giving back one of them."""

    id: str = Field(description="Its id.")
    gone: bool = Field(description="Whether it was given back.")
    problem: str = Field(description="Why it was not.")


@router.get("/backends")
def list_backends(who: Caller, shared: Shared) -> list[BackendSummary]:
    """The places that you may choose, by name."""
    return [BackendSummary(**_plain(one)) for one in shared.backends.list(who)]


@router.get("/backends/{name}")
def get_backend(who: AdminCaller, shared: Shared, name: Name) -> BackendAnswer:
    """One place with its settings; for administrators."""
    return _whole(shared.backends.get(who, name))


@router.put("/backends/{name}", openapi_extra=described(_DOCUMENT, _EXAMPLE))
async def set_backend(who: AdminCaller, shared: Shared, name: Name, document: Document) -> BackendAnswer:
    """Add a place where jobs run, or replace the one of that name; for administrators."""
    return _whole(await run_in_threadpool(shared.backends.set, who, name, document, file="body"))


@router.delete("/backends/{name}", status_code=204)
def remove_backend(who: AdminCaller, shared: Shared, name: Name) -> None:
    """Remove a place where jobs run; requests that run there go on; for administrators."""
    shared.backends.remove(who, name)


@router.post("/machines/look")
def look_at_machines(who: AdminCaller, shared: Shared) -> LeftOver:
    """Ask providers and engines what they have of ours, and say what is left over; for administrators."""
    return LeftOver.model_validate(shared.machines.look(who))


@router.post("/machines/reap")
def reap_machines(who: AdminCaller, shared: Shared, wanted: Reap) -> list[Reaped]:
    """Give back what is left over, of what is named: all is looked at anew before; for administrators."""
    return [Reaped.model_validate(one) for one in shared.machines.reap(who, wanted.ids)]


def _plain(one: Backend) -> dict[str, Any]:
    return {name: getattr(one, name) for name in BackendSummary.model_fields}


def _whole(one: Backend) -> BackendAnswer:
    catalogues = {name: dict(settings) for name, settings in one.catalogues.items()}
    return BackendAnswer(**_plain(one), deploy=dict(one.deploy), offers=dict(one.offers), catalogues=catalogues)
