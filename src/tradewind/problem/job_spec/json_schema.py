"""The JSON schema of the job YAML, for completion and checks in editors."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from tradewind import plugins
from tradewind.problem.job_spec.model import JobFile

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


_SCRIPT = r"^([^:]*/[^:]*|[^:/]+\.(sh|bash|zsh|py|pl|rb))$"
_REFERENCE = r"^.+:[A-Za-z_]\w*$"


class _Generator(GenerateJsonSchema):
    """Leaves out titles that only repeat the key."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def encode_default(self, dft: Any) -> Any:
        """The default without the keys that are left out."""
        return (
            dft.model_dump(mode="json", exclude_none=True)
            if isinstance(dft, BaseModel)
            else super().encode_default(dft)
        )


def json_schema(*, built_in_only: bool = False) -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of a job YAML, with all installed parts and their settings.

    Args:
        built_in_only: Leave out parts of other packages.
    """
    schema = JobFile.model_json_schema(schema_generator=_Generator)
    definitions: dict[str, Any] = schema.pop("$defs")
    parts = {kind: _part(kind, definitions, built_in_only) for kind in sorted(_kinds(schema, definitions))}
    full = {"$schema": _DIALECT, **schema, "title": "Tradewind job"}
    full["patternProperties"] = {"^x-": {"description": "Room of yours: for anchors that other keys refer to."}}
    full["$defs"] = {**definitions, **{f"part_{kind}": part for kind, part in parts.items()}}
    resolved: dict[str, Any] = _resolve(full)
    return resolved


def _kinds(*documents: Any) -> set[str]:
    """The kinds of part that are marked somewhere in a schema."""
    found: set[str] = set()
    for document in documents:
        if isinstance(document, dict):
            if "x-tradewind-part" in document:
                found.add(document["x-tradewind-part"])
            found |= _kinds(*document.values())
        elif isinstance(document, list):
            found |= _kinds(*document)
    return found


def _resolve(document: Any) -> Any:
    """Put references where the models left marks."""
    if isinstance(document, list):
        return [_resolve(one) for one in document]
    if not isinstance(document, dict):
        return document
    kept = {key: _resolve(value) for key, value in document.items() if not str(key).startswith("x-tradewind-")}
    if "x-tradewind-part" in document:
        kept["$ref"] = f"#/$defs/part_{document['x-tradewind-part']}"
    if "x-tradewind-model" in document:
        kept["$ref"] = f"#/$defs/{document['x-tradewind-model']}"
    return kept


def _part(kind: str, definitions: dict[str, Any], built_in_only: bool) -> dict[str, Any]:
    """Schema for the choice of a part of one kind: by its name, or by a mapping with its settings."""
    names: list[dict[str, Any]] = []
    mappings: list[dict[str, Any]] = []
    for name, part in plugins.load_all(kind).items():
        if built_in_only and part.__module__.partition(".")[0] != "tradewind":
            continue
        own = part.Settings.model_json_schema(
            schema_generator=_Generator, ref_template=f"#/$defs/{kind}_{name}_{{model}}"
        )
        definitions |= {f"{kind}_{name}_{inner}": value for inner, value in own.pop("$defs", {}).items()}
        names.append({"const": name, "description": part.summary()})
        mappings.append(
            {
                **own,
                "title": name,
                "description": part.summary(),
                "properties": {"use": {"const": name}, **own.get("properties", {})},
                "required": ["use", *own.get("required", [])],
            }
        )
    by_file: dict[str, Any] = {
        "type": "string",
        "pattern": _REFERENCE,
        "description": f"A {kind} of your own: FILE.py:CLASS.",
    }
    mapping = {"type": "object", "title": "FILE.py:CLASS", "properties": {"use": by_file}, "required": ["use"]}
    more = [by_file]
    if kind in ("runner", "provisioner"):
        more.append(
            {"type": "string", "pattern": _SCRIPT, "description": "A program of your own: see the part script."}
        )
    return {"anyOf": [*names, *more, *mappings, mapping]}
