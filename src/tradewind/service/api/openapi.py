"""The OpenAPI document: what FastAPI writes of the routes, with the errors that each may answer with."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from tradewind.service.http.responses import PROBLEM

DESCRIPTION = """\
Requests, applications, proposals and studies, for programs.

- **Who asks**: each call has the header `Authorization: Bearer tw_...`. What belongs to other tenants is answered with
  404, as what is not there.
- **Errors** are problem documents (RFC 9457); `code` does not change between versions, the words may.
- **Lists** have the newest first, and a header `Link` with the next page.
- **Watching**: answers with an `ETag` are answered with 304 where nothing has changed; where a route says so,
  `Accept: text/event-stream` opens a stream of server-sent events.
- Money is USD, time is seconds, moments are seconds since the epoch, memory is MiB where nothing else is said.
"""

TAGS = {
    "requests": "What users want run, how far it is, what it printed and what it left.",
    "events": "What happens to all requests that you may see.",
    "applications": "Programs with a form: registering, versions, forms, and files for them.",
    "proposals": "Which configuration to use, from past runs; nothing is run.",
    "studies": "Searches: their trials, and what their charts show.",
    "cluster": "Clusters that searches share.",
    "offers": "What providers sell, at which price.",
    "links": "Links to results, for people without an account.",
    "results": "Where your results go.",
    "notices": "What you are told of, by e-mail and by calls of your own programs.",
    "me": "The account of the user who calls.",
    "tokens": "Tokens of programs.",
    "users": "Accounts and tenants; for administrators.",
    "admin": "Where jobs run, and what is alive; for administrators.",
}

_PROBLEMS = {
    "400": "The body cannot be read.",
    "401": "No token or session, or one that is not known.",
    "403": "This user may not do that.",
    "404": "There is no such thing, or it is another tenant's.",
    "408": "The body did not arrive in time.",
    "409": "The object is not in a state for that, its name is taken, or somebody else has changed it meanwhile.",
    "413": "The body is too large.",
    "422": "Something in the call is wrong; `title` says what.",
    "429": "Asked too often, or a quota is used up; the header Retry-After says when to try again.",
    "503": "The server has as much to do as it can, or its database is held; likewise.",
}
_ALWAYS = ("400", "401", "403", "422", "429", "503")
_CHANGES = ("404", "408", "409", "413")
_RETRY = {"Retry-After": {"description": "Seconds after which to try again.", "schema": {"type": "integer"}}}

_PROBLEM: dict[str, Any] = {
    "title": "Problem",
    "description": "What is wrong (RFC 9457).",
    "type": "object",
    "required": ["type", "title", "status", "code"],
    "properties": {
        "type": {"type": "string", "description": "urn:tradewind: and the code."},
        "title": {"type": "string", "description": "What is wrong, in one line."},
        "status": {"type": "integer", "description": "The HTTP status."},
        "code": {"type": "string", "description": "The kind of error; it does not change between versions."},
        "hint": {"type": "string", "description": "What to do about it."},
        "line": {"type": "integer", "description": "The line of a document that was sent as text."},
        "fields": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": "What is wrong, by field of a form.",
        },
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"where": {"type": "string"}, "what": {"type": "string"}},
            },
            "description": "Each thing that is wrong, where there are several.",
        },
    },
    "examples": [
        {
            "type": "urn:tradewind:service.not-found",
            "title": "there is no such request",
            "status": 404,
            "code": "service.not-found",
            "hint": "the list of requests shows all of yours",
        }
    ],
}


def operation_id(route: APIRoute) -> str:
    """Return the name of a route's function: generated clients call their methods by it."""
    return route.name


def describe(app: FastAPI) -> dict[str, Any]:
    """Build the OpenAPI document of an application, once."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title,
            version=app.version,
            summary="Find the right cluster for a job, run it there, and watch it.",
            description=DESCRIPTION,
            routes=app.routes,
            tags=[{"name": name, "description": text} for name, text in TAGS.items()],
            license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        )
        document.setdefault("servers", [{"url": "/", "description": "This server."}])
        _finish(document)
        app.openapi_schema = document
    return app.openapi_schema


def _finish(document: dict[str, Any]) -> None:
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["Problem"] = _PROBLEM
    document["components"]["responses"] = {
        status: {
            "description": words,
            "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}},
            **({"headers": _RETRY} if status in ("429", "503") else {}),
        }
        for status, words in _PROBLEMS.items()
    }
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if path.startswith("/api/"):
                _add_problems(path, method, operation)


def _add_problems(path: str, method: str, operation: dict[str, Any]) -> None:
    answers = operation["responses"]
    answers.pop("422", None)  # FastAPI's own form of it
    wanted = [*_ALWAYS, *(_CHANGES if method not in ("get", "head") else ("404",) if "{" in path else ())]
    if any(
        one.get("in") == "query" and one["name"] in ("application", "tenant") for one in operation.get("parameters", ())
    ):
        wanted.append("404")
    for status in sorted({*wanted}):
        answers.setdefault(status, {"$ref": f"#/components/responses/{status}"})
    conditional = any(one["name"].lower() == "if-none-match" for one in operation.get("parameters", ()))
    if conditional:
        answers.setdefault("304", {"description": "Nothing has changed since the answer with this ETag."})
    operation["responses"] = dict(sorted(answers.items()))
