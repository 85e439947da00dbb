"""Documents of requests: Tradewind's own form, and that of paper 5's figure 4, recognised by its template."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError

from tradewind.errors import InputError
from tradewind.problem.job_spec.model import BudgetModel
from tradewind.problem.job_spec.validation_errors import first_error, spec_errors
from tradewind.problem.job_spec.values import Address, Count, Number, PositiveDuration, PositiveMoney, Seed, StrictModel
from tradewind.problem.yaml_source import YamlSource

_MOST_BYTES = 4 * 2**20
_MOST_PARALLEL = 64
_MOST_TRIED_FIRST = 100

AnyModel = TypeVar("AnyModel", bound=StrictModel)
ShortText = Annotated[str, Field(max_length=200)]


class ResourcesModel(StrictModel):
    """Machines in plain numbers, as in paper 5."""

    nodes: Count | None = Field(None, description="Machines.")
    cpu: Number | None = Field(None, gt=0, lt=1e6, description="CPUs of each, at least.")
    memory: Number | None = Field(None, gt=0, lt=1e9, description="MiB of memory of each, at least.")
    time: PositiveDuration | None = Field(None, description="Seconds that the run may take, or 30m.")

    def given(self) -> dict[str, float]:
        """Return the resources that were asked for, by name."""
        return {name: value for name, value in self if value is not None}


def _dollars(value: Any) -> Any:
    return value if isinstance(value, Mapping) else {"dollars": value}


class SearchModel(StrictModel):
    """Settings of a request that searches for the best configuration."""

    budget: Annotated[BudgetModel, BeforeValidator(_dollars)] = Field(
        BudgetModel(), description="What it may spend: $2, or dollars, hours and trials."
    )
    deadline: PositiveDuration | None = Field(None, description="Time that one run may take: 30m.")
    parallel: int | None = Field(None, ge=1, le=_MOST_PARALLEL, description="Trials at the same time.")
    searcher: Annotated[str, Field(max_length=100)] | None = Field(None, description="What proposes the trials.")
    seed: Seed | None = Field(None, description="Equal seeds give equal proposals.")
    objective: str | None = Field(None, max_length=200, description="The figure to make small: cost, runtime, ...")
    try_first: list[dict[str, Any]] | None = Field(
        None,
        max_length=_MOST_TRIED_FIRST,
        description="Configurations that are tried before all that is proposed: [{nodes: 2}].",
    )


class NotifyModel(StrictModel):
    """People who are notified when it is over."""

    email: bool = Field(False, description="The user, by e-mail.")
    webhook: str = Field("", max_length=2000, description="An address that is sent a POST.")


class RequestModel(StrictModel):
    """A request for one run of an application, or for a search over its configurations."""

    application: ShortText = Field(description="The application: name, or name@3 for its version 3.", min_length=1)
    parameters: dict[str, Any] = Field({}, description="The values of its form, by field.")
    configuration: dict[str, Any] | None = Field(None, description="Values of parameters of its space, for one run.")
    resources: ResourcesModel | None = Field(None, description="Machines in plain numbers, instead.")
    search: SearchModel | None = Field(None, description="Makes it a search over the configurations.")
    budget: PositiveMoney | None = Field(None, description="USD that one run may cost at most.")
    backend: ShortText = Field("", description="Where it runs; without it, where its application says.")
    cluster: ShortText = Field("", description="A shared cluster that a search goes to.")
    results: Address | None = Field(None, description="A folder that results are uploaded to: s3://bucket/folder.")
    notify: NotifyModel = Field(NotifyModel(), description="Who is told when it is over.")
    name: ShortText = Field("", description="What you call it.")


class SchedulerModel(StrictModel):
    """Runner of the job on the machines."""

    model_config = ConfigDict(extra="allow", frozen=True)
    name: ShortText = Field("", description="htcondor, slurm, or the name of a backend of this server.")


class BackendModel(StrictModel):
    """Provisioner of the machines."""

    model_config = ConfigDict(extra="allow", frozen=True)
    name: ShortText = Field("", description="opennebula, or the name of a backend of this server.")


class RequestHookModel(StrictModel):
    """A script that runs on the server."""

    stage: Literal["pending", "booting", "bootstrapping", "submitting", "executing", "collecting", "done"] = Field(
        description="The stage that it belongs to."
    )
    condition: Literal["before", "after", "error"] = Field("before", description="Before it, after it, or on an error.")
    name: str = Field(min_length=1, max_length=2000, description="The program with its arguments; no shell sees it.")


class VirtualClusterRequestModel(StrictModel):
    """A request as in figure 4 of paper 5."""

    template: str = Field(
        min_length=1, max_length=65_536, description="The job file, with variables: a script, or a submit description."
    )
    resources: ResourcesModel = Field(ResourcesModel(), description="Nodes; cpu, memory (MiB) of each; time (s).")
    scheduler: SchedulerModel = Field(SchedulerModel(), description="What runs the job.")
    backend: BackendModel | None = Field(None, description="What makes the machines; else they are there already.")
    user_data: dict[str, Any] = Field({}, description="What the template's variables are, and what hooks may read.")
    hooks: list[RequestHookModel] = Field([], max_length=50, description="Scripts before and after stages.")
    status: Any = Field(None, description="Filled in by the server.")
    status_updated_at: Any = Field(None, description="Filled in by the server.")
    outputs: list[str] = Field([], description="Patterns of files to keep after the run.")
    budget: PositiveMoney | None = Field(None, description="USD that the run may cost at most.")
    results: Address | None = Field(None, description="A folder that results are uploaded to: s3://bucket/folder.")
    notify: NotifyModel = Field(NotifyModel(), description="Who is told when it is over.")
    name: ShortText = Field("", description="What you call it.")


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """A parsed document of a request.

    Attributes:
        document: The document itself.
        own: Its model, where it is of Tradewind's own form.
        figure: Its model, where it is of the form of figure 4.
    """

    document: Mapping[str, Any]
    own: RequestModel | None = None
    figure: VirtualClusterRequestModel | None = None

    @property
    def model(self) -> RequestModel | VirtualClusterRequestModel:
        """The model of either form: both have a budget, results, notices and a name."""
        found = self.own or self.figure
        assert found is not None
        return found


def read_document(document: Mapping[str, Any]) -> ParsedRequest:
    """Parse a document, with all checks that need no application.

    Raises:
        InputError: Something in it is wrong.
    """
    _written(document)
    if "template" in document and "application" not in document:
        return ParsedRequest(document, figure=_valid(VirtualClusterRequestModel, document))
    own = _valid(RequestModel, document)
    _check_together(own)
    return ParsedRequest(document, own=own)


def merge_documents(document: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Merge changes into a document: a mapping changes the keys that it has, None takes a key out (RFC 7386)."""
    result = dict(document)
    for key, value in changes.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping):
            there = result.get(key)
            result[key] = merge_documents(there if isinstance(there, Mapping) else {}, value)
        else:
            result[key] = value
    return result


