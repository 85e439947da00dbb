"""The kinds of value that a job YAML is written in: durations, money, ranges, short forms of all sorts."""

from __future__ import annotations

import contextlib
import copy
import math
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetJsonSchemaHandler, PlainSerializer
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from tradewind.errors import InputError
from tradewind.problem.expression import Expression
from tradewind.utils.units import parse_duration, parse_memory, parse_money, without_thousands

Json = dict[str, Any]


class StrictModel(BaseModel):
    """A mapping of the YAML: unknown keys are errors, and `true` is no number."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def validation_error(message: str, hint: str | None = None) -> PydanticCustomError:
    """An error for a validator to raise: its text and hint arrive in the `SpecError` as they are."""
    return PydanticCustomError("tradewind", "{message}", {"message": message, "hint": hint or ""})


def parse_with(parse: Callable[[Any], Any]) -> BeforeValidator:
    """A validator that reads a value by a function that raises `InputError`."""

    def read(value: Any) -> Any:
        try:
            return parse(value)
        except InputError as error:
            raise validation_error(error.message, error.hint) from None

    return BeforeValidator(read)


class SchemaForms:
    """Adds short forms to the JSON schema of a value.

    Args:
        shapes: JSON schemas of the short forms.
        only: True when the long form is not offered to editors.
    """

    def __init__(self, *shapes: Json, only: bool = False) -> None:
        self.shapes = shapes
        self.only = only

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Called by pydantic."""
        long = handler(core)
        longs = [] if self.only else long.get("oneOf") or long.get("anyOf") or [long]
        shapes = [*copy.deepcopy(self.shapes), *longs]  # pydantic writes descriptions and defaults into them
        return shapes[0] if len(shapes) == 1 else {"anyOf": shapes}


def _positive(parse: Callable[[Any], float], what: str) -> Callable[[Any], float]:
    def read(value: Any) -> float:
        number = parse(value)
        if number <= 0:
            raise InputError(f"{value!r} is no {what}", hint="it must be above zero; leave the key out for no limit")
        return number

    return read


def _hours(value: Any) -> float:
    """Hours of a bare number of hours, or of a duration with a unit."""
    written = without_thousands(str(value))
    plain = isinstance(value, int | float) or re.fullmatch(r"\s*[\d.]+\s*", written)
    return parse_duration(float(written) * 3600.0 if plain and not isinstance(value, bool) else value) / 3600.0


_NUMBER: Json = {"type": "number"}
_TEXT: Json = {"type": "string"}
_DURATION: Json = {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "examples": ["90s", "45m", "2h30m"]}]}
_MONEY: Json = {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "examples": ["$2", "2.50", "50c"]}]}

Duration = Annotated[float, parse_with(parse_duration), SchemaForms(_DURATION, only=True)]
"""Seconds, written ``90m`` or ``2h30m``."""
PositiveDuration = Annotated[
    float, parse_with(_positive(parse_duration, "duration")), SchemaForms(_DURATION, only=True)
]
PositiveMoney = Annotated[float, parse_with(_positive(parse_money, "amount to spend")), SchemaForms(_MONEY, only=True)]
PositiveHours = Annotated[float, parse_with(_positive(_hours, "duration")), SchemaForms(_DURATION, only=True)]


_PER_HOUR = re.compile(r"\s*(/|per)\s*(h|hour)\s*$", re.IGNORECASE)


def _money_per_hour(value: Any) -> float:
    if not isinstance(value, str) or not _PER_HOUR.search(value):
        raise InputError(f"{value!r} is no price of time", hint="write $2/h")
    return _positive(parse_money, "price of time")(_PER_HOUR.sub("", value))


def _improvement_share(value: Any) -> float:
    """A share of one, of a number or of a percentage."""
    written = str(value).strip()
    number = _finite(value) if not isinstance(value, str) else math.nan
    if re.fullmatch(r"\d+(\.\d+)?\s*%", written):
        number = float(written.rstrip("% ")) / 100.0
    if not 0.0 <= number < 1.0:
        raise InputError(f"{value!r} is no share below one", hint="write 1% or 0.01")
    return number


MoneyPerHour = Annotated[
    float,
    parse_with(_money_per_hour),
    PlainSerializer(lambda usd: f"${usd:.9f}/h"),
    SchemaForms({"type": "string", "examples": ["$2/h"]}, only=True),
]
"""USD per hour, written ``$2/h``."""
ImprovementShare = Annotated[
    float,
    parse_with(_improvement_share),
    SchemaForms(
        {"type": "number", "minimum": 0, "exclusiveMaximum": 1}, {"type": "string", "examples": ["1%"]}, only=True
    ),
]
"""A share of one, written ``1%`` or 0.01."""


