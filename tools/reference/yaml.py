"""yaml.md: every key of the job YAML, read from the models that check it and from their JSON schema."""

from __future__ import annotations

import json
import re
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from reference.text import cell, first_line, page, table
from tradewind.cli.plugins import setting_rows

INTRO = """\
A job is one YAML file; `tradewind init` writes a commented one. Unknown keys are errors. A part is chosen by its name,
`searcher: gp`, or with its settings, `searcher: {use: gp, starts: 3}`; [plugins.md](plugins.md) lists them all.

Time is written `90s`, `45m` or `2h30m`, a bare number is seconds. Memory is written `512MiB` or `4GiB`, a bare number
is GiB. Money is USD, written `2` or `$2`. `1e3` and `1,000` are whole numbers, too; between `{` and `}` a comma ends a
value, so put `"1,000"` in quotes there.

Variables (`env`) and the words of a command reach the program as they are written: `3.10`, `010` and `1e3` stay what
they are. Choices in the space are numbers where they look like numbers: `[3.9, 3.10]` is warned about, for 3.10 is 3.1;
versions belong in quotes. Anchors, aliases and merge keys (`<<: *common`) work, and keys at the top that begin with
`x-` are room for anchors."""


def write() -> str:
    """The page."""
    from tradewind.engine.state_machine.stopping_rules import STOPPING_RULES
    from tradewind.problem.job_spec.model import TYPES, JobFile

    schema = JobFile.model_json_schema()
    sections = dict(_sections(JobFile, ()))
    blocks = [_keys("", JobFile, schema), *(_keys(title, model, schema) for title, model in sections.items())]
    blocks.append(
        "## Parameters\n\nEach key below `space` is a parameter. A list is a choice, `1..9` a range of whole numbers, "
        "`0.1..0.9` one of real numbers, `1..64 log` one on a log scale, `0..1 step 0.05` one in steps; "
        "`instance` and `nodes` imply their type."
    )
    blocks += [_keys(f"type: {name}", model, schema, depth=3) for name, model in TYPES.items()]
    blocks.append(
        "## Stopping rules\n\nA search ends when its budget is used up or when nothing is left to try. Below `stop` "
        "further reasons are listed, each by its name or with settings: `stop: [{use: no_improvement, trials: 20}]`. "
        "The first setting of each rule may be written behind its name: `stop: {no_improvement: 20, failed: 5}`."
    )
    blocks += [_rule(name, model) for name, (model, _) in STOPPING_RULES.items()]
    return page("The job YAML", INTRO, *blocks)


def _sections(model: type[BaseModel], path: tuple[str, ...]) -> Iterator[tuple[str, type[BaseModel]]]:
    """The models below one, each with the keys that lead to it; a model is met once."""
    from tradewind.problem.job_spec.model import TYPES, ChoiceModel

    for name, field in model.model_fields.items():
        for inner in _models(field.annotation):
            if inner in (model, ChoiceModel, *TYPES.values()):
                continue
            here = (*path, name)
            yield ".".join(here), inner
            yield from _sections(inner, here)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _models(argument)


def _keys(title: str, model: type[BaseModel], schema: Mapping[str, Any], depth: int = 2) -> str:
    own = schema if model.__name__ == schema.get("title") else schema["$defs"][model.__name__]
    rows = []
    for name, field in model.model_fields.items():
        if name == "type":
            continue  # the heading says it
        default = "required" if field.is_required() else _default(field.get_default(call_default_factory=True))
        default = _in_memory(default) if name == "log_limit" else default
        words = _words(own["properties"][name], schema)
        rows.append([f"`{name}`", words, default, field.description or ""])
    keys = table(["key", "values", "default", "what it does"], rows)
    heading = f"{'#' * depth} {cell(title)}\n\n" if title else ""
    return f"{heading}{first_line(model)}\n\n{keys}"


def _default(value: Any) -> str:
    if isinstance(value, BaseModel):
        value = value.model_dump(exclude_defaults=True)
    if isinstance(value, list):
        value = [v.model_dump(exclude_defaults=True) if isinstance(v, BaseModel) else v for v in value]
    if value is None or value in ({}, [], ""):
        return ""
    if isinstance(value, dict) and list(value) == ["use"]:
        value = value["use"]
    return f"`{json.dumps(value, ensure_ascii=False)}`" if not isinstance(value, str) else f"`{value}`"


def _rule(name: str, model: type[BaseModel]) -> str:
    rows = [
        [f"`{s.name}`", s.type, "required" if s.required else f"`{s.default}`", s.description]
        for s in setting_rows(model)
    ]
    return f"### {name}\n\n{first_line(model)}\n\n{table(['setting', 'values', 'default', 'what it does'], rows)}"


def _in_memory(default: str) -> str:
    return f"`{int(default.strip('`')) // 2**20}MiB`"


def _words(shape: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """A JSON schema in words."""
    if kind := shape.get("x-tradewind-part"):
        return f"{'an' if kind[0] in 'aeiou' else 'a'} [{kind}](plugins/{kind}.md)"
    if "$ref" in shape:
        name = str(shape["$ref"]).rpartition("/")[2]
        return _words({**schema["$defs"][name], "title": name}, schema)
    for union in ("anyOf", "oneOf"):
        if union in shape:
            parts = [_words(part, schema) for part in shape[union] if part.get("type") != "null"]
            return " or ".join(dict.fromkeys(parts))
    if "const" in shape:
        return f"`{shape['const']}`"
    if "enum" in shape:
        return ", ".join(f"`{value}`" for value in shape["enum"])
    kinds = shape.get("type", "anything")
    if isinstance(kinds, list):
        return " or ".join(_SIMPLE.get(kind, kind) for kind in kinds)
    if kinds == "array":
        if not shape.get("items"):
            return "list of two of these"
        return "list of " + re.sub(r"^an? ", "", _words(shape["items"], schema))
    if kinds == "object":
        return "mapping"
    examples = [f"`{example}`" for example in shape.get("examples", ())]
    return str(_SIMPLE.get(kinds, kinds)) + (f" ({', '.join(examples)})" if examples else "")


_SIMPLE = {"string": "text", "number": "number", "integer": "whole number", "boolean": "true or false"}
