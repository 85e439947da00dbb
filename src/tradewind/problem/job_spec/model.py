"""The job YAML as pydantic models: what is checked key by key, and what the JSON schema is made from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetJsonSchemaHandler,
    Tag,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from tradewind.errors import InputError
from tradewind.problem.job_spec.hook_model import HookName, Hooks
from tradewind.problem.job_spec.load_model import LoadModel
from tradewind.problem.job_spec.values import (
    Address,
    Amounts,
    Bytes,
    Command,
    Condition,
    Count,
    Duration,
    Environment,
    ImprovementShare,
    Input,
    Memories,
    MoneyPerHour,
    Names,
    Number,
    PlainNumber,
    PositiveDuration,
    PositiveHours,
    PositiveMoney,
    PositiveNumber,
    Prices,
    Reference,
    SchemaForms,
    Seed,
    Share,
    StrictModel,
    Text,
    VariableName,
    When,
    Whole,
    parse_with,
    validation_error,
)
from tradewind.problem.job_spec.workflow_model import (
    WorkflowEntry,
    simulated_by_default,
    workflow_instead_of_command,
)
from tradewind.utils.units import without_thousands


class QueryModel(StrictModel):
    """Bounds on the offers of the catalogue; a bound that is left out does not restrict them."""

    provider: Names | None = Field(None, description="Catalogues to ask: aws, gcp, azure, local, csv, ...")
    region: Names | None = Field(None, description="Regions.")
    types: Names | None = Field(None, description="Instance types; * and ? are wildcards.")
    category: Names | None = Field(None, description="general, compute, memory, storage, accelerated or burstable.")
    family: Names | None = Field(None, description="Families, such as c7i.")
    arch: Names | None = Field(None, description="Processor architectures: x86_64, arm64, by any of their usual names.")
    vcpu: Amounts | None = Field(None, description="vCPU of a node: 4, 4..16, 4.. or ..16.")
    memory: Memories | None = Field(None, description="Memory of a node: 8GiB.., 4..64 (GiB).")
    price: Prices | None = Field(None, description="USD per node and hour: ..$1.")
    gpus: Amounts | None = Field(None, description="Accelerators of a node; left out, offers with them are left out.")
    spot: bool | Literal["any"] | None = Field(
        None, description="true: spot offers only; false (the default): on demand only; any: both."
    )
    limit: Count | None = Field(
        None,
        description="Keep this many: as many of each provider, different types before further regions, the cheapest "
        "first.",
    )


class IntegerModel(StrictModel):
    """A whole number from low to high, both included."""

    type: Literal["integer"] = "integer"
    low: Whole = Field(description="The least value.")
    high: Whole = Field(description="The greatest value; with a step that does not end there, the last one below it.")
    step: Count = Field(1, description="The distance between values.")
    log: bool = Field(False, description="true to search on a log scale.")
    attribute: str | None = Field(
        None, description="The offer's attribute that it chooses: vcpu, memory, ...; see select: nearest."
    )
    when: When | None = Field(None, description="The parameter exists only where this holds.")


class FloatModel(StrictModel):
    """A real number from low to high, both included, or one of those in steps from low on."""

    type: Literal["float"] = "float"
    low: Number = Field(description="The least value.")
    high: Number = Field(description="The greatest value; with a step that does not end there, the last one below it.")
    step: PositiveNumber | None = Field(
        None, description="The distance between values: 0.05 for 0, 0.05, 0.1 and so on; left out, any number will do."
    )
    log: bool = Field(False, description="true to search on a log scale.")
    attribute: str | None = Field(
        None, description="The offer's attribute that it chooses: vcpu, memory, ...; see select: nearest."
    )
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
        match = _RANGE.fullmatch(without_thousands(value.strip()))
        if not match or match["log"]:
            raise InputError(f"{value!r} is no number of machines", hint="write [1, 2, 4, 8] or 1..8")
        low, high, step = (float(match[name] or 1) for name in ("low", "high", "step"))
        if low > high or high > 100_000:
            raise InputError(f"the range {value!r} makes no sense", hint="the lower number comes first")
        if not (low.is_integer() and high.is_integer() and step.is_integer() and step >= 1):
            raise InputError(f"{value!r} is no range of whole numbers", hint="write [1, 2, 4, 8] or 1..8")
        return list(range(int(low), int(high) + 1, int(step)))
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
    rf"(?P<low>{_NUMBER_TEXT})\s*\.\.\s*(?P<high>{_NUMBER_TEXT})(?:\s+step\s+(?P<step>{_NUMBER_TEXT}))?(?:\s+(?P<log>log))?"
)
_FORMS = "write a list [1, 3, 6], a range 1..9, '1..64 log' or '0..1 step 0.05', or {type: ...}"


def _expand(value: Any) -> Any:
    """A parameter in its long form, with its type."""
    if isinstance(value, list):
        return {"type": _listed_type(value), "values": value}
    if isinstance(value, str):
        match = _RANGE.fullmatch(without_thousands(value.strip()))
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
            bounds = (value.get("low"), value.get("high"), value.get("step"))
            kind = "float" if any(isinstance(bound, float) for bound in bounds) else "integer"
        else:
            raise InputError("the parameter has neither a type nor values", hint=_FORMS)
    return {**value, "type": kind}


def _expand_range(match: re.Match[str]) -> dict[str, Any]:
    bounds = {name: match[name] for name in ("low", "high", "step") if match[name]}
    real = any(sign in text for text in bounds.values() for sign in ".eE")
    numbers = {name: float(text) if real else int(text) for name, text in bounds.items()}
    if numbers.get("step", 1) <= 0:
        raise InputError(f"the step is {match['step']}", hint="it must be above 0")
    return {"type": "float" if real else "integer", **numbers, "log": bool(match["log"])}


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
        {"type": "string", "pattern": r"\.\.", "examples": ["1..9", "1..64 log", "0.1..0.9", "0..1 step 0.05"]},
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


LOG_LIMIT = 256 * 2**20
"""Bytes of stdout, and of stderr, that are kept by default."""


class ChoiceModel(StrictModel):
    """A part by name, with its settings beside it."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)
    use: str


