from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.selector.catalogue.others_lists import write_skypilot, write_sparecores

from tradewind.engine.search_builder import build_problem
from tradewind.errors import CatalogueError, NoOfferError, PluginError, SpecError
from tradewind.problem import Offer, OfferQuery
from tradewind.problem.columns import table_offers
from tradewind.problem.job_spec.spec import parse_spec
from tradewind.selector.offer_search import balanced, find_offers, open_catalogue, require_offers

CSV = (
    "API Name,Provider,CPU,Memory,Category,Price,Region\n"
    "m5.large,AWS,2,8,general,0.011,us-east-1\n"
    "big,mycloud,64,256,general,0.5,lab\n"
)


@pytest.fixture
def own(tmp_path: Path) -> dict[str, dict[str, str]]:
    (tmp_path / "own.csv").write_text(CSV)
    return {"csv": {"path": str(tmp_path / "own.csv")}}


def test_asks_everybody_when_nobody_is_named(tmp_path: Path) -> None:
    found = find_offers(OfferQuery(), tmp_path)
    assert {offer.provider for offer in found} == {"aws", "azure", "gcp", "local"}
    prices = [offer.price_per_hour for offer in found]
    assert prices == sorted(prices)
    assert len({offer.key for offer in found}) == len(found)
    assert not any(offer.gpus for offer in found)


def test_named_providers_only(tmp_path: Path) -> None:
    assert {offer.provider for offer in find_offers(OfferQuery(provider=("gcp", "local")), tmp_path)} == {
        "gcp",
        "local",
    }


def test_bounds_and_limit(tmp_path: Path) -> None:
    query = OfferQuery(
        provider=("aws", "azure"), region=("us-east-1", "eastus"), vcpu=(4, 8), memory=(16, None), limit=5
    )
    found = find_offers(query, tmp_path)
    assert len(found) == 5
    assert all(4 <= offer.vcpu <= 8 and offer.memory_gib >= 16 for offer in found)
    everything = find_offers(
        OfferQuery(**{f: getattr(query, f) for f in ("provider", "region", "vcpu", "memory")}), tmp_path
    )
    assert [offer.price_per_hour for offer in found] == sorted(offer.price_per_hour for offer in found)
    assert Counter(offer.provider for offer in found) == {"aws": 3, "azure": 2}
    for provider in ("aws", "azure"):
        own = [offer for offer in everything if offer.provider == provider]
        assert [offer for offer in found if offer.provider == provider] == own[: 3 if provider == "aws" else 2]


def _sold(provider: str, kind: str, region: str, price: float) -> Offer:
    return Offer(provider, kind, 2, 4, price, region=region)


def test_a_limit_keeps_all_providers_and_different_types() -> None:
    offers = [
        _sold("aws", kind, region, 0.01 * i) for i in (1, 2, 3) for kind, region in ((f"a{i}", "r1"), (f"a{i}", "r2"))
    ]
    offers += [_sold("gcp", "g1", "r", 0.5), _sold("gcp", "g2", "r", 0.6)]
    assert [o.instance_type for o in balanced(offers, 1)] == ["a1"]
    assert [o.instance_type for o in balanced(offers, 2)] == ["a1", "g1"]
    assert [o.instance_type for o in balanced(offers, 4)] == ["a1", "a2", "g1", "g2"]
    # One provider has no more types: the other's come before the same type in another region.
    assert [o.instance_type for o in balanced(offers, 5)] == ["a1", "a2", "a3", "g1", "g2"]
    assert [o.key for o in balanced(offers, 6)].count("aws/r2/a1x1") == 1
    assert balanced(offers, 100) == offers


def test_architectures_go_by_all_their_names(tmp_path: Path) -> None:
    for name, wanted in (("AMD64", "x86_64"), ("x86-64", "x86_64"), ("aarch64", "arm64"), ("ARM64", "arm64")):
        found = find_offers(OfferQuery(provider=("aws",), arch=(name,)), tmp_path)
        assert {offer.arch for offer in found} == {wanted}


def test_a_csv_is_asked_too_once_it_is_set(tmp_path: Path, own: dict[str, dict[str, str]]) -> None:
    found = find_offers(OfferQuery(), tmp_path, own)
    [mine] = [offer for offer in found if offer.key == "aws/us-east-1/m5.largex1"]
    assert mine.price_per_hour == 0.011  # the user's price stands before the shipped one
    assert any(offer.provider == "mycloud" for offer in found)


def test_lists_of_others_are_asked_where_they_are_named(tmp_path: Path) -> None:
    path = str(write_sparecores(tmp_path / "sc.db"))
    assert not any(offer.source.startswith("Spare Cores") for offer in find_offers(OfferQuery(), tmp_path))
    given = {"sparecores": {"path": path}}
    found = find_offers(OfferQuery(provider=("sparecores",)), tmp_path, given)
    assert {offer.source for offer in found} == {f"Spare Cores: {path}"}
    assert {offer.provider for offer in found} == {"aws", "gcp"}
    both = find_offers(OfferQuery(provider=("aws",), types=("c7i.large", "g6f.large")), tmp_path, given)
    assert {offer.source == f"Spare Cores: {path}" for offer in both} == {True, False}
    assert {offer.provider for offer in both} == {"aws"}
    everybody = find_offers(OfferQuery(), tmp_path, given)
    assert {"azure", "local"} < {offer.provider for offer in everybody}
    with pytest.raises(CatalogueError, match="sparecores-data"):
        find_offers(OfferQuery(), tmp_path, {"sparecores": {"path": str(tmp_path / "none.db")}})


