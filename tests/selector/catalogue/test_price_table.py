from __future__ import annotations

import time

import pytest

from tradewind.problem import Offer, OfferQuery
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
    return PriceTable(machines, rows)


def test_only_offers_that_are_wanted_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    many = table(100, 10)
    made: list[int] = []
    real = PriceTable._offer

    def counted(self: PriceTable, place: int) -> Offer:
        made.append(place)
        return real(self, place)

    monkeypatch.setattr(PriceTable, "_offer", counted)
    found = many.matching(OfferQuery(types=("m7.*",), region=("region-1", "region-2"), price=(None, 1.0)))
    assert [offer.key for offer in found] == ["aws/region-1/m7.largex1", "aws/region-2/m7.largex1"]
    assert len(made) == 2


@pytest.mark.slow
def test_a_hundred_thousand_offers_are_filtered_soon() -> None:
    many = table(2500, 20)
    assert len(many) == 100_000
    start = time.process_time()
    found = many.matching(OfferQuery(vcpu=(4, 8), region=("region-3",), price=(None, 0.5)))
    assert time.process_time() - start < 0.5
    assert found


def test_the_lowest_of_several_prices_stands() -> None:
    machines = [Offer("vast", "a", 2.0, 8.0, 0.0), Offer("vast", "a", 4.0, 16.0, 0.0)]
    rows = [PriceRow(0, "r", False, 0.3, "2026-01-01", "z1"), PriceRow(1, "r", False, 0.2, "2026-01-02", "z2")]
    [offer] = PriceTable(machines, rows).matching(OfferQuery())
    assert (offer.vcpu, offer.price_per_hour, offer.price_date, dict(offer.facts)) == (4.0, 0.2, "2026-01-02", {})


def test_an_empty_table() -> None:
    empty = PriceTable([], [])
    assert empty.matching(OfferQuery(region=("r",), price=(0.0, 1.0))) == []
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
