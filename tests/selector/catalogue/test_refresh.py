"""Refreshing against a server that answers in the providers' own formats."""

from __future__ import annotations

import dataclasses
import json
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.selector.catalogue.price_answers import (
    AWS_COLUMNS,
    AWS_INDEX,
    aws_csv,
    aws_row,
    aws_serve,
    azure_item,
    azure_page,
    gcp_page,
    gcp_sku,
)

from tradewind import plugins
from tradewind.errors import CatalogueError, FetchError, MissingProgramError, StoreFullError, StoreReadOnlyError
from tradewind.problem import Offer
from tradewind.selector.catalogue import price_list
from tradewind.selector.catalogue.price_list import PriceListCatalogue

QUICK = {"retries": 1, "wait": 0.0, "timeout": 5.0}


def make(name: str, folder: Path, url: str, **settings: Any) -> PriceListCatalogue:
    catalogue = plugins.create("catalogue", name, {**QUICK, "base_url": url, **settings}, data_folder=folder)
    assert isinstance(catalogue, PriceListCatalogue)
    return catalogue


def one(offers: Iterable[Offer], instance_type: str, region: str, *, spot: bool = False) -> Offer:
    found = [o for o in offers if (o.instance_type, o.region, o.spot) == (instance_type, region, spot)]
    assert len(found) == 1
    return found[0]


def unchanged(catalogue: PriceListCatalogue) -> bool:
    return list(catalogue.offers()) == list(catalogue.shipped()) and not catalogue.path.exists()


def test_what_a_machine_costs_besides_is_added_to_each_price(tmp_path: Path) -> None:
    plain, dearer = (make("aws", tmp_path, "", **more) for more in ({}, {"extra_per_hour": 0.009}))
    before, after = plain.offers(), dearer.offers()
    assert [o.price_per_hour + 0.009 for o in before] == pytest.approx([o.price_per_hour for o in after])
    assert dearer.offers() is after, "it is reckoned once"
    refreshed = [one(before, "c7i.large", "us-east-1")]
    price_list.write_prices(plain.path, [dataclasses.replace(refreshed[0], price_per_hour=0.5)])
    assert one(dearer.offers(), "c7i.large", "us-east-1").price_per_hour == 0.509
    assert one(plain.offers(), "c7i.large", "us-east-1").price_per_hour == 0.5, "what is kept has no extra"


# ---------------------------------------------------------------------------------------------------- AWS


def test_aws_keeps_linux_on_demand_only(endpoint: Any, answer: Any, tmp_path: Path) -> None:
    rows = [
        aws_row("m5.large", "0.0990000000"),
        aws_row("m5.large", "0.1910000000", Operating_System="Windows"),
        aws_row("m5.large", "0.2000000000", Tenancy="Dedicated"),
        aws_row("m5.large", "0.3000000000", **{"Pre Installed S/W": "SQL Std"}),
        aws_row("m5.large", "0.0500000000", TermType="Reserved"),
        aws_row("m5.large", "0.0000000000", CapacityStatus="AllocatedCapacityReservation"),
        aws_row("m5.xlarge", "0.0000000000"),
        aws_row("x99g.2xlarge", "1.5", **{"Instance Family": "Memory optimized", "Memory": "1,024 GiB"})
        | {"Physical Processor": "AWS Graviton9 Processor", "vCPU": "8"},
        aws_row("g99.xlarge", "2.5", **{"Instance Family": "GPU instance", "GPU": "3"}),
        aws_row("t9.nano", "0.001"),
    ]
    aws_serve(endpoint, answer, aws_csv(*rows))
    catalogue = make("aws", tmp_path, endpoint.url, regions=["us-east-1"])
    said = list(catalogue.refresh())
    assert "aws: us-east-1 has 4 instance types" in said
    assert [path for path, _ in endpoint.asked] == [
        "/offers/v1.0/aws/AmazonEC2/current/region_index.json",
        "/offers/v1.0/aws/AmazonEC2/20261120200000/us-east-1/index.csv",
    ]
    offers = catalogue.offers()
    assert one(offers, "m5.large", "us-east-1").price_per_hour == 0.099
    assert one(offers, "m5.large", "us-east-1").price_date == price_list.todays_date()
    assert one(offers, "m5.xlarge", "us-east-1").price_per_hour == 0.192  # shipped: a price of 0 is unknown
    new = one(offers, "x99g.2xlarge", "us-east-1")
    assert (new.vcpu, new.memory_gib, new.category, new.arch, new.family) == (8, 1024, "memory", "arm64", "x99g")
    assert one(offers, "g99.xlarge", "us-east-1").gpus == 3
    assert one(offers, "g99.xlarge", "us-east-1").category == "accelerated"
    assert one(offers, "t9.nano", "us-east-1").category == "burstable"
    assert list(make("aws", tmp_path, "").offers()) == list(offers)  # another process finds them too


