"""Reads what was typed into a form: each field by its type and bounds, with one message for each that is wrong."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from typing import Any

from tradewind.errors import FormError, InputError
from tradewind.service.applications.document_model import MAX_TEXT, FieldModel, check_finite
from tradewind.service.applications.uploaded_files import FileValue
from tradewind.utils.suggestions import did_you_mean

Value = float | int | str | FileValue
"""What a field is read as."""

_TRUE, _FALSE = ("true", "on", "yes", "1"), ("false", "off", "no", "0", "")
_SHORT = 1_000
"""Characters of a text of one line."""


def read_values(
    fields: Mapping[str, FieldModel], given: Mapping[str, Any], *, words: Collection[str] = ()
) -> dict[str, Value]:
    """Read the value of every field.

    A field that is left out, or left empty in a form, has its default; so has one that is hidden, whatever was sent.

    Args:
        fields: The fields, in order.
        given: Typed values by name; text is read as numbers where numbers are wanted.
        words: Text fields that begin an argument of the command by themselves.

    Returns:
        Numbers and text by name; true is 1 and false is 0, as job parameters are.

    Raises:
        FormError: A field is wrong, missing or unknown.
    """
    wrong = {
        str(name): f"there is no such field; {did_you_mean(str(name), fields, 'there are:')}"
        for name in given
        if name not in fields
    }
    values: dict[str, Value] = {}
    for name, field in fields.items():
        visible = is_visible(field, values)
        try:
            values[name] = _read(field, given.get(name) if visible else None, needed=visible and field.must)
            if name in words and str(values[name]).startswith("-"):
                raise InputError("begins with a '-': the program would take it for an option")
        except InputError as error:
            wrong[name] = f"{error.message} ({error.hint})" if error.hint else error.message
    if wrong:
        raise FormError(wrong)
    return values


def is_visible(field: FieldModel, values: Mapping[str, Any]) -> bool:
    """True where a field exists, given the values of the fields above it."""
    return all(
        values.get(other) in [_as_value(option) for option in wanted] for other, wanted in (field.when or {}).items()
    )


def read_value(field: FieldModel, given: Any) -> Value:
    """Read the value of one field.

    Raises:
        InputError: It is none.
    """
    return _READERS[field.type](field, given)


def _read(field: FieldModel, given: Any, *, needed: bool) -> Value:
    empty = given is None or (isinstance(given, str) and not given.strip() and field.type != "text")
    if empty or (given == "" and field.default is None):
        if needed:
            raise InputError("is missing")
        if field.type == "file":
            return FileValue.none(field.suffix)
        given = field.default
    return read_value(field, given)


def _number(field: FieldModel, given: Any) -> float:
    try:
        number = float(given) if isinstance(given, int | float | str) and not isinstance(given, bool) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not check_finite(number):
        raise InputError(f"{_short(given)} is no number")
    if field.min is not None and number < field.min:
        raise InputError(f"{_exact(number)} is below {_bound(field.min, field)}")
    if field.max is not None and number > field.max:
        raise InputError(f"{_exact(number)} is above {_bound(field.max, field)}")
    if field.step is not None:
        steps = (number - (field.min or 0.0)) / field.step
        if abs(steps - round(steps)) > 1e-6 * max(1.0, abs(steps)):
            begin = _exact(field.min or 0.0)
            raise InputError(f"{_exact(number)} is none of {begin}, then every {_exact(field.step)}")
    return number


def _integer(field: FieldModel, given: Any) -> int:
    plain = given.strip() if isinstance(given, str) else given
    if isinstance(plain, str) and re.fullmatch(r"[+-]?[0-9]{1,300}", plain):
        plain = int(plain)
    number = _number(field, plain)
    if number != round(number):
        raise InputError(f"{_short(given)} is no whole number")
    return int(plain) if isinstance(plain, int) else round(number)


def _text(field: FieldModel, given: Any) -> str:
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        raise InputError(f"{_short(given)} is no text")
    text = str(given).replace("\r\n", "\n")
    allowed = "\n\t" if field.lines else ""
    if any(unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") and c not in allowed for c in text):
        raise InputError(
            "has a line break or another control character" if not field.lines else "has a control character"
        )
    most = min(field.max, MAX_TEXT) if field.max is not None else MAX_TEXT if field.lines else _SHORT
    if len(text) > most:
        raise InputError(f"has {len(text)} characters, more than {most:g}")
    if field.min is not None and len(text) < field.min:
        raise InputError(f"has {len(text)} characters, fewer than {field.min:g}")
    return text


def _choice(field: FieldModel, given: Any) -> float | int | str:
    for option in field.choices or ():
        value: float | int | str = _as_value(option)
        if _as_value(given) == value or (isinstance(given, str) and given == str(value)):
            return value
        if isinstance(option, bool) and str(given).lower() == str(option).lower():
            return value
    options = ", ".join(str(option) for option in (field.choices or ())[:12])
    raise InputError(f"{_short(given)} is none of the choices", hint=f"there are: {options}")


def _boolean(_field: FieldModel, given: Any) -> int:
    text = str(given).strip().lower()
    if text in _TRUE:
        return 1
    if text in _FALSE:
        return 0
    raise InputError(f"{_short(given)} is neither true nor false")


def _file(field: FieldModel, given: Any) -> FileValue:
    most = field.max if field.max is not None else math.inf
    value = FileValue.read(given, field.suffix)
    if value.size > most * 2**20:
        raise InputError(f"has {value.size / 2**20:.1f} MiB, more than {most:g}")
    return value


_READERS: dict[str, Callable[[FieldModel, Any], Value]] = {
    "integer": _integer,
    "number": _number,
    "text": _text,
    "choice": _choice,
    "boolean": _boolean,
    "file": _file,
}


def _as_value(value: Any) -> Any:
    """Convert booleans to 1 and 0, as job parameters have them."""
    return int(value) if isinstance(value, bool) else value


def _bound(value: float, field: FieldModel) -> str:
    return f"{_exact(value)} {field.unit}".rstrip()


def _exact(number: float) -> str:
    """Write a number as people do, whatever its size, unless that would be very long."""
    text = repr(float(number))
    if "e" in text and 1e-9 <= abs(number) < 1e15:
        text = f"{Decimal(text):f}"
    return text.removesuffix(".0")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