class _Plugin:
    """Marks a choice in the JSON schema, so that the installed parts of its kind can be put there."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"x-tradewind-part": self.kind}


def _choice(value: Any) -> Any:
    return {"use": value} if isinstance(value, str) else value


_SCRIPT = re.compile(r"[^:]*/[^:]*|[^:/]+\.(?:sh|bash|zsh|py|pl|rb)")


def _choice_or_script(value: Any) -> Any:
    """A part by name, or a program of the user's own by its file, which the part ``script`` calls."""
    if isinstance(value, str) and _SCRIPT.fullmatch(value):
        return {"use": "script", "program": value}
    return _choice(value)


_read_choice = BeforeValidator(_choice)
_read_script = BeforeValidator(_choice_or_script)
Runner = Annotated[ChoiceModel, _read_script, _Plugin("runner")]
Provisioner = Annotated[ChoiceModel, _read_script, _Plugin("provisioner")]
Selector = Annotated[ChoiceModel, _read_choice, _Plugin("selector")]
Searcher = Annotated[ChoiceModel, _read_choice, _Plugin("searcher")]
Interpreter = Annotated[ChoiceModel, _read_choice, _Plugin("interpreter")]
Stopper = Annotated[ChoiceModel, _read_choice, _Plugin("stopper")]
Callback = Annotated[ChoiceModel, _read_choice, _Plugin("callback")]
_SHORT_RULE: dict[str, Any] = {"type": "object", "minProperties": 1, "examples": [{"failed": 5}]}
Stop = Annotated[ChoiceModel, _read_choice, SchemaForms({"type": "string"}, _SHORT_RULE)]

STOP_SETTINGS: Mapping[str, str] = {
    "all_failed": "trials",
    "failed": "trials",
    "no_improvement": "trials",
    "spent_share": "runs",
    "target": "value",
}
"""The setting of each stopping rule that is meant where only a value is written: ``{failed: 5}``."""


def _stops(value: Any) -> Any:
    """The rules of a list, of a name, or of mappings by name such as ``{failed: 5, target: 0.9}``, in the long form."""
    return [rule for one in _as_list(value) for rule in _rules(one)]


def _rules(value: Any) -> list[Any]:
    if not isinstance(value, Mapping) or "use" in value:
        return [value]
    return [{"use": str(name), **_rule_settings(str(name), given)} for name, given in value.items()]


def _rule_settings(name: str, given: Any) -> Mapping[str, Any]:
    if isinstance(given, Mapping):
        return given
    return {} if given is None or name not in STOP_SETTINGS else {STOP_SETTINGS[name]: given}


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


_read_list = BeforeValidator(_as_list)


def _past(value: Any) -> Any:
    """Say of one job's name, and of no name, what to write instead."""
    if value not in ("all", "none") and not isinstance(value, list | tuple):
        name = value if isinstance(value, str) and value else "NAME"
        raise validation_error(f"{value!r} is neither all nor none", f"names of jobs are a list: [{name}]")
    if value == []:
        raise validation_error("the list names no job", "write none to learn from nothing")
    return value


