"""rest.md: every route of REST and every procedure of XML-RPC, read from the OpenAPI document and the procedures."""

from __future__ import annotations

import inspect
import tempfile
from pathlib import Path
from typing import Any

from reference.text import code_marks, page, table

INTRO = """\
All routes begin with `/api/v1`. A server's `/openapi.json` says the same for programs, with the types of all bodies and
answers; [REST](../guides/rest.md) and [XML-RPC](../guides/xmlrpc.md) explain how they are used."""

_METHODS = ("get", "post", "put", "patch", "delete")


def write() -> str:
    """The page."""
    document = _document()
    tags = {tag["name"]: tag["description"] for tag in document["tags"]}
    found: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for path, methods in document["paths"].items():
        for method in _METHODS:
            if path.startswith("/api/") and method in methods:
                operation = methods[method]
                found.setdefault(operation["tags"][0], []).append((method, path.removeprefix("/api/v1"), operation))
    sections = [_section(name, tags[name], found[name]) for name in tags if name in found]
    return page("Routes of REST, procedures of XML-RPC", INTRO, *sections, _procedures(), _errors(document))


def _document() -> dict[str, Any]:
    from tradewind.service.app import create_app
    from tradewind.service.context import open_context
    from tradewind.service.settings import ServiceSettings

    with tempfile.TemporaryDirectory() as folder:
        context = open_context(ServiceSettings(), f"sqlite:///{folder}/service.db", Path(folder))
        try:
            return create_app(context).openapi()
        finally:
            context.close()


def _section(name: str, words: str, operations: list[tuple[str, str, dict[str, Any]]]) -> str:
    blocks = [f"## {name}", words]
    for method, path, operation in operations:
        blocks.append(f"### {method.upper()} {path}")
        blocks.append(" ".join(operation["description"].split()) + f" (`{operation['operationId']}`)")
        blocks.append(table(["parameter", "in", "type", "what it is"], _parameters(operation)))
        blocks.append(_body_words(operation))
        blocks.append("Answers: " + ", ".join(_answer(*one) for one in sorted(operation["responses"].items())) + ".")
    return "\n\n".join(block for block in blocks if block)


def _parameters(operation: dict[str, Any]) -> list[list[str]]:
    return [
        [
            f"`{one['name']}`" + (" (required)" if one.get("required") else ""),
            one["in"],
            _type(one["schema"]),
            one.get("description", ""),
        ]
        for one in operation.get("parameters", ())
    ]


def _type(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"] if one.get("type") != "null")
    if "enum" in schema:
        return " or ".join(f"`{one}`" for one in schema["enum"])
    if schema.get("type") == "array":
        return f"several of {_type(schema['items'])}"
    return str(schema.get("type", "anything"))


def _body_words(operation: dict[str, Any]) -> str:
    content = operation.get("requestBody", {}).get("content", {})
    return f"Body: {', '.join(f'`{kind}`' for kind in content)}." if content else ""


def _answer(status: str, answer: dict[str, Any]) -> str:
    kinds = [kind for kind in answer.get("content", {}) if kind != "application/json"]
    return f"{status} ({', '.join(kinds)})" if kinds else status


def _procedures() -> str:
    from tradewind.service.xmlrpc.procedures import NAMES

    blocks = ["## XML-RPC", "At `/RPC2`; `system.methodHelp` says the same."]
    for name, function in sorted(NAMES.items()):
        lines = (inspect.getdoc(function) or "").splitlines()
        blocks += [f"### {name}", f"{lines[0]}\n\n```text\n" + "\n".join(lines[2:] or ["No arguments."]) + "\n```"]
    return "\n\n".join(blocks)


def _errors(document: dict[str, Any]) -> str:
    rows = [[status, code_marks(one["description"])] for status, one in document["components"]["responses"].items()]
    return "## Refusals\n\nEach is a problem document (RFC 9457).\n\n" + table(["status", "meaning"], rows)
