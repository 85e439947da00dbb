"""Safety of applications: uses of typed text that could inject code, and what ordinary users may not declare."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from tradewind import plugins
from tradewind.errors import PluginError, SpecError
from tradewind.problem.template import begins_with, names_in
from tradewind.problem.yaml_source import KeyPath, YamlSource
from tradewind.service.applications.document_model import ApplicationModel
from tradewind.utils.user_functions import JobRelativePath, is_reference

_CODE = re.compile(r"-[A-Za-z]*[ceE]|--(command|eval|exec|expression)")
"""A flag after which the next word is read as a program: sh -c, bash -lc, perl -e, node --eval."""

_READ_ALL = frozenset({"ssh", "rsh", "parallel", "watch", "eval", "su"})
"""Programs that put all their words together and give them to a shell."""

_STARTERS = frozenset(
    ("env", "mpirun", "mpiexec", "mpiexec.hydra", "orterun", "srun", "nice", "nohup", "time", "timeout", "taskset")
) | frozenset(("numactl", "stdbuf", "xargs", "sudo", "setsid", "unshare", "sh", "bash", "dash", "ksh", "zsh", "exec"))
"""Programs that start the program that one of their words names."""

_LOADED = re.compile(
    r"PATH|LD_.*|DYLD_.*|BASH_ENV|ENV|PYTHON.*|PERL5.*|RUBY.*|NODE_.*|JAVA_.*|.*_OPTIONS|IFS|SHELLOPTS"
)
"""Variables that make programs load or run what they name."""

_SCRIPTS = (".sh", ".bash", ".zsh", ".ksh", ".csh", ".py", ".pl", ".rb", ".js", ".r", ".jl", ".lua", ".sbatch", ".awk")

_USER_DEPLOY = ("longest", "retries", "log_limit", "fallback", "spot_attempts", "hooks")
_USER_JOB = ("command", "env", "outputs", "image", "parameters", "load", "ports", "fraction", "workdir", "inputs")


def free_texts(model: ApplicationModel) -> frozenset[str]:
    """List the fields that take free text."""
    return frozenset(name for name, field in model.fields.items() if field.type == "text")


def command_starts(source: YamlSource, model: ApplicationModel) -> frozenset[str]:
    """List the text fields that begin a word of a command: what is typed there must not look like an option."""
    texts = free_texts(model)
    found = [begins_with(word) for _, words in _commands(source) for word in words]
    return texts & frozenset().union(*found)


def unsafe_texts(source: YamlSource, model: ApplicationModel) -> list[SpecError]:
    """Find places where typed text would be read as a program, an option of one, or a part of a script.

    Args:
        source: The document.
        model: Its block ``application``.
    """
    texts = free_texts(model)
    problems = [_error(source, place, name, why) for place, name, why in _in_commands(source, texts)]
    for name, place, value in _variables(source):
        used_here = sorted(names_in(value) & texts) if _LOADED.fullmatch(name) else []
        why = f"the variable {name} decides what programs load"
        problems += [_error(source, place, used, why) for used in used_here]
    for name, file in model.files.items():
        if not file.template:
            continue
        at: KeyPath = ("application", "files", name)
        if file.text.startswith("#!") or PurePosixPath(name).suffix.lower() in _SCRIPTS:
            hint = "give it the values as arguments or environment variables"
            problems.append(source.error(at, f"application.files.{name}: a script is no template", hint))
            continue
        for used in sorted(names_in(file.text, but="tojson") & texts):
            message = f"application.files.{name}: the text {used!r} is written into the file as it is typed"
            problems.append(source.error(at, message, f"write {{{{ {used} | tojson }}}}"))
    return problems


def _error(source: YamlSource, place: KeyPath, name: str, why: str) -> SpecError:
    label = ".".join(str(piece) for piece in place[:3])
    hint = f"give it by an environment variable, as --name={{{{ {name} }}}}, or let people choose of a list"
    return source.error(place, f"{label}: the text {name!r} cannot be used here: {why}", hint)


def _in_commands(source: YamlSource, texts: Collection[str]) -> Iterator[tuple[KeyPath, str, str]]:
    for place, words in _commands(source):
        programs = {PurePosixPath(word).name for word in words}
        for i, word in enumerate(words):
            used = sorted(names_in(word) & set(texts))
            if not used:
                continue
            if i == 0:
                yield place, used[0], "it would name the program"
            elif _CODE.fullmatch(words[i - 1]):
                yield place, used[0], f"the word after {words[i - 1]} is read as a program"
            elif programs & _READ_ALL:
                yield place, used[0], f"{min(programs & _READ_ALL)} gives its words to a shell"
            elif programs & _STARTERS and begins_with(word) & set(texts):
                yield place, used[0], f"{min(programs & _STARTERS)} starts the program that a word names"
            elif re.match(r"-[A-Za-z]*[ceE]\{\{", word):
                yield place, used[0], "the flag before it may have it read as a program"


def _commands(source: YamlSource) -> Iterator[tuple[KeyPath, Sequence[str]]]:
    from tradewind.problem.template import split_command

    job = source.document.get("job")
    for place, owner in ((("job", "command"), job), (("job", "load", "command"), _part(job, "load"))):
        command = _part(owner, "command")
        if isinstance(command, str):
            try:
                command = list(split_command(command))
            except SpecError:
                continue  # said by whoever reads the job
        if isinstance(command, list):
            yield place, [str(word) for word in command]


def _variables(source: YamlSource) -> Iterator[tuple[str, KeyPath, str]]:
    job = source.document.get("job")
    for place, owner in ((("job", "env"), job), (("job", "load", "env"), _part(job, "load"))):
        env = _part(owner, "env")
        for name, value in env.items() if isinstance(env, Mapping) else ():
            yield str(name), (*place, name), str(value)


def _part(document: Any, key: str) -> Any:
    return document.get(key) if isinstance(document, Mapping) else None


# ---------------------------------------------------------------------- ordinary users


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
    given = document.get("interpret")
    for i, one in enumerate(given if isinstance(given, list) else [given]):
        if one is not None:
            yield ("interpret", i) if isinstance(given, list) else ("interpret",), "interpreter", one


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
