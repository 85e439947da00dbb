"""Interruption rates from the data of Amazon's Spot Instance Advisor."""

from __future__ import annotations

import copy
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from tests.selector.catalogue.others_lists import SPOT_ADVISOR, write_spot_advisor

from tradewind.errors import CatalogueError, SpecError
from tradewind.problem import Offer, OfferQuery
from tradewind.problem.offer import hourly_interruptions
from tradewind.selector.catalogue.price_fetcher import PriceFetcher
from tradewind.selector.offer_search import find_offers

PRICES = """API Name,Provider,Region,CPU,Memory,Category,Price,Spot,Interruptions per Hour
c7i.large,aws,us-east-1,2,4,compute,0.03,yes,
c7i.large,aws,us-east-1,2,4,compute,0.09,no,
c7i.large,aws,eu-west-1,2,4,compute,0.04,yes,
c7i.large,cellar,us-east-1,2,4,compute,0.02,yes,
m5.large,aws,us-east-1,2,8,general,0.035,yes,0.5
m5.large,aws,eu-west-1,2,8,general,0.035,yes,
"""


def rates(folder: Path, prices: str = PRICES, **settings: Any) -> dict[str, float | None]:
    (folder / "prices.csv").write_text(prices)
    given = {"csv": {"path": str(folder / "prices.csv")}, "spot_advisor": settings}
    offers: list[Offer] = list(find_offers(OfferQuery(provider=("csv",), spot=None), folder, given))
    return {offer.key: offer.interruptions_per_hour for offer in offers}


def test_spot_offers_of_aws_have_the_rate_of_their_band(tmp_path: Path) -> None:
    path = write_spot_advisor(tmp_path / "spot.json")
    assert rates(tmp_path, path=str(path)) == {
        "aws/us-east-1/c7i.large/spotx1": pytest.approx(hourly_interruptions(0.025)),
        "aws/us-east-1/c7i.largex1": None,
        "aws/eu-west-1/c7i.large/spotx1": pytest.approx(hourly_interruptions(0.25)),
        "cellar/us-east-1/c7i.large/spotx1": None,
        "aws/us-east-1/m5.large/spotx1": 0.5,  # its own list knows it
        "aws/eu-west-1/m5.large/spotx1": None,
    }


def test_rates_of_windows(tmp_path: Path) -> None:
    found = rates(tmp_path, path=str(write_spot_advisor(tmp_path / "spot.json")), system="Windows")
    assert found["aws/us-east-1/c7i.large/spotx1"] == pytest.approx(hourly_interruptions(0.175))
    assert found["aws/eu-west-1/c7i.large/spotx1"] is None


def test_an_address_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def answer(_: PriceFetcher, url: str) -> dict[str, Any]:
        asked.append(url)
        return SPOT_ADVISOR

    monkeypatch.setattr(PriceFetcher, "json", answer)
    url = f"https://example.org/{tmp_path.name}.json"
    for _ in range(2):
        found = rates(tmp_path, url=url)
    assert found["aws/us-east-1/c7i.large/spotx1"] == pytest.approx(hourly_interruptions(0.025))
    assert asked == [url]
    on_demand = PRICES.splitlines()[0] + "\nc7i.large,aws,us-east-1,2,4,compute,0.09,no,\n"
    assert rates(tmp_path, on_demand, url=f"{url}2") == {"aws/us-east-1/c7i.largex1": None}
    assert asked == [url]  # nobody needs it


def test_a_list_without_any_of_the_offers_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_spot_advisor(tmp_path / "spot.json")
    prices = PRICES.splitlines()[0] + "\nx9.huge,aws,us-east-1,2,4,compute,0.09,yes,\n"
    with caplog.at_level(logging.WARNING, "tradewind.selector"):
        assert rates(tmp_path, prices, path=str(path)) == {"aws/us-east-1/x9.huge/spotx1": None}
    assert "has none of the 1 spot offers (us-east-1/x9.huge)" in caplog.text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ranges": [{"index": 0, "label": "often"}]}, "no data of the Spot Instance Advisor .KeyError: 'often'"),
        ({"ranges": []}, "no data of the Spot Instance Advisor"),
        ({"spot_advisor": ["us-east-1"]}, "no data of the Spot Instance Advisor"),
        ({"spot_advisor": {"us-east-1": {"Linux": {"c7i.large": 3}}}}, "no data of the Spot Instance Advisor"),
    ],
)
def test_other_documents(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    path = tmp_path / "spot.json"
    path.write_text(json.dumps({**copy.deepcopy(SPOT_ADVISOR), **change}))
    with pytest.raises(CatalogueError, match=words):
        rates(tmp_path, path=str(path))


def test_wrong_files_and_settings(tmp_path: Path) -> None:
    path = write_spot_advisor(tmp_path / "spot.json")
    with pytest.raises(CatalogueError, match=r"cannot be read: No such file"):
        rates(tmp_path, path=str(tmp_path / "none.json"))
    with pytest.raises(CatalogueError, match=r"has no rates of the system 'Linus' \(did you mean 'Linux'"):
        rates(tmp_path, path=str(path), system="Linus")
    (tmp_path / "text.json").write_text("us-east-1,c7i.large,<5%\n")
    with pytest.raises(CatalogueError, match=r"is no JSON.*spot-advisor-data.json"):
        rates(tmp_path, path=str(tmp_path / "text.json"))
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(CatalogueError, match=r"is no data of the Spot Instance Advisor"):
        rates(tmp_path, path=str(tmp_path / "list.json"))
    for settings in ({}, {"path": str(path), "url": "https://example.org/x"}):
        with pytest.raises(SpecError, match="needs a path or a url, and not both"):
            rates(tmp_path, **settings)