def test_aws_adds_a_region_and_keeps_earlier_ones(endpoint: Any, answer: Any, tmp_path: Path) -> None:
    aws_serve(endpoint, answer, aws_csv(aws_row("m5.large", "0.153")))
    list(make("aws", tmp_path, endpoint.url, regions=["sa-east-1"]).refresh())
    aws_serve(endpoint, answer, aws_csv(aws_row("m5.large", "0.098")))
    catalogue = make("aws", tmp_path, endpoint.url, regions=["us-east-1"])
    list(catalogue.refresh())
    assert one(catalogue.offers(), "m5.large", "sa-east-1").price_per_hour == 0.153
    assert one(catalogue.offers(), "m5.large", "us-east-1").price_per_hour == 0.098


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        (aws_csv(aws_row("m5.large", "0.1")), {"cut": 5}, "was cut"),
        (aws_csv(aws_row("m5.large", "0.1")), {"status": 503}, "503"),
        (aws_csv(aws_row("m5.large", "0.1"), columns=AWS_COLUMNS[:-1]), {}, "no column 'Pre Installed S/W'"),
        (aws_csv(aws_row("m5.large", "0.1")) + '"ABC","JRT"\n', {}, "breaks off at line 8"),
        (aws_csv(aws_row("m5.large", "0.1")) + '"' + "x" * 200_000, {}, "no CSV"),
        ("<html>we are back soon</html>\n" * 40, {}, "no header line"),
        ("", {}, "no header line"),
        (aws_csv(), {}, "no usable price"),
        (aws_csv(aws_row("m5.large", "free"), aws_row("m5.large", "nan"), aws_row("m5.large", "-1")), {}, "no usable"),
    ],
)
def test_aws_wrong_answers(
    endpoint: Any, answer: Any, tmp_path: Path, body: str, kind: dict[str, Any], words: str
) -> None:
    aws_serve(endpoint, answer, body, **kind)
    catalogue = make("aws", tmp_path, endpoint.url, regions=["us-east-1"])
    with pytest.raises(FetchError, match=words) as caught:
        list(catalogue.refresh())
    assert "\n" not in str(caught.value)
    assert unchanged(catalogue)


@pytest.mark.parametrize("index", ["{}", '{"regions": []}', '{"regions": {"us-east-1": {}}}', AWS_INDEX])
def test_aws_region_that_is_not_in_the_index(endpoint: Any, answer: Any, tmp_path: Path, index: str) -> None:
    endpoint.sequence(answer(index))
    catalogue = make("aws", tmp_path, endpoint.url, regions=["mars-1"])
    with pytest.raises(FetchError, match=r"mars-1|'regions'"):
        list(catalogue.refresh())


# ---------------------------------------------------------------------------------------------------- Azure


def azure_pages(endpoint: Any, answer: Any, pages: list[list[dict[str, Any]]]) -> None:
    def script(path: str, query: dict[str, str]) -> Any:
        skip = int(query.get("$skip", 0))
        more = skip + 1 < len(pages)
        # The API leaves blanks and quotes in the links it gives.
        link = f"{endpoint.url}{path}?$filter={query['$filter']}&$skip={skip + 1}" if more else None
        return answer(azure_page(pages[skip], link))

    endpoint.script = script


