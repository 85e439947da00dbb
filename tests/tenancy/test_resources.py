"""What runs take."""

from __future__ import annotations

from tradewind.problem import Integer
from tradewind.tenancy.resources import demand_of, largest_demand
from tradewind.testing.problems import KnownOutcome, machine_parameters, make_problem


def test_the_largest_demand_is_that_of_the_offers_that_a_search_chooses_from() -> None:
    parameters = [*machine_parameters(3, (1, 2, 4)), Integer(name="workers", low=1, high=3)]
    problem = make_problem(parameters, lambda _c, _o: KnownOutcome(10.0))
    offers = [problem.candidates.offer(i) for i in range(len(problem.candidates))]
    found = largest_demand(problem)
    assert found["cpu"] == max(offer.vcpu * offer.nodes for offer in offers)
    assert found["memory"] == max(offer.memory_gib * offer.nodes for offer in offers)
    assert all(demand_of(offer).keys() <= found.keys() for offer in offers)
    assert len(offers) > 3
