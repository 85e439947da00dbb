"""Checks an application document completely, with the file and line of what is wrong."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tradewind.errors import InputError, SpecError
from tradewind.problem.job_spec.spec import JobSpec, build_spec
from tradewind.problem.job_spec.validation_errors import first_error, spec_errors
from tradewind.problem.template import BUILT_IN, check_text
from tradewind.problem.yaml_source import KeyPath, YamlSource, parse_source
from tradewind.service.applications.document_model import ApplicationModel
from tradewind.service.applications.form_values import read_value
from tradewind.service.applications.injection_safety import broken_json, command_starts, unsafe_texts
from tradewind.service.applications.uploaded_files import UPLOADS, FileValue
from tradewind.service.applications.user_limits import administrator_only, own_parts
from tradewind.store.service.applications import ApplicationRow
from tradewind.utils.suggestions import did_you_mean

BLOCK = "application"
"""The key of the block that makes an application of a job."""

ANY_MACHINE: Mapping[str, Any] = {"instance": {}}
"""The space of an application that declares none: the machine."""

NOWHERE = Path("/nonexistent")
"""The job's folder as long as nobody runs it."""


@dataclass(frozen=True)
class CheckedApplication:
    """A valid application document.

    Attributes:
        source: The document, with the line of each key.
        model: Its block ``application``.
        spec: The job with some values in its fields, on no backend.
        words: Text fields that begin a word of the command.
        unsafe: What is wrong with the places that text goes to, of one that was registered before these were declared.
    """

    source: YamlSource
    model: ApplicationModel
    spec: JobSpec
    words: frozenset[str]
    unsafe: str = ""

    @property
    def name(self) -> str:
        """The application's name, which is the job's."""
        return self.spec.name


def check_application(source: YamlSource, *, trusted: bool, hooks: bool, vouched: bool = False) -> CheckedApplication:
    """Check an application document.

    Args:
        source: The document.
        trusted: True where an administrator registers it.
        hooks: True where one of an ordinary user may bring hooks.
        vouched: True where an administrator vouches that text is data at all places that the document declares.

    Raises:
        SpecError: Something is wrong; the first thing in the file is named.
    """
    model = _model(source)
    problems = _wrong_fields(source, model)
    if problems:
        raise first_error(problems)
    if not trusted and (own := own_parts(source)):
        raise first_error(own)  # before anything of it is loaded
    spec = build_spec(job_source(source, model, placeholders(model)), NOWHERE)
    problems = [*_wrong_files(source, model), *_wrong_folder(source, model)]
    if not problems:
        problems = unsafe_texts(source, model, vouched=trusted and vouched)
        problems += broken_json(source, model, placeholders(model)) if not problems else ()
    if not trusted:
        problems += administrator_only(source, model, hooks=hooks)
    if problems:
        raise first_error(problems)
    return CheckedApplication(source, model, spec, command_starts(source, model))


def stored_application(row: ApplicationRow) -> CheckedApplication:
    """Parse a registered application, which was checked at registration."""
    return _stored_application(row.document, row.reference, row.trusted)


@functools.lru_cache(maxsize=128)
def _stored_application(text: str, name: str, trusted: bool) -> CheckedApplication:
    source = parse_source(text, f"application {name}")
    model = _model(source)
    spec = build_spec(job_source(source, model, placeholders(model)), NOWHERE, check_parts=False)
    unsafe = next((error.message for error in unsafe_texts(source, model, vouched=trusted)), "")
    return CheckedApplication(source, model, spec, command_starts(source, model), unsafe)


def job_source(source: YamlSource, model: ApplicationModel, values: Mapping[str, Any]) -> YamlSource:
    """Return the document of the job alone, with values in the fields.

    Args:
        source: The document of the application.
        model: Its block ``application``.
        values: The value of each field, as job parameters are.
    """
    document = {key: value for key, value in source.document.items() if key != BLOCK}
    if document.get("space") is None:
        document["space"] = dict(ANY_MACHINE)
    job = document.get("job")
    if isinstance(job, Mapping):
        given = job.get("parameters")
        parameters = {**given, **values} if isinstance(given, Mapping) else given if given is not None else values
        document["job"] = {**job, "parameters": parameters}
    lines = {place: line for place, line in source.lines.items() if place[:1] != (BLOCK,)}
    lines |= {("job", "parameters", name): source.lines.get((BLOCK, "fields", name), 1) for name in model.fields}
    return YamlSource(document, source.file, lines)


