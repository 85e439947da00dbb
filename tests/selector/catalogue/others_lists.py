"""Small lists in the formats of Spare Cores, SkyPilot and Vantage, for the catalogues that read them."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

_META = "status VARCHAR(22) NOT NULL, observed_at DATETIME NOT NULL"
_NAMED = "name VARCHAR NOT NULL, api_reference VARCHAR NOT NULL, display_name VARCHAR NOT NULL"
SCHEMA = f"""
CREATE TABLE region (
    vendor_id VARCHAR NOT NULL, region_id VARCHAR NOT NULL, {_NAMED}, aliases JSON NOT NULL,
    country_id VARCHAR NOT NULL, {_META}, PRIMARY KEY (vendor_id, region_id)
);
CREATE TABLE zone (
    vendor_id VARCHAR NOT NULL, region_id VARCHAR NOT NULL, zone_id VARCHAR NOT NULL, {_NAMED}, {_META},
    PRIMARY KEY (vendor_id, region_id, zone_id)
);
CREATE TABLE server (
    vendor_id VARCHAR NOT NULL, server_id VARCHAR NOT NULL, {_NAMED}, description VARCHAR NOT NULL, family VARCHAR,
    vcpus INTEGER NOT NULL, cpu_allocation VARCHAR(9) NOT NULL, cpu_architecture VARCHAR(10) NOT NULL,
    memory_amount INTEGER NOT NULL, accelerator_count FLOAT NOT NULL, accelerator_model VARCHAR, {_META},
    PRIMARY KEY (vendor_id, server_id)
);
CREATE TABLE server_price (
    vendor_id VARCHAR NOT NULL, region_id VARCHAR NOT NULL, zone_id VARCHAR NOT NULL, server_id VARCHAR NOT NULL,
    operating_system VARCHAR NOT NULL, allocation VARCHAR(8) NOT NULL, unit VARCHAR(8) NOT NULL, price FLOAT NOT NULL,
    price_upfront FLOAT NOT NULL, price_tiered JSON NOT NULL, currency VARCHAR NOT NULL, {_META},
    PRIMARY KEY (vendor_id, region_id, zone_id, server_id, allocation)
);
CREATE TABLE benchmark (
    benchmark_id VARCHAR NOT NULL PRIMARY KEY, source JSON NOT NULL, name VARCHAR NOT NULL, framework VARCHAR NOT NULL,
    config_fields JSON NOT NULL, environment_fields JSON NOT NULL, higher_is_better BOOLEAN NOT NULL, {_META}
);
CREATE TABLE benchmark_score (
    vendor_id VARCHAR NOT NULL, benchmark_id VARCHAR NOT NULL, resource_type VARCHAR(8) NOT NULL,
    resource_id VARCHAR NOT NULL, config JSON NOT NULL, score FLOAT NOT NULL, {_META},
    PRIMARY KEY (vendor_id, benchmark_id, resource_type, resource_id, config)
);
"""
"""Tables, columns, types and keys of the database of sparecores-crawler 0.10.2, as its module `sc_crawler.tables`
defines them; columns that nothing here reads are left out."""

SEEN = "2026-11-20 04:10:00.000000"

Server = tuple[str, str, str, str, int, str, str, int, float, str | None]
"""Vendor, identifier, name at the provider, family, vCPUs, allocation, architecture, MiB, accelerators, their model."""
Price = tuple[str, str, str, str, str, str, float, str]
"""Vendor, region, zone, server, allocation, unit, price, currency."""

SERVERS: Sequence[Server] = (
    ("aws", "c7i.large", "c7i.large", "c7i", 2, "DEDICATED", "X86_64", 4096, 0.0, None),
    ("aws", "m7g.xlarge", "m7g.xlarge", "m7g", 4, "DEDICATED", "ARM64", 16384, 0.0, None),
    ("aws", "t3.small", "t3.small", "t3", 2, "BURSTABLE", "X86_64", 2048, 0.0, None),
    ("aws", "g6f.large", "g6f.large", "g6f", 2, "DEDICATED", "X86_64", 8192, 0.125, "L4"),
    # Google's identifiers are numbers.
    ("gcp", "801112", "n2-highmem-4", "n2", 4, "DEDICATED", "X86_64", 32768, 0.0, None),
    ("hcloud", "45", "cx22", "cx", 2, "SHARED", "X86_64", 4096, 0.0, None),
)
PRICES: Sequence[Price] = (
    ("aws", "us-east-1", "use1-az1", "c7i.large", "ONDEMAND", "HOUR", 0.0893, "USD"),
    ("aws", "us-east-1", "use1-az2", "c7i.large", "ONDEMAND", "HOUR", 0.0893, "USD"),
    ("aws", "us-east-1", "use1-az1", "c7i.large", "SPOT", "HOUR", 0.041, "USD"),
    ("aws", "us-east-1", "use1-az2", "c7i.large", "SPOT", "HOUR", 0.035, "USD"),
    ("aws", "us-east-1", "use1-az1", "c7i.large", "RESERVED", "HOUR", 0.01, "USD"),
    ("aws", "us-east-1", "use1-az1", "m7g.xlarge", "ONDEMAND", "HOUR", 0.1632, "USD"),
    ("aws", "us-east-1", "use1-az1", "t3.small", "ONDEMAND", "HOUR", 0.0208, "USD"),
    ("aws", "us-east-1", "use1-az1", "g6f.large", "ONDEMAND", "HOUR", 0.2, "USD"),
    ("gcp", "1210", "2211", "801112", "ONDEMAND", "HOUR", 0.262, "USD"),
    ("hcloud", "fsn1", "fsn1", "45", "ONDEMAND", "HOUR", 0.006, "EUR"),
    ("hcloud", "fsn1", "fsn1", "45", "SPOT", "MONTH", 1.0, "USD"),
)
REGIONS = (
    ("aws", "us-east-1", "us-east-1", ("use1-az1", "use1-az2")),
    ("gcp", "1210", "europe-west1", ("2211",)),
    ("hcloud", "fsn1", "fsn1", ("fsn1",)),
)
SCORES = (
    ("aws", "stress_ng:bestn", "SERVER", "c7i.large", "{}", 4000.0),
    ("aws", "bw_mem", "SERVER", "c7i.large", '{"size": 16}', 30000.0),
    ("aws", "bw_mem", "SERVER", "c7i.large", '{"size": 256}', 20000.0),
    ("aws", "latency", "SERVER", "c7i.large", '{"size": 16}', 3.0),
    ("aws", "latency", "SERVER", "c7i.large", '{"size": 256}', 90.0),
    ("gcp", "stress_ng:bestn", "SERVER", "801112", "{}", 5000.0),
    ("aws", "stress_ng:bestn", "DATABASE", "m7g.xlarge", "{}", 9.0),
)


def write_sparecores(
    path: Path,
    *,
    servers: Iterable[Server] = SERVERS,
    prices: Iterable[Price] = PRICES,
    regions: Iterable[tuple[str, str, str, Sequence[str]]] = REGIONS,
) -> Path:
    """Write a database of Spare Cores."""

    def insert(table: str, rows: Iterable[dict[str, Any]]) -> None:
        for row in rows:
            full = {**row, "status": row.get("status", "ACTIVE"), "observed_at": SEEN}
            marks = ", ".join("?" * len(full))
            database.execute(f"INSERT INTO {table} ({', '.join(full)}) VALUES ({marks})", tuple(full.values()))

    def named(name: str) -> dict[str, str]:
        return {"name": name, "api_reference": name, "display_name": name}

    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(SCHEMA)
        for vendor, region, name, zones in regions:
            place = {"vendor_id": vendor, "region_id": region}
            insert("region", [{**place, **named(name), "aliases": "[]", "country_id": "US"}])
            insert("zone", [{**place, "zone_id": zone, **named(zone)} for zone in zones])
        columns = [
            "vendor_id",
            "server_id",
            "api_reference",
            "family",
            "vcpus",
            "cpu_allocation",
            "cpu_architecture",
            "memory_amount",
            "accelerator_count",
            "accelerator_model",
        ]
        insert(
            "server",
            ({**named(one[2]), **dict(zip(columns, one, strict=True)), "description": ""} for one in servers),
        )
        columns = ["vendor_id", "region_id", "zone_id", "server_id", "allocation", "unit", "price", "currency"]
        extra = {"operating_system": "Linux", "price_upfront": 0, "price_tiered": "[]"}
        insert("server_price", ({**dict(zip(columns, one, strict=True)), **extra} for one in prices))
        for name, better in (("stress_ng:bestn", 1), ("bw_mem", 1), ("latency", 0)):
            extra = {"source": "[]", "name": name, "framework": name, "config_fields": "{}", "environment_fields": "{}"}
            insert("benchmark", [{"benchmark_id": name, "higher_is_better": better, **extra}])
        columns = ["vendor_id", "benchmark_id", "resource_type", "resource_id", "config", "score"]
        insert("benchmark_score", (dict(zip(columns, one, strict=True)) for one in SCORES))
    return path


# Lines as in https://github.com/skypilot-org/skypilot-catalog, catalogs/v5 (azure), v7 (aws, gcp, vast).
SKYPILOT = {
    "aws": """\
InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone
c7i.large,,,2.0,4.0,,0.08925,0.041000,us-east-1,use1-az1
c7i.large,,,2.0,4.0,,0.08925,0.035000,us-east-1,use1-az2
c7i.large,,,2.0,4.0,,0.1019,,eu-central-1,euc1-az2
m7g.xlarge,,,4.0,16.0,,0.1632,,us-east-1,use1-az1
t3.small,,,2.0,2.0,,0.0208,,us-east-1,use1-az1
p3.2xlarge,V100,1.0,8.0,61.0,"{'Gpus': [{'Name': 'V100', 'Count': 1.0}]}",3.06,,us-east-1,use1-az1
""",
    "azure": """\
InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,Generation
Standard_B2pls_v2,,,2.0,4,,0.0376,0.01034,eastus,"V1,V2"
Standard_E4s_v5,,,4.0,32,,0.252,,eastus,"V1,V2"
Standard_NV6ads_A10_v5,A10,0.1666,6.0,55,,0.454,,eastus,V2
""",
    "gcp": """\
InstanceType,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,Region,AvailabilityZone,Price,SpotPrice
a2-highgpu-1g,12.0,85.0,,,,us-central1,us-central1-a,0.73948,0.29576
n2-highmem-4,4.0,32.0,,,,europe-west1,europe-west1-b,0.262,0.0634
,,,A100,1,A100,us-central1,us-central1-a,2.93,1.17
""",
    "vast": """\
InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region
1x-A40-32-65536,A40,1,32,64.0,"{'Gpus': [{'Name': 'A40', 'Count': 1}]}",0.40,0.00,"Belgium, BE, EU"
""",
}


def write_skypilot(folder: Path) -> Path:
    """Write SkyPilot's folder of catalogs, with an older version of it that no longer counts."""
    for cloud, text in SKYPILOT.items():
        path = folder / "v10" / cloud / "vms.csv"
        path.parent.mkdir(parents=True)
        path.write_text(text)
        os.utime(path, (1_795_000_000, 1_795_000_000))
    (folder / "v10" / "common").mkdir()
    (folder / "v10" / "common" / "accelerators.csv").write_text("AcceleratorName\n")
    (folder / "v9" / "aws").mkdir(parents=True)
    (folder / "v9" / "aws" / "vms.csv").write_text("old\n")
    return folder


def _vantage_type(name: str, family: str, vcpu: int, memory: float, pricing: Any, **more: Any) -> dict[str, Any]:
    plain = {"arch": ["x86_64"], "GPU": 0, "GPU_model": None, "FPGA": 0, "ECU": "variable", "generation": "current"}
    return {
        "instance_type": name, "family": family, "vCPU": vcpu, "memory": memory, "pricing": pricing, **plain, **more,
    }  # fmt: skip


