"""The right configuration: what to run on, from past runs of the application."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Query
from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from tradewind.service.api.authentication import Caller, Shared
from tradewind.service.applications.proposals import ConfigurationProposal, ProposedConfiguration
from tradewind.service.document_limits import check_document

offer_router = APIRouter(tags=["offers"])

Words = Annotated[list[str] | None, Query(max_length=50, description="Only of these.")]
Amount = Annotated[float | None, Query(ge=0, le=1e12, description="Virtual CPUs of a node.")]
Memory = Annotated[float | None, Query(ge=0, le=1e12, description="GiB of a node.")]

_EXAMPLE: JsonDict = {
    "provider": "aws",
    "instance_type": "c7i.xlarge",
    "vcpu": 4,
    "memory_gib": 8,
    "price_per_hour": 0.1785,
    "region": "us-east-1",
    "category": "compute",
    "family": "c7i",
    "arch": "x86_64",
    "nodes": 1,
}


class OfferAnswer(BaseModel):
    """A priced choice of machines: so many nodes of one instance type, of one provider, in one region."""

    model_config = {"json_schema_extra": {"examples": [_EXAMPLE]}}

    provider: str = Field(description="The catalogue that it is from.")
    instance_type: str = Field(description="The provider's own name for it.")
    vcpu: float = Field(description="Virtual CPUs of one node.")
    memory_gib: float = Field(description="Memory of one node, GiB.")
    price_per_hour: float = Field(description="USD per node and hour.")
    region: str = Field(default="", description="The provider's region.")
    category: str = Field(default="", description="general, compute, memory, storage, accelerated or burstable.")
    family: str = Field(default="", description="The provider's family.")
    arch: str = Field(default="", description="x86_64, arm64, or empty where unknown.")
    gpus: int = Field(default=0, description="Accelerators of one node.")
    spot: bool = Field(default=False, description="Capacity that may be taken back.")
    interruptions_per_hour: float | None = Field(
        default=None, description="How often one such machine is taken back, on average; null where it is unknown."
    )
    nodes: int = Field(default=1, description="How many machines.")
    price_date: str = Field(default="", description="On which day the price was read.")
    facts: dict[str, float | str] = Field(default={}, description="Further facts by name.")


@offer_router.get("/offers")
def list_offers(
    who: Caller,
    shared: Shared,
    provider: Words = None,
    region: Words = None,
    type: Annotated[list[str] | None, Query(max_length=50, description="Instance types; * and ? match.")] = None,
    category: Words = None,
    family: Words = None,
    arch: Words = None,
    min_vcpu: Amount = None,
    max_vcpu: Amount = None,
    min_memory: Memory = None,
    max_memory: Memory = None,
    max_price: Annotated[float | None, Query(ge=0, le=1e12, description="USD per node and hour.")] = None,
    min_gpus: Annotated[float | None, Query(ge=0, le=1e6, description="Without it, offers with none.")] = None,
    spot: Annotated[bool | None, Query(description="True for spot offers only; without it, on demand only.")] = False,
    limit: Annotated[int, Query(ge=1, le=5000, description="How many at most.")] = 100,
) -> list[OfferAnswer]:
    """Offers within bounds, the cheapest first."""
    found = shared.offers.find(
        who,
        provider=tuple(provider or ()),
        region=tuple(region or ()),
        types=tuple(type or ()),
        category=tuple(category or ()),
        family=tuple(family or ()),
        arch=tuple(arch or ()),
        vcpu=(min_vcpu, max_vcpu),
        memory=(min_memory, max_memory),
        price=(None, max_price),
        gpus=(min_gpus, None),
        spot=spot,
        limit=limit,
    )
    return [OfferAnswer.model_validate(offer.to_json()) for offer in found]


router = APIRouter(tags=["proposals"])

_WANTED: JsonDict = {"application": "matrix", "parameters": {"size": 4000}, "deadline": "30m"}


class ProposalWanted(BaseModel):
    """Parameters and constraints that a proposal is wanted for."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_WANTED]})

    application: str = Field(min_length=1, max_length=300, description="name or name@3.")
    parameters: dict[str, Any] = Field(default={}, description="The values of its form, by field.")
    backend: str = Field(default="", max_length=200, description="Where to run; without it the application's own.")
    deadline: float | str | None = Field(default=None, description="Time that the run may take: seconds, or 30m.")
    resources: dict[str, float] | None = Field(
        default=None, description="What a node must have at least: nodes, cpu, memory (MiB), time (s)."
    )
    count: int = Field(default=5, ge=1, le=50, description="How many configurations at most.")


