"""Paper 5's request document: its template becomes a script, and the whole an application that is used once."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from tradewind.errors import ForbiddenError, InputError, NotFoundError
from tradewind.problem.template import check_text, fill_text
from tradewind.service.applications.backends import Backend
from tradewind.service.requests.request_document import RequestHookModel, VirtualClusterRequestModel
from tradewind.service.requests.submit_file import script_of_submit_file

SCRIPT = "job.sh"
USER_DATA = "user_data.json"

_NAME = re.compile(r"[^A-Za-z0-9 ._-]+")
_VARIABLE = re.compile(r"[^0-9A-Za-z]")
_MOMENTS = {"pending": "before_booting", "done": "after_collecting"}


def variables_of(figure: VirtualClusterRequestModel) -> dict[str, Any]:
    """What a template may name: each key of ``user_data``, and ``user_data``, ``resources``, ``nodes``, ``cpu``, ..."""
    resources = figure.resources.given()
    whole = {name: int(value) if float(value).is_integer() else value for name, value in resources.items()}
    return {**whole, **figure.user_data, "user_data": dict(figure.user_data), "resources": whole}


def files_of(figure: VirtualClusterRequestModel) -> dict[str, bytes]:
    """The files of the job's folder: the script that the template makes, and ``user_data.json``.

    Raises:
        InputError: The template cannot be read, names something that is not there, or is neither a script nor a
            submit description.
    """
    variables = variables_of(figure)
    check_text(figure.template, variables.keys(), "template")
    text = fill_text(figure.template, variables, "template")
    script = text if text.startswith("#!") else script_of_submit_file(text)
    if "\0" in script:
        raise InputError("template: a script has no NUL in it")
    data = json.dumps(figure.user_data, indent=2, ensure_ascii=False)
    return {SCRIPT: script.replace("\r\n", "\n").encode("utf-8", "replace"), USER_DATA: data.encode("utf-8", "replace")}


def application_of(figure: VirtualClusterRequestModel, name: str) -> dict[str, Any]:
    """The document of an application that runs the script, for a request of that name."""
    job: dict[str, Any] = {"command": [f"./{SCRIPT}"], "env": _environment(figure.user_data)}
    if figure.outputs:
        job["outputs"] = list(figure.outputs)
    document: dict[str, Any] = {"name": job_name(name), "job": job, "application": {}}
    document["space"] = {"instance": {}, "nodes": [int(figure.resources.nodes or 1)]}
    if figure.hooks:
        document["deploy"] = {"hooks": hooks_of(figure)}
    return document


def job_name(text: str) -> str:
    """A name as jobs may have them."""
    plain = _NAME.sub("-", text).strip(" ._-")[:100]
    return plain if plain and not plain.isdigit() else f"request-{plain}".rstrip("-")


def _environment(user_data: Mapping[str, Any]) -> dict[str, str]:
    """Plain values of ``user_data`` as variables, so that scripts and hooks need not read JSON."""
    found = {}
    for key, value in user_data.items():
        text = value if isinstance(value, str) else json.dumps(value) if isinstance(value, int | float) else None
        # Values of env are templates themselves.
        if text is not None and "{" not in text and "\0" not in text and len(text) < 10_000:
            found[f"TRADEWIND_DATA_{_VARIABLE.sub('_', key).upper()}"] = text
    return found


def hooks_of(figure: VirtualClusterRequestModel) -> dict[str, list[dict[str, Any]]]:
    """The hooks as a job YAML has them.

    Raises:
        InputError: The name of one is no command line.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    variables = variables_of(figure)
    for hook in figure.hooks:
        moment = _moment(hook)
        check_text(hook.name, variables.keys(), "the hook's name")
        try:
            words = shlex.split(fill_text(hook.name, variables, "the hook's name"))
        except ValueError as error:
            raise InputError(f"hooks: {hook.name!r} is no command line: {str(error).lower()}") from None
        if not words:
            raise InputError("hooks: a hook has no program")
        found.setdefault(moment, []).append({"command": words, "timeout": 3600.0})
    return found


def _moment(hook: RequestHookModel) -> str:
    if hook.condition == "error":
        return "on_error"
    return _MOMENTS.get(hook.stage, f"{hook.condition}_{hook.stage}")


def backend_of(figure: VirtualClusterRequestModel, backends: Sequence[Backend]) -> str:
    """The name of the backend that a document means; empty for the server's own.

    ``backend`` and ``scheduler`` name a backend of this server, or what one is made of: who makes its machines
    (``opennebula``), and who runs jobs on them (``htcondor``, ``slurm``). On machines that are made for one job alone
    nothing has to be scheduled: a backend that makes them does, whoever runs the job there.

    Args:
        figure: The document.
        backends: The backends that the user may choose.

    Raises:
        NotFoundError: There is none of that kind.
    """
    maker = figure.backend.name if figure.backend else ""
    runner = figure.scheduler.name
    if not maker and not runner:
        return ""
    known = {one.name: one for one in backends}
    if maker in known:
        return maker
    if maker:
        made = [one for one in backends if provisioner_of(one) == maker]
        fitting = [one for one in made if runner in ("", one.runner)] or made
    elif runner in known:
        return runner
    else:
        fitting = [one for one in backends if one.runner == runner and provisioner_of(one) == "none"]
    if not fitting:
        wanted = f"makes machines with {maker}" if maker else f"has the scheduler {runner}"
        raise NotFoundError(f"no backend of this server {wanted}", hint=f"there are: {', '.join(known) or 'none'}")
    return fitting[0].name


def provisioner_of(backend: Backend) -> str:
    """The name of who makes a backend's machines."""
    given = backend.deploy.get("provisioner", "none")
    return str(given if isinstance(given, str) else given.get("use", "none"))


def check_hooks(figure: VirtualClusterRequestModel, *, allowed: bool) -> None:
    """See that hooks may be brought.

    Raises:
        ForbiddenError: They may not.
    """
    if figure.hooks and not allowed:
        raise ForbiddenError(
            "hooks: they run on the server, which its administrator has not allowed",
            hint="leave them out, or ask for an application that has them",
        )