def test_the_catalogue_that_is_named_first_decides_and_one_line_says_so(
    tmp_path: Path, own: dict[str, dict[str, str]], caplog: pytest.LogCaptureFixture
) -> None:
    others = {
        "skypilot": {"path": str(write_skypilot(tmp_path / "sky"))},
        "sparecores": {"path": str(write_sparecores(tmp_path / "sc.db"))},
    }
    (tmp_path / "own.csv").write_text(
        "API Name,Provider,CPU,Memory,Category,Price,Region\nc7i.large,aws,2,4,compute,0.05,us-east-1\n"
    )
    query = OfferQuery(provider=("aws",), types=("c7i.large", "m7g.xlarge"), region=("us-east-1",))

    def price(given: dict[str, dict[str, str]]) -> float:
        caplog.clear()
        with caplog.at_level(logging.WARNING, "tradewind.selector"):
            found = find_offers(query, tmp_path, given)
        [offer] = [offer for offer in found if offer.instance_type == "c7i.large"]
        assert len(found) == 2
        return offer.price_per_hour

    assert price({**own, **others}) == 0.05
    # m7g.xlarge is the same everywhere.
    [line] = [record.getMessage() for record in caplog.records if "differ" in record.getMessage()]
    assert line == (
        "catalogues differ on aws/us-east-1/c7i.large: 2 vCPU, 4 GiB, $0.0500 by csv counts, not 2 vCPU, 4 GiB, "
        "$0.0892 of 2026-11-18 by skypilot; the catalogue that is named first decides"
    )
    assert price({"sparecores": others["sparecores"], **own}) == 0.0893
    assert price({"skypilot": others["skypilot"], **own}) == 0.08925
    # The shipped list counts first where it is named first; those that are not named come last.
    assert price({"aws": {}, **own}) == price({})
    assert not caplog.records


@pytest.mark.parametrize("bound", [{"price": (0.05, None)}, {"memory": (None, 8.0)}, {"category": ("general",)}])
def test_an_offer_that_the_first_catalogue_rules_out_does_not_come_back_from_the_next(
    tmp_path: Path, bound: dict[str, Any]
) -> None:
    query = OfferQuery(provider=("aws",), types=("m5.large",), region=("us-east-1",), **bound)
    assert [offer.memory_gib for offer in find_offers(query, tmp_path)] == [8.0]
    (tmp_path / "own.csv").write_text(
        "API Name,Provider,CPU,Memory,Category,Price,Region\nm5.large,AWS,2,16,memory,0.011,us-east-1\n"
    )
    assert find_offers(query, tmp_path, {"csv": {"path": str(tmp_path / "own.csv")}}) == []


def test_a_named_csv_sells_all_its_rows_and_nothing_else(tmp_path: Path, own: dict[str, dict[str, str]]) -> None:
    assert [o.instance_type for o in find_offers(OfferQuery(provider=("csv",)), tmp_path, own)] == ["m5.large", "big"]


def test_a_provider_that_only_the_csv_knows(tmp_path: Path, own: dict[str, dict[str, str]]) -> None:
    assert [o.instance_type for o in find_offers(OfferQuery(provider=("mycloud",)), tmp_path, own)] == ["big"]


def test_wrong_names_and_settings(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match="did you mean 'azure'"):
        find_offers(OfferQuery(provider=("azur",)), tmp_path)
    with pytest.raises(PluginError, match="did you mean 'local'"):
        find_offers(OfferQuery(), tmp_path, {"lokal": {}})
    with pytest.raises(SpecError, match="unknown setting"):
        find_offers(OfferQuery(), tmp_path, {"local": {"price": 1}})
    with pytest.raises(SpecError, match="catalogue csv: path"):
        find_offers(OfferQuery(provider=("csv",)), tmp_path)
    with pytest.raises(CatalogueError, match="cannot be read"):
        find_offers(OfferQuery(), tmp_path, {"csv": {"path": str(tmp_path / "none.csv")}})


