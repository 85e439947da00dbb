"""Scores from a file of the user's."""

from __future__ import annotations

import gzip
import logging
from pathlib import Path
from typing import Any

import pytest

from tradewind import plugins
from tradewind.errors import CatalogueError, PluginError
from tradewind.problem import Offer, OfferQuery
from tradewind.selector.offer_search import find_offers
from tradewind.selector.scores import ScoresCatalogue

PRICES = "API Name,Provider,CPU,Memory,Category,Price\n" + "".join(
    f"{name},{provider},2,8,general,0.1\n" for name, provider in (("a", "aws"), ("b", "aws"), ("b", "cellar"))
)
HEADER = "Instance Type,CoreMark,coremark total time (s),stress-ng\n"


def found(folder: Path, scores: str | bytes, provider: tuple[str, ...] = ("csv",), **settings: Any) -> list[Offer]:
    (folder / "prices.csv").write_text(PRICES)
    path = folder / "scores.csv"
    path.write_bytes(scores if isinstance(scores, bytes) else scores.encode())
    given = {"csv": {"path": str(folder / "prices.csv")}, "scores": {"path": str(path), **settings}}
    return list(find_offers(OfferQuery(provider=provider), folder, given))


def facts(offers: list[Offer]) -> dict[str, dict[str, Any]]:
    return {f"{offer.provider}/{offer.instance_type}": dict(offer.facts) for offer in offers}


def test_scores_become_facts_by_type(tmp_path: Path) -> None:
    offers = found(tmp_path, HEADER + "a,100,9.5,\nb,250.5,9.1,7\nnobody,1,1,1\n")
    assert facts(offers) == {
        "aws/a": {"coremark": 100.0},
        "aws/b": {"coremark": 250.5, "stress_ng": 7.0},
        "cellar/b": {"coremark": 250.5, "stress_ng": 7.0},
    }
    assert offers[0].scores == {"coremark": 100.0}


def test_a_provider_in_the_file_narrows_it(tmp_path: Path) -> None:
    offers = found(tmp_path, "vendor,instance_type,coremark\nEC2,b,1\ncellar,b,2\n")
    assert facts(offers) == {"aws/a": {}, "aws/b": {"coremark": 1.0}, "cellar/b": {"coremark": 2.0}}


def test_a_packed_file_and_columns_of_other_names(tmp_path: Path) -> None:
    offers = found(tmp_path, gzip.compress(b"name,Render fps,coremark\na,30,5\n"), columns=["render_fps"])
    assert facts(offers)["aws/a"] == {"render_fps_score": 30.0}
    assert offers[0].scores == {"render_fps_score": 30.0}


def test_zero_is_not_measured(tmp_path: Path) -> None:
    assert facts(found(tmp_path, "name,coremark\na,0.0\nb,3\n"))["aws/a"] == {}


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        ("", {}, r"scores.csv:1: is empty"),
        ("kind,coremark\na,1\n", {}, r"scores.csv:1: no column has the machine type"),
        ("name,ghz\na,1\n", {}, r"scores.csv:1: no column is named after a known benchmark .*columns: \[NAME\]"),
        ("name,coremark\na,1\n", {"columns": ["core mark 2"]}, r"has no column 'core mark 2'.*coremark"),
        ("name,coremark\na,1\na,2\n", {}, r"scores.csv:3: a is there twice, first on line 2"),
        ("name,coremark\na,quick\n", {}, r"scores.csv:2: coremark 'quick' is no score"),
        ("name,coremark\na,-1\n", {}, r"scores.csv:2: coremark '-1' is no score"),
        ("name,coremark\na,nan\n", {}, r"scores.csv:2: coremark 'nan' is no score"),
        ("name,coremark\na\n", {}, r"scores.csv:2: has 1 cells where the header has 2"),
        ('name,coremark\n"a,1\n', {}, r"scores.csv:2: is no CSV"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, text: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(CatalogueError, match=message) as error:
        found(tmp_path, text, **settings)
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    catalogue = plugins.create("catalogue", "scores", {"path": str(tmp_path / "no.csv")}, data_folder=tmp_path)
    assert isinstance(catalogue, ScoresCatalogue)
    assert catalogue.offers() == ()
    with pytest.raises(CatalogueError, match=r"no.csv: cannot be read"):
        catalogue.describe([])


def test_a_file_of_other_machines_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="tradewind.selector"):
        found(tmp_path, "name,coremark\nz,1\n")
    assert [record.getMessage().partition("scores.csv ")[2] for record in caplog.records] == [
        "has none of the 2 types (a, b) that are sold"
    ]


def test_with_scores_a_misspelt_provider_is_still_refused(tmp_path: Path) -> None:
    (tmp_path / "scores.csv").write_text("name,coremark\na,1\n")
    with pytest.raises(PluginError, match="there is no provider 'awz'"):
        find_offers(OfferQuery(provider=("awz",)), tmp_path, {"scores": {"path": str(tmp_path / "scores.csv")}})
