"""Requests in paper 5's form: the template becomes a script, and the whole an application that is used once."""

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

_MACRO = re.compile(r"\$\(([A-Za-z_][\w.]*)\)|\$\$?\(\[?[^)]*\)|\$ENV\([^)]*\)")
_QUEUE = re.compile(r"queue(?:\s+(\d+))?\s*$", re.IGNORECASE)
_EXECUTABLE = re.compile(r"^[ \t]*executable[ \t]*=[ \t]*\S", re.IGNORECASE | re.MULTILINE)
_MOST_PROCESSES = 1000

_WITHOUT_EFFECT = frozenset(
    ("universe", "log", "notification", "notify_user", "getenv", "should_transfer_files", "when_to_transfer_output")
) | frozenset(
    ("transfer_executable", "request_cpus", "request_memory", "request_disk", "machine_count", "batch_name", "priority")
)
"""Commands of submit descriptions without effect: ``resources``, ``notify`` and the backend decide them."""


def script_of_submit_file(text: str) -> str:
    """Convert an HTCondor submit description to a shell script that does the same.

    ``queue 3`` starts the program three times, side by side, each with its own ``$(Process)``, and waits for all; the
    script ends with the exit code of the first that failed.

    Args:
        text: The description.

    Raises:
        InputError: It is not valid, or has something that is not understood here; with the line.
    """
    if not _EXECUTABLE.search(text):
        raise InputError(
            "template: it is neither a script nor a submit description",
            hint="begin it with #!/bin/sh, or write executable = ..., arguments = ... and queue",
        )
    commands, count = _read(text)
    lines = ["#!/bin/sh", 'PATH="$PATH:."']
    if folder := commands.get("initialdir"):
        lines.append(f"cd {shlex.quote(_filled(folder, commands, 0))} || exit 1")
    if count == 1:
        lines += [*_exports(commands, 0), f"exec {_command(commands, 0)}"]
        return "\n".join(lines) + "\n"
    lines += ["pids="]
    for process in range(count):
        begin = "; ".join([*_exports(commands, process), f"exec {_command(commands, process)}"])
        lines += [f"( {begin} ) &", 'pids="$pids $!"']
    lines += ["code=0", 'for pid in $pids; do wait "$pid" || { [ "$code" -ne 0 ] || code=$?; }; done', 'exit "$code"']
    return "\n".join(lines) + "\n"


def _read(text: str) -> tuple[dict[str, str], int]:
    commands: dict[str, str] = {}
    count = 0
    for number, line in _lines(text):
        filled = _filled(line, commands, 0) if line[:5].lower() == "queue" else line
        if match := _QUEUE.match(filled):
            if count:
                raise InputError(f"template, line {number}: a second queue is not understood", hint="keep one of them")
            count = int(match[1] or 1)
            if not 1 <= count <= _MOST_PROCESSES:
                raise InputError(f"template, line {number}: queue {count} is not from 1 to {_MOST_PROCESSES}")
            continue
        name, sign, value = line.partition("=")
        name = name.strip().lower()
        if not sign:
            raise InputError(f"template, line {number}: {line[:60]!r} is not understood", hint="write name = value")
        plain = re.fullmatch(r"\+?[a-z_][\w.]*", name)
        if name.startswith(("transfer_input", "transfer_output")):
            hint = "inputs are fetched by the script, what it writes into $TRADEWIND_OUTPUTS is kept, and so is outputs"
            raise InputError(f"template, line {number}: {name} has no effect here", hint=hint)
        if not plain or (name.startswith(("request_", "requirements", "rank", "+")) and name not in _WITHOUT_EFFECT):
            raise InputError(
                f"template, line {number}: {name[:40]!r} is not understood here",
                hint="ask for machines with resources, and choose a backend",
            )
        commands[name] = value.strip()
    return commands, count or 1


def _lines(text: str) -> list[tuple[int, str]]:
    """List the lines that are not empty, with their numbers; a backslash at the end goes on in the next one."""
    found: list[tuple[int, str]] = []
    begun, first = "", 0
    for number, line in enumerate(text.splitlines(), start=1):
        if not begun and (not line.strip() or line.lstrip().startswith("#")):
            continue
        first = first if begun else number
        begun += line.rstrip()
        if begun.endswith("\\"):
            begun = begun[:-1] + " "
            continue
        found.append((first, begun.strip()))
        begun = ""
    return [*found, (first, begun.strip())] if begun.strip() else found


def _command(commands: dict[str, str], process: int) -> str:
    words = [_filled(commands["executable"], commands, process)]
    words += [_filled(word, commands, process) for word in _arguments(commands.get("arguments", ""))]
    line = " ".join(shlex.quote(word) for word in words)
    for name, sign in (("input", "<"), ("output", ">"), ("error", "2>")):
        place = _filled(commands.get(name, ""), commands, process)
        if place and name == "input":
            line += f" <{shlex.quote(place)}"
        elif place and "$(" in commands[name]:  # one file for all is the run's own, which is kept anyway
            kept = shlex.quote(place) if place.startswith("/") else f'"$TRADEWIND_OUTPUTS"/{shlex.quote(place)}'
            line += f" {sign}{kept}"
    return line


