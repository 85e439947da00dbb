from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tradewind.problem import Offer, OfferQuery
from tradewind.problem.columns import table_offers
from tradewind.selector.catalogue.price_table import PriceRow, PriceTable, usual_category


def table(types: int, regions: int) -> PriceTable:
    """A table with an on-demand and a spot price of each type in each region."""
    machines = [Offer("aws", f"m{i}.large", float(2 + i % 64), 8.0, 0.0, source="test") for i in range(types)]
    rows = [
        PriceRow(machine, f"region-{region}", spot, 0.01 * (1 + machine % 97) * (0.4 if spot else 1.0))
        for machine in range(types)
        for region in range(regions)
        for spot in (False, True)
    ]
    return PriceTable.of_prices(machines, rows)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys of offers that the table has made."""
    found: list[str] = []

    def counted(*fields: Any) -> Offer:
        offer = Offer(*fields)
        found.append(offer.key)
        return offer

    monkeypatch.setattr(table_offers, "Offer", counted)
    return found


def test_only_offers_that_are_looked_at_are_made(made: list[str]) -> None:
    found = table(100, 10).matching(OfferQuery(types=("m7.*",), price=(None, 1.0))).cheapest_first()
    made.clear()
    assert len(found) == 10
    assert [offer.key for offer in found[:2]] == ["aws/region-0/m7.largex1", "aws/region-1/m7.largex1"]
    assert len(made) == 2


@pytest.mark.slow
def test_a_hundred_thousand_offers_are_filtered_and_sorted_without_making_them(made: list[str]) -> None:
    many = table(2500, 20)
    assert len(many) == 100_000
    everything = many.matching(OfferQuery(spot=None))
    assert len(everything) == 100_000
    prices = np.array(everything.cheapest_first().attributes("price"), dtype=float)
    assert (np.diff(prices) >= 0).all()
    found = many.matching(OfferQuery(vcpu=(4, 8), region=("region-3",), price=(None, 0.5)))
    made.clear()
    assert found[0].region == "region-3"
    assert len(made) == 1


def test_the_order_is_by_price_and_then_by_key() -> None:
    machines = [Offer("b", "z", 1.0, 1.0, 0.0), Offer("a", "z", 1.0, 1.0, 0.0), Offer("a", "y", 1.0, 1.0, 0.0)]
    rows = [
        PriceRow(place, region, spot, price)
        for place in range(3)
        for region, spot, price in (("r2", False, 1.0), ("r1", False, 1.0), ("r1", True, 0.5), ("r2", True, 2.0))
    ]
    found = PriceTable.of_prices(machines, rows).matching(OfferQuery(spot=None))
    expected = sorted(found, key=lambda offer: (offer.price_per_hour, offer.key))
    assert list(found.cheapest_first()) == expected
    assert found.kinds() == [(offer.provider, offer.instance_type, offer.spot) for offer in found]


def test_the_lowest_of_several_prices_stands() -> None:
    machines = [Offer("vast", "a", 2.0, 8.0, 0.0), Offer("vast", "a", 4.0, 16.0, 0.0)]
    rows = [PriceRow(0, "r", False, 0.3, "2026-01-01", "z1"), PriceRow(1, "r", False, 0.2, "2026-01-02", "z2")]
    [offer] = PriceTable.of_prices(machines, rows).matching(OfferQuery())
    assert (offer.vcpu, offer.price_per_hour, offer.price_date, dict(offer.facts)) == (4.0, 0.2, "2026-01-02", {})


def test_an_empty_table() -> None:
    empty = PriceTable.of_prices([], [])
    found = empty.matching(OfferQuery(region=("r",), price=(0.0, 1.0)))
    assert list(found) == list(found.cheapest_first()) == []
    assert empty.also_sells([Offer("a", "b", 1, 1, 1)]) == set()


def test_also_sells_the_same_type_region_and_market() -> None:
    one = table(1, 1)
    same, elsewhere = Offer("aws", "m0.large", 1, 1, 9, region="region-0"), Offer("aws", "m0.large", 1, 1, 9)
    assert one.also_sells([same, elsewhere, Offer("gcp", "m0.large", 1, 1, 9, region="region-0")]) == {same.key}


@pytest.mark.parametrize(
    ("vcpu", "gib", "category"), [(2, 4, "compute"), (2, 8, "general"), (2, 12, "memory"), (2, 5.1, "general")]
)
def test_categories_by_memory(vcpu: float, gib: float, category: str) -> None:
    assert usual_category(vcpu, gib) == category
    assert usual_category(vcpu, gib, burstable=True) == "burstable"
    assert usual_category(vcpu, gib, gpus=1, burstable=True) == "accelerated"
