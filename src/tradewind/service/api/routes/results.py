"""Locations that results are uploaded to, and share links to results."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from tradewind.service.api.authentication import Caller, Shared
from tradewind.service.document_limits import MAX_INTEGER
from tradewind.service.http.responses import Number
from tradewind.service.results.result_storage import ResultLocation
from tradewind.service.results.upload_state import UploadStage, UploadState, upload_again, upload_of
from tradewind.store.service.request_results import LinkRow

link_router = APIRouter(tags=["links"])

LinkId = Annotated[str, Path(max_length=64, description="The id of the link.")]


class NewLink(BaseModel):
    """Settings of a new link."""

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


router = APIRouter(tags=["results"])

RequestNumber = Annotated[int, Path(ge=1, le=MAX_INTEGER, description="The number of the request.")]

Address = Annotated[str, Query(max_length=1000, description="The address of the place.")]


class Place(BaseModel):
    """A place that results may go to; its password is never shown."""

    address: str = Field(description="Its address; results may go anywhere below it.")
    user: str = Field(description="The login or access key there.")
    secret: bool = Field(description="Whether a password is kept for it.")
    endpoint: str = Field(description="An object store's own address.")
    fingerprints: list[str] = Field(
        description="Those of an SFTP server's keys: compare them with what its owner says."
    )
    own: bool = Field(description="Whether it is yours; otherwise it is the administrator's.")
    default: bool = Field(description="Whether results go there where a request says nothing.")


class SetPlace(BaseModel):
    """A place of one's own."""

    model_config = ConfigDict(extra="forbid")

    address: str = Field(
        max_length=1000, description="`s3://bucket/folder`, `webdavs://host/path`, `sftp://user@host/path`."
    )
    user: str = Field(default="", max_length=200, description="The login, or the id of the access key.")
    password: str | None = Field(
        default=None, max_length=4000, description="The password or secret key; without it, the one that is kept."
    )
    endpoint: str = Field(
        default="", max_length=1000, description="The address of an object store other than Amazon's."
    )
    host_key: str = Field(default="", max_length=10_000, description="An SFTP server's keys; it is asked without.")
    default: bool = Field(default=False, description="Whether results go there where a request says nothing.")


class PublicKey(BaseModel):
    """A key to let in."""

    key: str = Field(description="A line for ~/.ssh/authorized_keys.")


class Checked(BaseModel):
    """A place that can be written."""

    address: str = Field(description="Its address.")


class Upload(BaseModel):
    """Progress of the upload of a request's results."""

    state: UploadStage = Field(description="none, later (no run has ended yet), waiting, done or failed.")
    address: str = Field(description="The folder that they go to; there is a folder for each run in it.")
    problem: str = Field(description="Why they are not there yet.")


@router.get("/me/places")
def list_places(who: Caller, shared: Shared) -> list[Place]:
    """The places that your results may go to."""
    return [_place(row) for row in shared.results.places(who)]


@router.put("/me/places")
def set_place(who: Caller, shared: Shared, wanted: SetPlace) -> Place:
    """Add a place of your own, or change it."""
    row = shared.results.set_place(
        who,
        wanted.address,
        user=wanted.user,
        password=wanted.password,
        endpoint=wanted.endpoint,
        host_key=wanted.host_key,
        default=wanted.default,
    )
    return _place(row)


@router.delete("/me/places", status_code=204)
def remove_place(who: Caller, shared: Shared, address: Address) -> None:
    """Remove a place of your own, with the password that is kept for it."""
    shared.results.remove_place(who, address)


@router.get("/me/places/key")
def public_key(who: Caller, shared: Shared) -> PublicKey:
    """The SSH key to let into the login of an SFTP place."""
    return PublicKey(key=shared.results.public_key(who))


@router.post("/me/places/check")
def check_place(who: Caller, shared: Shared, address: Address = "") -> Checked:
    """See whether results can be written to a place: a small file is written there, and removed."""
    return Checked(address=shared.results.check(who, address))


@router.get("/requests/{number}/upload")
def upload(who: Caller, shared: Shared, number: RequestNumber) -> Upload:
    """Progress of the upload of a request's results."""
    return _upload(upload_of(shared, who, number))


@router.post("/requests/{number}/upload")
def try_upload_again(who: Caller, shared: Shared, number: RequestNumber) -> Upload:
    """Have the upload of a request's results tried again at once, also one that was given up."""
    return _upload(upload_again(shared, who, number))


def _upload(found: UploadState) -> Upload:
    return Upload(state=found.state, address=found.address, problem=found.problem)


def _place(row: ResultLocation) -> Place:
    return Place(
        address=row.address,
        user=row.user,
        secret=row.secret,
        endpoint=row.endpoint,
        fingerprints=list(row.fingerprints),
        own=row.own,
        default=row.default,
    )
