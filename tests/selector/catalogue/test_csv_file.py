from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tradewind import plugins
from tradewind.errors import CatalogueError, SpecError
from tradewind.problem import Offer
from tradewind.problem.offer import hourly_interruptions

HEADER = "API Name,Provider,CPU,Memory,Category,Price\n"
ROW = "m5.large,AWS,2,8,General purpose,0.096\n"


def read(tmp_path: Path, text: str | bytes) -> list[Offer]:
    path = tmp_path / "own.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return list(plugins.create("catalogue", "csv", {"path": str(path)}, data_folder=tmp_path / "data").offers())


def test_the_form_of_the_paper(tmp_path: Path) -> None:
    [offer] = read(tmp_path, HEADER + ROW)
    assert offer == Offer(
        "aws", "m5.large", vcpu=2, memory_gib=8, price_per_hour=0.096, category="general",
        source=str(tmp_path / "own.csv"),
    )  # fmt: skip


@pytest.mark.parametrize(
    "header",
    [
        "API Name (string),Provider (string),CPU (float),Memory (float),Category (string),Price (float)",
        "api_name,provider,number_of_vcpus,amount_of_memory,category,hourly_cost",
        "Instance Name,Cloud Provider,vCPU count,Memory in GB,Machine Category,Price ($/hr)",
        "SKU,CSP,Cores,RAM (GiB),Category,Cost per hour",
        "NAME,VENDOR,VCPUS,MEM,CATEGORY,ON-DEMAND PRICE",
    ],
)
def test_columns_go_by_their_usual_words(tmp_path: Path, header: str) -> None:
    [offer] = read(tmp_path, header + "\nm5.large,AWS,2,8,Memory optimized,0.096\n")
    assert (offer.instance_type, offer.provider, offer.vcpu, offer.memory_gib) == ("m5.large", "aws", 2.0, 8.0)
    assert (offer.category, offer.price_per_hour, dict(offer.facts)) == ("memory", 0.096, {})


def test_a_further_word_is_a_fact_where_the_column_has_its_own_name(tmp_path: Path) -> None:
    [offer] = read(tmp_path, "API Name,Provider,CPU,Memory,Category,Price,Cores,Cost\na,b,2,8,general,0.1,4,9\n")
    assert (offer.vcpu, offer.price_per_hour) == (2.0, 0.1)
    assert dict(offer.facts) == {"cores": 4.0, "cost": 9.0}


@pytest.mark.parametrize(
    ("written", "arch"),
    [
        ("AMD64", "x86_64"), ("x86-64", "x86_64"), ("X64", "x86_64"), ("Intel 64", "x86_64"), ("x86_64", "x86_64"),
        ("aarch64", "arm64"), ("ARM64", "arm64"), ("arm64v8", "arm64"), ("", ""), ("RISCV64", "riscv64"),
    ],
)  # fmt: skip
def test_an_architecture_has_many_names(tmp_path: Path, written: str, arch: str) -> None:
    [offer] = read(tmp_path, f"API Name,Provider,CPU,Memory,Category,Price,Arch\na,b,2,8,general,0.1,{written}\n")
    assert offer.arch == arch


def test_a_packed_file_is_unpacked(tmp_path: Path) -> None:
    [offer] = read(tmp_path, gzip.compress((HEADER + ROW).encode()))
    assert offer.instance_type == "m5.large"
    with pytest.raises(CatalogueError, match="is no gzip file"):
        read(tmp_path, gzip.compress((HEADER + ROW).encode())[:20])


def test_all_columns_that_are_missing_are_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match="the columns 'Provider', 'Category' are missing"):
        read(tmp_path, "instance_type,vcpus,ram_gib,usd_per_hour\n")