def parameters_of(model: ApplicationModel, values: Mapping[str, Any]) -> dict[str, float | str]:
    """Convert values of fields to job parameters: of a file its path in the job's folder, and its bytes beside it."""
    found: dict[str, float | str] = {}
    for name, value in values.items():
        if isinstance(value, FileValue):
            found[name] = f"{UPLOADS}/{name}{model.fields[name].suffix}" if value.digest else ""
            found[f"{name}_bytes"] = value.size
        else:
            found[name] = value
    return found


def placeholders(model: ApplicationModel) -> dict[str, float | str]:
    """Make up some value for each field, so that the job can be read before anybody fills in the form."""
    values: dict[str, Any] = {}
    for name, field in model.fields.items():
        if field.type == "file":
            values[name] = FileValue.none()
        elif field.default is not None:
            values[name] = read_value(field, field.default)
        elif field.choices:
            values[name] = read_value(field, field.choices[0])
        else:
            values[name] = "text" if field.type == "text" else field.min if field.min is not None else 1
    return parameters_of(model, values)


def _model(source: YamlSource) -> ApplicationModel:
    if BLOCK not in source.document:
        hint = "write 'application: {}' for a job without a form"
        raise source.error((), "there is no block 'application'", hint)
    block = source.document[BLOCK]
    try:
        return ApplicationModel.model_validate({} if block is None else block)
    except ValidationError as error:
        raise first_error(spec_errors(error, ApplicationModel, source, (BLOCK,))) from None


def _wrong_fields(source: YamlSource, model: ApplicationModel) -> list[SpecError]:
    """Find fields whose names are taken, or whose defaults and conditions are no values."""
    problems = []

    def wrong(place: KeyPath, message: str, hint: str | None = None) -> None:
        at = (BLOCK, "fields", *place)
        problems.append(source.error(at, f"{'.'.join(str(p) for p in at)}: {message}", hint))

    space = source.document.get("space")
    job = source.document.get("job")
    parameters = job.get("parameters") if isinstance(job, Mapping) else None
    taken = dict.fromkeys(space if isinstance(space, Mapping) else ANY_MACHINE, "is a parameter of the space")
    taken |= dict.fromkeys(parameters if isinstance(parameters, Mapping) else (), "is in job.parameters too")
    taken |= dict.fromkeys(BUILT_IN, "means something else in templates")
    taken |= {f"{name}_bytes": f"is the size of {name}" for name, f in model.fields.items() if f.type == "file"}
    for i, (name, field) in enumerate(model.fields.items()):
        above = dict(list(model.fields.items())[:i])
        if not name.isidentifier() or not name.isascii():
            wrong((name,), f"{name!r} is no name for a field", "letters, digits and _ only")
        elif name in taken:
            wrong((name,), f"this name {taken[name]}", "choose another")
        try:
            if field.default is not None:
                read_value(field, field.default)
        except InputError as error:
            wrong((name, "default"), error.message, error.hint)
        for other, options in (field.when or {}).items():
            if other not in above:
                wrong(
                    (name, "when", other),
                    f"there is no field {other!r} above it",
                    did_you_mean(other, above, "above it:"),
                )
                continue
            try:
                _ = [read_value(above[other], option) for option in options]
            except InputError as error:
                wrong((name, "when", other), error.message, error.hint)
    return problems


def _wrong_files(source: YamlSource, model: ApplicationModel) -> list[SpecError]:
    known = parameters_of(model, placeholders(model)).keys() | {
        f"{name}_bytes" for name, field in model.fields.items() if field.type == "file"
    }
    problems = []
    for name, file in model.files.items():
        try:
            if file.template:
                check_text(file.text, known, name)
        except SpecError as error:
            place: KeyPath = (BLOCK, "files", name)
            problems.append(source.error(place, f"{BLOCK}.files.{name}: {error.message}", error.hint))
    return problems


def _wrong_folder(source: YamlSource, model: ApplicationModel) -> list[SpecError]:
    """Refuse a job that starts in a folder of the machine: it would not find the application's files."""
    job = source.document.get("job")
    workdir = job.get("workdir") if isinstance(job, Mapping) else None
    if workdir in (None, "."):
        return []
    brings = [*model.files, *(name for name, field in model.fields.items() if field.type == "file")]
    if brings:
        message = f"job.workdir: the job starts in {workdir}, where {brings[0]} is not"
        return [source.error(("job", "workdir"), message, "leave workdir out, or the files")]
    if not Path(str(workdir)).is_absolute():
        return [source.error(("job", "workdir"), f"job.workdir: {workdir} is seen from nowhere", "write a full path")]
    return []
