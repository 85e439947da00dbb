from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.errors import NoOfferError
from tradewind.problem import Billing, Offer, OfferQuery, round_money
from tradewind.problem.columns.named_offers import named_offers
from tradewind.problem.offer import describe_query
from tradewind.utils.units import parse_memory

billings = st.builds(
    Billing,
    setup_seconds=st.floats(0, 1000),
    minimum_seconds=st.floats(0, 4000),
    granularity_seconds=st.one_of(st.sampled_from([0.1, 1.0, 60.0, 3600.0]), st.floats(0.01, 4000)),
)
prices = st.floats(1e-4, 500)


@given(billings, st.floats(0, 1000), prices)
def test_the_longest_run_that_money_pays_costs_no_more_than_that(billing: Billing, money: float, hourly: float) -> None:
    seconds = billing.longest_run(money, hourly)
    if seconds >= 0:
        assert billing.cost(seconds, hourly) <= round_money(money) + 1e-9
    else:
        assert billing.cost(0.0, hourly) > money - 1e-9 or billing.billed_seconds(0.0) == 0


@pytest.mark.slow
@given(billings, st.floats(0, 1e6), st.floats(0, 1e6), prices)
def test_longer_runs_never_cost_less_and_nothing_is_billed_below_the_minimum(
    billing: Billing, a: float, b: float, hourly: float
) -> None:
    short, long = sorted((a, b))
    assert billing.cost(short, hourly) <= billing.cost(long, hourly)
    assert (
        billing.billed_seconds(short) >= max(billing.minimum_seconds, billing.setup_seconds + short) * (1 - 1e-9) - 1e-5
    )
    assert billing.billed_seconds(short) <= max(billing.minimum_seconds, billing.setup_seconds + short) + (
        billing.granularity_seconds * (1 + 1e-6)
    )


def test_billing_by_hand() -> None:
    billing = Billing(setup_seconds=30, minimum_seconds=60, granularity_seconds=60)
    assert billing.billed_seconds(10) == 60
    assert billing.billed_seconds(31) == 120
    assert billing.cost(31, 3.6) == 0.12
    assert billing.unit_cost(3.6) == 0.06
    assert billing.longest_run(0.13, 3.6) == 90
    assert billing.longest_run(0.05, 3.6) < 0
    assert math.isinf(billing.longest_run(1, 0))
    assert Billing(granularity_seconds=0.1).billed_seconds(0.1 + 0.2) == pytest.approx(0.3)


def test_an_offer_is_read_back_as_it_was(make_offer: Callable[..., Offer]) -> None:
    offer = make_offer("m5.large", 2, 0.096, facts={"disk": 1.0, "cpu": "xeon"}, spot=True).times(3)
    assert Offer.from_json({**offer.to_json(), "of a newer version": 1}) == offer
    assert offer.hourly == pytest.approx(0.288)
    assert offer.key == "local//m5.large/spotx3"
    assert offer.attribute("memory") == 2.0
    assert offer.attribute("type") == "m5.large"
    assert offer.attribute("disk") == 1.0
    assert offer.attribute("facts") is None
    assert offer.attribute("colour") is None


@pytest.mark.parametrize(
    ("query", "found"),
    [
        (OfferQuery(), "ab"),
        (OfferQuery(provider=("aws",)), ""),
        (OfferQuery(types=("a*",)), "a"),
        (OfferQuery(types=("g",)), "g"),
        (OfferQuery(category=("accelerated",)), "g"),
        (OfferQuery(gpus=(1, None)), "g"),
        (OfferQuery(vcpu=(2, None)), "b"),
        (OfferQuery(memory=(None, 2)), "ab"),
        (OfferQuery(price=(0.2, 0.4)), "b"),
        (OfferQuery(spot=True), "s"),
        (OfferQuery(spot=None), "abs"),
        (OfferQuery(arch=("arm64",)), ""),
        (OfferQuery(region=("here",)), ""),
        (OfferQuery(family=("",)), "ab"),
    ],
)
def test_queries(query: OfferQuery, found: str, make_offer: Callable[..., Offer]) -> None:
    offers = [
        make_offer("a"),
        make_offer("b", 4, 0.4),
        make_offer("g", 8, 2.0, gpus=1, category="accelerated", memory=64.0),
        make_offer("s", spot=True, price=0.01),
    ]
    assert "".join(o.instance_type for o in offers if query.matches(o)) == found


