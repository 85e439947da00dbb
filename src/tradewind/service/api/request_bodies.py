"""Bodies that may be JSON or YAML: documents that people keep in files."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import Depends, Request

from tradewind.errors import InputError
from tradewind.service.document_limits import check_document, check_text

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
    """How the schema tells of such a body.

    Args:
        schema: Of the JSON form.
        example: In YAML.
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
