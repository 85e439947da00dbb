"""Helpers that several commands share: stores, studies, ``NAME=VALUE`` words and job files."""

from __future__ import annotations

import json
import math
import sys
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tradewind.errors import InputError, StudyNotFoundError
    from tradewind.problem.job_spec.spec import JobSpec
    from tradewind.store.base import Store, StudyRow


_AT_ONCE = 20
"""Studies that are looked at together, until one is found that has trials."""


def command_group(name: str, words: str, *, bare: bool = False) -> typer.Typer:
    """A command with further commands below it.

    Args:
        name: The word that calls the group.
        words: What it is for.
        bare: It does something without a further command, too.
    """
    return typer.Typer(
        name=name,
        help=words,
        no_args_is_help=not bare,
        invoke_without_command=bare,
        add_completion=False,
        rich_markup_mode=None,
    )


def emit_json(document: Any) -> None:
    """Print a document as JSON: NaN and infinities become null, so that every reader takes it.

    Where standard output does not take every character, they are written as escapes: none is lost.
    """
    from tradewind.cli.output import unicode
    from tradewind.utils.units import json_safe

    json.dump(json_safe(document), sys.stdout, ensure_ascii=not unicode(sys.stdout), default=str)
    sys.stdout.write("\n")


def open_store(url: str | None = None, *, must_exist: bool = False) -> Store:
    """The store at ``url``, or the user's own.

    Args:
        url: Address, or None for ``TRADEWIND_STORE`` or the data folder.
        must_exist: Do not create an SQLite file that is not there.

    Raises:
        StoreError: It cannot be opened.
    """
    from tradewind.errors import StudyNotFoundError
    from tradewind.store.base import store_at
    from tradewind.utils.paths import store_url

    address = url or store_url()
    if must_exist and address.startswith("sqlite:///") and not _may_be_there(address):
        raise StudyNotFoundError(f"there is no store at {address} yet", hint="tradewind tune job.yaml makes one")
    return store_at(address)


def _may_be_there(address: str) -> bool:
    from tradewind.store.sql.address import parse_address

    _, path = parse_address(address)
    try:
        return path is None or path.exists()
    except OSError:  # a folder of somebody else's: opening it says so
        return True


def find_study(store: Store, name: str | None) -> StudyRow:
    """The newest study of that name, or the newest of all; ``name`` may also be a study's id or a job YAML.

    One that has no trial, and that no process is at, hides no other one.

    Raises:
        StudyNotFoundError: There is none.
    """
    if _by_name(name):
        found = [line.id for line in store.list_studies(name)]
        if not found:
            raise _unknown(store, name)
    else:
        found = [row.id for row in find_studies(store, name)]
    if len(found) > 1:
        for at in range(0, len(found), _AT_ONCE):
            for one in store.summaries(found[at : at + _AT_ONCE]):
                if one.counts or one.holder:
                    return one.study
    return store.study(found[0])


def find_search(store: Store, name: str | None) -> StudyRow:
    """As `find_study`, for what only a search has.

    Raises:
        StudyNotFoundError: There is none.
        InputError: It is the run of a workflow.
    """
    from tradewind.errors import InputError

    found = find_study(store, name)
    if found.kind != "search":
        hint = "tradewind status, logs, report, export, down and reap take one"
        raise InputError(f"{found.name} (study {found.id}) is a run of a workflow, not a search", hint=hint)
    return found


def _by_name(name: str | None) -> bool:
    """False for a study's id and a job YAML."""
    from pathlib import Path

    return name is None or not (name.isdigit() or (Path(name).suffix in (".yaml", ".yml") and Path(name).is_file()))


def find_studies(store: Store, name: str | None) -> list[StudyRow]:
    """All studies of that name, or all there are; the newest first, and at least one.

    Args:
        store: Where they are kept.
        name: A name, a study's id or a job YAML. Jobs of other files may have the same name: those of a YAML are the
            ones of its problem, whatever the folder, and those of this very file before it was edited.

    Raises:
        StudyNotFoundError: There is none.
    """
    from pathlib import Path

    if name and name.isdigit():
        return [store.study(int(name))]
    if name and not _by_name(name):
        return _of_file(store, Path(name))
    found = store.find_studies(name)
    if not found:
        raise _unknown(store, name)
    return found


def _unknown(store: Store, name: str | None) -> StudyNotFoundError:
    """The error for a name that no study has: with the nearest name, or with some that there are."""
    from tradewind.errors import StudyNotFoundError
    from tradewind.utils.suggestions import closest_match

    known = sorted({study.name for study in store.list_studies()})
    near = closest_match(name or "", known)
    hint = f"did you mean {near!r}?" if near else f"known: {', '.join(known[:8])}" if known else "none is stored yet"
    if name is None:
        return StudyNotFoundError("there is no study yet", hint=hint)
    return StudyNotFoundError(f"there is no study {name!r}" if name else "'' is no name of a study", hint=hint)


def _of_file(store: Store, path: Path) -> list[StudyRow]:
    """The searches of a job YAML; its single runs where there is none."""
    from tradewind.errors import StudyNotFoundError
    from tradewind.problem.job_spec.spec import load_spec

    spec = load_spec(path)
    searches = store.find_studies(spec.name)
    runs, runs_key = single_runs(spec)

    found = _own(searches, spec, path, spec.problem_key) or _own(store.find_studies(runs), spec, path, runs_key)
    if found:
        return found
    message, hint = f"there is no study of {path} yet", f"tradewind tune {path}"
    if searches:
        message += f"; {spec.name!r} of study {searches[0].id} is another job"
        hint += ", or name the study by its id"
    raise StudyNotFoundError(message, hint=hint)