def test_names_in_any_case_and_order_and_more_columns(tmp_path: Path) -> None:
    text = (
        "price, VCPUS ,memory (GiB),instance_type,PROVIDER,category,Region,Arch,GPUs,Spot,Price Date,Clock GHz,Disk\n"
        '$1.50,4,16GiB,"n1, big",Google Cloud,Memory Optimised,europe-west1,arm64,2,yes,2026-07-31,3.1,ssd\n'
        "\n"
        "0.75,0.5,512MiB,tiny,mine,compute,,,,,,,\n"
    )
    big, tiny = read(tmp_path, text)
    assert (big.provider, big.instance_type, big.category, big.region) == ("gcp", "n1, big", "memory", "europe-west1")
    assert (big.price_per_hour, big.vcpu, big.memory_gib, big.gpus) == (1.5, 4, 16, 2)
    assert (big.spot, big.arch, big.price_date) == (True, "arm64", "2026-07-31")
    assert big.facts == {"clock_ghz": 3.1, "disk": "ssd"}
    assert (tiny.vcpu, tiny.memory_gib, tiny.facts, tiny.spot) == (0.5, 0.5, {}, False)


def test_a_byte_order_mark_and_windows_line_ends_are_fine(tmp_path: Path) -> None:
    assert len(read(tmp_path, ("\ufeff" + HEADER + ROW).replace("\n", "\r\n"))) == 1


@pytest.mark.parametrize(
    "text", ["8", "8 GB", "8GB", "8 gb", "8GiB", "8192 MB", "8192mb", "8388608 KB", "0.0078125 TB"]
)
def test_units_are_meant_as_powers_of_two(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, HEADER + f"a,b,1,{text},c,1\n")[0].memory_gib == 8


def test_the_same_type_in_two_regions(tmp_path: Path) -> None:
    assert len(read(tmp_path, HEADER.replace("Price", "Price,Region") + "a,b,1,1,c,1,here\na,b,1,1,c,2,there\n")) == 2


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (b"", 1, "the catalogue is empty"),
        (b"\n\n", 1, "the catalogue is empty"),
        (HEADER.encode(), 1, "no rows"),
        (b"API Name,Provider,CPU,Memory,Price\na,b,1,1,1\n", 1, "'Category' is missing"),
        ((HEADER + ROW).replace(",", ";").encode(), 1, "separated by ';'"),
        ((HEADER + ROW).replace(",", "\t").encode(), 1, "separated by tabs"),
        ((HEADER.strip() + ",Price\n" + ROW.strip() + ",1\n").encode(), 1, "'Price' is there twice"),
        ((HEADER.strip() + ",vCPU\n" + ROW.strip() + ",1\n").encode(), 1, "'vCPU' is there twice"),
        ((HEADER.strip() + ",\n" + ROW.strip() + ",1\n").encode(), 1, "has no name"),
        ((HEADER.strip() + ",Nodes\n" + ROW.strip() + ",1\n").encode(), 1, "cannot be named 'Nodes'"),
        ((HEADER + ROW + "a,b,two,1,c,1\n").encode(), 3, "CPU 'two' is not a number"),
        ((HEADER + "a,b,0,1,c,1\n").encode(), 2, "CPU must be above zero"),
        ((HEADER + "a,b,-1,1,c,1\n").encode(), 2, "CPU must be above zero"),
        ((HEADER + "a,b,nan,1,c,1\n").encode(), 2, "finite"),
        ((HEADER + "a,b,1,0,c,1\n").encode(), 2, "Memory must be above zero"),
        ((HEADER + "a,b,1,8 bananas,c,1\n").encode(), 2, "not an amount of memory"),
        ((HEADER + "a,b,1,much,c,1\n").encode(), 2, "Memory 'much' is not a number"),
        ((HEADER + "a,b,1,1,c,0\n").encode(), 2, "means unknown"),
        ((HEADER + "a,b,1,1,c,0.000\n").encode(), 2, "means unknown"),
        ((HEADER + "a,b,1,1,c,-0.1\n").encode(), 2, "negative"),
        ((HEADER + "a,b,1,1,c,NaN\n").encode(), 2, "finite"),
        ((HEADER + "a,b,1,1,c,inf\n").encode(), 2, "finite"),
        ((HEADER + "a,b,1,1,c,free\n").encode(), 2, "Price 'free' is not a number"),
        ((HEADER + 'a,b,1,1,c,"0,25"\n').encode(), 2, "a point, not a comma"),
        ((HEADER + "a,b,1,1,c,\n").encode(), 2, "Price is empty"),
        ((HEADER + ",b,1,1,c,1\n").encode(), 2, "API Name is empty"),
        ((HEADER + ROW + ROW).encode(), 3, "listed twice, first on line 2"),
        ((HEADER + "a,b,1,1,c\n").encode(), 2, "5 cells where the header has 6"),
        ((HEADER + "a,b,1,1,c,0,25\n").encode(), 2, "7 cells"),
        ((HEADER + 'a,"b,1,1,c,1\n').encode(), 2, "is no CSV"),
        ((HEADER.replace("Price", "Price,GPUs") + "a,b,1,1,c,1,1.5\n").encode(), 2, "GPUs must be a whole"),
        ((HEADER.replace("Price", "Price,Spot") + "a,b,1,1,c,1,maybe\n").encode(), 2, "neither yes nor no"),
        ((HEADER.replace("Price", "Price,Price Date") + "a,b,1,1,c,1,today\n").encode(), 2, "not a date"),
        ((HEADER.replace("Price", "Price,Clock") + "a,b,1,1,c,1,nan\n").encode(), 2, "finite"),
        (HEADER.encode() + b"caf\xe9,b,1,1,c,1\n", 2, "not UTF-8"),
        ((HEADER + ROW).encode("utf-16"), 1, "UTF-16"),
        ((HEADER + "a,b,1,1,c,1" + "9" * 200_000 + "\n").encode(), 2, "is no CSV"),
    ],
)
def test_wrong_files(tmp_path: Path, text: bytes, line: int, words: str) -> None:
    with pytest.raises(CatalogueError) as caught:
        read(tmp_path, text)
    assert words in str(caught.value)
    assert (caught.value.file, caught.value.line) == (str(tmp_path / "own.csv"), line)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("path", ["missing.csv", "."])
