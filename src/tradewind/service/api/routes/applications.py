"""Applications: registering them, their versions and forms, and files for the forms."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from tradewind.errors import TooLargeError
from tradewind.service.api.authentication import Caller, Shared
from tradewind.service.api.request_bodies import Document, described
from tradewind.service.applications.application_service import MAX_PIECE
from tradewind.service.applications.form import ApplicationForm
from tradewind.store.service.applications import ApplicationRow

router = APIRouter(tags=["applications"])

Name = Annotated[
    str, Path(max_length=300, description="name for its newest version, name@3 for that one.", examples=["matrix"])
]
Tenant = Annotated[
    str | None,
    Query(
        max_length=200,
        description="The tenant that has it; empty for a shared one. Without it, your tenant's comes first.",
    ),
]

_EXAMPLE = """\
name: matrix
application:
  title: Multiply matrices
  fields:
    size: {type: integer, min: 100, max: 20000, default: 4000}
job:
  command: [matrix, --size, "{{ size }}"]
space:
  instance: {vcpu: 2..16}
"""
_DOCUMENT = {
    "type": "object",
    "description": "A job YAML with a block `application`, as JSON.",
    "properties": {"name": {"type": "string"}, "application": {"type": "object"}, "job": {"type": "object"}},
    "required": ["name", "job"],
}


class ApplicationSummary(BaseModel):
    """A version of an application."""

    name: str = Field(description="Its name.")
    version: int = Field(description="1 for the first.")
    reference: str = Field(description="name@version, as requests name it.", examples=["matrix@2"])
    tenant: str = Field(description="Whose it is; empty where all tenants see it.")
    author: str = Field(description="Who registered it.")
    trusted: bool = Field(description="Whether that was an administrator.")
    state: str = Field(description="active or retired.")
    created: float = Field(description="Seconds since the epoch.")


class ApplicationAnswer(ApplicationSummary):
    """A version of an application, with its document."""

    document: str = Field(description="The YAML that it was registered with.")


class FormFieldAnswer(BaseModel):
    """A field of a form."""

    name: str = Field(description="The key of its value among the parameters.")
    type: str = Field(description="integer, number, text, choice, boolean or file.")
    title: str = Field(description="What stands beside it.")
    help: str = Field(description="A sentence that explains it.")
    default: float | int | str | bool | None = Field(description="Its value where it is left alone.")
    required: bool = Field(description="Whether a value must be given.")
    min: float | None = Field(description="The least number, or the fewest characters.")
    max: float | None = Field(description="The greatest number, the most characters, or the most MiB.")
    choices: list[float | int | str | bool] = Field(description="The values of a choice.")
    unit: str = Field(description="What the number counts.")
    step: float | None = Field(description="The distance between values.")
    lines: bool = Field(description="Whether a text may have several lines.")
    suffix: str = Field(description="The ending of a file's name in the run.")
    when: dict[str, list[float | int | str | bool]] = Field(
        description="It exists only where each of these fields has one of these values."
    )


class FormAnswer(BaseModel):
    """The form of an application."""

    application: str = Field(description="name@version.")
    title: str = Field(description="What people call the application.")
    description: str = Field(description="What it does.")
    fields: list[FormFieldAnswer] = Field(description="The fields, in order.")
    space: list[str] = Field(description="The parameters of the configuration that may be chosen.")
    objective: str = Field(description="What is wanted, such as: minimise cost.")
    deadline: float | None = Field(description="Seconds that a run may take where nobody says otherwise.")
    backend: str = Field(description="Where it runs where nobody says otherwise; empty for the server's first.")
    stops: str = Field(description="When a search ends by itself, in words; empty where it uses its budget.")
    json_schema: dict[str, Any] = Field(description="JSON Schema (draft 2020-12) of the parameters.")


class UploadedFile(BaseModel):
    """The value of a file field: send it as it is among the parameters."""

    file: str = Field(description="sha256: and the digest.")
    name: str = Field(description="What the user calls it.")
    size: int = Field(description="Bytes.")


@router.get("/applications")
def list_applications(
    who: Caller,
    shared: Shared,
    retired: Annotated[bool, Query(description="Also those that were retired.")] = False,
) -> list[ApplicationSummary]:
    """The newest version of every application that you see, by name."""
    return [_summary(row) for row in shared.applications.list(who, retired=retired)]


@router.post("/applications", status_code=201, openapi_extra=described(_DOCUMENT, _EXAMPLE))
async def register_application(
    who: Caller,
    shared: Shared,
    document: Document,
    for_all: Annotated[bool, Query(alias="shared", description="For all tenants; administrators only.")] = False,
    vouch: Annotated[
        bool,
        Query(description="You have read it: typed text is data wherever it says so; administrators only."),
    ] = False,
) -> ApplicationAnswer:
    """Register an application, or the next version of one; an unchanged document is the version that is there."""
    register = shared.applications.register
    return _whole(await run_in_threadpool(register, who, document, shared=for_all, vouch=vouch, file="body"))


@router.get("/applications/{name}")
def get_application(
    who: Caller,
    shared: Shared,
    name: Name,
    tenant: Tenant = None,
    retired: Annotated[bool, Query(description="Also one that was retired.")] = False,
) -> ApplicationAnswer:
    """One application, with its document."""
    return _whole(shared.applications.get(who, _reference(name, tenant), retired=retired))


@router.delete("/applications/{name}", status_code=204)
def retire_application(who: Caller, shared: Shared, name: Name, tenant: Tenant = None) -> None:
    """Retire an application, or one version of it: no new request can use it."""
    shared.applications.retire(who, _reference(name, tenant))


@router.get("/applications/{name}/versions")
def list_application_versions(
    who: Caller, shared: Shared, name: Name, tenant: Tenant = None
) -> list[ApplicationSummary]:
    """All versions of an application, retired ones too, the newest first."""
    return [_summary(row) for row in shared.applications.versions(who, _reference(name, tenant))]


@router.get("/applications/{name}/form")
def get_application_form(who: Caller, shared: Shared, name: Name, tenant: Tenant = None) -> FormAnswer:
    """The form of an application: its fields with types and ranges, and the same as JSON Schema."""
    return _form(shared.applications.form(who, _reference(name, tenant)))


@router.post(
    "/uploads",
    status_code=201,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def upload_file(
    request: Request,
    who: Caller,
    shared: Shared,
    name: Annotated[str, Query(min_length=1, max_length=200, description="What you call it.", examples=["mesh.dat"])],
) -> UploadedFile:
    """Hand in a file for a form: the answer is the value of the form's field."""
    data = await request.body()
    kept = await run_in_threadpool(shared.applications.upload, who, name, data)
    return UploadedFile.model_validate(kept)