def document_digest(document: Mapping[str, Any]) -> str:
    """Compute a digest of a document as it was sent: nothing is looked up for it.

    Raises:
        InputError: It is no JSON document, or too large.
    """
    return hashlib.sha256(_written(document).encode()).hexdigest()


def _written(document: Mapping[str, Any]) -> str:
    if not isinstance(document, Mapping):
        raise InputError("a request is a mapping", hint='write {"application": ..., "parameters": {...}}')
    try:
        text = json.dumps(document, allow_nan=False)
    except (TypeError, ValueError):
        raise InputError("a request is a JSON document", hint="it has a value that JSON does not know") from None
    except RecursionError:
        raise InputError("a request is nested too deeply") from None
    if len(text) > _MOST_BYTES:
        raise InputError(f"a request has at most {_MOST_BYTES // 2**20} MiB", hint="hand in large files beforehand")
    return text


def _valid(model: type[AnyModel], document: Mapping[str, Any]) -> AnyModel:
    given = {key: value for key, value in document.items() if value is not None}
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise first_error(spec_errors(error, model, YamlSource(dict(document), "request"))) from None


def _check_together(own: RequestModel) -> None:
    if own.search is None and own.cluster:
        raise InputError("cluster: only a search goes to a shared cluster", hint="add search: {budget: $2}")
    if own.search is not None and own.configuration:
        raise InputError(
            "configuration: a search finds it", hint="leave search out for one run, or resources to narrow the space"
        )
    if own.search is not None and own.budget is not None:
        raise InputError("budget: that of a search is search.budget", hint="write search: {budget: $2}")
    if own.configuration is not None and own.resources is not None:
        given = sorted(set(own.resources.given()) - {"time"})
        if given:
            raise InputError(f"resources.{given[0]}: the configuration says it already", hint="keep one of them")


# ---------------------------------------------------------------------- filled in


def fill_request(
    document: Mapping[str, Any], state: str, updated: float, hosts: list[dict[str, str]]
) -> dict[str, Any]:
    """Add the progress of a request to its document: of figure 4, in the fields that paper 5 has for it.

    Args:
        document: The document as it was asked.
        state: State of the request.
        updated: When it last changed, seconds since the epoch.
        hosts: ``id`` and ``ip`` of each machine.
    """
    result = {**document, "status": state, "status_updated_at": int(updated)}
    if "template" not in document or not hosts:
        return result
    backend, scheduler = document.get("backend"), document.get("scheduler")
    if isinstance(backend, Mapping):
        result["backend"] = {**backend, "hosts": [{"id": _number(h["id"]), "ip": h["ip"]} for h in hosts]}
    names = [f"host-{host['id']}" if host["id"].isdigit() else host["id"] for host in hosts]
    result["scheduler"] = {**(scheduler if isinstance(scheduler, Mapping) else {}), "hosts": names}
    return result


def _number(text: str) -> int | str:
    """Number a machine, as paper 5's engine does."""
    return int(text) if text.isdigit() else text
