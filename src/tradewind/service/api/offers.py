"""What the catalogues sell."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from pydantic.config import JsonDict

from tradewind.service.api.authentication import Caller, Shared

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