def _own(studies: Sequence[StudyRow], spec: JobSpec, path: Path, key: str) -> list[StudyRow]:
    """The studies of a problem, and those of a job YAML before it was edited or with other job parameters."""
    from pathlib import Path

    here = (str(spec.base), path.name)
    return [
        study
        for study in studies
        if study.problem_key == key or (study.spec.get("base"), Path(str(study.spec.get("file"))).name) == here
    ]


def find_single_runs(store: Store, name: str | None) -> list[StudyRow]:
    """The studies with the single runs (`tradewind run`) of a job, the newest first; of a study's id there are none.

    Args:
        store: Where they are kept.
        name: The job's name, or its YAML.
    """
    from pathlib import Path

    from tradewind.engine.past_studies import SINGLE_RUNS_SUFFIX
    from tradewind.problem.job_spec.spec import load_spec

    if name is None or name.isdigit():
        return []
    if _by_name(name):
        return store.find_studies(name.removesuffix(SINGLE_RUNS_SUFFIX) + SINGLE_RUNS_SUFFIX)
    spec = load_spec(Path(name))
    runs, key = single_runs(spec)
    return _own(store.find_studies(runs), spec, Path(name), key)


def single_runs(spec: JobSpec) -> tuple[str, str]:
    """Name and problem of the studies that single runs of a job are kept in."""
    from tradewind.engine.past_studies import SINGLE_RUNS_SUFFIX

    return f"{spec.name}{SINGLE_RUNS_SUFFIX}", f"{spec.problem_key}/runs"


def pair(word: str, option: str, example: str, *, error: type[InputError] | None = None) -> tuple[str, str]:
    """Name and text of a ``NAME=VALUE`` word.

    Args:
        word: The word.
        option: The option that it was given with.
        example: A word as it should be, for the hint.
        error: The kind of error, where it is a more special one.

    Raises:
        InputError: The word is not of that form.
    """
    from tradewind.errors import InputError

    name, sign, text = word.partition("=")
    if not sign or not name:
        raise (error or InputError)(f"{option} {word!r} is not NAME=VALUE", hint=f"write {option} {example}")
    return name, text


def tried_values(text: str) -> dict[str, str]:
    """The values of a ``--try``, ``NAME=VALUE,NAME=VALUE``.

    Raises:
        ConfigurationError: It is not of that form, or a name is given twice.
    """
    from tradewind.errors import ConfigurationError
    from tradewind.problem.completion import parse_values

    try:
        return parse_values(text)
    except ConfigurationError as error:
        hint = (error.hint or "").replace("write ", "write --try ")
        raise ConfigurationError(f"--try {error.message}", hint=hint) from None


def value_of(text: str) -> Any:
    """A value of the command line as YAML reads it; the text itself where it is no YAML."""
    import re

    if re.fullmatch(r"(~|\.{1,2})?/[\w./-]*", text):  # a path is a path, without reading YAML
        return text
    from tradewind.errors import SpecError
    from tradewind.problem.yaml_source import parse_value

    try:
        return parse_value(text) if text else ""
    except SpecError:
        return text


def pairs(words: Sequence[str] | None, option: str, example: str = "key=4") -> dict[str, Any]:
    """The values of ``NAME=VALUE`` words, as YAML reads them.

    Raises:
        InputError: A word is not of that form, or a name is given twice.
    """
    found: dict[str, Any] = {}
    for word in words or ():
        name, text = pair(word, option, example)
        _once(name, found, f"{option} {word!r}")
        found[name] = value_of(text)
    return found


def _once(name: str, given: Mapping[str, Any], words: str) -> None:
    """Refuse a second value for a name: the first one would be lost without a word."""
    from tradewind.errors import InputError

    if name in given:
        raise InputError(f"{words}: {name!r} is given twice", hint="give each of them once")


def load_job(file: Path, overrides: Mapping[str, Any] | None = None, params: Sequence[str] | None = None) -> JobSpec:
    """A job YAML with other values for some job parameters; what it warns of is written to stderr.

    Args:
        file: The job YAML.
        overrides: Other values to replace, by key.
        params: ``NAME=VALUE`` of the command line, each a parameter that the YAML has under ``job.parameters``.

    Raises:
        InputError: One of them is no such parameter, or no number where the YAML has one.
    """
    from tradewind.errors import InputError
    from tradewind.problem.job_spec.spec import load_spec

    spec = load_spec(file, overrides)
    for warning in spec.source.warnings:
        typer.echo(f"tradewind: {warning}", err=True)
    known = spec.job.parameters.values
    given: dict[str, float | str] = {}
    for text in params or ():
        name, value = pair(text, "--param", "size=4000")
        if name not in known:
            there = f"known: {', '.join(known)}" if known else f"{file.name} has none under job.parameters"
            raise InputError(f"--param {text!r}: there is no job parameter {name!r}", hint=there)
        _once(name, given, f"--param {text!r}")
        declared = known[name]
        given[name] = value if isinstance(declared, str) else _number(text, value, declared)
    return load_spec(file, {**(overrides or {}), "job.parameters": given}) if given else spec


def _number(text: str, value: str, like: float) -> float:
    """The value of ``NAME=VALUE`` as a number: a whole one where it is written as one, as YAML reads it.

    Raises:
        InputError: It is none.
    """
    from tradewind.errors import InputError

    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"--param {text!r}: {value!r} is no number", hint=f"the job YAML has {like:g}")
    return int(value) if value.strip().lstrip("+-").isdecimal() else number
