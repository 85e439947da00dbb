"""How parameters and questions to the catalogue are written in a job YAML."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, GetJsonSchemaHandler, Tag
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from tradewind.errors import InputError
from tradewind.problem.job_spec.values import (
    Amounts,
    Count,
    Memories,
    Names,
    Number,
    Prices,
    SchemaForms,
    When,
    parse_with,
)


class StrictModel(BaseModel):
    """A mapping of the YAML: unknown keys are errors, and `true` is no number."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class QueryModel(StrictModel):
    """Bounds on the offers of the catalogue; a bound that is left out does not restrict them."""

    provider: Names | None = Field(None, description="Catalogues to ask: aws, gcp, azure, local, csv, ...")
    region: Names | None = Field(None, description="Regions.")
    types: Names | None = Field(None, description="Instance types; * and ? are wildcards.")
    category: Names | None = Field(None, description="general, compute, memory, storage, accelerated or burstable.")
    family: Names | None = Field(None, description="Families, such as c7i.")
    arch: Names | None = Field(None, description="Processor architectures: x86_64, arm64.")
    vcpu: Amounts | None = Field(None, description="vCPU of a node: 4, 4..16, 4.. or ..16.")
    memory: Memories | None = Field(None, description="Memory of a node: 8GiB.., 4..64 (GiB).")
    price: Prices | None = Field(None, description="USD per node and hour: ..$1.")
    gpus: Amounts | None = Field(None, description="Accelerators of a node; left out, offers with them are left out.")
    spot: bool | Literal["any"] | None = Field(
        None, description="true: spot offers only; false (the default): on demand only; any: both."
    )
    limit: Count | None = Field(None, description="Keep this many, the cheapest first.")


class IntegerModel(StrictModel):
    """A whole number from low to high, both included."""

    type: Literal["integer"] = "integer"
    low: int = Field(description="The least value.")
    high: int = Field(description="The greatest value.")
    step: Count = Field(1, description="The distance between values.")
    log: bool = Field(False, description="true to search on a log scale.")
    when: When | None = Field(None, description="The parameter exists only where this holds.")


class FloatModel(StrictModel):
    """A real number from low to high, both included."""

    type: Literal["float"] = "float"
    low: Number = Field(description="The least value.")
    high: Number = Field(description="The greatest value.")
    log: bool = Field(False, description="true to search on a log scale.")
    when: When | None = Field(None, description="The parameter exists only where this holds.")


def _scalar(value: Any) -> Any:
    if not isinstance(value, bool | int | float | str):
        written = "nothing" if value is None else repr(value)
        raise InputError(f"{written} is no value", hint="values are numbers, text, true and false")
    return value


Scalar = Annotated[Any, parse_with(_scalar), SchemaForms({"type": ["string", "number", "boolean"]}, only=True)]


class OrdinalModel(StrictModel):
    """Values with an order: numbers, or words from small to large."""

    type: Literal["ordinal"] = "ordinal"
    values: list[Scalar] = Field(min_length=1, description="The values, in order.")
    attribute: str | None = Field(None, description="The offer's attribute that it chooses: vcpu, memory, ...")
    when: When | None = Field(None, description="The parameter exists only where this holds.")


class CategoricalModel(StrictModel):
    """Values without an order."""

    type: Literal["categorical"] = "categorical"
    values: list[Scalar] = Field(min_length=1, description="The values.")
    attribute: str | None = Field(None, description="The offer's attribute that it chooses: category, provider, ...")
    when: When | None = Field(None, description="The parameter exists only where this holds.")


class InstanceModel(QueryModel):
    """The instance type, out of the offers that a query finds."""

    type: Literal["instance"] = "instance"
    values: Names | None = Field(None, description="Instance types by name; the same as types.")
    when: When | None = Field(None, description="The parameter exists only where this holds.")