def test_a_file_that_is_not_there(tmp_path: Path, path: str) -> None:
    catalogue = plugins.create("catalogue", "csv", {"path": str(tmp_path / path)}, data_folder=tmp_path)
    with pytest.raises(CatalogueError, match="cannot be read"):
        catalogue.offers()


def test_the_path_is_needed(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="path"):
        plugins.create("catalogue", "csv", {}, data_folder=tmp_path)


SPOT_HEADER = "API Name,Provider,CPU,Memory,Category,Price,Spot,"


@pytest.mark.parametrize(
    ("column", "cell", "monthly"),
    [
        ("Interruption Frequency", "<5%", 0.025),
        ("Frequency of interruption", "5-10%", 0.075),
        ("Interruption frequency", "10 – 15 %", 0.125),
        ("Interruption Frequency", ">20%", 0.25),
        ("Interruption Frequency", "7.5%", 0.075),
        ("Interruption Frequency", "0%", 0.0),
        ("Interruptions per Hour", "0.002", None),
        ("Interruption Frequency", "", None),
    ],
)
def test_how_often_spot_machines_are_taken_back(tmp_path: Path, column: str, cell: str, monthly: float | None) -> None:
    [offer] = read(tmp_path, f"{SPOT_HEADER}{column}\na,b,2,8,general,0.1,yes,{cell}\n")
    known = hourly_interruptions(monthly) if monthly is not None else float(cell) if cell else None
    assert offer.interruptions_per_hour == known


@pytest.mark.parametrize(
    ("columns", "cells", "wrong"),
    [
        ("Interruption Frequency", "often", "Interruption Frequency 'often' is no share of a month"),
        ("Interruption Frequency", "0.1", "Interruption Frequency '0.1' is no share of a month"),
        ("Interruption Frequency", "120%", "Interruption Frequency '120%' is no share of a month"),
        ("Interruptions per Hour", "-1", "Interruptions per Hour is negative: -1"),
        ("Interruptions per Hour,Interruption Frequency", "1,5%", "has both Interruptions per Hour and"),
    ],
)
def test_a_wrong_rate_of_interruptions(tmp_path: Path, columns: str, cells: str, wrong: str) -> None:
    with pytest.raises(CatalogueError, match=wrong):
        read(tmp_path, f"{SPOT_HEADER}{columns}\na,b,2,8,general,0.1,yes,{cells}\n")