class UploadedPiece(BaseModel):
    """A piece of a file."""

    piece: str = Field(description="Its name for POST /uploads/join.")


class PiecesToJoin(BaseModel):
    """A file that came in pieces."""

    name: str = Field(min_length=1, max_length=200, description="What you call it.", examples=["mesh.dat"])
    pieces: list[Annotated[str, Field(pattern="^[0-9a-f]{64}$")]] = Field(
        min_length=1, max_length=10_000, description="Its pieces, in order."
    )


@router.post(
    "/uploads/pieces",
    status_code=201,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        }
    },
)
async def upload_piece(request: Request, who: Caller, shared: Shared) -> UploadedPiece:
    """Hand in a piece of a file, of at most 4 MiB; it is kept for a day."""
    data = await request.body()
    if len(data) > MAX_PIECE:
        raise TooLargeError(MAX_PIECE, hint="send it in several pieces")
    return UploadedPiece(piece=await run_in_threadpool(shared.applications.upload_piece, who, data))


@router.post("/uploads/join", status_code=201)
def join_pieces(who: Caller, shared: Shared, sent: PiecesToJoin) -> UploadedFile:
    """Make a file for a form of pieces that were handed in: the answer is the value of the form's field."""
    return UploadedFile.model_validate(shared.applications.join_pieces(who, sent.name, sent.pieces))


def _reference(name: str, tenant: str | None) -> str:
    return name if tenant is None else f"{tenant}/{name}"


def _summary(row: ApplicationRow) -> ApplicationSummary:
    return ApplicationSummary(**_plain(row))


def _whole(row: ApplicationRow) -> ApplicationAnswer:
    return ApplicationAnswer(**_plain(row), document=row.document)


def _plain(row: ApplicationRow) -> dict[str, Any]:
    names = ("name", "version", "reference", "tenant", "author", "trusted", "state", "created")
    return {name: getattr(row, name) for name in names}


def _form(form: ApplicationForm) -> FormAnswer:
    return FormAnswer(
        application=form.application,
        title=form.title,
        description=form.description,
        fields=[
            FormFieldAnswer(
                **{
                    name: getattr(one, name) for name in FormFieldAnswer.model_fields if name not in ("choices", "when")
                },
                choices=list(one.choices),
                when={name: list(values) for name, values in one.when.items()},
            )
            for one in form.fields
        ],
        space=list(form.space),
        objective=form.objective,
        deadline=form.deadline,
        backend=form.backend,
        stops=form.stops,
        json_schema=dict(form.schema),
    )
