"""The scripts that write the shipped price tables, on answers and packages in the form of the real ones."""

from __future__ import annotations

import datetime
import gzip
import json
import sqlite3
import zipfile
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.selector.catalogue.price_answers import (
    aws_csv,
    aws_row,
    aws_serve,
    azure_item,
    azure_page,
    gcp_page,
    gcp_sku,
)
from tools.prices import age, aws, azure, gcp
from tools.prices.table import main, table_text

from tradewind.problem import Offer
from tradewind.selector.catalogue.shipped_prices import read_table

READ = 1_740_936_978
"""2025-03-02, as `pricing.json` of apache-libcloud writes it."""


def write_wheel(folder: Path, name: str, members: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(folder / f"{name}-py3-none-any.whl", "w") as archive:
        for member, content in members.items():
            archive.writestr(member, content)


def write_libcloud(folder: Path, **compute: Any) -> None:
    document = json.dumps({"updated": READ, "compute": compute}).encode()
    write_wheel(folder, "apache_libcloud-3.9.1", {"libcloud/data/pricing.json": document})


def write_cloudwright(folder: Path, provider: str, region: str, prices: Mapping[str, float]) -> None:
    path = folder / "catalog.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(
            """
            CREATE TABLE instance_types (id TEXT PRIMARY KEY, provider_id TEXT NOT NULL, name TEXT NOT NULL);
            CREATE TABLE pricing (instance_type_id TEXT, region_id TEXT, os TEXT, price_per_hour REAL, price_type TEXT);
            CREATE TABLE catalog_metadata (key TEXT PRIMARY KEY, value TEXT NOT NULL, updated_at TEXT NOT NULL);
            """
        )
        database.execute(
            "INSERT INTO catalog_metadata VALUES (?, '2', '2026-02-27T14:56:37.486386+00:00')",
            (f"refresh:{provider}:instances",),
        )
        for name, price in prices.items():
            kind = f"{provider}:{name}"
            database.execute("INSERT INTO instance_types VALUES (?, ?, ?)", (kind, provider, name))
            for system, usd in (("linux", price), ("windows", 2 * price)):
                row = (kind, f"{provider}:{region}", system, usd, "on_demand")
                database.execute("INSERT INTO pricing VALUES (?, ?, ?, ?, ?)", row)
    write_wheel(folder, "cloudwright_ai-1.10.0", {"cloudwright/data/catalog.db": path.read_bytes()})
    path.unlink()


def described(vcpu: int, mib: int, arch: str = "x86_64", **more: Any) -> dict[str, Any]:
    """A machine type as AWS describes it."""
    return {
        "VCpuInfo": {"DefaultVCpus": vcpu},
        "MemoryInfo": {"SizeInMiB": mib},
        "ProcessorInfo": {"SupportedArchitectures": ["i386", arch]},
        **more,
    }


def gpu(name: str, count: int, mib: int) -> dict[str, Any]:
    return {"GpuInfo": {"Gpus": [{"Count": count, "Name": name, "MemoryInfo": {"SizeInMiB": mib}}]}}


AWS_TYPES = {
    "m5.large": described(2, 8192),
    "m5.xlarge": described(4, 16384),
    "m5.2xlarge": described(8, 32768),
    "m5.4xlarge": described(16, 65536),
    "m5.metal": described(96, 393216),
    "t4g.nano": described(2, 512, "arm64"),
    "p4de.24xlarge": described(96, 1179648, **gpu("A100", 8, 81920)),
    "g6f.large": described(2, 8192, **gpu("L4", 0, 5722)),
    "mac2.metal": described(8, 16384, "arm64_mac"),
    "f2.6xlarge": described(24, 262144, FpgaInfo={"Fpgas": [{"Count": 1, "Name": "VU47P"}]}),
}
AWS_HOME = {
    "m5.large": 0.096,
    "m5.xlarge": 0.192,
    "m5.2xlarge": 0.384,
    "m5.4xlarge": 0.768,
    "m5.metal": 4.608,
    "t4g.nano": 0.0042,
    "p4de.24xlarge": 27.44705,
    "g6f.large": 0.2,
    "mac2.metal": 0.65,
    "f2.6xlarge": 1.98,
    "p3.2xlarge": 3.06,
    "unheard.of": 1.0,
}


