"""Studies: searches with their trials, and what their charts show."""

from __future__ import annotations

import gzip
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from tradewind.service.api.authentication import Caller, Shared
from tradewind.service.api.routes.cluster import SearchAnswer
from tradewind.service.http import responses
from tradewind.service.http.responses import (
    Before,
    IfNoneMatch,
    Number,
    etag_of,
    json_list_response,
    json_response,
    not_modified,
)
from tradewind.service.studies import MAX_STUDIES, STATES

router = APIRouter(tags=["studies"])


class StudyAnswer(BaseModel):
    """A study as a whole: what was wanted, how far it is, what it has spent, and its best trial."""

    model_config = ConfigDict(extra="allow")

    id: int = Field(description="Its number.")
    name: str = Field(description="The job's name.")
    kind: str = Field(description="search; workflow for a run of a workflow, whose trials are its machines.")
    state: str = Field(description=f"{', '.join(STATES)}.")
    reason: str = Field(description="Why it ended, in words.")
    objective: dict[str, Any] = Field(description="metric, and goal: minimise or maximise.")
    deadline: float | None = Field(description="Seconds that a run may take.")
    budget: dict[str, Any] = Field(description="dollars, hours and trials; null for no limit.")
    searcher: str = Field(description="Who proposes.")
    counts: dict[str, int] = Field(description="Trials by state.")
    spent: float = Field(description="USD over all runs, total.")
    simulated: bool = Field(description="True where nobody has paid that: runs were simulated, or looked up.")
    reserved: float = Field(description="USD set aside for runs that are not settled.")
    elapsed: float = Field(description="Seconds of finished sessions.")
    created: float = Field(description="Seconds since the epoch.")
    running_since: float | None = Field(description="Since when a process works on it.")
    best: dict[str, Any] | None = Field(description="The best feasible trial.")
    tenant: str | None = Field(description="Whose it is; null for one that was made on the command line.")
    request: int | None = Field(description="The request that it is of.")
    cluster_job: int | None = Field(description="Its search in the queue of a cluster.")


