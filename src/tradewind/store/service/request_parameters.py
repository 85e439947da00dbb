"""Conditions on the parameters of requests, such as ``stars>500``, and the rows that they are looked up in."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import sqlalchemy as sa

from tradewind.errors import InputError
from tradewind.store.sql.schema import request_parameters, requests
from tradewind.store.studies import rows
from tradewind.utils.units import without_thousands

Comparison = Literal["=", "!=", "<", "<=", ">", ">="]

_CONDITION = re.compile(r"\s*([^\s=!<>]+)\s*(<=|>=|!=|==|=|<|>)\s*(.*?)\s*", re.DOTALL)
_HINT = "write a name, one of = != < <= > >= and a value, such as stars=1000 or stars>500"
_LONGEST = 200
_MOST_CONDITIONS = 10
_TRUTH = {"yes": "true", "no": "false"}
_SOURCES = ("resources", "configuration", "user_data", "parameters")
"""Where a document has what it was asked with; the later ones count where several have a name."""


@dataclass(frozen=True, slots=True)
class ParameterCondition:
    """A condition on a parameter of requests.

    Attributes:
        name: Name of the parameter.
        comparison: How its value is compared.
        text: The value as a text.
        number: The value as a number; None where it is none.
    """

    name: str
    comparison: Comparison
    text: str
    number: float | None


def parse_conditions(texts: Sequence[str]) -> list[ParameterCondition]:
    """Parse conditions; each text may have several, with a comma between them.

    Raises:
        InputError: One of them cannot be read, or there are too many.
    """
    pieces = [piece for text in texts for piece in without_thousands(text).split(",") if piece.strip()]
    if len(pieces) > _MOST_CONDITIONS:
        raise InputError(f"there are {len(pieces)} conditions on parameters", hint=f"write {_MOST_CONDITIONS} at most")
    return [_parse(piece) for piece in pieces]


def _parse(piece: str) -> ParameterCondition:
    match = _CONDITION.fullmatch(piece)
    if match is None or not match[3] or len(piece) > _LONGEST:
        raise InputError(f"{piece.strip()[:60]!r} is no condition on a parameter", hint=_HINT)
    name, comparison, text = match[1], match[2].replace("==", "="), match[3]
    number = _number(text)
    if number is None and comparison not in ("=", "!="):
        raise InputError(f"{piece.strip()[:60]!r} compares with no number", hint=_HINT)
    text = rows.storable_text(_TRUTH.get(text.lower(), text))
    return ParameterCondition(rows.storable_text(name), comparison, text, number)  # type: ignore[arg-type]


def _number(value: object) -> float | None:
    """Return a value as a number where it is one, or a text that is written like one."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def parameter_rows(number: int, document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the rows by which a request is found.

    Args:
        number: The request.
        document: Its document.
    """
    found: dict[str, Any] = {}
    for source in _SOURCES:
        values = document.get(source)
        found |= values if isinstance(values, Mapping) else {}
    for name, value in found.items():
        given = value.get("name") if isinstance(value, Mapping) else value
        if not isinstance(given, bool | int | float | str) or len(name) > _LONGEST:
            continue  # a list, or a file without a name, is compared with nothing
        text = str(given).lower() if isinstance(given, bool) else str(given)
        values = {"name": rows.storable_text(name), "text": rows.storable_text(text[:_LONGEST])}
        yield {"request_id": number, **values, "number": _number(given)}


def numbers_that_meet(conditions: Sequence[ParameterCondition]) -> sa.Select[tuple[int]]:
    """Return a query of the numbers of requests whose parameters meet all conditions, the newest first.

    Conditions on the requests themselves may be added: they are joined. It begins with the index of the first
    condition, in whose order the numbers are where it asks for one value, so that few of many rows are read.
    """
    if not conditions:
        return sa.select(requests.c.id).order_by(requests.c.id.desc())
    number = request_parameters.c.request_id
    joined = request_parameters.join(requests, requests.c.id == number)
    query = sa.select(number).select_from(joined).where(_compared(request_parameters, conditions[0]))
    for place, condition in enumerate(conditions[1:]):
        other = request_parameters.alias(f"other{place}")
        query = query.where(sa.exists().where(other.c.request_id == number, _compared(other, condition)))
    return query.order_by(number.desc())


def _compared(table: sa.FromClause, condition: ParameterCondition) -> sa.ColumnElement[bool]:
    return (table.c.name == condition.name) & _value_compared(table, condition)


def _value_compared(table: sa.FromClause, condition: ParameterCondition) -> sa.ColumnElement[bool]:
    number, text = table.c.number, table.c.text
    wanted = condition.number
    if condition.comparison == "=":
        return text == condition.text if wanted is None else number == wanted
    if condition.comparison == "!=":
        return text != condition.text if wanted is None else number.is_(None) | (number != wanted)
    return {"<": number < wanted, "<=": number <= wanted, ">": number > wanted, ">=": number >= wanted}[
        condition.comparison
    ]