def _counts(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return [value]
    if isinstance(value, str):
        match = _RANGE.fullmatch(value.strip())
        if not match or match["log"]:
            raise InputError(f"{value!r} is no number of machines", hint="write [1, 2, 4, 8] or 1..8")
        low, high = float(match["low"]), float(match["high"])
        if low > high or high > 100_000:
            raise InputError(f"the range {value!r} makes no sense", hint="the lower number comes first")
        return list(range(int(low), int(high) + 1, int(match["step"] or 1)))
    return value


class NodesModel(StrictModel):
    """The number of machines."""

    type: Literal["nodes"] = "nodes"
    values: Annotated[list[Count], parse_with(_counts), SchemaForms({"type": "integer"}, {"type": "string"})] | None = (
        Field(None, description="The numbers of machines to choose from.")
    )
    low: Count | None = Field(None, description="The least number of machines.")
    high: Count | None = Field(None, description="The greatest number of machines.")
    when: When | None = Field(None, description="The parameter exists only where this holds.")


TYPES: dict[str, type[StrictModel]] = {
    "integer": IntegerModel,
    "float": FloatModel,
    "ordinal": OrdinalModel,
    "categorical": CategoricalModel,
    "instance": InstanceModel,
    "nodes": NodesModel,
}
"""The model of each type of parameter."""

_NUMBER_TEXT = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_RANGE = re.compile(
    rf"(?P<low>{_NUMBER_TEXT})\s*\.\.\s*(?P<high>{_NUMBER_TEXT})(?:\s+step\s+(?P<step>\d+))?(?:\s+(?P<log>log))?"
)
_FORMS = "write a list [1, 3, 6], a range 1..9 or '1..64 log', or {type: ...}"


def _expand(value: Any) -> Any:
    """A parameter in its long form, with its type."""
    if isinstance(value, list):
        return {"type": _listed_type(value), "values": value}
    if isinstance(value, str):
        match = _RANGE.fullmatch(value.strip())
        if not match:
            raise InputError(f"{value!r} is neither a range nor a list", hint=_FORMS)
        return _expand_range(match)
    if isinstance(value, bool | int | float):
        return {"type": _listed_type([value]), "values": [value]}
    if not isinstance(value, Mapping):
        raise InputError("the parameter has no values" if value is None else f"{value!r} is no parameter", hint=_FORMS)
    kind = value.get("type")
    if kind is None:
        if "values" in value:
            values = value["values"]
            kind = _listed_type(values if isinstance(values, list) else [values])
        elif "low" in value or "high" in value:
            ends = (value.get("low"), value.get("high"))
            kind = "float" if any(isinstance(end, float) for end in ends) else "integer"
        else:
            raise InputError("the parameter has neither a type nor values", hint=_FORMS)
    return {**value, "type": kind}


def _expand_range(match: re.Match[str]) -> dict[str, Any]:
    low, high = match["low"], match["high"]
    real = any(sign in low + high for sign in ".eE")
    if real and match["step"]:
        raise InputError("a step is for whole numbers only")
    ends: dict[str, Any] = {"low": float(low), "high": float(high)} if real else {"low": int(low), "high": int(high)}
    if match["step"]:
        ends["step"] = int(match["step"])
    return {"type": "float" if real else "integer", **ends, "log": bool(match["log"])}


def _listed_type(values: list[Any]) -> str:
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return "ordinal" if numbers else "categorical"


def _tag(value: Any) -> str | None:
    kind = value.get("type") if isinstance(value, Mapping) else getattr(value, "type", None)
    return kind if isinstance(kind, str) else None


ParameterModel = Annotated[
    Annotated[IntegerModel, Tag("integer")]
    | Annotated[FloatModel, Tag("float")]
    | Annotated[OrdinalModel, Tag("ordinal")]
    | Annotated[CategoricalModel, Tag("categorical")]
    | Annotated[InstanceModel, Tag("instance")]
    | Annotated[NodesModel, Tag("nodes")],
    Discriminator(_tag),
    parse_with(_expand),
    SchemaForms(
        {"type": "array", "minItems": 1, "items": {"type": ["string", "number", "boolean"]}},
        {"type": "string", "pattern": r"\.\.", "examples": ["1..9", "1..64 log", "0.1..0.9"]},
        {"type": ["number", "boolean"]},
    ),
]


def _imply(value: Any) -> Any:
    """Give the parameters ``instance`` and ``nodes`` their type."""
    if not isinstance(value, Mapping):
        return value
    full = dict(value)
    for name in ("instance", "nodes"):
        given = full.get(name)
        if isinstance(given, Mapping):
            full[name] = {"type": name, **given}
        elif given is not None:
            full[name] = {"type": name, "values": given}
    return full


class _SpaceSchema:
    """The JSON schema of the space: the two keys that imply their type, and all others."""

    names: ClassVar[dict[str, Any]] = {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"}

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core)
        listed: list[dict[str, Any]] = [{"type": "array", "items": {"type": "string"}}, {"type": "string"}]
        counts: list[dict[str, Any]] = [
            {"type": "array", "items": {"type": "integer", "minimum": 1}},
            {"type": "integer", "minimum": 1},
            {"type": "string", "pattern": r"\.\."},
        ]
        own = {
            "instance": {"anyOf": [{"x-tradewind-model": "InstanceModel"}, *listed]},
            "nodes": {"anyOf": [{"x-tradewind-model": "NodesModel"}, *counts]},
        }
        return {**schema, "properties": own, "propertyNames": self.names}


SpaceModel = Annotated[dict[str, ParameterModel], BeforeValidator(_imply), _SpaceSchema()]