def aws_packages(folder: Path, eu_west_1: Mapping[str, float]) -> Path:
    write_cloudwright(folder, "aws", "us-east-1", AWS_HOME)
    types = gzip.compress(json.dumps(AWS_TYPES).encode())
    write_wheel(folder, "moto-5.2.5", {"moto/ec2/resources/instance_types.json.gz": types})
    write_libcloud(folder, ec2_linux={name: {"eu-west-1": price} for name, price in eu_west_1.items()})
    return folder


def written(folder: Path, provider: str) -> dict[tuple[str, str], Offer]:
    return {(offer.instance_type, offer.region): offer for offer in read_table(folder / f"{provider}.csv")}


def test_aws_from_packages(tmp_path: Path) -> None:
    # m5.xlarge costs nothing and m5.2xlarge as much as a dedicated machine, which are the faults of the real list.
    listed = {"m5.large": 0.107, "m5.xlarge": 0.0, "m5.2xlarge": 0.471, "m5.4xlarge": 0.856, "m5.metal": 5.136}
    listed |= {"t4g.nano": 0.0046, "p4de.24xlarge": 30.0}
    packages = aws_packages(tmp_path, listed)
    assert main("aws", aws.from_packages, ["--packages", str(packages), "--folder", str(tmp_path)]) == 0
    found = written(tmp_path, "aws")
    home = {name: offer for (name, region), offer in found.items() if region == "us-east-1"}
    assert set(home) == {"m5.large", "m5.xlarge", "m5.2xlarge", "m5.4xlarge", "t4g.nano", "p4de.24xlarge", "p3.2xlarge"}
    assert home["m5.large"] == Offer(
        "aws", "m5.large", 2.0, 8.0, 0.096, "us-east-1", "general", "m5", "x86_64",
        price_date="2026-02-27", source="cloudwright-ai 1.10.0",
    )  # fmt: skip
    assert (home["t4g.nano"].arch, home["t4g.nano"].category, home["t4g.nano"].memory_gib) == (
        "arm64", "burstable", 0.5,
    )  # fmt: skip
    assert (home["p4de.24xlarge"].gpus, dict(home["p4de.24xlarge"].facts)) == (8, {"accelerator": "A100-80GB"})
    abroad = {
        name: (offer.price_per_hour, offer.source) for (name, region), offer in found.items() if region == "eu-west-1"
    }
    source = "apache-libcloud 3.9.1"
    assert abroad == {
        "m5.large": (0.107, source),
        "m5.xlarge": (0.214, f"{source} (family)"),
        "m5.2xlarge": (0.428, f"{source} (family)"),
        "m5.4xlarge": (0.856, source),
    }, "a family of which no three sizes agree is left out"
    assert found["m5.large", "eu-west-1"].price_date == "2025-03-02"


def test_azure_from_packages_and_typed_where_there_are_none(tmp_path: Path) -> None:
    write_libcloud(tmp_path, azure_linux={"standardd2sv3": {"eastus": 0.111, "eastus2": 0.0}})
    assert main("azure", azure.from_packages, ["--packages", str(tmp_path), "--folder", str(tmp_path)]) == 0
    found = written(tmp_path, "azure")
    size = found["Standard_D2s_v3", "eastus"]
    assert (size.price_per_hour, size.source, size.price_date) == (0.111, "apache-libcloud 3.9.1", "2025-03-02")
    assert (size.vcpu, size.memory_gib, size.family) == (2.0, 8.0, "Ds_v3")
    for place in (("Standard_D2s_v3", "eastus2"), ("Standard_D2s_v5", "eastus")):
        assert found[place].source == "typed from azure.microsoft.com"
        assert found[place].price_date == "2026-06-01"


