"""Offers of many configurations at once are those that each configuration has by itself, in the same order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tradewind import plugins
from tradewind.errors import NoOfferError, SpecError
from tradewind.problem import (
    Candidates,
    Categorical,
    Configuration,
    Expression,
    Instance,
    Integer,
    Nodes,
    Offer,
    Ordinal,
    Parameter,
    Problem,
    Space,
)
from tradewind.problem.columns.named_offers import named_offers
from tradewind.problem.offer import OfferQuery
from tradewind.problem.problem import ResolvesCodes
from tradewind.selector.base import Selector
from tradewind.testing.selectors import problem_of


def _sold(providers: Sequence[str], types: int) -> list[Offer]:
    """Offers of several providers and regions, on demand and on spot; some types cost the same."""
    found = []
    for p, provider in enumerate(providers):
        for region in ("north", "south"):
            for i in range(types):
                vcpu = 2.0 ** (1 + i % 4)
                gpus = int(i % 5 == 4)
                price = round(0.05 * vcpu * (1 + 0.1 * p) + gpus, 3)
                facts: dict[str, float | str] = {"score": 10.0 * vcpu + i, "maker": f"m{i % 3}"}
                one = Offer(provider, f"t{i}", vcpu, vcpu * (4 if i % 2 else 8), price, region, gpus=gpus, facts=facts)
                found += [one, replace(one, spot=True, price_per_hour=price / 3, interruptions_per_hour=0.01)]
    return found


ONE, TWO = _sold(["shop"], 6), _sold(["shop", "other"], 5)


def _instance(offers: Sequence[Offer], *, most: int | None = None, **more: Any) -> Instance:
    found = named_offers("machine", OfferQuery(spot=None), list(offers)[:most])
    return Instance(name="machine", values=tuple(found), offers=found, **more)


LEVEL = Integer(name="level", low=1, high=4)
NODES = Nodes(name="nodes", values=(1, 3, 8))
CPUS = Ordinal(name="cpus", values=(2, 4, 5, 16), attribute="vcpu")
MEMORY = Ordinal(name="gib", values=("8GiB", "30GiB", "64GiB"), attribute="memory")
SPOT = Categorical(name="spot", values=(True, False), attribute="spot")
PLACE = Categorical(name="region", values=("north", "south", "west"), attribute="region")
CASES: dict[str, tuple[str, Sequence[Offer], Sequence[Parameter], Sequence[str]]] = {
    "instance": ("exact", TWO, [_instance(TWO), LEVEL], []),
    "instance and nodes": ("exact", TWO, [_instance(TWO), NODES, LEVEL], ["level < 4"]),
    "nodes first, constraints on facts": ("exact", ONE, [NODES, _instance(ONE)], ["machine.vcpu * nodes <= 24"]),
    "a limit": ("exact", ONE, [_instance(ONE, most=3), NODES], []),
    "nodes of some only": (
        "exact", ONE, [LEVEL, replace(NODES, when=Expression("level > 2")), _instance(ONE)], [],
    ),
    "an instance of some only": (
        "cheapest", ONE, [LEVEL, _instance(ONE, when=Expression("level > 2")), NODES], [],
    ),
    "exact attributes": ("exact", TWO, [CPUS, MEMORY, NODES], []),
    "exact words": ("exact", TWO, [PLACE, CPUS, LEVEL], []),
    "nearest": ("nearest", TWO, [CPUS, MEMORY, NODES], []),
    "nearest of spot": ("nearest", TWO, [SPOT, CPUS, LEVEL, NODES], ["cpus > 2"]),
    "cheapest": ("cheapest", TWO, [MEMORY, SPOT, NODES], []),
    "an instance and attributes": ("nearest", TWO, [_instance(TWO), PLACE, NODES], []),
    "no machines": ("exact", ONE[:1], [LEVEL], []),
}  # fmt: skip


def _problem(case: str) -> Problem:
    kind, offers, parameters, where = CASES[case]
    space = Space(parameters, [Expression(text) for text in where])
    selector: Selector = plugins.create("selector", kind, {}, offers=offers, space=space)
    return problem_of(selector)


def _one_by_one(problem: Problem) -> list[tuple[Configuration, Offer]]:
    """The candidates as the contract of selectors has them: each configuration resolved, each trial once."""
    found: dict[str, tuple[Configuration, Offer]] = {}
    for row in problem.space.codes:
        configuration = problem.space.configuration(row)
        try:
            offer = problem.resolver.resolve(configuration)
        except NoOfferError:
            continue
        found.setdefault(problem.key_of(offer, configuration), (configuration, offer))
    return list(found.values())


@pytest.mark.parametrize("case", CASES)
def test_candidates_are_those_of_each_configuration_by_itself(case: str) -> None:
    problem, plain = _problem(case), _problem(case)
    assert isinstance(problem.resolver, ResolvesCodes)
    candidates, expected = problem.candidates, _one_by_one(plain)
    got = [(candidates.configuration(i), candidates.offer(i)) for i in range(len(candidates))]
    assert got == expected
    assert candidates.hourly.tolist() == [offer.hourly for _, offer in expected]
    assert [candidates.key(i) for i in range(len(candidates))] == [plain.key_of(o, c) for c, o in expected]
    assert [candidates.index(configuration) for configuration, _ in expected] == list(range(len(expected)))
    pooled = problem.pool([configuration for configuration, _ in expected])
    assert [pooled.offer(i) for i in range(len(pooled))] == [offer for _, offer in expected]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("most", [None, 1, 7])
def test_cheapest_offers_are_those_of_all_sorted_by_price_and_key(case: str, most: int | None) -> None:
    candidates = _problem(case).candidates
    counted: dict[str, tuple[Offer, int]] = {}
    for i in range(len(candidates)):
        offer = candidates.offer(i)
        counted[offer.key] = offer, counted.get(offer.key, (offer, 0))[1] + 1
    expected = sorted(counted.values(), key=lambda item: (item[0].hourly, item[0].key))
    assert candidates.different_offers == len(expected)
    assert candidates.cheapest_offers(most) == expected[:most]


@pytest.mark.parametrize("case", CASES)
def test_features_of_instances_are_those_of_all_their_offers(case: str) -> None:
    candidates = _problem(case).candidates
    problem = _problem(case)
    listed = problem.space.encode([candidates.configuration(i) for i in range(len(candidates))])
    assert np.array_equal(candidates.features, listed)


def test_an_offer_is_made_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a hundred thousand machine types and a few counts, an object for each took most of the time and memory."""
    problem = _problem("instance and nodes")
    made, times = 0, Offer.times

    def counting(self: Offer, nodes: int) -> Offer:
        nonlocal made
        made += 1
        return times(self, nodes)

    monkeypatch.setattr(Offer, "times", counting)
    candidates: Candidates = problem.candidates
    assert len(candidates) > 100 and made == 0
    assert candidates.offer(5) is candidates.offer(5)
    assert made == 1


def test_two_numbers_of_machines_are_refused_as_before() -> None:
    space = Space([_instance(ONE), NODES, Nodes(name="more", values=(1, 2))])
    selector: Selector = plugins.create("selector", "exact", {}, offers=ONE, space=space)
    with pytest.raises(SpecError, match="nodes and more both choose the number of machines"):
        _ = problem_of(selector).candidates