def test_azure_reads_all_pages(endpoint: Any, answer: Any, tmp_path: Path) -> None:
    pages = [
        [azure_item("Standard_D2s_v5", 0.099), azure_item("Standard_D4s_v5", 0.2)],
        [
            azure_item("Standard_D4s_v5", 0.193, effectiveStartDate="2026-06-01T00:00:00Z"),
            azure_item("Standard_D8s_v5", 0.75, productName="Virtual Machines Dsv5 Series Windows"),
            azure_item("Standard_D8s_v5", 0.05, skuName="D8s v5 Spot"),
            azure_item("Standard_D8s_v5", 0.06, skuName="D8s v5 Low Priority"),
            azure_item("Standard_D8s_v5", 0.9, productName="Virtual Machines Dsv5 Series Cloud Services"),
        ],
        [
            azure_item("Standard_Z2s_v9", 1.0),
            azure_item("Standard_D16s_v5", 0.0),
            azure_item("Standard_D16s_v5", 500.0, unitOfMeasure="1/Month"),
            azure_item("Standard_D16s_v5", 0.7, type="Reservation"),
            azure_item("Standard_D16s_v5", 0.7, currencyCode="EUR"),
            azure_item("Standard_D16s_v5", 0.7, armRegionName="westus"),
            azure_item("", 0.7),
        ],
    ]
    azure_pages(endpoint, answer, pages)
    catalogue = make("azure", tmp_path, endpoint.url, regions=["eastus"])
    said = list(catalogue.refresh())
    assert "azure: eastus has 2 sizes, 1 left out whose vCPU is not known" in said
    assert [query.get("$skip") for _, query in endpoint.asked] == [None, "1", "2"]
    assert "armRegionName eq 'eastus'" in endpoint.asked[0][1]["$filter"]
    offers = catalogue.offers()
    assert one(offers, "Standard_D2s_v5", "eastus").price_per_hour == 0.099
    assert one(offers, "Standard_D4s_v5", "eastus").price_per_hour == 0.193  # the newer of two
    assert one(offers, "Standard_D8s_v5", "eastus").price_per_hour == 0.384  # shipped
    assert one(offers, "Standard_D16s_v5", "eastus").price_per_hour == 0.768
    assert not any(offer.spot for offer in offers)


def test_azure_spot_and_a_new_region(endpoint: Any, answer: Any, tmp_path: Path) -> None:
    there = {"armRegionName": "westeurope"}
    azure_pages(
        endpoint,
        answer,
        [
            [
                azure_item("Standard_D2s_v5", 0.115, **there),
                azure_item("Standard_D2s_v5", 0.02, skuName="D2s v5 Spot", **there),
            ]
        ],
    )
    catalogue = make("azure", tmp_path, endpoint.url, regions=["westeurope"], spot=True)
    list(catalogue.refresh())
    assert one(catalogue.offers(), "Standard_D2s_v5", "westeurope").price_per_hour == 0.115
    spot = one(catalogue.offers(), "Standard_D2s_v5", "westeurope", spot=True)
    assert (spot.price_per_hour, spot.vcpu, spot.memory_gib) == (0.02, 2, 8)


def test_azure_goes_on_after_a_rate_limit(endpoint: Any, answer: Any, tmp_path: Path) -> None:
    endpoint.sequence(
        answer(status=429, headers={"Retry-After": "0"}), answer(azure_page([azure_item("Standard_D2s_v5", 0.1)]))
    )
    catalogue = make("azure", tmp_path, endpoint.url, regions=["eastus"])
    list(catalogue.refresh())
    assert one(catalogue.offers(), "Standard_D2s_v5", "eastus").price_per_hour == 0.1