def test_gcp_from_packages_adds_vcpus_and_memory_up(tmp_path: Path) -> None:
    def part(**regions: tuple[float, str]) -> dict[str, Any]:
        return {"on_demand": {name.replace("_", "-"): {"price": p, "sku": s} for name, (p, s) in regions.items()}}

    families = {
        "e2": {"cpu": part(us_central1=(0.02, "A-1")), "ram": part(us_central1=(0.003, "A-2"))},
        "n1": {
            "cpu": part(us_central1=(0.03, "B-1"), europe_west1=(0.033, "B-3")),
            "ram": part(us_central1=(0.004, "B-2"), europe_west1=(0.0, "B-4")),
        },
        "f1": {"cpu": part(us_central1=(0.0076, "C-1"))},
    }
    write_libcloud(tmp_path, gce_instances=families)
    write_cloudwright(tmp_path, "gcp", "us-central1", {"A-1": 0.022, "A-2": 0.0029, "B-1": 0.5})
    assert main("gcp", gcp.from_packages, ["--packages", str(tmp_path), "--folder", str(tmp_path)]) == 0
    found = written(tmp_path, "gcp")
    newer = found["e2-standard-2", "us-central1"]
    assert newer.price_per_hour == pytest.approx(2 * 0.022 + 8 * 0.0029)
    assert (newer.source, newer.price_date, newer.family) == ("cloudwright-ai 1.10.0", "2026-02-27", "e2")
    assert found["e2-standard-2", "us-east1"].price_per_hour == newer.price_per_hour, "the SKU is that of the Americas"
    assert found["e2-micro", "us-west1"].price_per_hour == pytest.approx(0.25 * 0.022 + 0.0029)
    older = found["n1-standard-1", "us-central1"]
    assert older.price_per_hour == pytest.approx(0.03 + 3.75 * 0.004), "both parts are of one source"
    assert (older.source, older.price_date) == ("apache-libcloud 3.9.1", "2025-03-02")
    assert found["f1-micro", "us-central1"].price_per_hour == 0.0076
    for place in (("n1-standard-1", "europe-west1"), ("c3-standard-4", "us-central1")):
        assert found[place].source == "typed from cloud.google.com"


def test_a_missing_package_is_named_with_the_command_that_brings_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main("aws", aws.from_packages, ["--packages", str(tmp_path), "--folder", str(tmp_path)]) == 1
    assert "has no wheel of cloudwright-ai" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def known_machine(provider: str, name: str, region: str, **changes: Any) -> Offer:
    plain = {"category": "general", "arch": "x86_64", "price_date": "2025-01-01", "source": "before"}
    return Offer(provider, name, 2.0, 8.0, 0.5, region, **{**plain, **changes})


def test_aws_from_its_price_list(endpoint: Any, answer: Any, tmp_path: Path) -> None:
    places = (("m5.large", "us-east-1"), ("m4.large", "us-east-1"), ("m5.large", "us-west-2"))
    old = [known_machine("aws", name, region) for name, region in places]
    (tmp_path / "aws.csv").write_text(table_text(old))
    aws_serve(endpoint, answer, aws_csv(aws_row("m5.large", "0.0960000000")))
    given = ["--base-url", endpoint.url, "--region", "us-east-1", "--folder", str(tmp_path)]
    assert main("aws", aws.from_packages, given) == 0
    found = written(tmp_path, "aws")
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    fresh = found["m5.large", "us-east-1"]
    assert (fresh.price_per_hour, fresh.price_date, fresh.source) == (0.096, today, "127.0.0.1")
    assert ("m4.large", "us-east-1") not in found, "it is no longer sold there"
    assert found["m5.large", "us-west-2"].source == "before", "another region keeps its rows"