def _either_required(schema: dict[str, Any]) -> None:
    schema["anyOf"] = [{"required": [name]} for name in (*schema.pop("required"), "workflow")]


class JobModel(StrictModel):
    """The program to run, or the workflow."""

    model_config = ConfigDict(json_schema_extra=_either_required)

    command: Command = Field(
        description="The program and its arguments; {{ level }} is filled in, and no shell sees it."
    )
    workflow: WorkflowEntry | None = Field(
        None, description="A workflow that each trial plans and runs as a whole, instead of a command: montage.xml."
    )
    workdir: str = Field(".", description="The folder it starts in, seen from this file's folder.")
    env: Environment = Field({}, description="Environment variables; templates are filled in.")
    secrets: dict[VariableName, Reference] = Field(
        {}, description="Environment variables by reference: env:NAME, file:PATH or keyring:SERVICE/NAME."
    )
    inputs: list[Input] = Field([], description="Files and URLs to stage before the run, seen from workdir.")
    outputs: list[str] = Field([], description="Patterns of files to keep after the run, below its folder.")
    image: str | None = Field(None, description="Container image, for runners that use one.")
    parameters: dict[str, PlainNumber | str] = Field({}, description="Values in which jobs differ: input size, ...")
    load: LoadModel | None = Field(None, description="A load generator; the command is the application under test.")
    ports: list[Annotated[int, Field(ge=1, le=65535)]] = Field(
        [], description="Ports that are made reachable from outside, for runners in containers."
    )
    fraction: Share = Field(1.0, description="Share of the input that a full run takes; 1 is all of it.")

    _either = model_validator(mode="before")(workflow_instead_of_command)


def _objective(value: Any) -> Any:
    return {"minimise": value} if isinstance(value, str) else value


class ObjectiveModel(StrictModel):
    """The figure to make small or large."""

    minimise: str | None = Field(None, description="cost (USD, this run), runtime (s) or a metric to make small.")
    maximise: str | None = Field(None, description="A metric to make large.")
    also: list[AnyObjective] = Field([], description="Further objectives, for searchers of a Pareto front.")

    @model_validator(mode="after")
    def _one_goal(self) -> ObjectiveModel:
        if (self.minimise is None) == (self.maximise is None):
            both = "both minimise and maximise" if self.minimise else "neither minimise nor maximise"
            raise validation_error(f"the objective has {both}", "write one of them: {minimise: cost}")
        return self


AnyObjective = Annotated[ObjectiveModel, BeforeValidator(_objective), SchemaForms({"type": "string"})]

_THRESHOLD = re.compile(r"\s*(>=|<=|==|≥|≤)\s*(\S+)\s*")
_SIDES = {">=": ["at_least"], "≥": ["at_least"], "<=": ["at_most"], "≤": ["at_most"], "==": ["at_least", "at_most"]}


def _threshold(value: Any) -> Any:
    """The long form of ``>= 2.5``."""
    if not isinstance(value, str):
        return value
    match = _THRESHOLD.fullmatch(without_thousands(value))
    try:
        number = float(match[2]) if match else None
    except ValueError:
        number = None
    if match is None or number is None:
        raise InputError(f"{value!r} is no bound", hint="write '>= 2.5', '<= 10' or {at_least: 2.5}")
    return dict.fromkeys(_SIDES[match[1]], number)


class ThresholdModel(StrictModel):
    """A bound on a metric."""

    at_least: Number | None = Field(None, description="The least allowed value.")
    at_most: Number | None = Field(None, description="The greatest allowed value.")

    @model_validator(mode="after")
    def _sensible(self) -> ThresholdModel:
        if self.at_least is None and self.at_most is None:
            raise validation_error("the bound has neither at_least nor at_most")
        if self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            raise validation_error(
                f"at_least {self.at_least:g} is above at_most {self.at_most:g}", "no value keeps both"
            )
        return self


class ConstraintsModel(StrictModel):
    """Bounds that a configuration must keep."""

    deadline: PositiveDuration | None = Field(None, description="Time that one run may take: 30m.")
    metrics: dict[
        str, Annotated[ThresholdModel, parse_with(_threshold), SchemaForms({"type": "string", "examples": [">= 2.5"]})]
    ] = Field({}, description="Bounds on metrics: {ratio: '>= 2.5'}.")


def _budget(value: Any) -> Any:
    return {"dollars": value} if isinstance(value, int | float | str) and not isinstance(value, bool) else value