def _arguments(text: str) -> list[str]:
    """Split ``arguments`` into words: in double quotes HTCondor's new syntax, otherwise words between blanks."""
    if not (len(text) >= 2 and text[0] == text[-1] == '"'):
        return text.split()
    words: list[str] = []
    word, started, quoted = "", False, False
    inner = text[1:-1].replace('""', '"')
    i = 0
    while i < len(inner):
        one = inner[i]
        if one == "'":
            if quoted and inner[i + 1 : i + 2] == "'":
                word += "'"
                i += 1
            else:
                quoted, started = not quoted, True
        elif one.isspace() and not quoted:
            if started:
                words.append(word)
            word, started = "", False
        else:
            word, started = word + one, True
        i += 1
    if quoted:
        raise InputError(f"template: arguments = {text[:60]}: a quote is not closed")
    return [*words, word] if started else words


def _exports(commands: dict[str, str], process: int) -> list[str]:
    found = []
    text = commands.get("environment", "")
    pairs = _arguments(text) if text.startswith('"') else [each for each in text.split(";") if each.strip()]
    for pair in pairs:
        name, sign, value = pair.strip().partition("=")
        if not sign or not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise InputError(f"template: environment: {pair[:60]!r} is no name=value")
        found.append(f"export {name}={shlex.quote(_filled(value, commands, process))}")
    return found


def _filled(text: str, commands: dict[str, str], process: int, depth: int = 0) -> str:
    """Expand the macros of a value: the number of the process, and whatever the description defines itself."""

    def value_of(match: re.Match[str]) -> str:
        name = (match[1] or "").lower()
        if name in ("process", "procid", "step"):
            return str(process)
        if name in ("cluster", "clusterid"):
            return "1"
        if name not in commands or depth > 10:
            raise InputError(f"template: {match[0][:60]} is not understood", hint="$(Process) and names defined above")
        return _filled(commands[name], commands, process, depth + 1)

    return _MACRO.sub(value_of, text)


SCRIPT = "job.sh"
USER_DATA = "user_data.json"

_NAME = re.compile(r"[^A-Za-z0-9 ._-]+")
_VARIABLE = re.compile(r"[^0-9A-Za-z]")
_MOMENTS = {"pending": "before_booting", "done": "after_collecting"}


def variables_of(figure: VirtualClusterRequestModel) -> dict[str, Any]:
    """List the variables of a template: the keys of ``user_data``, and ``user_data``, ``resources``, ``nodes``, ..."""
    resources = figure.resources.given()
    whole = {name: int(value) if float(value).is_integer() else value for name, value in resources.items()}
    return {**whole, **figure.user_data, "user_data": dict(figure.user_data), "resources": whole}


def files_of(figure: VirtualClusterRequestModel) -> dict[str, bytes]:
    """Make the files of the job's folder: the script that the template makes, and ``user_data.json``.

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
    """Make the document of an application that runs the script, for a request of that name."""
    job: dict[str, Any] = {"command": [f"./{SCRIPT}"], "env": _environment(figure.user_data)}
    if figure.outputs:
        job["outputs"] = list(figure.outputs)
    document: dict[str, Any] = {"name": job_name(name), "job": job, "application": {}}
    document["space"] = {"instance": {}, "nodes": [int(figure.resources.nodes or 1)]}
    if figure.hooks:
        document["deploy"] = {"hooks": hooks_of(figure)}
    return document


def job_name(text: str) -> str:
    """Convert a name to one that jobs may have."""
    plain = _NAME.sub("-", text).strip(" ._-")[:100]
    return plain if plain and not plain.isdigit() else f"request-{plain}".rstrip("-")


def _environment(user_data: Mapping[str, Any]) -> dict[str, str]:
    """Return plain values of ``user_data`` as variables, so that scripts and hooks need not read JSON."""
    found = {}
    for key, value in user_data.items():
        text = value if isinstance(value, str) else json.dumps(value) if isinstance(value, int | float) else None
        # Values of env are templates themselves.
        if text is not None and "{" not in text and "\0" not in text and len(text) < 10_000:
            found[f"TRADEWIND_DATA_{_VARIABLE.sub('_', key).upper()}"] = text
    return found


def hooks_of(figure: VirtualClusterRequestModel) -> dict[str, list[dict[str, Any]]]:
    """Convert hooks to those of a job YAML.

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
    """Find the backend that a document means; empty for the server's own.

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
    """Return the name of the provisioner of a backend's machines."""
    given = backend.deploy.get("provisioner", "none")
    return str(given if isinstance(given, str) else given.get("use", "none"))


def check_hooks(figure: VirtualClusterRequestModel, *, allowed: bool) -> None:
    """Check that hooks may be brought.

    Raises:
        ForbiddenError: They may not.
    """
    if figure.hooks and not allowed:
        raise ForbiddenError(
            "hooks: they run on the server, which its administrator has not allowed",
            hint="leave them out, or ask for an application that has them",
        )
