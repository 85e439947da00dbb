"""Shared clusters: who uses what, what waits, and the machines that are alive."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from tradewind.service.api.authentication import Caller, Shared
from tradewind.service.http import responses
from tradewind.service.http.responses import Before, Limit, Number

router = APIRouter(tags=["cluster"])


class ClusterAnswer(BaseModel):
    """A shared cluster, as it was last."""

    model_config = ConfigDict(extra="allow")

    name: str = Field(description="Its name.")
    running: bool = Field(description="Whether a process runs it.")
    age: float = Field(description="Seconds since this was so.")
    settings: dict[str, Any] = Field(description="engine, fairness and priority.")
    nodes: int = Field(description="How many nodes.")
    total: dict[str, float] = Field(description="What there is, by resource.")
    used: dict[str, float] = Field(description="What is in use, by resource.")
    tenants: list[dict[str, Any]] = Field(description="Shares of the tenants; those of others together.")
    jobs: list[dict[str, Any]] = Field(description="The searches that are not over and that you may see.")
    takings: list[dict[str, Any]] = Field(
        description="The last runs of yours that were stopped for other tenants, and those of others for yours."
    )


class SearchAnswer(BaseModel):
    """A search that was submitted to a cluster."""

    model_config = ConfigDict(extra="allow")

    id: int = Field(description="Its number.")
    tenant: str = Field(description="Whose it is.")
    name: str = Field(description="The job's name.")
    study: int | None = Field(description="Its study, once it has begun.")
    state: str = Field(description="queued, running, paused, done, failed or cancelled.")
    reason: str = Field(description="Why it ended, in words.")
    submitted: float = Field(description="Seconds since the epoch.")
    started: float | None = Field(description="Seconds since the epoch.")
    ended: float | None = Field(description="Seconds since the epoch.")


class LeaseAnswer(BaseModel):
    """A run that is on its way, with its machines."""

    model_config = ConfigDict(extra="allow")

    study: str = Field(description="The job's name.")
    study_id: int = Field(description="The study's number.")
    run: str = Field(description="The run.")
    trial: int = Field(description="The trial that it is of.")
    state: str = Field(description="How far it is.")
    nodes: int = Field(description="How many machines.")
    provider: str = Field(description="Whose machines.")
    instance_type: str = Field(description="Which machines.")
    price_per_hour: float | None = Field(description="USD per hour of all nodes.")
    started: float | None = Field(description="Seconds since the epoch.")
    so_far: float | None = Field(description="USD, this run.")
    reserved: float = Field(description="USD set aside for it.")
    holder: str = Field(description="The process that watches it; empty when none does.")


@router.get("/clusters")
def list_clusters(who: Caller, shared: Shared) -> list[ClusterAnswer]:
    """All shared clusters, by name."""
    return [ClusterAnswer.model_validate(one) for one in shared.clusters.list(who)]


@router.get("/clusters/{name}")
def get_cluster(
    who: Caller,
    shared: Shared,
    name: Annotated[str, Path(max_length=200, description="Its name.", examples=["default"])],
) -> ClusterAnswer:
    """One shared cluster: its nodes, the shares of its tenants, and its searches."""
    return ClusterAnswer.model_validate(shared.clusters.get(who, name))


@router.get("/queue", responses={200: {"headers": {"Link": responses.LIST_HEADERS["Link"]}}})
def list_queue(
    request: Request,
    response: Response,
    who: Caller,
    shared: Shared,
    open_only: Annotated[bool, Query(description="Only those that are not over.")] = False,
    before: Before = None,
    limit: Limit = 50,
) -> list[SearchAnswer]:
    """Searches that were submitted to clusters, the newest first."""
    found = shared.clusters.jobs(who, open_only=open_only, before=before, limit=limit)
    link = responses.next_link(request, found[-1]["id"] if len(found) == limit else None)
    if link:
        response.headers["Link"] = link
    return [SearchAnswer.model_validate(one) for one in found]


@router.get("/queue/{number}")
def get_queued(who: Caller, shared: Shared, number: Number) -> SearchAnswer:
    """One search that was submitted to a cluster."""
    return SearchAnswer.model_validate(shared.clusters.job(who, number))


@router.get("/machines")
def list_machines(who: Caller, shared: Shared) -> list[LeaseAnswer]:
    """The runs on their way that you may see, with their machines and what they cost, the oldest first."""
    return [LeaseAnswer.model_validate(one) for one in shared.machines.leases(who)]
