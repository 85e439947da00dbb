"""The form of an application, for pages and programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tradewind.engine.preflight import ending_words
from tradewind.problem.job_spec.spec import JobSpec
from tradewind.service.applications.document_model import MAX_TEXT, FieldModel
from tradewind.service.applications.validation import CheckedApplication
from tradewind.store.service.applications import ApplicationRow


@dataclass(frozen=True, slots=True)
class ApplicationFormField:
    """A field of a form.

    Attributes:
        name: Key of its value.
        type: ``integer``, ``number``, ``text``, ``choice``, ``boolean`` or ``file``.
        title: What stands beside it.
        help: A sentence that explains it.
        default: Value where it is left alone, or None.
        required: True where a value must be given.
        min: The least number, or the fewest characters; None for no bound.
        max: The greatest number, the most characters, or the most MiB; None for no bound.
        choices: The values of a choice.
        unit: What the number counts.
        step: The distance between values, or None.
        lines: True where a text may have several lines.
        suffix: The ending of a file's name in the run.
        when: The field exists only where each of these fields has one of these values.
    """

    name: str
    type: str
    title: str
    help: str = ""
    default: float | int | str | bool | None = None
    required: bool = True
    min: float | None = None
    max: float | None = None
    choices: tuple[float | int | str | bool, ...] = ()
    unit: str = ""
    step: float | None = None
    lines: bool = False
    suffix: str = ""
    when: Mapping[str, tuple[float | int | str | bool, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ApplicationForm:
    """The form of an application.

    Attributes:
        application: ``name@version``.
        tenant: Whose application it is; empty where all tenants see it.
        title: What people call the application.
        description: What it does.
        fields: The fields, in order.
        space: The parameters of the configuration that may be chosen, in order.
        objective: What is wanted, such as ``minimise cost``.
        deadline: Seconds that a run may take where nobody says otherwise, or None.
        backend: The backend that it runs on where nobody says otherwise; empty for the server's first.
        stops: A sentence on when a search ends by itself; empty where it uses its budget.
        schema: JSON Schema (draft 2020-12) of the parameters.
    """

    application: str
    tenant: str
    title: str
    description: str
    fields: tuple[ApplicationFormField, ...]
    space: tuple[str, ...]
    objective: str
    deadline: float | None
    backend: str
    stops: str
    schema: Mapping[str, Any]

    @property
    def address(self) -> str:
        """Unambiguous address ``tenant/name@version`` of this application."""
        return f"{self.tenant}/{self.application}"

    @property
    def defaults(self) -> dict[str, float | int | str | bool]:
        """Values of the fields that have a default."""
        return {one.name: one.default for one in self.fields if one.default is not None}


def form_of(row: ApplicationRow, known: CheckedApplication) -> ApplicationForm:
    """The form of an application.

    Args:
        row: The application.
        known: The application's document, checked.
    """
    model, spec = known.model, known.spec
    title = model.title or row.name
    return ApplicationForm(
        application=row.reference,
        tenant=row.tenant,
        title=title,
        description=model.description,
        fields=tuple(_field(name, one) for name, one in model.fields.items()),
        space=tuple(parameter.name for parameter in spec.parameters),
        objective=f"{spec.objective.goal} {spec.objective.metric}",
        deadline=deadline_of(spec),
        backend=model.backend,
        stops=ending_words(spec, advice=False),
        schema=schema_of(title, model.fields),
    )


def deadline_of(spec: JobSpec) -> float | None:
    """Return the seconds after which a run is ended: the deadline, or ``deploy.longest`` where that is shorter."""
    return min((one for one in (spec.constraints.deadline, spec.longest) if one is not None), default=None)


def _field(name: str, model: FieldModel) -> ApplicationFormField:
    return ApplicationFormField(
        name=name,
        type=model.type,
        title=model.title or name,
        help=model.help,
        default=model.default,
        required=model.must,
        min=model.min,
        max=model.max,
        choices=tuple(model.choices or ()),
        unit=model.unit,
        step=model.step,
        lines=model.lines,
        suffix=model.suffix,
        when={other: tuple(wanted) for other, wanted in (model.when or {}).items()},
    )


def schema_of(title: str, fields: Mapping[str, FieldModel]) -> dict[str, Any]:
    """Build the JSON Schema (draft 2020-12) of the values of a form.

    Args:
        title: What people call the application.
        fields: The fields, in order.
    """
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        "type": "object",
        "properties": {name: _schema(field) for name, field in fields.items()},
        "required": [name for name, field in fields.items() if field.must],
        "additionalProperties": False,
    }


_FILE = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "text": {"type": "string"},
        "base64": {"type": "string", "contentEncoding": "base64"},
        "file": {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"},
        "size": {"type": "integer", "minimum": 0},
    },
    "additionalProperties": False,
}


def _schema(field: FieldModel) -> dict[str, Any]:
    about: dict[str, Any] = {"title": field.title} if field.title else {}
    if field.help:
        about["description"] = field.help
    if field.default is not None:
        about["default"] = field.default
    if field.unit:
        about["x-unit"] = field.unit
    if field.when:
        about["x-when"] = field.when
    if field.type == "choice":
        return {"enum": field.choices, **about}
    if field.type == "file":
        return {**_FILE, **about}
    if field.type == "boolean":
        return {"type": "boolean", **about}
    if field.type == "text":
        most = field.max if field.max is not None else MAX_TEXT if field.lines else 1_000
        return {"type": "string", "minLength": int(field.min or 0), "maxLength": int(min(most, MAX_TEXT)), **about}
    bounds = {"minimum": field.min, "maximum": field.max}
    if field.step is not None and not field.min:
        bounds["multipleOf"] = field.step
    return {"type": field.type, **{key: value for key, value in bounds.items() if value is not None}, **about}