def test_azure_a_broken_second_page_keeps_the_old_prices(endpoint: Any, answer: Any, tmp_path: Path) -> None:
    first = azure_page([azure_item("Standard_D2s_v5", 9.9)], f"{endpoint.url}/api/retail/prices?$skip=1")
    endpoint.sequence(answer(first), answer(first[: len(first) // 2]))
    catalogue = make("azure", tmp_path, endpoint.url, regions=["eastus"])
    with pytest.raises(FetchError, match="breaks off"):
        list(catalogue.refresh())
    assert unchanged(catalogue)


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ('{"Count": 0}', "without 'Items'"),
        ('{"Items": 3}', "without 'Items'"),
        ('{"Items": [3]}', "without 'Items'"),
        (azure_page([]), "no usable price"),
        (azure_page([{k: v for k, v in azure_item("x", 1).items() if k != "retailPrice"}]), "no 'retailPrice'"),
        (azure_page([azure_item("x", 1)], "https://elsewhere.example/prices"), "another host"),
        (azure_page([azure_item("x", 1)], "http://[broken"), "another host"),
        (json.dumps({"Items": [], "NextPageLink": 7}), "another host"),
        ("<html>", "an HTML page"),
    ],
)
def test_azure_wrong_answers(endpoint: Any, answer: Any, tmp_path: Path, page: str, words: str) -> None:
    endpoint.sequence(answer(page))
    catalogue = make("azure", tmp_path, endpoint.url, regions=["eastus"])
    with pytest.raises(FetchError, match=words) as caught:
        list(catalogue.refresh())
    assert "\n" not in str(caught.value)
    assert unchanged(catalogue)


def test_azure_pages_without_end(endpoint: Any, answer: Any, tmp_path: Path) -> None:
    endpoint.sequence(answer(azure_page([azure_item("x", 1)], f"{endpoint.url}/api/retail/prices?page=2")))
    with pytest.raises(FetchError, match="without end"):
        list(make("azure", tmp_path, endpoint.url, regions=["eastus"]).refresh())
    assert len(endpoint.asked) == 2


def test_azure_region_is_not_pasted_into_the_query(endpoint: Any, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="is no region"):
        list(make("azure", tmp_path, endpoint.url, regions=["x' or 1 eq 1"]).refresh())
    assert endpoint.asked == []


# ---------------------------------------------------------------------------------------------------- Google


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("GOOGLE_API_KEY", "key-123")
    return "key-123"


def test_gcp_adds_up_machine_types(endpoint: Any, answer: Any, tmp_path: Path, key: str) -> None:
    endpoint.sequence(
        answer(
            gcp_page(
                [
                    gcp_sku("N2 Instance Core running in Americas", 32_000_000),
                    gcp_sku("N2 Custom Instance Core running in Americas", 99_000_000),
                    gcp_sku("N2 Sole Tenancy Instance Core running in Americas", 99_000_000),
                    gcp_sku("Spot Preemptible N2 Instance Core running in Americas", 8_000_000, usage="Preemptible"),
                    gcp_sku("Commitment v1: N2 Cpu in Americas for 1 Year", 20_000_000, usage="Commit1Yr"),
                    gcp_sku("Compute optimized Core running in Americas", 40_000_000),
                    gcp_sku("N1 Predefined Instance Core running in Americas", 0),
                    gcp_sku("Network Egress", 1, serviceRegions=["global"]),
                ],
                "more",
            )
        ),
        answer(
            gcp_page(
                [
                    gcp_sku("N2 Instance Ram running in Americas", 4_000_000),
                    gcp_sku("Spot Preemptible N2 Instance Ram running in Americas", 1_000_000, usage="Preemptible"),
                    gcp_sku("N1 Predefined Instance Ram running in Americas", 4_000_000),
                    gcp_sku("N2D AMD Instance Ram running in Milan", 4_000_000, serviceRegions=["europe-west8"]),
                ]
            )
        ),
    )
    catalogue = make("gcp", tmp_path, endpoint.url, regions=["us-central1", "asia-east1"], spot=True)
    list(catalogue.refresh())
    assert [query["pageToken"] for _, query in endpoint.asked] == ["", "more"]
    assert endpoint.asked[0][0] == "/v1/services/6F81-5844-456A/skus"
    assert endpoint.asked[0][1]["key"] == key
    offers = catalogue.offers()
    assert one(offers, "n2-standard-4", "us-central1").price_per_hour == pytest.approx(4 * 0.032 + 16 * 0.004)
    assert one(offers, "n2-highmem-2", "asia-east1").price_per_hour == pytest.approx(2 * 0.032 + 16 * 0.004)
    assert one(offers, "n2-standard-4", "us-central1", spot=True).price_per_hour == pytest.approx(0.048)
    shipped = catalogue.shipped()
    for name in ("c2-standard-4", "n1-standard-1"):  # memory was not among the prices, and a price of 0 is unknown
        assert one(offers, name, "us-central1") == one(shipped, name, "us-central1")
    assert not any(o.region == "europe-west8" for o in offers)


def test_gcp_without_spot(endpoint: Any, answer: Any, tmp_path: Path, key: str) -> None:
    parts = [("Core", 8_000_000), ("Ram", 1_000_000)]
    endpoint.sequence(
        answer(
            gcp_page(
                [gcp_sku(f"Spot Preemptible E2 Instance {p} running in X", n, usage="Preemptible") for p, n in parts]
            )
        )
    )
    with pytest.raises(FetchError, match="no usable price"):
        list(make("gcp", tmp_path, endpoint.url).refresh())


@pytest.mark.parametrize("reference", ["env:NO_SUCH_KEY_HERE", "file:/no/such/file", "file:EMPTY"])
def test_gcp_without_a_key(endpoint: Any, tmp_path: Path, reference: str) -> None:
    (tmp_path / "empty").write_text("\n")
    catalogue = make("gcp", tmp_path, endpoint.url, key=reference.replace("EMPTY", str(tmp_path / "empty")))
    with pytest.raises(MissingProgramError, match="API key"):
        list(catalogue.refresh())
    assert endpoint.asked == []


def test_gcp_key_in_a_file_stays_out_of_errors(endpoint: Any, answer: Any, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("file-secret\n")
    endpoint.sequence(answer('{"error": {"code": 403, "message": "API key not valid"}}', status=403))
    with pytest.raises(FetchError, match="the key is wrong") as caught:
        list(make("gcp", tmp_path, endpoint.url, key=f"file:{tmp_path / 'key'}").refresh())
    assert endpoint.asked[0][1]["key"] == "file-secret"
    assert "file-secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("{}", "without 'skus'"),
        ('{"skus": [1]}', "without 'skus'"),
        (gcp_page([]), "no usable price"),
        (gcp_page([{"skuId": "S-1"}]), "the price S-1 is not in the known form"),
        (gcp_page([gcp_sku("N2 Instance Core running in X", 1, pricingInfo=[])]), "not in the known form"),
        (gcp_page([], "again"), "without end"),
    ],
)
def test_gcp_wrong_answers(endpoint: Any, answer: Any, tmp_path: Path, key: str, page: str, words: str) -> None:
    endpoint.sequence(answer(page))
    catalogue = make("gcp", tmp_path, endpoint.url)
    with pytest.raises(FetchError, match=words):
        list(catalogue.refresh())
    assert unchanged(catalogue)