class ContinuedBudget(BaseModel):
    """The budget with which a search goes on: of the whole study, what it has used included."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"trials": 50}]})

    trials: int | None = Field(None, ge=1, le=999_999_999, description="Number of trials at most.")
    dollars: float | None = Field(None, gt=0, le=1e9, allow_inf_nan=False, description="USD that it may spend.")


class TrialsAnswer(BaseModel):
    """Trials by column."""

    model_config = ConfigDict(extra="allow")

    total: int = Field(description="Trials of the study.")
    next: int | None = Field(description="Where the next page begins: send it as `since`.")
    origin: float = Field(description="What times count from, seconds since the epoch.")
    columns: dict[str, Any] = Field(description="Lists of numbers; words as {words, codes}.")
    parameters: list[dict[str, Any]] = Field(description="name and values of each parameter of the space.")
    best: int | None = Field(description="The best trial.")
    open_from: int = Field(description="The first trial that may still change.")


_WORTH_PACKING = 32_768
"""Bytes; 10,000 trials are a megabyte, and a sixth of it packed. What is small is sent sooner than it is packed."""

STUDIES = TypeAdapter(list[StudyAnswer])


@router.get("/studies", response_model=list[StudyAnswer], responses={200: {"headers": responses.LIST_HEADERS}})
def list_studies(
    request: Request,
    who: Caller,
    shared: Shared,
    state: Annotated[list[str] | None, Query(max_length=10, description=f"Only: {', '.join(STATES)}.")] = None,
    text: Annotated[str, Query(max_length=200, description="Only with this in the name.")] = "",
    tenant: Annotated[str, Query(max_length=200, description="Only of this tenant.")] = "",
    single_runs: Annotated[bool, Query(description="Also the studies of requests for a single run.")] = False,
    before: Before = None,
    limit: Annotated[int, Query(ge=1, le=MAX_STUDIES, description="How many at most.")] = 50,
    _known: IfNoneMatch = None,
) -> Response:
    """The studies that you may see, the newest first."""
    found = shared.studies.list(
        who, tenant=tenant, states=state or (), text=text, single_runs=single_runs, before=before, limit=limit
    )
    tag = etag_of(who.tenant, who.role, request.url.query, [(one["id"], one["stamp"], one["state"]) for one in found])
    if (same := not_modified(request, tag)) is not None:
        return same
    link = responses.next_link(request, found[-1]["id"] if len(found) == limit else None)
    return json_list_response(STUDIES, [StudyAnswer.model_construct(**one) for one in found], tag=tag, link=link)


@router.get("/studies/{number}", response_model=StudyAnswer, responses={200: {"headers": responses.TAG_HEADERS}})
def get_study(request: Request, who: Caller, shared: Shared, number: Number, _known: IfNoneMatch = None) -> Response:
    """One study: what was wanted, how far it is, what it has spent, and its best trial."""
    found = shared.studies.get(who, number)
    tag = etag_of(number, found["stamp"], found["state"], found["running_since"])
    return not_modified(request, tag) or json_response(StudyAnswer.model_construct(**found), tag=tag)


@router.get(
    "/studies/{number}/trials", response_model=TrialsAnswer, responses={200: {"headers": responses.TAG_HEADERS}}
)
def list_study_trials(
    request: Request,
    who: Caller,
    shared: Shared,
    number: Number,
    since: Annotated[int, Query(ge=0, le=responses.MAX_ID, description="The number of the first trial.")] = 0,
    limit: Annotated[int | None, Query(ge=1, le=100_000, description="How many at most; all without it.")] = None,
    _known: IfNoneMatch = None,
) -> Response:
    """The trials of a study by column, small enough for 10,000 of them."""
    stamp, body = shared.studies.trials_json(who, number, since=since, limit=limit)
    return _written(request, etag_of("trials", number, since, limit, stamp), body)


@router.post("/studies/{number}/continue", response_model=SearchAnswer)
def continue_study(
    who: Caller, shared: Shared, number: Number, budget: Annotated[ContinuedBudget | None, Body()] = None
) -> SearchAnswer:
    """Let the search of a study on a cluster go on that is over: nothing that was paid for is run again.

    The answer is the search in the queue. The quota of its tenant holds; a study of a request goes on with that.
    """
    wanted = {} if budget is None else budget.model_dump()
    found = shared.studies.get(who, number)
    return SearchAnswer.model_validate(shared.clusters.continue_study(who, found, shared.store, wanted))


@router.get("/studies/{number}/trials/{trial}", response_model=dict[str, Any])
def get_study_trial(
    who: Caller,
    shared: Shared,
    number: Number,
    trial: Annotated[int, Path(ge=0, le=responses.MAX_ID, description="The trial's number.")],
) -> dict[str, Any]:
    """Everything known of one trial: what was proposed and why, the machines, what it did, and its runs."""
    return shared.studies.trial(who, number, trial)


@router.get(
    "/studies/{number}/figures", response_model=dict[str, Any], responses={200: {"headers": responses.TAG_HEADERS}}
)
def get_study_figures(
    request: Request, who: Caller, shared: Shared, number: Number, _known: IfNoneMatch = None
) -> Response:
    """Figures of the charts of a study: the curve of the best so far, fronts, effects, and sentences about them."""
    stamp, body = shared.studies.figures_json(who, number)
    return _written(request, etag_of("figures", number, who.sees, stamp), body)


def _written(request: Request, tag: str, body: bytes) -> Response:
    if (same := not_modified(request, tag)) is not None:
        return same
    headers = responses.etag_headers(tag)
    headers["Vary"] += ", Accept-Encoding"
    if len(body) >= _WORTH_PACKING and responses.accepts_gzip(request):
        body = gzip.compress(body, 1, mtime=0)
        headers["Content-Encoding"] = "gzip"
    return Response(body, 200, headers, "application/json")
