"""An application document: a job YAML with a block ``application`` beside it."""

from __future__ import annotations

import math
import re
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from tradewind.errors import InputError
from tradewind.problem.job_spec.model import Scalar
from tradewind.problem.job_spec.values import Number, SchemaForms, StrictModel, parse_with, validation_error

VARIABLE_PREFIX = "FIELD_"
"""The beginning of variables that no program reads by itself: what people type may go into them."""

FieldKind = Literal["integer", "number", "text", "choice", "boolean", "file"]

MAX_FILE = 65_536
"""Characters of an embedded file: larger ones belong into an image, a folder of the machines, or an input."""

MAX_TEXT = 10_000
"""Characters of a text that somebody types into a form."""


class FieldModel(StrictModel):
    """A field of the form."""

    type: FieldKind = Field(description="integer, number, text, choice, boolean or file.")
    title: str = Field("", max_length=100, description="What stands beside the field; its name without it.")
    help: str = Field("", max_length=1000, description="A sentence that explains it.")
    default: Scalar | None = Field(None, description="The value of a field that is left alone.")
    required: bool | None = Field(None, description="Whether it must be given; without a default it must.")
    min: Number | None = Field(None, description="The least number; of a text, the fewest characters.")
    max: Number | None = Field(None, description="The greatest number; of a text, the most characters; of a file, MiB.")
    choices: Annotated[list[Scalar], Field(min_length=1, max_length=500)] | None = Field(
        None, description="The values of a choice."
    )
    unit: str = Field("", max_length=20, description="What the number counts, for people: MiB, degrees.")
    step: Number | None = Field(None, gt=0, description="The distance between values, counted from min or 0.")
    lines: bool = Field(False, description="Whether a text may have several lines.")
    data: list[Annotated[str, Field(max_length=300)]] = Field(
        [],
        max_length=100,
        description="Where a text goes, all places: command.3 (0 is the program), env.FIELD_TITLE, files.input.json. "
        "It says that what reads the text there never takes it for code.",
    )
    suffix: str = Field(
        "", pattern=r"^(\.[A-Za-z0-9]{1,15})?$", description="The ending of the file's name in the run: .dat"
    )
    when: dict[str, list[Scalar]] | None = Field(
        None, description="The field exists only where another field above it has one of some values: {solver: [cg]}."
    )

    @model_validator(mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        """Write ``when: {solver: cg}`` in its long form."""
        when = value.get("when") if isinstance(value, dict) else None
        if isinstance(when, dict):
            return {**value, "when": {k: v if isinstance(v, list) else [v] for k, v in when.items()}}
        return value

    @model_validator(mode="after")
    def _sensible(self) -> FieldModel:
        wrong = _foreign_key(self)
        if wrong:
            raise validation_error(f"{wrong} means nothing for a field of type {self.type}", "leave it out")
        if (self.type == "choice") != (self.choices is not None):
            raise validation_error(*_about_choices(self))
        if self.choices is not None and len({repr(_plain(c)) for c in self.choices}) < len(self.choices):
            raise validation_error("a choice stands twice in choices")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise validation_error(f"min {self.min:g} is above max {self.max:g}", "no value keeps both")
        if self.required is False and self.default is None and self.type != "file":
            raise validation_error(
                "a field that need not be given has no default", "write the default that it has then, such as ''"
            )
        if self.when is not None and self.default is None and self.type != "file":
            raise validation_error(
                "a field with when has no default", "the job needs a value where the field is hidden"
            )
        return self

    @property
    def must(self) -> bool:
        """True where a value must be given."""
        return self.default is None if self.required is None else self.required


_OWN_KEYS = {
    "min": ("integer", "number", "text"),
    "max": ("integer", "number", "text", "file"),
    "choices": ("choice",),
    "unit": ("integer", "number"),
    "step": ("integer", "number"),
    "lines": ("text",),
    "data": ("text",),
    "suffix": ("file",),
    "default": ("integer", "number", "text", "choice", "boolean"),
}


def _foreign_key(field: FieldModel) -> str:
    """Return a key that was written and that the field's type does not use; empty where there is none."""
    return next(
        (key for key, kinds in _OWN_KEYS.items() if key in field.model_fields_set and field.type not in kinds), ""
    )


def _about_choices(field: FieldModel) -> tuple[str, str]:
    if field.type == "choice":
        return "a choice has no choices", "write choices: [cg, gmres]"
    return f"choices mean nothing for a field of type {field.type}", "write type: choice"


def _plain(value: Any) -> Any:
    """Write 2 and 2.0 as one choice."""
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


class FileModel(StrictModel):
    """A small text file that lies in the job's folder."""

    text: str = Field(max_length=MAX_FILE, description="What stands in it.")
    template: bool = Field(
        False, description="Fill the fields in: {{ steps }}. Text that people type only as {{ title | tojson }}."
    )


def _file(value: Any) -> Any:
    return {"text": value} if isinstance(value, str) else value


_RESERVED_FOLDERS = ("uploads", "inputs", "outputs")


def _file_name(value: Any) -> Any:
    path = PurePosixPath(str(value))
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_./+-]{0,199}", str(value)) or ".." in path.parts:
        raise InputError(f"{value!r} is no name for a file", hint="letters, digits, '.', '_', '-' and '/' only")
    if str(path) != str(value) or path.parts[0] in _RESERVED_FOLDERS:
        raise InputError(f"{value!r} is no name for a file", hint=f"{', '.join(_RESERVED_FOLDERS)} are taken")
    return value


FileName = Annotated[str, parse_with(_file_name)]


class ApplicationModel(StrictModel):
    """Face of a job for people: its title, and the form that its parameters are typed into."""

    title: str = Field("", max_length=100, description="What people call it; the job's name without it.")
    description: str = Field("", max_length=5000, description="What it does, for people.")
    fields: dict[str, FieldModel] = Field({}, description="The fields of the form, in order; each a job parameter.")
    backend: str = Field("", max_length=100, description="The backend that it runs on where nobody says otherwise.")
    files: dict[FileName, Annotated[FileModel, BeforeValidator(_file), SchemaForms({"type": "string"})]] = Field(
        {}, description="Small text files that lie in the job's folder, by name."
    )

    results: list[Annotated[str, Field(min_length=1, max_length=300, pattern=r"^[^/]")]] = Field(
        [],
        max_length=100,
        description="What people see of the job's outputs, as patterns: [report.txt, pictures/*.png, table]; a folder "
        "stands for all that is in it. All outputs without it.",
    )

    @model_validator(mode="after")
    def _bounded(self) -> ApplicationModel:
        if len(self.fields) > 100:
            raise validation_error("a form of more than 100 fields")
        if sum(len(file.text) for file in self.files.values()) > 4 * MAX_FILE:
            raise validation_error(
                "the embedded files are too large together", "put them into an image, or into inputs"
            )
        return self


def check_finite(value: float) -> bool:
    """Check that a number is finite, as those of a form must be."""
    return math.isfinite(value) and abs(value) <= 1e300
