"""What is asked for on the command line, as a request's document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tradewind.errors import InputError

if TYPE_CHECKING:
    from tradewind.cli.service.local_client import LocalClient
    from tradewind.client import Client

_FILES = (".yaml", ".yml", ".json")


def request_document(
    place: Client | LocalClient, what: str, params: Sequence[str] | None, more: Mapping[str, Any]
) -> dict[str, Any]:
    """The document of a request.

    Args:
        place: Where it will be made: files and jobs are handed in there.
        what: An application, a job YAML (which is registered as an application of the user), or a whole document.
        params: ``NAME=VALUE`` of fields; ``@file`` hands a file in.
        more: The other options.

    Raises:
        InputError: Something is wrong.
    """
    given = _more(more)
    values = _values(place, params)
    if Path(what).suffix.lower() not in _FILES:
        return {"application": what, **({"parameters": values} if values else {}), **given}
    text, document = _read(Path(what))
    if "job" in document:
        reference = place.register(
            text if "application" in document else f"{text.rstrip()}\napplication: {{}}\n"
        ).reference
        return {"application": reference, **({"parameters": values} if values else {}), **given}
    if "template" in document and "application" not in document:
        return {**document, **({"user_data": {**document.get("user_data", {}), **values}} if values else {}), **given}
    if isinstance(document.get("application"), str):
        merged = {**document, **given}
        if values:
            merged["parameters"] = {**document.get("parameters", {}), **values}
        return merged
    raise InputError(
        "it is no job and no request", hint="a job has job: and space:, a request application: or template:", file=what
    )


def _read(file: Path) -> tuple[str, dict[str, Any]]:
    from tradewind.problem.yaml_source import read_source

    source = read_source(file)
    return file.read_text(encoding="utf-8-sig"), dict(source.document)


def _values(place: Client | LocalClient, params: Sequence[str] | None) -> dict[str, Any]:
    from tradewind.cli.common import pair, value_of

    found: dict[str, Any] = {}
    for word in params or ():
        name, text = pair(word, "--param", "size=4000")
        found[name] = place.upload(Path(text[1:])) if text.startswith("@") else value_of(text)
    return found


def _more(more: Mapping[str, Any]) -> dict[str, Any]:
    from tradewind.cli.common import pair, pairs

    found = {key: more[key] for key in ("backend", "results", "name") if more[key]}
    if more["configuration"]:
        # As texts: only the parameter knows whether 1.10 is a number.
        found["configuration"] = dict(pair(word, "--configure", "nodes=2") for word in more["configuration"])
    resources = pairs(more["resources"], "--resource", "nodes=2")
    limits = {"dollars": more["budget"], "trials": more["trials"]}
    budget = {key: value for key, value in limits.items() if value is not None}
    if more["search"] or budget:
        wanted = {"budget": budget, "deadline": more["deadline"]}
        found["search"] = {key: value for key, value in wanted.items() if value}
    elif more["deadline"]:
        resources["time"] = more["deadline"]
    if resources:
        found["resources"] = resources
    return found
