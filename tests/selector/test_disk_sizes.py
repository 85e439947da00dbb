"""How much disk a machine has, as each list writes it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.selector.catalogue.others_lists import VANTAGE, write_sparecores, write_vantage
from tests.selector.catalogue.price_answers import AWS_COLUMNS, aws_csv, aws_row, aws_serve
from tests.selector.conftest import Answer, Endpoint

from tradewind import plugins
from tradewind.errors import CatalogueError
from tradewind.problem import Offer
from tradewind.selector.disk_sizes import disk_facts, disk_size

GB = 1e9


def sold(catalogue: str, data_folder: Path = Path("none"), **settings: Any) -> dict[str, Offer]:
    offers = plugins.create("catalogue", catalogue, settings, data_folder=data_folder).offers()
    return {offer.instance_type: offer for offer in offers}


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("80", 80 * GB), ("80 GB", 80 * GB), ("80GiB", 80 * 2**30), ("1.9 TB", 1900 * GB), ("1,900", 1900 * GB),
        ("2 x 1900 NVMe SSD", 3800 * GB), ("1 x 75 NVMe SSD", 75 * GB), ("75 GB NVMe", 75 * GB), ("0", 0.0),
        ("EBS only", None), ("", None), ("NA", None), ("-5", None), ("ssd", None), ("80 kB", None), ("1.2.3", None),
        ("nan", None), ("inf", None), ("9" * 40, None),
    ],
)  # fmt: skip
def test_sizes_of_disks(written: str, size: float | None) -> None:
    assert disk_size(written) == size


@pytest.mark.parametrize("size", [None, 0.0, -1.0, float("inf"), float("nan")])
def test_what_says_nothing_is_no_fact(size: float | None) -> None:
    """Lists write 0 for a machine without a disk of its own, which is given one of any size."""
    assert disk_facts(size) == {}


def test_sparecores_and_vantage_know_the_stores_of_machines(tmp_path: Path) -> None:
    path = write_sparecores(tmp_path / "sc.db")
    assert all("disk_gib" not in offer.facts for offer in sold("sparecores", path=str(path)).values())
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("ALTER TABLE server ADD COLUMN storage_size INTEGER NOT NULL DEFAULT 0")
        database.execute("UPDATE server SET storage_size = 75 WHERE server_id = 'm7g.xlarge'")
    found = sold("sparecores", path=str(path))
    assert found["m7g.xlarge"].facts == {"disk_gib": 69.849}
    assert "disk_gib" not in found["c7i.large"].facts
    storage = {"devices": 2, "size": 1900, "size_unit": "GB", "nvme_ssd": True}
    entries = [{**VANTAGE[0], "storage": storage}, {**VANTAGE[1], "storage": None}]
    listed = sold("vantage", path=str(write_vantage(tmp_path / "instances.json", entries)))
    assert listed["m7g.xlarge"].facts == {"disk_gib": 3539.026}
    assert listed["t3.small"].facts == {}


@pytest.mark.parametrize(
    ("column", "cell", "gib"),
    [
        ("Disk GiB", "100", 100.0), ("disk_gib", "100 GB", 93.132), ("Disk GiB", "0", 0.0), ("Disk GiB", "", None),
        ("Disk", "100", 100.0), ("Disk (GB)", "100", 93.132), ("Storage", "2 x 1900 NVMe SSD", 3539.026),
        ("Local Storage GB", "75", 69.849), ("Disk size in TB", "1.9", 1769.513), ("Storage", "EBS only", None),
        ("Storage price", "0.08", None), ("Storage type", "2", None),
    ],
)  # fmt: skip
def test_a_column_of_the_users_list(tmp_path: Path, column: str, cell: str, gib: float | None) -> None:
    path = tmp_path / "own.csv"
    path.write_text(f"API Name,Provider,CPU,Memory,Category,Price,{column}\nm5.large,aws,2,8,general,0.1,{cell}\n")
    fact = sold("csv", path=str(path))["m5.large"].facts.get("disk_gib")
    assert fact == (None if gib is None else pytest.approx(gib, abs=1e-3))


def test_a_disk_that_is_no_size_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("API Name,Provider,CPU,Memory,Category,Price,Disk GiB\nm5.large,aws,2,8,general,0.1,large\n")
    with pytest.raises(CatalogueError, match=r"own\.csv:2: Disk GiB 'large' is no size"):
        sold("csv", path=str(path))


def test_refreshed_prices_of_aws_have_the_instance_store(tmp_path: Path, endpoint: Endpoint) -> None:
    rows = [aws_row("m5d.large", "0.113", Storage="1 x 75 NVMe SSD"), aws_row("m5.large", "0.1", Storage="EBS only")]
    aws_serve(endpoint, Answer, aws_csv(*rows, columns=[*AWS_COLUMNS, "Storage"]))
    given = {"base_url": endpoint.url, "regions": ["us-east-1"], "wait": 0.0}
    catalogue = plugins.create("catalogue", "aws", given, data_folder=tmp_path)
    assert [*catalogue.refresh()]
    found = {o.instance_type: o for o in catalogue.offers() if o.region == "us-east-1"}
    assert found["m5d.large"].facts["disk_gib"] == 69.849
    assert "disk_gib" not in found["m5.large"].facts


def test_this_machine_has_its_file_system(tmp_path: Path) -> None:
    """The same for each slice, and at each look."""
    facts = [offer.facts["disk_gib"] for offer in sold("local", tmp_path / "not" / "there", vcpu=2).values()]
    assert len(set(facts)) == 1
    assert isinstance(facts[0], float) and facts[0] > 0