def test_azure_from_its_price_api(endpoint: Any, answer: Any, tmp_path: Path) -> None:
    (tmp_path / "azure.csv").write_text(table_text([known_machine("azure", "Standard_D2s_v5", "eastus")]))
    endpoint.script = lambda path, query: answer(azure_page([azure_item("Standard_D2s_v5", 0.0965)]))
    given = ["--base-url", endpoint.url, "--region", "eastus", "--folder", str(tmp_path)]
    assert main("azure", azure.from_packages, given) == 0
    fresh = written(tmp_path, "azure")["Standard_D2s_v5", "eastus"]
    assert (fresh.price_per_hour, fresh.source, fresh.vcpu) == (0.0965, "prices.azure.com", 2.0)


def test_gcp_from_its_catalogue(endpoint: Any, answer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", "secret")
    old = [known_machine("gcp", name, "us-central1") for name in ("n2-standard-2", "a2-highgpu-1g")]
    (tmp_path / "gcp.csv").write_text(table_text(old))
    skus = [
        gcp_sku("N2 Instance Core running in Americas", 31_000_000),
        gcp_sku("N2 Instance Ram running in Americas", 4_000_000),
    ]
    endpoint.script = lambda path, query: answer(gcp_page(skus))
    given = ["--base-url", endpoint.url, "--region", "us-central1", "--folder", str(tmp_path)]
    assert main("gcp", gcp.from_packages, given) == 0
    fresh = written(tmp_path, "gcp")["n2-standard-2", "us-central1"]
    assert fresh.price_per_hour == pytest.approx(2 * 0.031 + 8 * 0.004)
    assert fresh.memory_gib == 8.0
    assert written(tmp_path, "gcp")["a2-highgpu-1g", "us-central1"].source == "before", "it has a price of its own"
    assert "secret" not in (tmp_path / "gcp.csv").read_text()


def test_an_api_that_does_not_answer_leaves_the_table(
    endpoint: Any, answer: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    endpoint.script = lambda path, query: answer("no", status=403)
    before = table_text([known_machine("azure", "Standard_D2s_v5", "eastus")])
    (tmp_path / "azure.csv").write_text(before)
    assert main("azure", azure.from_packages, ["--base-url", endpoint.url, "--folder", str(tmp_path)]) == 1
    assert "403" in capsys.readouterr().out
    assert (tmp_path / "azure.csv").read_text() == before


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    offers = [
        known_machine("aws", "m5.large", "us-east-2"),
        known_machine("aws", "m5.large", "us-east-1"),
        known_machine("aws", "m5.large", "eu-west-1", price_date="2025-02-01", source="a, b"),
        known_machine("aws", "g5.xlarge", "us-east-1", category="accelerated", gpus=1, facts={"accelerator": "A10G"}),
    ]
    (tmp_path / "aws.csv").write_text(table_text(offers))
    assert len((tmp_path / "aws.csv").read_text().splitlines()) == 4
    found = read_table(tmp_path / "aws.csv")
    assert sorted(offer.key for offer in found) == sorted(offer.key for offer in offers)
    assert {offer.family for offer in found} == {"m5", "g5"}
    assert table_text(found) == table_text(offers)


def test_a_release_fails_when_prices_are_too_old(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    today = datetime.datetime.now(datetime.UTC).date()
    for provider, days in (("aws", 100), ("gcp", 10)):
        date = (today - datetime.timedelta(days=days)).isoformat()
        offer = known_machine(provider, "m5.large", "us-east-1", price_date=date, source=f"list of {provider}")
        (tmp_path / f"{provider}.csv").write_text(table_text([offer]))
    assert age.main(["--folder", str(tmp_path), "--most-days", "100"]) == 0
    assert "100 days" in capsys.readouterr().out
    assert age.main(["--folder", str(tmp_path), "--most-days", "99"]) == 1
    out, error = capsys.readouterr()
    assert "list of gcp" in out
    assert "1 price older than 99 days (aws)" in error