class BudgetModel(StrictModel):
    """Limits of what the search may spend; one that is left out does not apply."""

    dollars: PositiveMoney | None = Field(None, description="USD in total, over all runs: $2.")
    hours: PositiveHours | None = Field(None, description="Hours on the wall clock: 2, or 30m.")
    trials: Count | None = Field(None, description="Number of trials.")


class BillingModel(StrictModel):
    """Rules by which time becomes money."""

    setup: Duration = Field(0.0, description="Time billed for each run before the job starts.")
    minimum: Duration = Field(0.0, description="The least time that is billed for a run.")
    granularity: PositiveDuration = Field(1.0, description="Time is rounded up to a multiple of this.")


def _checkpoint(value: Any) -> Any:
    return {"every": value} if isinstance(value, int | float | str) and not isinstance(value, bool) else value


class CheckpointModel(StrictModel):
    """Checkpoints, and how many of ended trials stay."""

    every: PositiveDuration = Field(description="How often the program saves its work in $TRADEWIND_CHECKPOINT: 10m.")
    keep: Whole = Field(
        1, ge=0, description="Checkpoints of whole runs that stay, those of the best, with asha, hyperband and pbt."
    )
    waiting: Annotated[Whole, Field(ge=0)] | None = Field(
        None,
        description="The most checkpoints that wait for a trial that goes on from them, the likeliest first; without "
        "it all. A trial whose checkpoint is gone begins anew.",
    )


class PlaceModel(StrictModel):
    """Credentials for a server or bucket, where the usual places do not say."""

    user: Text = Field("", description="The user, or the id of the access key.")
    password: Reference | None = Field(
        None, description="The password or secret key by reference: env:NAME, file:PATH or keyring:SERVICE/NAME."
    )
    endpoint: str = Field("", description="For s3:// and gs://: another address than the provider's own.")
    identity: str = Field("", description="For sftp://: the file with the private key.")
    known_hosts: str = Field("", description="For sftp://: the file with the server's host key.")
    reach: Literal["public"] | None = Field(
        None, description="Connect only to addresses that everybody can reach, judged each time; else to all."
    )


def _script_for_both(value: Any) -> Any:
    """Let the script that runs jobs make their machines, too, where nothing else is to."""
    if not isinstance(value, Mapping) or value.get("provisioner") is not None:
        return value
    runner = _choice_or_script(value.get("runner"))
    if not isinstance(runner, Mapping) or runner.get("use") != "script" or "program" not in runner:
        return value
    return {**value, "provisioner": {"use": "script", "program": runner["program"]}}


class DeployModel(StrictModel):
    """Parts and settings by which runs take place."""

    runner: Runner = Field(ChoiceModel(use="process"), description="What runs the job.")
    provisioner: Provisioner = Field(ChoiceModel(use="none"), description="What makes the machines.")
    billing: BillingModel = Field(BillingModel(), description="How time becomes money.")
    retries: Whole = Field(2, ge=0, le=100, description="Repetitions of a run that the infrastructure failed.")
    keep: PositiveDuration | None = Field(
        None,
        description="How long machines are kept after a trial for the next one on the same offer: 10m. Set-up is then "
        "paid once. Without it each trial's machines go with it.",
    )
    longest: PositiveDuration | None = Field(
        None,
        description="The longest time for a run that nothing else limits; machines expire after it. Without it "
        "7d, or less where the engine has a limit of its own (Slurm).",
    )
    fallback: list[Literal["region", "on_demand"]] = Field(
        ["region", "on_demand"],
        description="Where a run goes when there are no machines: another region of offers, on demand for spot.",
    )
    spot_attempts: Whole = Field(
        1, ge=1, le=100, description="Runs of a trial that may lose their spot machines before it goes elsewhere."
    )
    interruptions_per_hour: Annotated[Number, Field(ge=0)] | None = Field(
        None, description="How often a spot machine is taken back, where the catalogue does not know; 0: never."
    )
    checkpoint: Annotated[
        CheckpointModel | None, BeforeValidator(_checkpoint), SchemaForms({"type": ["number", "string"]})
    ] = Field(None, description="Checkpoints in $TRADEWIND_CHECKPOINT, or how often: 10m. Without: runs begin anew.")
    log_limit: Bytes = Field(
        LOG_LIMIT, description="The most that is kept of stdout and of stderr, each, with the last 16 MiB: 64MiB."
    )
    hooks: dict[HookName, Hooks] = Field(
        {},
        description="By moment: before_ or after_ booting, bootstrapping, submitting, executing, collecting; on_error.",
    )
    results: Address | None = Field(
        None, description="A folder, here or elsewhere, for the files that each run kept: s3://bucket/folder."
    )
    places: dict[Address, PlaceModel] = Field(
        {}, description="How to log in to servers and buckets of inputs and results, by the beginning of the address."
    )


