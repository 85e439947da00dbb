"""Small problems for the tests of this room."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tradewind.errors import NoOfferError
from tradewind.problem import (
    Budget,
    Configuration,
    Constraints,
    Expression,
    Instance,
    Job,
    Objective,
    Offer,
    Parameter,
    Problem,
    Space,
)
from tradewind.problem.job_spec.spec import JobSpec, parse_spec

MINIMAL: dict[str, Any] = {"name": "demo", "job": {"command": ["true"]}, "space": {"level": [1, 2, 3]}}


def offer(name: str, vcpu: float = 1.0, price: float = 0.1, **more: Any) -> Offer:
    return Offer("local", name, vcpu, more.pop("memory", 2.0), price, **more)


class TableResolver:
    """Looks the instance up; types that differ by a capital letter only are the same offer, ``gone`` is not sold."""

    machine_parameters = ("instance",)

    def __init__(self, offers: Mapping[str, Offer]) -> None:
        self.offers = offers

    def resolve(self, configuration: Configuration) -> Offer:
        name = str(configuration["instance"]).lower()
        if name == "gone":
            raise NoOfferError(f"nobody sells {name}")
        return self.offers[name]


@pytest.fixture
def make_offer() -> Callable[..., Offer]:
    return offer


@pytest.fixture
def machines() -> dict[str, Offer]:
    return {"small": offer("small", 1, 0.1), "large": offer("large", 4, 0.4, category="compute")}


@pytest.fixture
def make_problem() -> Callable[..., Problem]:
    def make(*parameters: Parameter, where: tuple[str, ...] = ()) -> Problem:
        offers = {
            value.lower(): o
            for p in parameters
            if isinstance(p, Instance)
            for value, o in p.offers.items()
            if value == value.lower()
        }
        space = Space(parameters, [Expression(text) for text in where])
        return Problem(
            Job("job", ("true",), Path("/")), space, Objective(), Constraints(), Budget(), TableResolver(offers)
        )

    return make


@pytest.fixture
def spec_of(tmp_path: Path) -> Callable[..., JobSpec]:
    """A specification of YAML text, or of the smallest document with some keys changed."""

    def make(text: str | None = None, **changes: Any) -> JobSpec:
        import yaml

        return parse_spec(
            text or yaml.safe_dump({**MINIMAL, **changes}, sort_keys=False), file="job.yaml", base=tmp_path
        )

    return make