# ---------------------------------------------------------------------------------------------------- kept prices


def offer(**changes: Any) -> Offer:
    plain = {"provider": "aws", "instance_type": "m5.large", "vcpu": 2, "memory_gib": 8, "price_per_hour": 0.1}
    return Offer(**{**plain, **changes})


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", '{"version": 1}', '{"version": 9, "offers": []}', '{"version": 1, "offers": [{"a": 1}]}', "\xff",
        json.dumps({"version": 1, "offers": [{**offer().to_json(), "price_per_hour": 0}]}),
    ],
)  # fmt: skip
def test_a_damaged_file_is_one_line_with_a_way_out(tmp_path: Path, text: str) -> None:
    (tmp_path / "prices").mkdir()
    (tmp_path / "prices" / "aws.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(CatalogueError, match="tradewind offers refresh") as caught:
        make("aws", tmp_path, "").offers()
    assert str(tmp_path) in str(caught.value)


def test_a_refresh_replaces_a_damaged_file(endpoint: Any, answer: Any, tmp_path: Path) -> None:
    (tmp_path / "prices").mkdir()
    (tmp_path / "prices" / "azure.json").write_text("{")
    endpoint.sequence(answer(azure_page([azure_item("Standard_D2s_v5", 0.1)])))
    catalogue = make("azure", tmp_path, endpoint.url, regions=["eastus"])
    assert any("which could not be read" in line for line in list(catalogue.refresh()))
    assert one(catalogue.offers(), "Standard_D2s_v5", "eastus").price_per_hour == 0.1


def test_a_region_without_an_answer_keeps_its_prices(endpoint: Any, answer: Any, tmp_path: Path) -> None:
    endpoint.sequence(answer(azure_page([azure_item("Standard_D2s_v5", 0.5, armRegionName="westus2")])))
    list(make("azure", tmp_path, endpoint.url, regions=["westus2"]).refresh())
    endpoint.sequence(answer(azure_page([azure_item("Standard_D2s_v5", 0.4)])))
    catalogue = make("azure", tmp_path, endpoint.url, regions=["eastus", "westus2"])
    assert any("no price for westus2" in line for line in list(catalogue.refresh()))
    assert one(catalogue.offers(), "Standard_D2s_v5", "westus2").price_per_hour == 0.5
    assert one(catalogue.offers(), "Standard_D2s_v5", "eastus").price_per_hour == 0.4


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "prices" / "aws.json"
    price_list.write_prices(path, [offer()])
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreFullError, match="cannot be written"):
        price_list.write_prices(path, [offer(price_per_hour=0.2)])
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["aws.json"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_folder(tmp_path: Path) -> None:
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(StoreReadOnlyError):
        price_list.write_prices(tmp_path / "prices" / "aws.json", [offer()])


def test_a_folder_that_may_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(30, os.strerror(30))

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(StoreReadOnlyError, match="the old prices stay"):
        price_list.write_prices(tmp_path / "prices" / "aws.json", [offer()])