class CandidateAnswer(BaseModel):
    """A configuration that is proposed."""

    configuration: dict[str, Any] = Field(description="The value of each parameter of the space.")
    offer: OfferAnswer = Field(description="The machines, with their price.")
    runtime: float | None = Field(description="Expected seconds; null where it is not known yet.")
    runtime_low: float | None = Field(description="5 % quantile of it.")
    runtime_high: float | None = Field(description="95 % quantile of it.")
    cost: float | None = Field(description="Expected USD, this run.")
    cost_low: float | None = Field(description="5 % quantile of it.")
    cost_high: float | None = Field(description="95 % quantile of it.")
    objective: float | None = Field(description="Expected value of the metric; null where nothing is known.")
    objective_low: float | None = Field(description="5 % quantile of it.")
    objective_high: float | None = Field(description="95 % quantile of it.")
    chance: float | None = Field(description="That the run succeeds, in time and within every bound.")
    reason: str = Field(description="What it rests on, in a few words.")
    trying: bool = Field(description="Worth a run to learn from; the best known comes second.")
    marks: list[str] = Field(description="By what it stands out: try, best, cheapest, fastest.")
    difference: str = Field(description="How it differs from the best known, in words.")
    likelihood: str = Field(description="How likely it is to keep deadline and bounds, in words.")


class ProposalAnswer(BaseModel):
    """Propose configurations for what was typed into a form."""

    application: str = Field(description="name@version.")
    backend: str = Field(description="Where it would run.")
    parameters: dict[str, Any] = Field(description="The job parameters that it is for.")
    deadline: float | None = Field(description="Seconds that the run may take.")
    metric: str = Field(description="What it is to minimise or maximise: cost, runtime, or a metric of its own.")
    goal: str = Field(description="minimise or maximise.")
    candidates: list[CandidateAnswer] = Field(
        description="The configurations: one to learn from, if there is any, then the best first."
    )
    runs: int = Field(description="Runs of the application that it rests on; 0 where it was never run.")
    searcher: str = Field(description="Who proposes; empty for the default.")
    basis: list[str] = Field(description="What it rests on, one sentence each.")
    advice: str = Field(description="What you may do about it; empty where nothing is better.")


@router.post("/proposals")
def propose(who: Caller, shared: Shared, wanted: Annotated[ProposalWanted, Body()]) -> ProposalAnswer:
    """Configurations for what was typed into a form, the best first, with predicted time and cost; nothing is run."""
    check_document(wanted.model_dump())
    found = shared.proposals.propose(
        who,
        wanted.application,
        wanted.parameters,
        backend=wanted.backend,
        deadline=wanted.deadline,
        resources=wanted.resources,
        count=wanted.count,
    )
    return proposal_of(found)


def proposal_of(found: ConfigurationProposal) -> ProposalAnswer:
    """Build the answer for a proposal."""
    return ProposalAnswer(
        application=found.application,
        backend=found.backend,
        parameters=dict(found.parameters),
        deadline=found.deadline,
        metric=found.metric,
        goal=found.goal,
        candidates=[_candidate(one) for one in found.candidates],
        runs=found.runs,
        searcher=found.searcher,
        basis=list(found.basis),
        advice=found.advice,
    )


def _candidate(one: ProposedConfiguration) -> CandidateAnswer:
    plain = {
        name: getattr(one, name)
        for name in CandidateAnswer.model_fields
        if name not in ("configuration", "offer", "marks")
    }
    return CandidateAnswer(
        **plain,
        marks=list(one.marks),
        configuration=dict(one.configuration),
        offer=OfferAnswer.model_validate(one.offer.to_json()),
    )
