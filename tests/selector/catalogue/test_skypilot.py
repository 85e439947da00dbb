from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.selector.catalogue.others_lists import write_skypilot

from tradewind import plugins
from tradewind.errors import CatalogueError
from tradewind.problem import Offer


def sold(path: Path | None) -> dict[str, Offer]:
    given: dict[str, Any] = {"path": str(path)} if path else {}
    offers = plugins.create("catalogue", "skypilot", given, data_folder=Path("none")).offers()
    return {offer.key: offer for offer in offers}


def test_the_lists_of_the_newest_version(tmp_path: Path) -> None:
    found = sold(write_skypilot(tmp_path))
    assert sorted(found) == [
        "aws/eu-central-1/c7i.largex1", "aws/us-east-1/c7i.large/spotx1", "aws/us-east-1/c7i.largex1",
        "aws/us-east-1/m7g.xlargex1", "aws/us-east-1/p3.2xlargex1", "aws/us-east-1/t3.smallx1",
        "azure/eastus/Standard_B2pls_v2/spotx1", "azure/eastus/Standard_B2pls_v2x1", "azure/eastus/Standard_E4s_v5x1",
        "azure/eastus/Standard_NV6ads_A10_v5x1", "gcp/europe-west1/n2-highmem-4/spotx1",
        "gcp/europe-west1/n2-highmem-4x1", "vast/Belgium, BE, EU/1x-A40-32-65536x1",
    ]  # fmt: skip
    assert found["aws/us-east-1/c7i.largex1"] == Offer(
        "aws", "c7i.large", 2.0, 4.0, 0.08925, "us-east-1", "compute", "c7i", "x86_64",
        price_date="2026-11-18", source="SkyPilot catalog",
    )  # fmt: skip
    assert sold(tmp_path / "v10") == found


def test_spot_stands_at_its_cheapest_zone(tmp_path: Path) -> None:
    offer = sold(write_skypilot(tmp_path))["aws/us-east-1/c7i.large/spotx1"]
    assert (offer.price_per_hour, dict(offer.facts)) == (0.035, {"zone": "use1-az2"})


def test_what_names_say(tmp_path: Path) -> None:
    found = {offer.instance_type: offer for offer in sold(write_skypilot(tmp_path)).values()}
    assert {name: (offer.category, offer.arch) for name, offer in found.items()} == {
        "c7i.large": ("compute", "x86_64"), "m7g.xlarge": ("general", "arm64"), "t3.small": ("burstable", "x86_64"),
        "p3.2xlarge": ("accelerated", "x86_64"), "Standard_B2pls_v2": ("burstable", "arm64"),
        "Standard_E4s_v5": ("memory", "x86_64"), "Standard_NV6ads_A10_v5": ("accelerated", "x86_64"),
        "n2-highmem-4": ("memory", "x86_64"), "1x-A40-32-65536": ("accelerated", ""),
    }  # fmt: skip
    assert found["p3.2xlarge"].gpus == 1
    assert dict(found["Standard_NV6ads_A10_v5"].facts) == {"accelerator": "A10", "accelerator_share": 0.1666}


@pytest.mark.parametrize(
    ("cloud", "name", "arch"),
    [
        ("aws", "a1.large", "arm64"), ("aws", "im4gn.large", "arm64"), ("aws", "x2gd.large", "arm64"),
        ("aws", "hpc7g.4xlarge", "arm64"), ("aws", "g4dn.xlarge", "x86_64"), ("aws", "g5g.xlarge", "arm64"),
        ("aws", "u-6tb1.metal", "x86_64"), ("aws", "mac2.metal", ""), ("azure", "Standard_D2ps_v5", "arm64"),
        ("azure", "Standard_D16pds_v6", "arm64"), ("azure", "Standard_D2s_v5", "x86_64"),
        ("azure", "Standard_NP10s", "x86_64"), ("gcp", "t2a-standard-1", "arm64"), ("gcp", "c4-standard-2", "x86_64"),
        ("lambda", "gpu_1x_gh200", ""),
    ],
)  # fmt: skip
def test_architectures_of_types(tmp_path: Path, cloud: str, name: str, arch: str) -> None:
    (tmp_path / cloud).mkdir()
    header = "InstanceType,vCPUs,MemoryGiB,Price,Region"
    (tmp_path / cloud / "vms.csv").write_text(f"{header}\n{name},2,8,0.1,r\n")
    assert [offer.arch for offer in sold(tmp_path).values()] == [arch]


def test_a_column_says_the_architecture_before_the_name(tmp_path: Path) -> None:
    (tmp_path / "aws").mkdir()
    (tmp_path / "aws/vms.csv").write_text("InstanceType,vCPUs,MemoryGiB,Price,Region,Arch\nm9.large,2,8,1,r,arm64\n")
    assert [offer.arch for offer in sold(tmp_path).values()] == ["arm64"]


def test_the_usual_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write_skypilot(tmp_path / ".sky/catalogs")
    assert len(sold(None)) == 13


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no column 'InstanceType'"),
        ("InstanceType,vCPUs,MemoryGiB,Region\n", "has no column 'Price'"),
        ("InstanceType,vCPUs,MemoryGiB,Price,Region\na,2,8,1,r\nb,two,8,1,r\n", "vms.csv:3: .*'two'"),
        ("InstanceType,vCPUs,MemoryGiB,Price,Region\na,2\n", "vms.csv:2: has too few cells"),
        ('InstanceType,vCPUs,MemoryGiB,Price,Region\n"a', "vms.csv:"),
    ],
)
def test_lists_that_cannot_be_read(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "aws").mkdir()
    (tmp_path / "aws/vms.csv").write_text(text)
    with pytest.raises(CatalogueError, match=words):
        sold(tmp_path)


def test_a_folder_without_lists(tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match=r"has no list CLOUD/vms.csv .*sky check"):
        sold(tmp_path / "none")
