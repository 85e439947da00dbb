"""Bodies that may be JSON or YAML: documents that people keep in files."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.openapi.models import Example
from pydantic import BaseModel, WithJsonSchema

from tradewind.errors import InputError
from tradewind.service.document_limits import check_document, check_text
from tradewind.service.requests.request_document import RequestModel, VirtualClusterRequestModel

_MONEY = {"type": ["number", "string"], "examples": ["$2"], "description": "USD: 2, $2 or 50c."}


def _schema_of(model: type[BaseModel], title: str) -> dict[str, Any]:
    """Write a model's schema in one piece: OpenAPI keeps definitions elsewhere."""
    schema = model.model_json_schema()
    whole: dict[str, Any] = _inlined(schema, schema.pop("$defs", {}))
    return {**whole, "title": title}


def _inlined(schema: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_inlined(one, definitions) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        named = definitions[schema["$ref"].rpartition("/")[2]]
        schema = {**named, **{key: value for key, value in schema.items() if key != "$ref"}}
    # A default of None says no more than that it may be left out, and titles repeat the names.
    kept = {key: value for key, value in schema.items() if key not in ("default", "title")}
    if "properties" in kept:
        kept["properties"] = {name: _inlined(one, definitions) for name, one in kept["properties"].items()}
    return {key: value if key == "properties" else _inlined(value, definitions) for key, value in kept.items()}


_OWN = _schema_of(RequestModel, "Tradewind's own")
for _variant in _OWN["properties"]["search"]["anyOf"]:
    if "budget" in _variant.get("properties", {}):
        _variant["properties"]["budget"] = {"anyOf": [_MONEY, _variant["properties"]["budget"]]}

RequestDocument = Annotated[
    dict[str, Any],
    WithJsonSchema(
        {
            "title": "RequestDocument",
            "type": "object",
            "anyOf": [_OWN, _schema_of(VirtualClusterRequestModel, "Figure 4 of paper 5")],
        }
    ),
]
"""A request's document, as a parameter of a route."""

REQUEST: dict[str, Example] = {
    "run": {
        "summary": "A run of an application",
        "value": {
            "application": "matrix",
            "parameters": {"size": 4000},
            "configuration": {"instance": "c5.large", "nodes": 2},
            "notify": {"email": True},
        },
    },
    "search": {
        "summary": "A search for the cheapest configuration",
        "value": {
            "application": "matrix@2",
            "parameters": {"size": 4000},
            "search": {"budget": "$2", "deadline": "30m", "try_first": [{"nodes": 2}]},
        },
    },
    "figure-4": {
        "summary": "Figure 4 of the publication on virtual clusters",
        "value": {
            "resources": {"nodes": 2, "memory": 4096, "cpu": 4, "time": 100},
            "scheduler": {"name": "htcondor"},
            "backend": {"name": "opennebula"},
            "template": "executable = run.sh\narguments = {{ key1 }}\nqueue {{ resources.nodes }}\n",
            "user_data": {"key1": "value1"},
            "hooks": [{"stage": "submitting", "condition": "before", "name": "download-input-data.sh"}],
        },
    },
}
"""Examples of what is asked for."""

CHANGES: dict[str, Example] = {
    "larger": {"summary": "Another parameter", "value": {"parameters": {"size": 8000}}},
    "elsewhere": {"summary": "On another backend, without a name", "value": {"backend": "cloud", "name": None}},
}
"""Examples of changes."""


_YAML = ("application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml", "text/plain")


async def _document(request: Request) -> str | dict[str, Any]:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    data = await request.body()
    try:
        text = check_text(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise InputError("the body is no text in UTF-8") from None
    if kind in _YAML:
        return text
    if kind not in ("", "application/json"):
        raise InputError(
            f"a body of the type {kind[:60]} is not read", hint="send application/json or application/yaml"
        )
    try:
        document = check_document(json.loads(text))
    except (ValueError, RecursionError) as error:
        said = str(error) if isinstance(error, ValueError) else "it is nested too deep"
        raise InputError(f"the body is no JSON: {said}", hint="send YAML with Content-Type: application/yaml") from None
    if not isinstance(document, dict):
        raise InputError("the body is no JSON object", hint="send the document as an object")
    return document


Document = Annotated[str | dict[str, Any], Depends(_document)]
"""A document as YAML, which keeps its lines for errors, or as JSON."""


def described(schema: dict[str, Any], example: str) -> dict[str, Any]:
    """Describe such a body in the OpenAPI document.

    Args:
        schema: Schema of the JSON form.
        example: An example in YAML.
    """
    return {
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": schema},
                "application/yaml": {"schema": {"type": "string"}, "example": example},
            },
        }
    }
