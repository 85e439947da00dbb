"""The measured datasets beside the repository, where they are."""

from __future__ import annotations

import csv
import gzip
from functools import cache
from pathlib import Path

import pytest

from tradewind.workflow.graph import Workflow
from tradewind.workflow.readers.dax import read_dax

DATASETS = Path(__file__).parents[3] / "shared" / "datasets"

needs_datasets = pytest.mark.skipif(not DATASETS.is_dir(), reason=f"the datasets are not at {DATASETS}")


@cache
def dax(name: str) -> Workflow:
    """One of the Pegasus graphs, read leniently."""
    file = DATASETS / "dax" / f"{name}.xml.gz"
    return read_dax(gzip.decompress(file.read_bytes()), str(file), lenient=True)


def table(*parts: str) -> list[dict[str, str]]:
    """The rows of a CSV of the datasets."""
    path = DATASETS.joinpath(*parts)
    if not path.is_file():
        return []
    with path.open() as file:
        return list(csv.DictReader(file))