@pytest.mark.parametrize(
    ("query", "words"),
    [
        (OfferQuery(provider=("aws",), region=("us-est-1",)), "region 'us-est-1'; there is us-east-1"),
        (OfferQuery(provider=("aws",), types=("m5.larg",)), "there is m5.large"),
        (OfferQuery(provider=("gcp",), category=("quantum",)), "category 'quantum'; there is"),
        (OfferQuery(provider=("gcp",), price=(None, 0.000001)), "without the bound on price"),
        (OfferQuery(provider=("gcp",), vcpu=(100_000, None)), "without the bound on vcpu"),
        (OfferQuery(provider=("gcp",), types=("zz*",)), "without the bound on types"),
        (OfferQuery(provider=("gcp",), vcpu=(100_000, None), memory=(100_000, None)), "several bounds"),
        (OfferQuery(provider=("gcp",), spot=True), "no spot prices are kept"),
    ],
)
def test_says_which_bound_leaves_nothing(tmp_path: Path, query: OfferQuery, words: str) -> None:
    assert find_offers(query, tmp_path) == []
    with pytest.raises(NoOfferError, match=words.replace("(", r"\(")):
        require_offers(query, tmp_path)


def test_a_job_whose_offers_leave_nothing_is_told_which_bound_does(tmp_path: Path) -> None:
    text = """
name: nothing
job: {command: "true"}
space: {nodes: [1, 2]}
offers: {provider: gcp, vcpu: 100000..}
objective: cost
"""
    spec = parse_spec(text, file="job.yaml", base=tmp_path)
    with pytest.raises(NoOfferError, match=r"the bounds of 'offers' \(without the bound on vcpu"):
        build_problem(spec, tmp_path)


def test_require_gives_what_find_gives(tmp_path: Path) -> None:
    query = OfferQuery(provider=("local",))
    assert require_offers(query, tmp_path) == find_offers(query, tmp_path)


def test_opens_a_catalogue_with_its_settings(tmp_path: Path) -> None:
    catalogue = open_catalogue("local", tmp_path, {"local": {"price_per_vcpu": 1.0, "price_per_gib": 0.0}})
    assert catalogue.offers()[0].price_per_hour == 1.0


def test_providers_and_categories_by_their_usual_names(tmp_path: Path) -> None:
    """The table of the second publication: what is called EC2, GCE and CPU there is found by these words and ours."""
    (tmp_path / "table.csv").write_text(
        "API Name,Provider,CPU,Memory,Category,Price\n"
        "n1-standard-2,GCE,2,7.5,General,0.095\nc5.large,EC2,2,4,CPU,0.085\nc5.xlarge,EC2,4,8,CPU,0.17\n"
    )
    given = {"csv": {"path": str(tmp_path / "table.csv")}}
    found = find_offers(OfferQuery(provider=("csv",)), tmp_path, given)
    assert {(offer.provider, offer.category) for offer in found} == {("gcp", "general"), ("aws", "compute")}
    by_name = find_offers(OfferQuery(provider=("EC2",), category=("CPU",), vcpu=(4, 4), region=("",)), tmp_path, given)
    assert [offer.instance_type for offer in by_name] == ["c5.xlarge"]
    job = (
        "name: table\njob: {command: work}\noffers: {provider: csv}\n"
        f"catalogues: {{csv: {{path: {tmp_path}/table.csv}}}}\n"
        "space:\n"
        "  where: {type: categorical, values: [GCE, EC2], attribute: provider}\n"
        "  kind: {type: categorical, values: [General, CPU], attribute: category}\n"
        "  cpus: {type: ordinal, values: [2, 4], attribute: vcpu}\n"
    )
    problem = build_problem(parse_spec(job, base=tmp_path), tmp_path)
    candidates = problem.candidates
    assert candidates is not None
    types = {candidates.offer(i).instance_type for i in range(len(candidates))}
    assert types == {"n1-standard-2", "c5.large", "c5.xlarge"}


def test_of_one_large_list_only_the_offers_that_are_kept_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Offer] = []

    def counted(*fields: Any) -> Offer:
        made.append(Offer(*fields))
        return made[-1]

    monkeypatch.setattr(table_offers, "Offer", counted)
    given = {"sparecores": {"path": str(write_sparecores(tmp_path / "sc.db"))}}
    query = OfferQuery(provider=("sparecores",), spot=None, types=("*",))
    everything = find_offers(query, tmp_path, given)
    made.clear()
    assert len(everything) == 6
    assert made == []
    cheapest = sorted(everything, key=lambda offer: (offer.price_per_hour, offer.key))
    made.clear()
    assert list(find_offers(replace(query, limit=2), tmp_path, given)) == balanced(cheapest, 2)
    assert len(made) == 2


def test_a_space_makes_the_offers_of_a_large_list_that_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def counted(*fields: Any) -> Offer:
        offer = Offer(*fields)
        made.append(offer.key)
        return offer

    monkeypatch.setattr(table_offers, "Offer", counted)
    job = f"""
name: large
job: {{command: "true"}}
space: {{instance: {{provider: sparecores}}, nodes: {{type: nodes, values: [1, 2]}}}}
catalogues: {{sparecores: {{path: {write_sparecores(tmp_path / "sc.db")}}}}}
budget: {{dollars: 1}}
"""
    problem = build_problem(parse_spec(job, base=tmp_path), tmp_path)
    candidates = problem.candidates
    assert len(candidates) == 8
    assert len(candidates.features) == 8
    assert made == []
    assert candidates.offer(0).key.startswith(made[0].removesuffix("x1"))
    assert len(made) == 1
