"""How quick machines are by their scores."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tradewind.problem import Offer
from tradewind.searcher.surrogate.speed import MachineSpeed


def offer(name: str, vcpu: float, nodes: int = 1, **facts: float | str) -> Offer:
    return Offer("p", name, vcpu, 4.0 * vcpu, 0.05 * vcpu, nodes=nodes, facts=facts)


def speed_of(*offers: Offer) -> np.ndarray:
    speed = MachineSpeed.of_offers(offers)
    assert speed is not None
    return speed.of(offers)


def test_the_score_of_a_vcpu_counts_whatever_the_size() -> None:
    offers = [offer(f"slow{v}", v, coremark=10_000.0 * v) for v in (2, 4, 8)]
    offers += [offer(f"fast{v}", v, nodes=v, coremark=15_000.0 * v) for v in (2, 4, 8)]
    found = speed_of(*offers)
    assert found[3:] - found[:3] == pytest.approx([math.log(1.5)] * 3)
    assert found.mean() == pytest.approx(0.0)


def test_a_score_of_one_core_is_not_divided() -> None:
    offers = [offer(f"slow{v}", v, stress_ng_best1=1000.0) for v in (2, 4, 64)]
    offers += [offer(f"fast{v}", v, stress_ng_best1=1500.0) for v in (2, 4, 64)]
    found = speed_of(*offers)
    assert found[3:] - found[:3] == pytest.approx([math.log(1.5)] * 3)


def test_several_scores_are_averaged_and_a_missing_one_is_the_usual() -> None:
    offers = [
        offer("a", 2, coremark=20.0, memory_bandwidth=10.0),
        offer("b", 2, coremark=40.0, memory_bandwidth=10.0),
        offer("c", 2, memory_bandwidth=10.0),
    ]
    found = speed_of(*offers)
    assert found[1] - found[0] == pytest.approx(math.log(2.0) / 2)
    assert found[2] == pytest.approx(0.0)


def test_scores_that_fit_no_machine_are_left_out() -> None:
    """Dealt out at random over sizes of 2 to 64 vCPUs they differ by much more than cores do."""
    rng = np.random.default_rng(1)
    sizes = [2, 4, 8, 16, 32, 64] * 4
    right = [offer(f"t{i}", v, coremark=v * 1e4 * math.exp(0.2 * rng.normal())) for i, v in enumerate(sizes)]
    assert MachineSpeed.of_offers(right) is not None
    for seed in range(20):
        dealt = np.random.default_rng(seed).permutation(len(right))
        scores = [right[j].scores["coremark"] for j in dealt]
        wrong = [offer(f"t{i}", v, coremark=s) for i, (v, s) in enumerate(zip(sizes, scores, strict=True))]
        assert MachineSpeed.of_offers(wrong) is None


@pytest.mark.parametrize("facts", [{}, {"clock_ghz": 3.1}, {"coremark": "quick"}, {"coremark": 0.0}])
def test_without_scores_nothing_is_known(facts: dict[str, float | str]) -> None:
    offers = [replace(offer(name, 2), facts=facts) for name in "ab"]
    assert MachineSpeed.of_offers(offers) is None


def test_a_score_that_few_types_have_is_left_out() -> None:
    offers = [offer(f"t{i}", 2) for i in range(5)] + [offer(f"s{i}", 2, coremark=100.0 + i) for i in range(4)]
    assert MachineSpeed.of_offers(offers) is None
    assert MachineSpeed.of_offers(offers[1:]) is not None


def families(rng: np.random.Generator) -> list[Offer]:
    """Six families of four sizes; a vCPU of each is as quick as that of its family."""
    return [
        offer(f"f{family}.{vcpu}x", vcpu, coremark=vcpu * 1e4 * math.exp(quick + 0.03 * rng.normal()))
        for family, quick in enumerate(rng.normal(size=6) * 0.3)
        for vcpu in (2, 4, 8, 16)
    ]


def test_sizes_of_a_family_have_one_kind_of_core() -> None:
    """Scores per vCPU that were dealt out anew still grow with the vCPUs, but not by family."""
    right = families(np.random.default_rng(1))
    assert MachineSpeed.of_offers(right) is not None
    for seed in range(20):
        cores = np.random.default_rng(seed).permutation([o.scores["coremark"] / o.vcpu for o in right])
        wrong = [offer(o.instance_type, o.vcpu, coremark=o.vcpu * core) for o, core in zip(right, cores, strict=True)]
        assert MachineSpeed.of_offers(wrong) is None


def test_families_of_rough_names_leave_a_score_believed() -> None:
    """What a list calls a family may be wider than a kind of core; the types' names show it then."""
    offers = [replace(o, family="general") for o in families(np.random.default_rng(2))]
    assert MachineSpeed.of_offers(offers) is not None


def test_a_bandwidth_grows_less_than_the_vcpus() -> None:
    sizes = (2, 4, 8, 16, 32, 64)
    offers = [offer(f"a.{v}", v, memory_bandwidth=10.0 * v**0.6) for v in sizes]
    offers += [offer(f"b.{v}", v, memory_bandwidth=15.0 * v**0.6) for v in sizes]
    found = speed_of(*offers)
    assert found[6:] - found[:6] == pytest.approx([math.log(1.5)] * 6)
    assert found[:6] == pytest.approx([found[0]] * 6)


@pytest.mark.parametrize(
    "names",
    [
        (
            "Standard_D2ads_v6",
            "Standard_D16ads_v6",
            "Standard_D64ads_v6",
            "Standard_E2s_v5",
            "Standard_E8s_v5",
            "Standard_E96s_v5",
        ),
        ("n2-standard-2", "n2-standard-8", "n2-standard-64", "e2-highcpu-2", "e2-highcpu-8", "e2-highcpu-32"),
    ],
)
def test_families_by_the_names_of_other_providers(names: tuple[str, ...]) -> None:
    offers = [
        offer(name, 2.0, coremark=score)
        for name, score in zip(names, (10.0, 10.1, 10.2, 30.0, 30.2, 30.4), strict=True)
    ]
    assert MachineSpeed.of_offers(offers) is not None
    mixed = [
        offer(name, 2.0, coremark=score)
        for name, score in zip(names, (10.0, 30.0, 10.1, 30.2, 10.2, 30.4), strict=True)
    ]
    assert MachineSpeed.of_offers(mixed) is None


def test_of_few_types_any_score_is_believed() -> None:
    """One of two types that are alike but for their names may be ten times as quick."""
    assert speed_of(offer("t.a", 2, coremark=1.0), offer("t.b", 2, coremark=10.0))[1] > 1.0
    found = speed_of(*(offer(f"t{i}", v, coremark=s) for i, (v, s) in enumerate([(2, 1), (2, 2), (4, 2), (4, 4)])))
    assert found[1] - found[0] == pytest.approx(math.log(2.0))