def _vantage_prices(ondemand: str, spot: str | None = None) -> dict[str, Any]:
    more = {"spot_min": spot, "spot_max": spot, "spot_avg": spot, "pct_interrupt": "<5%"} if spot else {}
    linux = {"ondemand": ondemand, "reserved": {"yrTerm1Standard.noUpfront": "0.01"}, **more}
    return {"linux": linux, "mswin": {"ondemand": "9.0"}, "dedicated": {"ondemand": "8.0"}}


# Entries as in instances.json of https://instances.vantage.sh, with the keys that a catalogue may read; m3.xlarge is
# written as it was in 2013.
VANTAGE: Sequence[dict[str, Any]] = (
    _vantage_type(
        "m7g.xlarge", "General purpose", 4, 16.0,
        {"us-east-1": _vantage_prices("0.1632", "0.0655"), "eu-west-1": _vantage_prices("0.1822")}, arch=["arm64"],
    ),
    _vantage_type("t3.small", "General purpose", 2, 2.0, {"us-east-1": _vantage_prices("0.0208")}),
    _vantage_type(
        "g5.xlarge", "GPU instance", 4, 16.0, {"us-east-1": _vantage_prices("1.006")}, GPU=1, GPU_model="NVIDIA A10G"
    ),
    _vantage_type("inf1.xlarge", "Machine Learning ASIC Instances", 4, 8.0, {"us-east-1": _vantage_prices("0.228")}),
    _vantage_type("c9x.large", "Compute optimized", 2, 4.0, {"us-east-1": {"mswin": {"ondemand": "0.2"}}}),
    _vantage_type(
        "m3.xlarge", "General purpose", 4, 15.0, {"us-east-1": {"mswin": "0.702", "linux": "0.450"}},
        arch=["i386", "x86_64"],
    ),
)  # fmt: skip


def write_vantage(path: Path, entries: Sequence[Any] = VANTAGE) -> Path:
    """Write Vantage's list of EC2 instances."""
    path.write_text(json.dumps(entries))
    os.utime(path, (1_795_000_000, 1_795_000_000))
    return path


SPOT_ADVISOR: dict[str, Any] = {
    "global_rate": "<10%",
    "instance_types": {
        "c7i.large": {"cores": 2, "emr": True, "ram_gb": 4.0},
        "m5.large": {"cores": 2, "emr": True, "ram_gb": 8.0},
    },
    "ranges": [
        {"dots": 0, "index": 0, "label": "<5%", "max": 5},
        {"dots": 1, "index": 1, "label": "5-10%", "max": 11},
        {"dots": 2, "index": 2, "label": "10-15%", "max": 16},
        {"dots": 3, "index": 3, "label": "15-20%", "max": 22},
        {"dots": 4, "index": 4, "label": ">20%", "max": 100},
    ],
    "spot_advisor": {
        "eu-west-1": {"Linux": {"c7i.large": {"r": 4, "s": 57}}, "Windows": {}},
        "us-east-1": {
            "Linux": {"c7i.large": {"r": 0, "s": 60}, "m5.large": {"r": 2, "s": 71}},
            "Windows": {"c7i.large": {"r": 3, "s": 30}},
        },
    },
}
"""The shape of Amazon's spot-advisor-data.json: bands by index, and band and saving by region, system and type."""


def write_spot_advisor(path: Path) -> Path:
    """Write the data of the Spot Instance Advisor."""
    path.write_text(json.dumps(SPOT_ADVISOR))
    return path