class JobFile(StrictModel):
    """A job for Tradewind: what to run, what may be chosen, what is wanted and what may be spent on finding it."""

    name: str = Field(description="The job's name; studies and history are found by it.")
    job: JobModel = Field(description="The program to run.")
    space: SpaceModel = Field(description="What may be chosen, by name.", min_length=1)
    where: Annotated[list[Condition], _read_list, SchemaForms({"type": "string"})] = Field(
        [], description="Constraints between parameters: 'workers <= instance.vcpu'."
    )
    offers: QueryModel = Field(QueryModel(), description="Which offers may be used at all.")
    catalogues: dict[str, dict[str, Any]] = Field(
        {}, description="Settings of catalogues, by name: {csv: {path: prices.csv}, local: {price_per_vcpu: 0.05}}."
    )
    objective: AnyObjective = Field(ObjectiveModel(minimise="cost"), description="What is wanted; cost by default.")
    constraints: ConstraintsModel = Field(ConstraintsModel(), description="What must hold.")
    budget: Annotated[BudgetModel, BeforeValidator(_budget), SchemaForms({"type": ["number", "string"]})] = Field(
        BudgetModel(), description="What the search may spend."
    )
    deploy: Annotated[DeployModel, BeforeValidator(_script_for_both)] = Field(
        DeployModel(), description="Where and how runs take place."
    )
    select: Selector = Field(ChoiceModel(use="exact"), description="How a configuration becomes an offer.")
    interpret: Annotated[list[Interpreter], _read_list, SchemaForms({"x-tradewind-part": "interpreter"})] = Field(
        [ChoiceModel(use="exit_code"), ChoiceModel.model_validate({"use": "json_lines", "optional": True})],
        description="How metrics are read from a run, one after the other.",
    )
    searcher: Searcher = Field(ChoiceModel(use="tradewind"), description="What proposes the trials.")
    parallel: Whole = Field(1, ge=1, le=10_000, description="Trials at the same time.")
    seed: Seed = Field(0, description="Equal seeds give equal proposals.")
    try_first: list[dict[str, Any]] = Field(
        [],
        description="Configurations that are tried before all that the searcher proposes: [{workers: 4}]. Parameters "
        "that one leaves out get the middle of their scale, machines the cheapest that fit.",
    )
    baseline: dict[str, Any] | None = Field(
        None,
        description="The configuration that you use today, tried before all others; the report compares with it. "
        "Parameters that it leaves out are filled as in try_first.",
        min_length=1,
    )
    stop: Annotated[list[Stop], BeforeValidator(_stops), SchemaForms({"type": "string"}, _SHORT_RULE)] = Field(
        [],
        description="Further reasons to stop the search: {failed: 5}; never uses the whole budget, though no trial "
        "pays for itself any more.",
    )
    early_stop: Stopper | None = Field(
        None, description="Give up running trials for what they report: median, successive_halving; without it none."
    )
    callbacks: Annotated[list[Callback], _read_list, SchemaForms({"x-tradewind-part": "callback"})] = Field(
        [], description="Where the trials are written, too, while they run: mlflow, tensorboard."
    )
    abort: bool | None = Field(
        None,
        description="Cut short runs that can no longer win; left out: true, but not with searchers that let runs end.",
    )
    future_runs: Annotated[Number, Field(gt=0)] | None = Field(
        None,
        description="How often the job will run with the configuration that is found: a search for the least cost ends "
        "once no trial pays for itself over so many runs. Left out: 100, or with stop: never the whole budget.",
    )
    value: MoneyPerHour | None = Field(
        None,
        description="With minimise: runtime, what an hour of a run is worth: $2/h. The search then ends once no trial "
        "pays for itself over future_runs.",
    )
    least_improvement: ImprovementShare | None = Field(
        None,
        description="The search ends once another trial is not expected to improve the best by this share. Left out: "
        "1%, but not where money decides (cost, or value), nor with stop: never; 0 for never.",
    )
    past: Annotated[Literal["all", "none"] | Annotated[list[str], Field(min_length=1)], BeforeValidator(_past)] = Field(
        "all", description="Earlier studies in the store that the searcher may learn from: all, none, or job names."
    )

    _simulated = model_validator(mode="before")(simulated_by_default)


ObjectiveModel.model_rebuild()
JobFile.model_rebuild()