def _bytes(value: Any) -> int:
    if not isinstance(value, str) or not value.strip()[-1:].isalpha() or parse_memory(value) <= 0:
        raise InputError(f"{value!r} is not an amount of bytes", hint="write 64MiB or 1GiB")
    return parse_memory(value)


Bytes = Annotated[int, parse_with(_bytes), PlainSerializer(lambda n: f"{n}B"), SchemaForms(_TEXT, only=True)]
"""A number of bytes above zero, written with a unit."""


def _finite(value: Any) -> float:
    if isinstance(value, str) and (plain := without_thousands(value.strip())) != value:
        with contextlib.suppress(ValueError):  # no number: refused below, as it was written
            value = float(plain)
    try:
        if not isinstance(value, bool) and isinstance(value, int | float) and math.isfinite(value):
            return float(value)
    except OverflowError:
        raise InputError("the number is too large") from None
    raise InputError(f"{value!r} is not a number")


Number = Annotated[float, parse_with(_finite), SchemaForms(_NUMBER, only=True)]
PositiveNumber = Annotated[
    float, parse_with(_finite), Field(gt=0), SchemaForms({"type": "number", "exclusiveMinimum": 0}, only=True)
]


def _plain(value: Any) -> int | float:
    """A number as people write it: a whole one without a point."""
    number = _finite(value)
    return int(number) if number.is_integer() and abs(number) <= _EXACT else number


_EXACT = 2**53
"""Whole numbers up to here are exact as floats."""

PlainNumber = Annotated[int | float, parse_with(_plain), SchemaForms(_NUMBER, only=True)]
"""A number that is shown to people, and given to programs, as they write it: 4000, not 4000.0."""