def test_instances_are_named_as_shortly_as_they_can_be() -> None:
    def sold(provider: str, region: str, kind: str, spot: bool = False, price: float = 1.0) -> Offer:
        return Offer(provider, kind, 2, 4, price, region=region, spot=spot)

    found = named_offers(
        "instance",
        OfferQuery(),
        [
            sold("aws", "eu", "m5"),
            sold("aws", "us", "m5"),
            sold("aws", "eu", "m5", spot=True),
            sold("gcp", "eu", "n2"),
            sold("gcp", "eu", "n2", price=0.5),
            sold("gcp", "eu", "e2", spot=True),
            sold("local", "", "c1"),
            sold("local", "", "c1", spot=True),
        ],
    )
    assert sorted(found) == ["aws/eu/m5", "aws/eu/m5/spot", "aws/us/m5", "c1", "c1/spot", "e2", "n2"]
    assert found["n2"].price_per_hour == 0.5
    assert found["aws/eu/m5/spot"].spot


def test_no_offers_is_an_error_that_shows_the_question(make_offer: Callable[..., Offer]) -> None:
    query = OfferQuery(provider=("aws", "gcp"), vcpu=(4, 16), memory=(None, 8), price=(1, 1), spot=None, limit=3)
    assert describe_query(query) == "provider=aws,gcp vcpu=4..16 memory=..8GiB price=1 spot=any limit=3"
    assert describe_query(OfferQuery(spot=True)) == "spot=true"
    assert describe_query(OfferQuery()) == "the query"
    for written in ("64GB", "2GiB", "512MiB", "500MB", "1.5GiB", "7.3GiB", "2.25GB", "12345GiB", "1TB"):
        found = describe_query(OfferQuery(memory=(parse_memory(written) / 2**30, None)))
        assert found == f"memory={written.replace('1TB', '1000GB')}.."
    with pytest.raises(
        NoOfferError, match=r"instance: no offer matches provider=aws,gcp vcpu=4\.\.16.*tradewind offers"
    ):
        named_offers("instance", query, [])
    with pytest.raises(NoOfferError, match="no offer of 'm6' matches types=m5,m6"):
        named_offers("instance", OfferQuery(types=("m5", "m6")), [make_offer("m5")])
    assert list(named_offers("instance", OfferQuery(types=("m5", "x*")), [make_offer("m5")])) == ["m5"]


@pytest.mark.parametrize(
    ("fact", "score"),
    [
        ("coremark", True), ("coremark_iterations_per_s", True), ("stress_ng_bestn", True), ("stressng_1", True),
        ("geekbench6_multi", True), ("gb6_multi", True), ("passmark_summ_cpu", True), ("specint_rate", True),
        ("memory_bandwidth", True), ("bw_mem_rd_256mb_mb_s", True), ("render_fps_score", True), ("score", True),
        ("coremark_total_time_s", False), ("stressng_best_threads", False), ("clock_ghz", False), ("zone", False),
        ("bandwidth", False), ("scored", False), ("passmark_date", False), ("redis_latency_score_ms", False),
    ],
)  # fmt: skip
def test_facts_that_are_scores(make_offer: Callable[..., Offer], fact: str, score: bool) -> None:
    offer = replace(make_offer("m5"), facts={fact: 3.0, "coremark_note": "fast", "coremark_old": 0.0})
    assert offer.scores == ({fact: 3.0} if score else {})
