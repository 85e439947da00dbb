"""Safety of typed text: it goes only where the application says that it is data.

A list of dangerous programs, options and variables would never end: almost every program takes some word, variable or
file for code. So the rule names what is allowed. A field of free text lists the places that it goes to (``data``), and
this word of its author counts by itself only where nothing but a file of the application reads the text: as a word
behind that file, in a variable ``FIELD_...``, in a ``.json`` file. For any other place an administrator has to vouch.
Numbers, booleans and choices are harmless by their type, and so is the name of a file that is handed in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from tradewind.errors import SpecError
from tradewind.problem.template import begins_with, fill_text, names_in, split_command
from tradewind.problem.yaml_source import KeyPath, YamlSource
from tradewind.service.applications.document_model import VARIABLE_PREFIX, ApplicationModel

_INTERPRETERS = frozenset({"python", "python3", "sh", "bash", "dash", "node"})
"""Programs that leave all words behind the name of a script to it."""

_PRINTERS = frozenset({"echo"})
"""Programs that only print their words."""

_BIN = re.compile(r"(?:/bin/|/usr/bin/|/usr/local/bin/)?([a-z0-9]+)")
_PYTHON = re.compile(r"\{\{\s*python\s*\}\}")
_FIRST_LINE = re.compile(r"#! ?(?:/usr/bin/env |/bin/|/usr/bin/|/usr/local/bin/)(?:python3?|sh|bash|dash|node)\n")
"""How a file begins that may be started by itself: no options, by which a shell would take words for code."""

_SCRIPTS = (".sh", ".bash", ".zsh", ".ksh", ".csh", ".py", ".pl", ".rb", ".js", ".r", ".jl", ".lua", ".sbatch", ".awk")

_VOUCH = "let a file of the application read it, or let an administrator who has read the application vouch for it"


@dataclass(frozen=True, slots=True)
class _Place:
    """A place of the document whose template may name fields.

    Attributes:
        label: Its name, as ``data`` of a field has it: ``command.3``, ``env.FIELD_TITLE``, ``files.input.json``.
        keys: The keys that lead to it.
        template: What stands there.
        text_reason: Why the author's word does not let text go there; empty where it does.
        file_reason: The same for a file that is handed in, of which only the path goes there.
    """

    label: str
    keys: KeyPath
    template: str
    text_reason: str = ""
    file_reason: str = ""


def free_texts(model: ApplicationModel) -> frozenset[str]:
    """List the fields that take free text."""
    return frozenset(name for name, field in model.fields.items() if field.type == "text")


def command_starts(source: YamlSource, model: ApplicationModel) -> frozenset[str]:
    """List the text fields that begin a word of a command: what is typed there must not look like an option."""
    texts = free_texts(model)
    found = [begins_with(word) for _, _, words in _commands(source) for word in words]
    return texts & frozenset().union(*found)


def unsafe_texts(source: YamlSource, model: ApplicationModel, *, vouched: bool = False) -> list[SpecError]:
    """Find places where what people type or hand in may be read as code.

    Args:
        source: The document.
        model: Its block ``application``.
        vouched: True where an administrator vouches that what stands at each declared place is read as data.
    """
    texts = free_texts(model)
    handed_in = frozenset(name for name, field in model.fields.items() if field.type == "file")
    problems, used = [], set()
    for place in (*_in_job(source, model), *_in_files(source, model)):
        name = ".".join(str(key) for key in place.keys)
        for field in sorted(names_in(place.template) & texts):
            used.add((field, place.label))
            if place.label not in model.fields[field].data:
                message = f"{name}: the text {field!r} is used in {place.label}, and nobody says that it is data there"
                hint = f"write data: [{place.label}] at the field, if what reads it never takes it for code"
                problems.append(source.error(place.keys, message, hint))
            elif place.text_reason and not vouched:
                problems.append(source.error(place.keys, f"{name}: the text {field!r} {place.text_reason}", _VOUCH))
        given = sorted(names_in(place.template) & handed_in) if place.file_reason and not vouched else []
        problems += [source.error(place.keys, f"{name}: the file {one!r} {place.file_reason}", _VOUCH) for one in given]
    return [*problems, *_stale(source, model, used), *_raw_in_files(source, model)]


def _stale(source: YamlSource, model: ApplicationModel, used: Collection[tuple[str, str]]) -> Iterator[SpecError]:
    """Find declared places that do not use the field, as after a word of the command was added."""
    for name in sorted(free_texts(model)):
        for label in model.fields[name].data:
            if (name, label) not in used:
                there = ", ".join(sorted(place for field, place in used if field == name)) or "nowhere"
                message = f"application.fields.{name}.data: {label} does not use this field"
                yield source.error(("application", "fields", name, "data"), message, f"it is used: {there}")


def _raw_in_files(source: YamlSource, model: ApplicationModel) -> Iterator[SpecError]:
    """Find files that text is written into as it is typed, and scripts that are templates."""
    texts = free_texts(model)
    for name, file in model.files.items():
        if not file.template:
            continue
        at: KeyPath = ("application", "files", name)
        if file.text.startswith("#!") or PurePosixPath(name).suffix.lower() in _SCRIPTS:
            hint = "give it the values as arguments or environment variables"
            yield source.error(at, f"application.files.{name}: a script is no template", hint)
            continue
        for used in sorted(names_in(file.text, but="tojson") & texts):
            message = f"application.files.{name}: the text {used!r} is written into the file as it is typed"
            yield source.error(at, message, f"write {{{{ {used} | tojson }}}}")


def broken_json(source: YamlSource, model: ApplicationModel, values: Mapping[str, Any]) -> Iterator[SpecError]:
    """Find .json files with typed text that are no JSON when filled in, as where ``tojson`` stands within quotes.

    Args:
        source: The document.
        model: Its block ``application``.
        values: Some value for each field.
    """
    for name, file in model.files.items():
        if file.template and name.endswith(".json") and names_in(file.text) & free_texts(model):
            try:
                json.loads(fill_text(file.text, values, name))
            except ValueError as error:
                message = f"application.files.{name}: filled in, it is no JSON: {error}"
                yield source.error(("application", "files", name), message, "tojson brings its own quotes")


# ---------------------------------------------------------------------- places


def _in_job(source: YamlSource, model: ApplicationModel) -> Iterator[_Place]:
    for keys, owner, words in _commands(source):
        label = ".".join(str(key) for key in keys[1:])
        for i, word in enumerate(words):
            yield _Place(f"{label}.{i}", keys, word, *_reasons_of_word(words, i, model))
        env = owner.get("env")
        for name, value in env.items() if isinstance(env, Mapping) else ():
            reasons = _reasons_of_variable(str(name), words, model)
            label_of_it = ".".join((*(str(key) for key in keys[1:-1]), "env", str(name)))
            yield _Place(label_of_it, (*keys[:-1], "env", str(name)), str(value), *reasons)
    for keys, text in _leaves(("job",), source.document.get("job")):
        label = ".".join(str(key) for key in keys[1:])
        yield _Place(label, keys, text, *[f"is in {label}, which is no argument"] * 2)


def _in_files(source: YamlSource, model: ApplicationModel) -> Iterator[_Place]:
    own = all(_reads_alone(words, model) for _, _, words in _commands(source))
    for name, file in model.files.items():
        if file.template:
            reason = "" if own and name.endswith(".json") else f"is in {name}, which other programs may read as code"
            yield _Place(f"files.{name}", ("application", "files", name), file.text, reason)


def _reasons_of_word(words: Sequence[str], i: int, model: ApplicationModel) -> tuple[str, str]:
    script = _script_at(words, model)
    if i > 0 and ((script is not None and i > script) or _program(words[0]) in _PRINTERS):
        return "", ""
    if i == 0:
        return ("would name the program",) * 2
    if i == 1 and _program(words[0]) in _INTERPRETERS:
        return (f"would be a script of {_program(words[0])}",) * 2
    return f"is an argument of {words[0]}, which is no file of the application", ""


def _reasons_of_variable(name: str, words: Sequence[str], model: ApplicationModel) -> tuple[str, str]:
    if not name.startswith(VARIABLE_PREFIX):
        return (f"is in the variable {name}, which programs may read; only {VARIABLE_PREFIX}... is left alone",) * 2
    if not _reads_alone(words, model):
        return f"is in a variable of {words[0]}, which is no file of the application", ""
    return "", ""


def _reads_alone(words: Sequence[str], model: ApplicationModel) -> bool:
    return _script_at(words, model) is not None or (bool(words) and _program(words[0]) in _PRINTERS)


def _script_at(words: Sequence[str], model: ApplicationModel) -> int | None:
    """Return the index of the word that names a file of the application, which gets all words behind it."""
    if not words:
        return None
    bare = words[0].removeprefix("./")
    if words[0] != bare:
        return 0 if bare in model.files and _FIRST_LINE.match(model.files[bare].text) else None
    program, script = _program(words[0]), words[1].removeprefix("./") if len(words) > 1 else ""
    if program not in _INTERPRETERS or script not in model.files:
        return None
    # `node inspect` is no script.
    return None if program == "node" and not script.endswith((".js", ".mjs", ".cjs")) else 1


def _program(word: str) -> str:
    """Return the name of a program of the system; empty where the word may name something else."""
    if _PYTHON.fullmatch(word):
        return "python"
    match = _BIN.fullmatch(word)
    return match[1] if match else ""


def _commands(source: YamlSource) -> Iterator[tuple[KeyPath, Mapping[str, Any], Sequence[str]]]:
    """Iterate over the commands: the keys that lead there, the mapping that has it, its words."""
    job = source.document.get("job")
    load = job.get("load") if isinstance(job, Mapping) else None
    for keys, owner in ((("job", "command"), job), (("job", "load", "command"), load)):
        if not isinstance(owner, Mapping):
            continue
        command = owner.get("command")
        if isinstance(command, str):
            try:
                command = list(split_command(command))
            except SpecError:
                continue  # said by whoever reads the job
        if isinstance(command, list):
            yield keys, owner, [str(word) for word in command]


def _leaves(keys: KeyPath, value: Any) -> Iterator[tuple[KeyPath, str]]:
    """Iterate over the texts of a job besides commands, variables, and parameters, which are no templates."""
    if isinstance(value, str):
        yield keys, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if keys not in (("job",), ("job", "load")) or key not in ("command", "env", "parameters"):
                yield from _leaves((*keys, str(key)), inner)
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from _leaves((*keys, i), inner)
