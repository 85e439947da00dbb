"""Composes the specification of a request from an application, the values of its form, and a backend."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tradewind.errors import InputError, NoOfferError
from tradewind.problem.job_spec.model import QueryModel
from tradewind.problem.job_spec.spec import JobSpec, build_spec
from tradewind.problem.yaml_source import YamlSource
from tradewind.service.applications.backends import Backend
from tradewind.service.applications.validation import CheckedApplication, job_source
from tradewind.utils.units import parse_duration

RESOURCES = ("nodes", "cpu", "memory", "time")
"""Resources that a request may ask for in plain numbers: machines, CPUs of each, MiB of each, seconds."""

_LISTS = ("types", "category", "family", "arch")
_RANGES = ("vcpu", "memory", "price", "gpus")
_PLACES = ("provider", "region", "spot", "limit")


def compose_spec(
    known: CheckedApplication,
    parameters: Mapping[str, float | str],
    backend: Backend,
    folder: Path,
    *,
    resources: Mapping[str, Any] | None = None,
) -> JobSpec:
    """Compose the specification of a request.

    Where and how runs take place is the backend's to say: its ``deploy`` section goes before the application's, its
    offers narrow what the application asks for, and its catalogues are added.

    Args:
        known: The application, checked.
        parameters: The value of each field, as job parameters are.
        backend: The backend that it runs on.
        folder: The job's folder.
        resources: ``nodes``, ``cpu``, ``memory`` (MiB) and ``time`` (s) that a node must have at least, or the run at
            most.

    Raises:
        InputError: The resources are none, or the application does not run on them.
        NoOfferError: The backend has nothing that the application asks for.
        SpecError: A part that the application uses was uninstalled.
    """
    source = job_source(known.source, known.model, parameters)
    document = copy.deepcopy(source.document)
    deploy = document.get("deploy") or {}
    own = {key: value for key, value in deploy.items() if key not in ("runner", "provisioner")}
    document["deploy"] = {**own, **backend.deploy}
    if "hooks" in own:
        document["deploy"]["hooks"] = {**own["hooks"], **dict(backend.deploy.get("hooks") or {})}
    document["catalogues"] = {**(document.get("catalogues") or {}), **backend.catalogues}
    if backend.offers:
        _narrow_offers(document, backend)
    if resources:
        _narrow_resources(document, resources, backend)
    return build_spec(YamlSource(document, source.file, source.lines), folder)


def _narrow_offers(document: dict[str, Any], backend: Backend) -> None:
    """Let the backend's offers narrow both ways in which a job asks for offers: ``offers`` and the instance."""
    theirs = QueryModel.model_validate(dict(backend.offers))
    offers = document.get("offers") or {}
    document["offers"] = _narrowed(offers, theirs, backend.name)
    for name, declared in document["space"].items():
        listed = declared if isinstance(declared, list | str) else None
        if name == "instance" and listed is not None:
            declared = {"types": listed}
        if isinstance(declared, Mapping) and declared.get("type", name) == "instance":
            given = {key: value for key, value in declared.items() if key in QueryModel.model_fields}
            rest = {key: value for key, value in declared.items() if key not in given}
            if "values" in rest:
                given["types"] = rest.pop("values")
            document["space"][name] = {**rest, **_narrowed(given, theirs, backend.name)}


def _narrowed(given: Mapping[str, Any], theirs: QueryModel, name: str) -> dict[str, Any]:
    mine = QueryModel.model_validate({k: v for k, v in given.items() if v is not None})
    found = {key: value for key, value in given.items() if value is not None}
    for key in _PLACES:
        if (value := getattr(theirs, key)) is not None:
            found[key] = value
    for key in _LISTS:
        wanted, there = getattr(mine, key), getattr(theirs, key)
        if there is not None:
            found[key] = there if wanted is None else [one for one in wanted if one in there]
            if (
                wanted
                and not found[key]
                and key == "types"
                and any("*" in one or "?" in one for one in (*wanted, *there))
            ):
                found[key] = wanted
            if not found[key]:
                raise NoOfferError(f"the backend {name} has no {key} {', '.join(wanted or ())}", hint=", ".join(there))
    for key in _RANGES:
        wanted, there = getattr(mine, key), getattr(theirs, key)
        if there is not None:
            found[key] = _both(wanted or [None, None], there)
            low, high = found[key]
            if low is not None and high is not None and low > high:
                raise NoOfferError(f"the backend {name} has no machine with as much {key} as the application needs")
    return found


def _both(one: list[float | None], other: list[float | None]) -> list[float | None]:
    low = max((x for x in (one[0], other[0]) if x is not None), default=None)
    high = min((x for x in (one[1], other[1]) if x is not None), default=None)
    return [low, high]


def _narrow_resources(document: dict[str, Any], resources: Mapping[str, Any], backend: Backend) -> None:
    """Keep only configurations with at least these resources on each node, and just so many nodes."""
    given = _read_resources(resources)
    least = {"vcpu": [given["cpu"], None]} if "cpu" in given else {}
    if "memory" in given:
        least["memory"] = [given["memory"] / 1024.0, None]
    if least:
        needed = Backend("resources", offers=least)
        _narrow_offers(document, needed)
    if "time" in given:
        # It takes the place of the application's own deadline; what the backend allows at most stays.
        most = backend.deploy.get("longest")
        time = given["time"] if most is None else min(given["time"], parse_duration(most))
        document["deploy"]["longest"] = time
        document["constraints"] = {**(document.get("constraints") or {}), "deadline": time}
    if "nodes" in given:
        count = int(given["nodes"])
        if "nodes" in document["space"]:
            document["space"]["nodes"] = [count]
        elif count != 1:
            raise InputError(
                f"this application runs on one machine, not on {count}", hint="its space has no parameter nodes"
            )


def _read_resources(resources: Mapping[str, Any]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, value in resources.items():
        if value is None:
            continue
        if name not in RESOURCES:
            raise InputError(f"there is no resource {name!r}", hint=f"there are: {', '.join(RESOURCES)}")
        try:
            number = float(value) if not isinstance(value, bool) else 0.0
        except (TypeError, ValueError, OverflowError):
            number = 0.0
        if not 0 < number < 1e12 or (name == "nodes" and number != int(number)):
            raise InputError(f"resources.{name}: {value!r} is no amount above 0")
        found[name] = number
    return found
