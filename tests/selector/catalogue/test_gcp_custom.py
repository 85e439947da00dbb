from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tradewind.errors import NoOfferError
from tradewind.problem import OfferQuery
from tradewind.selector.catalogue.gcp_custom import CUSTOM_SIZES, custom_offers, usual_types
from tradewind.selector.offer_search import find_offers, open_catalogue

PREDEFINED = {"e2": 0.02181159, "n1": 0.031611, "n2": 0.031611, "n2d": 0.027502}
"""USD per vCPU in us-central1."""


def sold(tmp_path: Path, *types: str, **given: object) -> list[str]:
    return [offer.key for offer in find_offers(OfferQuery(provider=("gcp",), types=types), tmp_path, {"gcp": given})]


def test_a_custom_type_costs_a_twentieth_more_than_its_parts(tmp_path: Path) -> None:
    query = OfferQuery(provider=("gcp",), region=("us-central1",), types=("n2-custom-6-20480",))
    [offer] = find_offers(query, tmp_path)
    assert (offer.vcpu, offer.memory_gib, offer.family, offer.arch) == (6.0, 20.0, "n2", "x86_64")
    assert offer.price_per_hour == pytest.approx(1.05 * (6 * 0.031611 + 20 * 0.004237), rel=1e-6)
    assert offer.category == "general"


def test_it_is_sold_in_each_region_at_that_regions_price(tmp_path: Path) -> None:
    found = find_offers(OfferQuery(provider=("gcp",), types=("e2-custom-4-8192", "custom-4-5120")), tmp_path)
    assert {(o.instance_type, o.region) for o in found} == {
        (kind, region)
        for kind in ("e2-custom-4-8192", "custom-4-5120")
        for region in ("us-central1", "us-east1", "us-west1", "europe-west1")
    }
    price = {(o.instance_type, o.region): o.price_per_hour for o in found}
    away, home = price["e2-custom-4-8192", "europe-west1"], price["e2-custom-4-8192", "us-central1"]
    assert away == pytest.approx(1.1 * home, rel=1e-4)


def test_refreshed_prices_count_and_spot_has_its_own(tmp_path: Path) -> None:
    listed = open_catalogue("gcp", tmp_path).offers()
    dearer = [replace(o, price_per_hour=2 * o.price_per_hour) for o in listed]
    spot = [replace(o, price_per_hour=0.25 * o.price_per_hour, spot=True) for o in listed]
    [plain] = [o for o in custom_offers(listed, ["n1-custom-2-4096"]) if o.region == "us-central1"]
    found = {o.spot: o for o in custom_offers([*dearer, *spot], ["n1-custom-2-4096"]) if o.region == "us-central1"}
    assert found[False].price_per_hour == pytest.approx(2 * plain.price_per_hour, rel=1e-4)
    assert found[True].price_per_hour == pytest.approx(plain.price_per_hour / 4, rel=1e-4)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("n2-custom-5-8192", "no custom machine types with 5 vCPUs .the nearest are 4 and 6"),
        ("n2-custom-34-65536", "no custom machine types with 34 vCPUs"),
        ("n2d-custom-12-24576", "no custom machine types with 12 vCPUs"),
        ("n2-custom-4-8000", "steps of 256 MiB .write 7936"),
        ("n2-custom-4-512", "512 MiB are too little .4 vCPUs of n2 take 2048 to 32768 MiB"),
        ("n1-custom-4-30720", "30720 MiB are too much .4 vCPUs of n1 take 3840 to 26624 MiB"),
    ],
)
def test_a_size_that_nobody_can_have_is_refused_in_one_line(tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(NoOfferError, match=words):
        sold(tmp_path, name)


def test_other_names_are_nothing_of_googles(tmp_path: Path) -> None:
    assert sold(tmp_path, "c3-custom-4-8192", "custom-5-1", "n2-standard-4x", "custom") == []
    listed = open_catalogue("gcp", tmp_path).offers()
    assert custom_offers(listed, ["n2-standard-4", "n2-custom-*"]) == []


def test_the_setting_offers_all_usual_sizes(tmp_path: Path) -> None:
    plain = sold(tmp_path, "*")
    found = sold(tmp_path, "*", custom=["n2"])
    assert set(plain) < set(found)
    more = set(found) - set(plain)
    assert len(more) == 4 * 28 * 8 and all("/n2-custom-" in key for key in more)
    assert sold(tmp_path, "n2-custom-6-20480", custom="n2").count("gcp/us-central1/n2-custom-6-20480x1") == 1
    [wild] = [key for key in sold(tmp_path, "n2-custom-6-6144", custom="n2") if "us-central1" in key]
    assert wild == "gcp/us-central1/n2-custom-6-6144x1"


@pytest.mark.parametrize("family", list(CUSTOM_SIZES))
def test_all_usual_sizes_can_be_had(tmp_path: Path, family: str) -> None:
    listed = [o for o in open_catalogue("gcp", tmp_path).offers() if o.region == "us-central1"]
    found = custom_offers(listed, list(usual_types(family)))
    assert len(found) == len(list(usual_types(family)))
    assert all(offer.price_per_hour > PREDEFINED[family] * offer.vcpu for offer in found)
