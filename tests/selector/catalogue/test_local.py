from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.engines.gpus import have_nvidia

from tradewind import plugins
from tradewind.engine.search_builder import build_problem
from tradewind.errors import NoOfferError, SpecError
from tradewind.problem import Offer, OfferQuery
from tradewind.problem.job_spec.spec import parse_spec
from tradewind.selector.catalogue import local
from tradewind.selector.offer_search import require_offers


def sells(**settings: Any) -> dict[str, Offer]:
    catalogue = plugins.create("catalogue", "local", settings, data_folder=Path("/nonexistent"))
    return {offer.instance_type: offer for offer in catalogue.offers()}


def test_doubles_up_to_the_machines_own_count() -> None:
    offers = sells(vcpu=6, memory_gib=1000.0)
    assert list(offers) == [f"local.{letter}{count}" for count in (1, 2, 4, 6) for letter in "cgm"]
    assert (offers["local.c4"].memory_gib, offers["local.g4"].memory_gib, offers["local.m4"].memory_gib) == (4, 8, 16)
    assert (offers["local.c1"].category, offers["local.g1"].category) == ("compute", "general")
    assert offers["local.m6"].category == "memory"


def test_leaves_out_what_does_not_fit_into_memory() -> None:
    assert list(sells(vcpu=4, memory_gib=4.0)) == [
        "local.c1",
        "local.g1",
        "local.m1",
        "local.c2",
        "local.g2",
        "local.c4",
    ]


@pytest.mark.parametrize("memory", [0.5, 0.99])
def test_a_tiny_machine_still_sells_itself(memory: float) -> None:
    [offer] = sells(vcpu=1, memory_gib=memory).values()
    assert (offer.instance_type, offer.vcpu, offer.memory_gib) == ("local.c1", 1, memory)


def test_one_core() -> None:
    assert list(sells(vcpu=1, memory_gib=8.0)) == ["local.c1", "local.g1", "local.m1"]


def test_price_is_cpus_and_memory() -> None:
    assert sells(vcpu=2, memory_gib=8.0)["local.m2"].price_per_hour == pytest.approx(2 * 0.04 + 8 * 0.005)
    offer = sells(vcpu=2, memory_gib=8.0, price_per_vcpu=1.0, price_per_gib=0.0)["local.m2"]
    assert offer.price_per_hour == 2.0
    assert "stand-in" in offer.source


@pytest.mark.parametrize("wrong", [{"price_per_vcpu": 0}, {"price_per_gib": -1}, {"vcpu": 0}, {"memory_gib": 0}])
def test_wrong_settings(wrong: dict[str, float]) -> None:
    with pytest.raises(SpecError, match="catalogue local"):
        sells(**wrong)


def test_the_machine_at_hand() -> None:
    offers = sells()
    assert max(offer.vcpu for offer in offers.values()) <= local.available_cpus()
    assert max(offer.memory_gib for offer in offers.values()) <= max(1.0, local.available_memory() / 2**30)


def test_a_container_has_less_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(local, "_CGROUP_LIMITS", (tmp_path / "missing", limit))
    limit.write_text("max\n")
    whole = local.available_memory()
    limit.write_text("1073741824\n")
    assert local.available_memory() == 1 << 30 < whole


@pytest.mark.parametrize(
    ("two", "one", "cpus"),
    [
        ("max 100000\n", None, 8),
        ("200000 100000\n", None, 2),
        ("150000 100000\n", None, 2),
        ("10000 100000\n", None, 1),
        ("1600000 100000\n", None, 8),
        (None, ("-1\n", "100000\n"), 8),
        (None, ("250000\n", "100000\n"), 3),
        (None, None, 8),
        ("nonsense\n", None, 8),
    ],
)
def test_a_container_has_a_share_of_the_cpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two: str | None, one: tuple[str, str] | None, cpus: int
) -> None:
    files = tmp_path / "cpu.max", tmp_path / "quota", tmp_path / "period"
    for path, text in zip(files, (two, *(one or (None, None))), strict=True):
        if text is not None:
            path.write_text(text)
    monkeypatch.setattr(local, "_CGROUP_QUOTAS", (files[:1], files[1:]))
    monkeypatch.setattr("os.sched_getaffinity", lambda _process: set(range(8)))
    assert local.available_cpus() == cpus
    assert max(offer.vcpu for offer in sells(memory_gib=100.0).values()) == cpus


def test_slices_with_gpus_where_the_machine_has_some(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    have_nvidia(monkeypatch, tmp_path, 3)
    offers = sells(vcpu=1, memory_gib=1.0, price_per_gpu=3.0)
    assert list(offers) == ["local.c1", "local.c1-gpu1", "local.c1-gpu2", "local.c1-gpu3"]
    offer = offers["local.c1-gpu2"]
    assert (offer.gpus, offer.category, offer.facts["accelerator"]) == (2, "accelerated", "NVIDIA H100 80GB HBM3")
    assert offer.price_per_hour == pytest.approx(offers["local.c1"].price_per_hour + 6.0)


def test_a_machine_without_gpus_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    have_nvidia(monkeypatch, tmp_path, 0)
    query = OfferQuery(provider=("local",), gpus=(1, None))
    with pytest.raises(NoOfferError, match="the query: this machine has no GPU"):
        require_offers(query, tmp_path)
    text = "name: j\njob: {command: [run]}\nspace: {instance: {provider: local, gpus: 1}}\n"
    with pytest.raises(NoOfferError, match="instance: this machine has no GPU"):
        build_problem(parse_spec(text, base=tmp_path), tmp_path)
