"""The values that a request was made with, in words: titles and units as the form of its application has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tradewind.service.applications.document_model import FieldModel
from tradewind.store.service.request_values import RequestRow
from tradewind.utils.units import format_memory, format_money, format_number, shortened

_DOLLARS = ("$", "usd", "dollars")


@dataclass(frozen=True, slots=True)
class ParameterWords:
    """A value that a request was made with.

    Attributes:
        name: Name of the field.
        title: Words beside the value.
        words: The value with its unit.
        usual: True where it is what the form has before anything is typed in.
    """

    name: str
    title: str
    words: str
    usual: bool = False


@dataclass(frozen=True, slots=True)
class RequestWords:
    """The application and the parameters of a request, in words.

    Attributes:
        application: Title of its application; empty for a program of its own.
        parameters: The values that it was made with, in the order of the form.
    """

    application: str = ""
    parameters: tuple[ParameterWords, ...] = ()

    def line(self, most: int = 200) -> str:
        """Return the parameters on one line, ``Number of stars: 1,000 · Time steps: 20``, the usual values last."""
        ordered = sorted(self.parameters, key=lambda one: one.usual)
        return shortened(" · ".join(f"{one.title}: {one.words}" for one in ordered), most)


def given_values(row: RequestRow) -> dict[str, Any]:
    """Return the values that a request was made with, by the names of its form's fields."""
    given = row.document.get("parameters") or row.document.get("user_data") or {}
    return dict(given) if isinstance(given, Mapping) else {}


def request_words(row: RequestRow, title: str = "", fields: Mapping[str, FieldModel] | None = None) -> RequestWords:
    """Describe a request.

    Args:
        row: The request.
        title: Title of its application.
        fields: The fields of its application's form.
    """
    values = given_values(row)
    known = fields or {}
    names = [*(name for name in known if name in values), *(name for name in values if name not in known)]
    return RequestWords(title, tuple(_words(name, values[name], known.get(name)) for name in names))


def _words(name: str, value: Any, field: FieldModel | None) -> ParameterWords:
    title, unit = (field.title or name, field.unit) if field is not None else (name, "")
    usual = field is not None and value == field.default
    return ParameterWords(name, title, value_words(value, unit, title), usual)


def value_words(value: Any, unit: str = "", title: str = "") -> str:
    """Write the value of a parameter: digits in groups of three, amounts of money as everywhere, files by name.

    Args:
        value: The value.
        unit: What it counts.
        title: Words that stand beside it: a unit that they end with is not said again.
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        if unit.lower() in _DOLLARS:
            return format_money(value)
        said = not unit or title.lower().endswith(unit.lower())
        return format_number(value) if said else f"{format_number(value)} {unit}"
    if isinstance(value, Mapping) and "file" in value:
        return f"{value.get('name') or 'a file'} ({format_memory(value.get('size'))})"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {value_words(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(value_words, value))
    return str(value)
