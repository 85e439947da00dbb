"""Offers that are kept as columns are those that were made one by one, in all that anybody asks of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tradewind import plugins
from tradewind.errors import NoOfferError
from tradewind.problem import Configuration, Instance, Nodes, Offer, OfferQuery, Ordinal, Parameter, Problem, Space
from tradewind.problem.columns.named_offers import NamedOffers, coded, named_offers
from tradewind.problem.columns.offer_features import OfferFeatures
from tradewind.problem.columns.table_offers import TableOffers
from tradewind.problem.offer import attributes_of, fact_names_of, keys_of, with_interruptions
from tradewind.searcher.base import Searcher, SearchState
from tradewind.selector.catalogue.price_table import PriceRow, PriceTable
from tradewind.testing.selectors import problem_of

ALL = OfferQuery(spot=None, gpus=(0, None))
ATTRIBUTES = (
    "provider", "instance_type", "type", "vcpu", "memory", "price", "region", "category", "family", "arch", "gpus",
    "spot", "nodes", "price_date", "source", "interruptions_per_hour", "zone", "score", "maker", "nothing",
)  # fmt: skip


def facts(size: int) -> Sequence[dict[str, float | str]]:
    """Facts that a machine type of some size may have."""
    return {}, {"score": 3.0 * size}, {"score": 2, "maker": "m"}


def table(
    seed: int, *, spot: bool = True, regions: Sequence[str] = ("us", "us-1", "us-10", "north", "")
) -> TableOffers:
    """Offers of a random table: several cost the same, some types have zones or facts that others lack."""
    rng = random.Random(seed)
    machines = [
        Offer(
            provider, f"{kind}{size}", float(size), float(size * rng.choice((2, 4))), 0.0, category=kind,
            family=rng.choice(("", kind)), arch=rng.choice(("x86_64", "arm64")), gpus=rng.choice((0, 0, 1)),
            source="test", facts=rng.choice(facts(size)),
        )
        for provider in ("aws", "aws-eu", "gcp")
        for kind in ("c", "m")
        for size in (1, 2, 8)
    ]  # fmt: skip
    rows = [
        PriceRow(place, region, market, rng.choice((0.1, 0.2, 0.3, 0.4)) * one.vcpu, "2026-11-20 04:10", zone)
        for place, one in enumerate(machines)
        for region in rng.sample(list(regions), min(3, len(regions)))
        for market in ((False, True) if spot else (False,))
        for zone in rng.choice((("",), ("a",), ("a", "b")))
    ]
    return PriceTable.of_prices(machines, rows).matching(ALL).cheapest_first()


@pytest.mark.parametrize(
    "columns",
    [table(1), table(2)[3:40], table(3, spot=False), table(4, regions=["a", "a/b", "a-b"]), table(5)[:1]],
    ids=["all", "some", "on demand", "odd regions", "one"],
)
def test_columns_are_those_of_the_offers(columns: TableOffers) -> None:
    offers = list(columns)
    assert len(columns) == len(offers) == len(set(keys_of(offers)))
    assert [columns[place] for place in range(len(columns))] == offers == columns
    for name in ATTRIBUTES:
        expected = attributes_of(offers, name)
        assert columns.attributes(name) == expected
        assert list(map(type, columns.attributes(name))) == list(map(type, expected))
        values, places = columns.coded(name)
        assert [values[place] for place in places] == expected
    assert keys_of(columns) == keys_of(offers)
    assert [keys_of(columns)[place] for place in np.argsort(columns.key_ranks())] == sorted(keys_of(offers))
    assert fact_names_of(columns) == fact_names_of(offers)
    assert columns.kinds() == [(one.provider, one.instance_type, one.spot) for one in offers]
    assert columns.cheapest_first() == sorted(offers, key=lambda one: (one.price_per_hour, one.key))
    backwards = list(reversed(range(len(offers))))
    assert columns.take(backwards) == offers[::-1] == columns[::-1]
    assert columns[::-1].cheapest_first() == columns.cheapest_first()
    for rate in (None, 0.05):
        assert list(with_interruptions(columns, rate)) == list(with_interruptions(offers, rate))


@pytest.mark.parametrize("seed", range(4))
def test_names_and_features_are_those_of_the_offers(seed: int) -> None:
    columns = table(seed, spot=bool(seed % 2), regions=["us", "us-1", "a/b", ""] if seed > 1 else ["us"])
    offers = random.Random(seed).sample(list(columns), len(columns))
    named, expected = (named_offers("machine", ALL, given) for given in (columns, offers))
    assert isinstance(named, NamedOffers)
    assert list(named) == list(expected)
    assert dict(named) == expected
    sizes = [(one.vcpu, one.memory_gib, one.key) for one in named.values()]
    assert sizes == sorted(sizes)
    assert list(named.of(list(named))) == list(expected.values())
    features, others = (
        OfferFeatures("m", list(expected), given) for given in (named.of(list(named)), [*named.values()])
    )
    assert (features.names, features.log_ranges) == (others.names, others.log_ranges)
    places = np.arange(len(named))[::2]
    assert np.array_equal(features.rows(places), others.rows(places))
    assert coded(offers, "price")[0] == attributes_of(offers, "price")


NODES = Nodes(name="nodes", values=(1, 3))
CPUS = Ordinal(name="cpus", values=(1, 2, 4, 8), attribute="vcpu")
MEMORY = Ordinal(name="gib", values=("2GiB", "16GiB"), attribute="memory")
CASES: dict[str, tuple[str, bool, Sequence[Parameter]]] = {
    "instance": ("exact", True, [NODES]),
    "cheapest instance with attributes": ("cheapest", True, [MEMORY]),
    "nearest instance with attributes": ("nearest", True, [NODES, CPUS]),
    "attributes": ("nearest", False, [NODES, CPUS, MEMORY]),
    "exact attributes": ("exact", False, [CPUS, NODES]),
}


def _problem(case: str, offers: Sequence[Offer]) -> Problem:
    selector, instance, parameters = CASES[case]
    named = named_offers("machine", ALL, offers)
    own = [Instance(name="machine", values=tuple(named), offers=named)] if instance else []
    space = Space([*own, *parameters], [])
    return problem_of(plugins.create("selector", selector, {}, offers=offers, space=space))


@pytest.mark.parametrize("case", CASES)
def test_a_search_proposes_the_same(case: str) -> None:
    columns = table(7)
    kept, made = _problem(case, columns), _problem(case, list(columns))
    assert len(kept.candidates) == len(made.candidates)
    for place in range(len(made.candidates)):
        assert kept.candidates.configuration(place) == made.candidates.configuration(place)
        assert kept.candidates.offer(place) == made.candidates.offer(place)
    assert np.array_equal(kept.candidates.features, made.candidates.features)
    assert kept.candidates.cheapest_offers(5) == made.candidates.cheapest_offers(5)
    answers = [_sold(problem, made.space.codes) for problem in (kept, made)]
    assert answers[0] == answers[1]
    proposed = [_first(problem) for problem in (kept, made)]
    assert proposed[0] == proposed[1]


def _sold(problem: Problem, codes: Any) -> list[Offer | str]:
    found: list[Offer | str] = []
    for row in codes:
        try:
            found.append(problem.resolver.resolve(problem.space.configuration(row)))
        except NoOfferError as error:
            found.append(str(error))
    return found


def _first(problem: Problem) -> list[Configuration]:
    searcher: Searcher = plugins.create("searcher", "tradewind", {}, problem=problem, seed=3)
    found = searcher.ask(SearchState(), 3)
    assert isinstance(found, list)
    return [proposal.configuration for proposal in found]
