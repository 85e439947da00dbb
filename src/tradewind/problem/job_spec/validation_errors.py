"""Turns what pydantic found wrong into one line with the file, the line and what to write instead."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from tradewind.errors import SpecError
from tradewind.problem.yaml_source import KeyPath, YamlSource
from tradewind.utils.suggestions import did_you_mean
from tradewind.utils.units import count

_WANTED = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "string": "text",
    "list": "a list",
    "tuple": "a list",
    "dict": "a mapping",
    "model": "a mapping",
}

_ELSEWHERE = {
    "application": "this is an application of the service: tradewind application register {file}",
    "tasks": "this is a workflow: tradewind workflow info {file}",
    "vms": "these are machines for a workflow: tradewind workflow plan WORKFLOW --vms {file}",
}
"""What a file is that has such a key, and which command takes it."""

_NUMBER, _SPACE, _SEARCHER = "budget: {trials: ...}", "space", "searcher"
_OF_OTHER_TOOLS = {
    **dict.fromkeys(("n_trials", "num_trials", "max_trials", "num_samples", "max_evals"), _NUMBER),
    **dict.fromkeys(("n_jobs", "max_concurrent_trials", "parallel_trials"), "parallel"),
    **dict.fromkeys(("search_space", "param_space", "params"), _SPACE),
    **dict.fromkeys(("sampler", "search_alg", "algorithm"), _SEARCHER),
    **dict.fromkeys(("pruner", "scheduler"), "early_stop"),
    **dict.fromkeys(("minimize", "direction", "metric"), "objective: {minimise: ...}"),
    **dict.fromkeys(
        ("demand", "resources", "resources_per_trial"),
        "offers: {vcpu: ..., memory: ..., gpus: ...}, or tradewind submit --demand cpu=2,gpu=1",
    ),
    "maximize": "objective: {maximise: ...}",
    "timeout": "budget: {hours: ...}, or constraints: {deadline: ...} for one run",
}
"""What other tools call a key of the job YAML, and where it stands here."""


def first_error(errors: Sequence[SpecError]) -> SpecError:
    """The error to show: the one that stands first in the file; it says how many others there are."""
    # A key that is missing is often one that is misspelt further down: the misspelling says more.
    ordered = sorted(errors, key=lambda error: (" is missing" in error.message, error.line or 0))
    first = ordered[0]
    if len(ordered) == 1:
        return first
    more = f"(and {len(ordered) - 1} more)"
    if first.hint:
        return SpecError(first.message, hint=f"{first.hint}) {more[:-1]}", file=first.file, line=first.line)
    return SpecError(f"{first.message} {more}", file=first.file, line=first.line)


def spec_errors(
    error: ValidationError, model: type[BaseModel], source: YamlSource, prefix: KeyPath = ()
) -> list[SpecError]:
    """List every fault, in the user's words.

    Args:
        error: What pydantic raised.
        model: The model that it validated.
        source: The document.
        prefix: Where in the document that model starts.
    """
    found = [_one(dict(details), model, source, prefix) for details in error.errors()]
    return list({str(one): one for one in found}.values())  # each value that a list lacks is an error of its own


def _one(details: Mapping[str, Any], model: type[BaseModel], source: YamlSource, prefix: KeyPath) -> SpecError:
    loc = tuple(details["loc"])
    place = (*prefix, *_written(loc, _at(source.document, prefix)))
    kind = details["type"]
    if kind == "missing" and isinstance(loc[-1], str) and place[-1:] != loc[-1:]:  # only the part's name was written
        place = (*place, loc[-1])
    label = ".".join(str(piece) for piece in place)
    got = details.get("input")
    context = details.get("ctx") or {}
    if kind == "tradewind":
        return source.error(place, f"{label}: {context['message']}", context["hint"] or None)
    if kind == "extra_forbidden":
        return _unknown(place, _known_keys(model, loc[:-1]), source, None if prefix else model)
    if (wrong := _wrong_length(kind, loc, model, got)) is not None:
        at = loc[:-1] if kind == "missing" else loc
        return source.error(place, f"{label}: {wrong}", _needed(model, at))
    if kind == "missing":
        return source.error(place, f"{label} is missing", _needed(model, loc))
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        known = [tag.strip(" '") for tag in str(context.get("expected_tags", "")).split(",")]
        tag = str(context.get("tag", ""))
        return source.error(
            (*place, "type"), f"{label}: there is no type {tag!r}", did_you_mean(tag, known, "types are")
        )
    if kind == "literal_error" and place and loc[-1] == "[key]":
        key = str(got)
        label = ".".join(str(piece) for piece in place if piece != key)
        hint = did_you_mean(key, str(context["expected"]).replace("'", "").replace(" or ", ", ").split(", "), "known:")
        return source.error((*place, key), f"unknown key {key!r} in {label}", hint)
    return source.error(place, f"{label}: {_reason(kind, got, details)}")


def _wrong_length(kind: str, loc: KeyPath, model: type[BaseModel], got: Any) -> str | None:
    """Message for a list that has another number of values than wanted; None for other errors."""
    missing = kind == "missing" and isinstance(loc[-1], int)
    if not missing and kind != "too_long":
        return None
    wanted = _values_of(model, loc[:-1] if missing else loc)
    if wanted is None or not isinstance(got, Sequence):
        return "too few values" if missing else None
    return f"wanted {count(wanted, 'value')}, got {len(got)}"


def _values_of(model: type[BaseModel], loc: KeyPath) -> int | None:
    """Number of values that the list at a place has to have; None where they may be any number."""
    owner = _model_at(model, loc[:-1])
    field = owner.model_fields.get(str(loc[-1])) if owner else None
    for annotation in (field.annotation, *typing.get_args(field.annotation)) if field else ():
        parts = typing.get_args(annotation)
        if typing.get_origin(annotation) is tuple and Ellipsis not in parts:
            return len(parts)
    return None


def _reason(kind: str, got: Any, details: Mapping[str, Any]) -> str:
    family = kind.partition("_")[0]
    if kind.endswith(("_type", "_parsing", "_from_float")) and family in _WANTED:
        return f"wanted {_WANTED[family]}, got {_short(got)}"
    if kind == "too_short":
        return "there is nothing in it"
    message = str(details["msg"]).removeprefix("Input should ").removeprefix("Value error, ")
    return f"{_short(got)} should {message}" if str(details["msg"]).startswith("Input should") else message


def _short(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _unknown(place: KeyPath, known: Sequence[str], source: YamlSource, top: type[BaseModel] | None) -> SpecError:
    where = ".".join(str(piece) for piece in place[:-1])
    message = f"unknown key {str(place[-1])!r}" + (f" in {where}" if where else "")
    if not where and place[-1] in _ELSEWHERE:
        return source.error(place, message, _ELSEWHERE[str(place[-1])].format(file=source.file))
    if re.fullmatch(r"\d{3}", str(place[-1])):
        return source.error(place, message, "a comma ends a value between { and }: write 1000, or one key a line")
    elsewhere = _elsewhere(place, top) if top is not None else None
    return source.error(place, message, elsewhere or did_you_mean(str(place[-1]), known, "known keys:"))


def _elsewhere(place: KeyPath, top: type[BaseModel]) -> str | None:
    """The place of a key that is known at one other place of the document, or to other tools, in words."""
    key = str(place[-1])
    if len(place) > 2:
        return None
    if len(place) == 2 and key in top.model_fields:
        return f"{key} stands at the top, not in {place[0]}"
    owners = [
        name
        for name, field in top.model_fields.items()
        if name != place[0] and typing.get_origin(field.annotation) not in (dict, list)  # there users give the names
        if any(key in each.model_fields for each in _models(field.annotation))
    ]
    if len(owners) == 1:
        return f"it stands in {owners[0]}: write {owners[0]}: {{{key}: ...}}"
    return f"write {_OF_OTHER_TOOLS[key]}" if len(place) == 1 and key in _OF_OTHER_TOOLS else None


def _needed(model: type[BaseModel], loc: KeyPath) -> str | None:
    owner = _model_at(model, loc[:-1])
    field = owner.model_fields.get(str(loc[-1])) if owner else None
    return field.description.rstrip(".") if field and field.description else None


def _known_keys(model: type[BaseModel], loc: KeyPath) -> list[str]:
    owner = _model_at(model, loc)
    return list(owner.model_fields) if owner else []


def _model_at(model: type[BaseModel], loc: KeyPath) -> type[BaseModel] | None:
    """The model that the value at ``loc`` is read by."""
    options = [model]
    for piece in loc:
        field = next((o.model_fields[str(piece)] for o in options if str(piece) in o.model_fields), None)
        if field is not None and len(options) == 1:
            options = list(_models(field.annotation))
            continue
        tagged = [o for o in options if _tag(o) == piece]
        options = tagged or options
    return options[0] if len(options) == 1 else None


def _tag(model: type[BaseModel]) -> Any:
    field = model.model_fields.get("type")
    return field.default if field else None


def _models(annotation: Any) -> Iterable[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in typing.get_args(annotation):
        if not isinstance(part, str):
            yield from _models(part)


def _written(loc: KeyPath, document: Any) -> KeyPath:
    """The part of pydantic's location that is in the document: tags of unions and the like are not."""
    place: list[str | int] = []
    for i, piece in enumerate(loc):
        inside = isinstance(document, Mapping) and piece in document
        if inside or (isinstance(document, list) and isinstance(piece, int) and piece < len(document)):
            place.append(piece)
            document = document[piece]
        elif i == len(loc) - 1 and isinstance(document, Mapping) and piece != "[key]":
            place.append(piece)  # a key that is missing
    return tuple(place)


def _at(document: Any, place: KeyPath) -> Any:
    for piece in place:
        document = document[piece]
    return document