def _as_text(value: Any) -> Any:
    """Numbers and booleans as the text that YAML writes them with."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


Text = Annotated[str, BeforeValidator(_as_text), SchemaForms({"type": ["string", "number", "boolean"]}, only=True)]


def _variable_name(value: Any) -> Any:
    """Refuse what no program can find in its environment: the names that `putenv` refuses, and blanks."""
    if isinstance(value, str) and (not value or re.search(r"[=\s\x00-\x1f\x7f]", value)):
        plain = re.sub(r"\W+", "_", value).strip("_") or "NAME"
        raise validation_error(f"{value!r} is no name for a variable", f"write {plain}")
    return value


VariableName = Annotated[str, BeforeValidator(_variable_name)]
"""The name of an environment variable."""

Environment = dict[VariableName, Text]


def _reference(value: Any) -> Any:
    # "service:" is what the service writes for what its users gave it to keep; only its own processes can read that.
    if isinstance(value, str) and not re.fullmatch(r"(env|file):.+|(keyring|service):[^/]+/.+", value):
        # The value itself is not repeated: it may be the secret.
        raise InputError(
            "a secret is given by reference only", hint="write env:NAME, file:PATH or keyring:SERVICE/NAME"
        )
    return value


Reference = Annotated[str, parse_with(_reference)]
"""Where a secret is to be read, never the secret."""

_ADDRESSES = ("s3", "gs", "sftp", "webdav", "webdavs", "file")


def _address(value: Any) -> Any:
    if not isinstance(value, str) or "://" not in value:
        return value
    parts = urlsplit(value)
    if parts.password is not None:
        # The address is not repeated: it has the password.
        raise InputError("an address with a password in it", hint="name user and password under deploy.places")
    if parts.scheme not in _ADDRESSES or (not parts.hostname and parts.scheme != "file"):
        hint = "write a path, or an address that begins with " + ", ".join(f"{one}://" for one in _ADDRESSES)
        raise InputError(f"{value!r} is no address", hint=hint)
    return value


Address = Annotated[str, parse_with(_address)]
"""A folder somewhere: a path, or an address without a password."""


def _input(value: Any) -> Any:
    # The address is not repeated, here neither: it would be kept with the study, and shown.
    if isinstance(value, str) and "://" in value:
        try:
            password = urlsplit(value.partition("#")[0]).password
        except ValueError:
            return value  # said by who fetches it
        if password is not None:
            hint = "write webdavs:// with user and password under deploy.places, or fetch it in the job with a secret"
            raise InputError("an address with a password in it", hint=hint)
    return value


Input = Annotated[str, parse_with(_input)]
"""A file or an address to bring, without a password."""


def _command(value: Any) -> Any:
    from tradewind.problem.template import split_command

    words = list(split_command(value)) if isinstance(value, str) else value
    if isinstance(words, list):
        words = [_as_text(word) for word in words]
        if not words or not str(words[0]).strip():
            raise InputError("the command is empty", hint="write the program and its arguments")
    return words


Command = Annotated[list[str], parse_with(_command), SchemaForms(_TEXT, {"type": "array", "minItems": 1}, only=True)]
"""The words of a command, written as one line or as a list."""


def _expression(value: Any) -> Any:
    if isinstance(value, str):
        Expression(value)
    return value


Condition = Annotated[str, parse_with(_expression)]
"""The text of an expression that parses."""


def _when(value: Any) -> Any:
    """The text of a condition that may be written as ``{codec: gzip}`` or ``{codec: [gzip, bz2]}``."""
    if not isinstance(value, Mapping):
        return _expression(value)
    if not value:
        raise InputError("the condition is empty", hint="write {codec: gzip} or 'codec == \"gzip\"'")
    parts = []
    for name, wanted in value.items():
        options = wanted if isinstance(wanted, list) else [wanted]
        if not options or any(not isinstance(option, str | int | float | bool) for option in options):
            raise InputError(f"the condition on {name} needs a value or a list of values")
        words = ", ".join(repr(option) for option in options)
        parts.append(f"{name} == {words}" if len(options) == 1 else f"{name} in ({words},)")
    return _expression(" and ".join(parts))


When = Annotated[str, parse_with(_when), SchemaForms(_TEXT, {"type": "object", "minProperties": 1}, only=True)]
"""A condition as the text of an expression."""


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Names = Annotated[list[str], BeforeValidator(_listed), SchemaForms(_TEXT)]
"""A name or a list of names."""

_BOUND = re.compile(r"\s*(\S.*?)?\s*\.\.\s*(\S.*?)?\s*")


def _bounds(one: Callable[[Any], float]) -> Callable[[Any], Any]:
    """Read ``4``, ``4..16``, ``4..``, ``..16`` or a list of two, None where there is no bound."""

    def read(value: Any) -> Any:
        if isinstance(value, list | tuple) and len(value) == 2:
            low, high = (None if part is None else one(part) for part in value)
        elif isinstance(value, str) and (match := _BOUND.fullmatch(without_thousands(value))):
            low, high = (None if part is None else one(part) for part in match.groups())
        else:
            low = high = one(value)
        if low is None and high is None:
            raise InputError(f"the range {value!r} has no bounds", hint="write 4, 4..16, 4.. or ..16")
        if low is not None and high is not None and low > high:
            raise InputError(
                f"the range {value!r} has its ends the wrong way round", hint="the lower number comes first"
            )
        return [low, high]

    return read


def _amount(value: Any) -> float:
    try:
        number = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise InputError(f"{value!r} is not a number of at least 0", hint="write 4, 4..16, 4.. or ..16")
    return number


def _gib(value: Any) -> float:
    return parse_memory(value) / 2**30


_RANGE: Json = {
    "anyOf": [
        {"type": "number", "minimum": 0},
        {"type": "string", "examples": ["4", "4..16", "4..", "..16"]},
        {"type": "array", "minItems": 2, "maxItems": 2},
    ]
}

Amounts = Annotated[list[float | None], parse_with(_bounds(_amount)), SchemaForms(_RANGE, only=True)]
Memories = Annotated[list[float | None], parse_with(_bounds(_gib)), SchemaForms(_RANGE, only=True)]
Prices = Annotated[list[float | None], parse_with(_bounds(parse_money)), SchemaForms(_RANGE, only=True)]


def _whole(value: Any) -> Any:
    """A whole number that was written as ``1e3`` or ``1,000``; anything else as it is, for pydantic to judge."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and re.fullmatch(r"[-+]?\d+", plain := without_thousands(value.strip())) and "," in value:
        return int(plain)
    return value


Whole = Annotated[int, BeforeValidator(_whole)]
"""A whole number, also written ``1e3`` or ``1,000``."""

Share = Annotated[
    float,
    parse_with(_finite),
    Field(gt=0, le=1),
    SchemaForms({"type": "number", "exclusiveMinimum": 0, "maximum": 1}, only=True),
]
Count = Annotated[Whole, Field(ge=1)]
Seed = Annotated[Whole, Field(ge=-(2**63), le=2**63 - 1)]
"""What a database keeps of a whole number."""
