"""Limits of ordinary users: what their applications may not declare, because it would act on the server itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tradewind import plugins
from tradewind.errors import PluginError, SpecError
from tradewind.problem.yaml_source import KeyPath, YamlSource
from tradewind.service.applications.document_model import ApplicationModel
from tradewind.utils.user_functions import JobRelativePath, is_reference

_USER_DEPLOY = ("longest", "retries", "log_limit", "fallback", "spot_attempts", "hooks")
_USER_JOB = ("command", "env", "outputs", "image", "parameters", "load", "ports", "fraction", "workdir", "inputs")


def _part(document: Any, key: str) -> Any:
    return document.get(key) if isinstance(document, Mapping) else None


def administrator_only(source: YamlSource, model: ApplicationModel, *, hooks: bool) -> list[SpecError]:
    """Find what an application of an ordinary user may not declare, because it would act on the server itself.

    Args:
        source: The document.
        model: Its block ``application``.
        hooks: True where it may bring hooks.
    """
    problems = []
    ask = "leave it out, or ask an administrator to register the application"

    def refuse(place: KeyPath, why: str) -> None:
        label = ".".join(str(piece) for piece in place)
        problems.append(source.error(place, f"{label}: {why}", ask))

    document = source.document
    for key in document.get("catalogues") or ():
        refuse(("catalogues", key), "only an administrator may set catalogues")
    if document.get("callbacks"):
        refuse(("callbacks",), "the server would connect to trackers and write files")
    deploy = document.get("deploy")
    for key in deploy if isinstance(deploy, Mapping) else ():
        if key not in _USER_DEPLOY:
            refuse(("deploy", key), "where and how jobs run is the backend's to say")
        elif key == "hooks" and not hooks:
            refuse(("deploy", key), "hooks run on the server, which its administrator has not allowed")
    job = document.get("job")
    for key in job if isinstance(job, Mapping) else ():
        if key not in _USER_JOB:
            refuse(("job", key), "only an administrator may use this")
    if str(_part(job, "workdir") or ".") != ".":
        refuse(("job", "workdir"), "a folder of the server")
    inputs = _part(job, "inputs")
    for i, text in enumerate(inputs if isinstance(inputs, list) else ()):
        if str(text).partition("#")[0] not in model.files:
            refuse(("job", "inputs", i), "only embedded files can be inputs")
    for place, kind, choice in _choices(document):
        if why := _reads_server(kind, choice):
            refuse(place, why)
    return problems


def own_parts(source: YamlSource) -> list[SpecError]:
    """Find parts that are classes in files or modules; the server would run them as soon as it looks at them.

    Args:
        source: The document.
    """
    document = source.document
    deploy = document.get("deploy")
    places: list[tuple[KeyPath, Any]] = [(place, choice) for place, _, choice in _choices(document)]
    places += [(("deploy", key), _part(deploy, key)) for key in ("runner", "provisioner")]
    catalogues = document.get("catalogues")
    places += [(("catalogues", key), key) for key in (catalogues if isinstance(catalogues, Mapping) else ())]
    found = []
    for place, choice in places:
        name = choice if isinstance(choice, str) else _part(choice, "use")
        if isinstance(name, str) and is_reference(name):
            label = ".".join(str(piece) for piece in place)
            hint = "leave it out, or ask an administrator to register the application"
            found.append(source.error(place, f"{label}: the server would run {name}", hint))
    return found


def _choices(document: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str, Any]]:
    for key, kind in (("searcher", "searcher"), ("select", "selector"), ("early_stop", "stopper")):
        if document.get(key) is not None:
            yield (key,), kind, document[key]
    for key, kind in (("interpret", "interpreter"), ("callbacks", "callback")):
        given = document.get(key)
        for i, one in enumerate(given if isinstance(given, list) else [given]):
            if one is not None:
                yield (key, i) if isinstance(given, list) else (key,), kind, one


def _reads_server(kind: str, choice: Any) -> str:
    """Explain why a part acts on the server by its settings; empty where it does not."""
    name = choice if isinstance(choice, str) else str(_part(choice, "use"))
    try:
        fields = plugins.load(kind, name).Settings.model_fields
    except PluginError:
        return ""  # said, with what is installed, by whoever reads the job
    if any(isinstance(mark, JobRelativePath) for field in fields.values() for mark in field.metadata):
        return "the server would run the function"
    named = [key for key in choice if key in fields] if isinstance(choice, Mapping) else []
    files = [key for key in named if fields[key].annotation in (Path, Path | None)]
    return f"{files[0]} is a file of the server" if files else ""
