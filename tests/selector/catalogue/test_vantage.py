from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from tests.selector.catalogue.others_lists import VANTAGE, write_vantage

from tradewind import plugins
from tradewind.errors import CatalogueError
from tradewind.problem import Offer, OfferQuery
from tradewind.selector.offer_search import find_offers


def sold(path: Path) -> dict[str, Offer]:
    offers = plugins.create("catalogue", "vantage", {"path": str(path)}, data_folder=Path("none")).offers()
    return {offer.key: offer for offer in offers}


def test_types_with_their_linux_prices(tmp_path: Path) -> None:
    path = write_vantage(tmp_path / "instances.json")
    found = sold(path)
    assert sorted(found) == [
        "aws/eu-west-1/m7g.xlargex1", "aws/us-east-1/g5.xlargex1", "aws/us-east-1/m3.xlargex1",
        "aws/us-east-1/m7g.xlarge/spotx1", "aws/us-east-1/m7g.xlargex1", "aws/us-east-1/t3.smallx1",
    ]  # fmt: skip
    assert found["aws/us-east-1/m7g.xlargex1"] == Offer(
        "aws", "m7g.xlarge", 4.0, 16.0, 0.1632, "us-east-1", "general", "m7g", "arm64",
        price_date="2026-11-18", source=f"Vantage: {path}",
    )  # fmt: skip
    assert found["aws/us-east-1/m7g.xlarge/spotx1"].price_per_hour == 0.0655
    assert found["aws/us-east-1/t3.smallx1"].category == "burstable"
    gpu = found["aws/us-east-1/g5.xlargex1"]
    assert (gpu.category, gpu.gpus, dict(gpu.facts)) == ("accelerated", 1, {"accelerator": "A10G"})
    old = found["aws/us-east-1/m3.xlargex1"]
    assert (old.price_per_hour, old.arch) == (0.45, "x86_64")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{}", "is no list of instance types"),
        ("[{", "is no JSON"),
        ("[1]", "entry 1 has a value of another kind"),
        ('[{"instance_type": "m5.large"}]', "entry 1 m5.large has no 'vCPU'"),
        (
            '[{"instance_type": "a.b", "vCPU": 2, "memory": 8, "family": "x", "pricing": [1]}]',
            "entry 1 a.b has a value",
        ),
    ],
)
def test_another_file_is_one_line(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "instances.json"
    path.write_text(content)
    with pytest.raises(CatalogueError, match=r"instances\.vantage\.sh") as caught:
        sold(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match="No such file"):
        sold(tmp_path / "none.json")


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = write_vantage(tmp_path / "instances.json")
    assert len(sold(path)) == 6
    write_vantage(path, VANTAGE[:1])
    assert len(sold(path)) == 3


def test_it_differs_from_the_shipped_list_in_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    entries: list[dict[str, Any]] = [dict(VANTAGE[1], pricing={"us-east-1": {"linux": {"ondemand": "0.03"}}})]
    given = {"vantage": {"path": str(write_vantage(tmp_path / "instances.json", entries))}}
    query = OfferQuery(provider=("aws",), region=("us-east-1",), types=("t3.small",))
    with caplog.at_level(logging.WARNING, "tradewind.selector"):
        [offer] = find_offers(query, tmp_path, given)
    assert offer.price_per_hour == 0.03
    [record] = caplog.records
    assert "$0.0300 of 2026-11-18 by vantage counts, not" in record.getMessage()
    assert "by aws" in record.getMessage()
