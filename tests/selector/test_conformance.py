"""Every selector and catalogue of the registry against its conformance suite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.selector.catalogue.others_lists import write_skypilot, write_sparecores, write_spot_advisor, write_vantage

from tradewind import plugins
from tradewind.problem import Offer, Space
from tradewind.selector.base import Selector
from tradewind.selector.catalogue.base import Catalogue
from tradewind.testing.selectors import CatalogueConformance, SelectorConformance

CSV = "API Name,Provider,CPU,Memory,Category,Price\nm5.large,aws,2,8,general,0.096\nc5.large,aws,2,4,compute,0.085\n"


@pytest.fixture(params=sorted(plugins.load_all("selector")))
def selector_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=sorted(plugins.load_all("catalogue")))
def catalogue_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


OWN = """\
def equal(values, offers):
    offers = [values["instance"]] if "instance" in values else offers
    names = {"cpus": "vcpu"}
    wanted = {names.get(name, name): value for name, value in values.items() if name not in ("instance", "nodes")}
    return next((o for o in offers if all(getattr(o, name) == value for name, value in wanted.items())), None)
"""


pytest.mark.slow(SelectorConformance.test_thousands_of_offers)


class TestSelectors(SelectorConformance):
    @pytest.fixture(autouse=True)
    def _one(self, selector_name: str, tmp_path: Path) -> None:
        self.name = selector_name
        self.needed: dict[str, Any] = {}
        if selector_name == "python":
            (tmp_path / "own.py").write_text(OWN)
            self.needed = {"function": f"{tmp_path}/own.py:equal"}

    def make(self, offers: Sequence[Offer], space: Space) -> Selector:
        selector: Selector = plugins.create("selector", self.name, self.needed, offers=offers, space=space)
        return selector


class TestCatalogues(CatalogueConformance):
    @pytest.fixture(autouse=True)
    def _one(self, catalogue_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.name = catalogue_name
        self.needed: dict[str, Any] = {}
        monkeypatch.setenv("GOOGLE_API_KEY", "no-secret")
        if catalogue_name == "csv":
            (tmp_path / "own.csv").write_text(CSV)
            self.needed = {"path": str(tmp_path / "own.csv")}
        if catalogue_name == "scores":
            (tmp_path / "scores.csv").write_text("instance_type,coremark\nm5.large,30000\n")
            self.needed = {"path": str(tmp_path / "scores.csv")}
        if catalogue_name == "sparecores":
            self.needed = {"path": str(write_sparecores(tmp_path / "sc.db"))}
        if catalogue_name == "spot_advisor":
            self.needed = {"path": str(write_spot_advisor(tmp_path / "spot.json"))}
        if catalogue_name == "skypilot":
            self.needed = {"path": str(write_skypilot(tmp_path / "catalogs"))}
        if catalogue_name == "vantage":
            self.needed = {"path": str(write_vantage(tmp_path / "instances.json"))}

    def make(self, data_folder: Path, settings: Mapping[str, Any]) -> Catalogue:
        catalogue: Catalogue = plugins.create(
            "catalogue", self.name, {**self.needed, **settings}, data_folder=data_folder
        )
        return catalogue


def test_the_registry_has_what_this_room_ships() -> None:
    assert {"exact", "nearest", "cheapest"} <= set(plugins.load_all("selector"))
    assert {"aws", "gcp", "azure", "local", "csv"} <= set(plugins.load_all("catalogue"))
