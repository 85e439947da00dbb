"""Differences of the three selectors, and the trials that come of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import share

from tradewind import plugins
from tradewind.errors import NoOfferError, SpecError
from tradewind.problem import (
    Categorical,
    Configuration,
    Float,
    Instance,
    Integer,
    Nodes,
    Offer,
    Ordinal,
    Parameter,
    Space,
)
from tradewind.selector.attributes import OfferTable
from tradewind.selector.base import Selector
from tradewind.testing.selectors import problem_of


def offer(name: str, vcpu: float, memory: float, price: float, **more: Any) -> Offer:
    return Offer(more.pop("provider", "shop"), name, vcpu=vcpu, memory_gib=memory, price_per_hour=price, **more)


OFFERS = [
    offer("c2", 2, 4, 0.08, category="compute"),
    offer("c4", 4, 8, 0.16, category="compute"),
    offer("g2", 2, 8, 0.10, category="general"),
    offer("g4", 4, 16, 0.20, category="general"),
    offer("g8", 8, 32, 0.40, category="general"),
    offer("g8-old", 8, 32, 0.50, category="general"),
    offer("a8", 8, 32, 3.00, category="accelerated", gpus=1),
]


def attributes(**values: Sequence[Any]) -> list[Parameter]:
    """One parameter an attribute: words are categorical, numbers ordinal."""
    return [
        Categorical(name=f"my_{name}", values=tuple(options), attribute=name)
        if isinstance(options[0], str | bool)
        else Ordinal(name=f"my_{name}", values=tuple(options), attribute=name)
        for name, options in values.items()
    ]


def make(kind: str, parameters: Sequence[Parameter], offers: Sequence[Offer] = tuple(OFFERS), **given: Any) -> Selector:
    selector: Selector = plugins.create("selector", kind, given, offers=offers, space=Space(parameters))
    return selector


def ask(selector: Selector, **values: Any) -> Offer:
    names = {p.name for p in selector.space.parameters}
    return selector.resolve(
        Configuration({f"my_{name}" if f"my_{name}" in names else name: value for name, value in values.items()})
    )


# ---------------------------------------------------------------------------------------------------- exact


def test_exact_takes_the_cheapest_that_has_it_all() -> None:
    selector = make("exact", attributes(vcpu=[2, 8], memory=[4, 32]))
    assert ask(selector, vcpu=8, memory=32).instance_type == "g8"
    assert ask(selector, vcpu=2, memory=4).instance_type == "c2"


def test_exact_refuses_and_names_the_nearest() -> None:
    selector = make("exact", [*attributes(vcpu=[8, 16], category=["compute", "general"]), Nodes(name="n", values=(3,))])
    with pytest.raises(NoOfferError) as caught:
        ask(selector, vcpu=16, category="general", n=3)
    assert str(caught.value) == (
        "no provider sells my_vcpu=16 my_category=general (the nearest is g8 of shop with vcpu 8, category general)"
    )
    with pytest.raises(NoOfferError) as again:  # from what was kept
        ask(selector, vcpu=16, category="general", n=3)
    assert str(again.value) == str(caught.value)


def test_exact_reads_memory_with_a_unit_words_in_any_case_and_truths() -> None:
    spot = offer("s2", 2, 8, 0.03, category="general", spot=True)
    space = attributes(memory=["8GiB", "32 GiB", "plenty"], category=["General"], spot=[True, False])
    selector = make("exact", space, [*OFFERS, spot])
    assert ask(selector, memory="8GiB", category="General", spot=True) == spot
    assert ask(selector, memory="8GiB", category="General", spot=False).instance_type == "g2"
    with pytest.raises(NoOfferError):
        ask(selector, memory="plenty", category="General", spot=False)


def test_exact_by_instance_and_region() -> None:
    here, there = (offer("m1", 2, 8, price, region=region) for region, price in (("here", 0.1), ("there", 0.05)))
    other = offer("m1", 2, 8, 0.01, region="there", provider="another")
    parameters: list[Parameter] = [
        Instance(name="instance", values=("m1",), offers={"m1": here}),
        Categorical(name="where", values=("here", "there", "nowhere"), attribute="region"),
    ]
    selector = make("exact", parameters, [here, there, other])
    assert ask(selector, instance="m1", where="here") == here
    assert ask(selector, instance="m1", where="there") == there
    with pytest.raises(NoOfferError, match="nowhere"):
        ask(selector, instance="m1", where="nowhere")


def test_a_named_offer_is_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    names = tuple(one.instance_type for one in OFFERS)
    space: list[Parameter] = [Instance(name="instance", values=names, offers=dict(zip(names, OFFERS, strict=True)))]
    for kind in ("exact", "cheapest", "nearest"):
        selector = make(kind, space)
        with monkeypatch.context() as patched:
            patched.setattr(OfferTable, "only", None)  # a mask of all offers, for each of them
            assert [ask(selector, instance=name) for name in names] == OFFERS


def test_instance_without_offers_is_found_by_its_type() -> None:
    selector = make("exact", [Instance(name="instance", values=("g4", "z9"))])
    assert ask(selector, instance="g4").instance_type == "g4"
    with pytest.raises(NoOfferError, match="the nearest is c2 of shop"):
        ask(selector, instance="z9")


def test_a_space_without_machines_takes_the_cheapest() -> None:
    assert ask(make("exact", [Integer(name="workers", low=1, high=2)]), workers=1).instance_type == "c2"


def test_facts_are_attributes_too() -> None:
    offers = [offer("slow", 2, 4, 0.1, facts={"ghz": 2.0}), offer("fast", 2, 4, 0.2, facts={"ghz": 4.0}), OFFERS[0]]
    for kind, wanted in (("exact", "fast"), ("cheapest", "fast"), ("nearest", "fast")):
        assert ask(make(kind, attributes(ghz=[4.0]), offers), ghz=4.0).instance_type == wanted
    words = [
        offer("a", 2, 4, 0.1, facts={"disk": "ssd"}),
        offer("b", 2, 4, 0.05),
        offer("c", 2, 4, 0.01, facts={"disk": 1}),
    ]
    assert ask(make("exact", attributes(disk=["SSD"]), words), disk="SSD").instance_type == "a"


# ---------------------------------------------------------------------------------------------------- cheapest


def test_cheapest_that_is_large_enough() -> None:
    selector = make("cheapest", attributes(vcpu=[1, 3, 8, 9], memory=[1, 5, 30]))
    assert ask(selector, vcpu=1, memory=1).instance_type == "c2"
    assert ask(selector, vcpu=1, memory=5).instance_type == "g2"
    assert ask(selector, vcpu=3, memory=5).instance_type == "c4"
    assert ask(selector, vcpu=8, memory=30).instance_type == "g8"
    with pytest.raises(NoOfferError, match="the nearest is g8 "):
        ask(selector, vcpu=9, memory=30)


def test_cheapest_keeps_words_and_the_price_is_a_ceiling() -> None:
    selector = make("cheapest", attributes(vcpu=[4], category=["general"], price=[0.15, 0.2]))
    assert ask(selector, vcpu=4, category="general", price=0.2).instance_type == "g4"
    with pytest.raises(NoOfferError):
        ask(selector, vcpu=4, category="general", price=0.15)


def test_cheapest_does_not_take_spot_for_more_than_asked() -> None:
    spot = offer("s2", 2, 8, 0.01, spot=True)
    selector = make("cheapest", attributes(vcpu=[2], spot=[True, False]), [*OFFERS, spot])
    assert ask(selector, vcpu=2, spot=False).instance_type == "c2"
    assert ask(selector, vcpu=2, spot=True).instance_type == "s2"


# ---------------------------------------------------------------------------------------------------- nearest


def test_nearest_counts_doublings() -> None:
    selector = make("nearest", attributes(vcpu=[2, 3, 5, 64], memory=[6, 8, 32]))
    assert ask(selector, vcpu=5, memory=32).instance_type == "g8"
    assert ask(selector, vcpu=64, memory=32).instance_type == "g8"
    assert ask(selector, vcpu=2, memory=8).instance_type == "g2"
    # 3 vCPU, 6 GiB: c2 and c4 are log2(3/2) and log2(4/3) away in each; c4 is nearer.
    assert ask(selector, vcpu=3, memory=6).instance_type == "c4"


def test_nearest_breaks_ties_by_price_then_name() -> None:
    twins = [offer("b", 2, 4, 0.1), offer("a", 2, 4, 0.1), offer("c", 2, 4, 0.09), offer("d", 8, 4, 0.01)]
    parameters = attributes(vcpu=[2, 4])
    assert ask(make("nearest", parameters, twins), vcpu=2).instance_type == "c"
    assert ask(make("nearest", parameters, twins[:2]), vcpu=2).instance_type == "a"
    assert ask(make("nearest", parameters, twins), vcpu=4).instance_type == "d"  # 2 and 8 are equally far from 4


def test_priorities_decide_before_everything_else() -> None:
    parameters = attributes(category=["compute"], vcpu=[8], memory=[32])
    assert ask(make("nearest", parameters), category="compute", vcpu=8, memory=32).instance_type == "g8"
    first = make("nearest", parameters, priorities=["category", "vcpu"])
    assert ask(first, category="compute", vcpu=8, memory=32).instance_type == "c4"
    other_order = make("nearest", parameters, priorities=["vcpu", "category"])
    assert ask(other_order, category="compute", vcpu=8, memory=32).instance_type == "g8"


def test_weights() -> None:
    parameters = attributes(category=["compute"], vcpu=[8], memory_gib=[32])
    heavy = make("nearest", parameters, weights={"category": 10})
    assert ask(heavy, category="compute", vcpu=8, memory_gib=32).instance_type == "c4"
    blind = make("nearest", parameters, weights={"vcpu": 0, "memory": 0})
    assert ask(blind, category="compute", vcpu=8, memory_gib=32).instance_type == "c2"


def test_must_is_a_refusal() -> None:
    selector = make("nearest", attributes(category=["compute", "quantum"], vcpu=[64]), must=["category"])
    assert ask(selector, category="compute", vcpu=64).instance_type == "c4"
    with pytest.raises(NoOfferError, match="quantum"):
        ask(selector, category="quantum", vcpu=64)


def test_zero_accelerators_is_a_number() -> None:
    selector = make("nearest", attributes(vcpu=[8], gpus=[0, 1, 4]))
    assert ask(selector, vcpu=8, gpus=0).instance_type == "g8"
    assert ask(selector, vcpu=8, gpus=1).instance_type == "a8"
    assert ask(selector, vcpu=8, gpus=4).instance_type == "a8"
    positive = make("nearest", attributes(gpus=[0, -1]), [offer("one", 1, 1, 1.0, gpus=1)])
    assert ask(positive, gpus=0).gpus == 1
    with pytest.raises(NoOfferError, match="zero or more"):
        ask(positive, gpus=-1)


def test_an_offer_without_the_fact_is_infinitely_far() -> None:
    offers = [offer("known", 2, 4, 9.0, facts={"ghz": 2.0}), offer("unknown", 2, 4, 0.1)]
    assert ask(make("nearest", attributes(ghz=[4.0]), offers), ghz=4.0).instance_type == "known"


@pytest.mark.parametrize(
    "given",
    [
        {"must": ["color"]},
        {"priorities": ["memory"]},
        {"weights": {"vcpus": 1}},
        {"weights": {"vcpu": -1}},
        {"wait": 1},
    ],
)
def test_wrong_settings(given: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="nearest"):
        make("nearest", attributes(vcpu=[2]), **given)


@pytest.mark.slow
@settings(max_examples=share(60), deadline=None)
@given(
    sizes=st.lists(
        st.tuples(st.integers(1, 64), st.integers(1, 512), st.integers(1, 500)), min_size=1, max_size=25, unique=True
    ),
    cpus=st.integers(1, 100),
    memory=st.integers(1, 600),
    seed=st.randoms(use_true_random=False),
)
def test_against_the_plain_definition(sizes: list[tuple[int, int, int]], cpus: int, memory: int, seed: Any) -> None:
    import math

    offers = [offer(f"t{i:02}", c, m, p / 1000) for i, (c, m, p) in enumerate(sizes)]
    shuffled = list(offers)
    seed.shuffle(shuffled)
    parameters = attributes(vcpu=[cpus], memory=[memory])

    def far(o: Offer) -> tuple[float, float, str]:
        away = round(abs(math.log2(o.vcpu / cpus)), 9) + round(abs(math.log2(o.memory_gib / memory)), 9)
        return round(away, 6), o.price_per_hour, o.key

    got = ask(make("nearest", parameters, shuffled), vcpu=cpus, memory=memory)
    assert far(got)[0] == min(far(o) for o in offers)[0]

    enough = [o for o in offers if o.vcpu >= cpus and o.memory_gib >= memory]
    same = [o for o in enough if (o.vcpu, o.memory_gib) == (cpus, memory)]
    for kind, able in (("cheapest", enough), ("exact", same)):
        selector = make(kind, parameters, shuffled)
        if able:
            assert ask(selector, vcpu=cpus, memory=memory) == min(able, key=lambda o: (o.price_per_hour, o.key))
        else:
            with pytest.raises(NoOfferError):
                ask(selector, vcpu=cpus, memory=memory)


# ---------------------------------------------------------------------------------------------------- all of them


@pytest.mark.parametrize("kind", ["exact", "nearest", "cheapest"])
def test_an_attribute_that_no_offer_has(kind: str) -> None:
    with pytest.raises(SpecError, match="did you mean 'vcpu'"):
        make(kind, [Ordinal(name="cores", values=(2,), attribute="vcpus")])


@pytest.mark.parametrize("kind", ["exact", "nearest", "cheapest"])
def test_two_counts_of_machines(kind: str) -> None:
    selector = make(kind, [Nodes(name="a", values=(1,)), Nodes(name="b", values=(1,))])
    with pytest.raises(SpecError, match="both choose the number of machines"):
        ask(selector, a=1, b=1)


def test_proposals_for_the_same_offer_are_one_trial() -> None:
    parameters = [
        *attributes(vcpu=[1, 2, 3, 4, 6, 8, 16], memory=[4, 8, 16, 32]),
        Nodes(name="nodes", values=(1, 2)),
        Integer(name="workers", low=1, high=3),
    ]
    problem = problem_of(make("nearest", parameters, OFFERS[:6]))

    def key(vcpu: int, nodes: int = 1, workers: int = 1) -> str:
        return problem.trial_key(Configuration({"my_vcpu": vcpu, "my_memory": 32, "nodes": nodes, "workers": workers}))

    assert key(8) == key(16)
    assert key(8) != key(8, nodes=2)
    assert key(8) != key(8, workers=2)
    candidates = problem.candidates
    different = {candidates.offer(i).instance_type for i in range(len(candidates))}
    assert len(candidates) == len(different) * 2 * 3 < len(problem.space) == 7 * 4 * 2 * 3
    far = Configuration({"my_vcpu": 16, "my_memory": 32, "nodes": 1, "workers": 1})
    near = Configuration({"my_vcpu": 8, "my_memory": 32, "nodes": 1, "workers": 1})
    assert candidates.index(far) == candidates.index(near) is not None


def test_exact_leaves_out_what_nobody_sells() -> None:
    problem = problem_of(make("exact", attributes(vcpu=[2, 4, 8], memory=[4, 8, 16, 32])))
    assert sorted(problem.candidates.offer(i).instance_type for i in range(len(problem.candidates))) == [
        "c2", "c4", "g2", "g4", "g8",
    ]  # fmt: skip


def test_a_trial_keeps_its_key_when_the_price_changes() -> None:
    parameters = attributes(vcpu=[8])
    dearer = [offer(o.instance_type, o.vcpu, o.memory_gib, o.price_per_hour * 2, category=o.category) for o in OFFERS]
    keys = {
        problem_of(make("exact", parameters, offers)).trial_key(Configuration({"my_vcpu": 8}))
        for offers in (OFFERS, dearer)
    }
    assert len(keys) == 1


# ---------------------------------------------------------------------------------------------------- ranges


def test_ranges_choose_machines_by_the_nearest() -> None:
    parameters = [
        Float(name="my_vcpu", low=1.0, high=16.0, log=True, attribute="vcpu"),
        Integer(name="my_memory", low=1, high=64, attribute="memory_gib"),
        Integer(name="level", low=1, high=3),
    ]
    selector = make("nearest", parameters)
    assert selector.machine_parameters == ("my_vcpu", "my_memory")
    assert ask(selector, vcpu=3.1, memory=7, level=1).instance_type == "c4"
    assert ask(selector, vcpu=2.2, memory=7, level=1).instance_type == "g2"
    assert ask(selector, vcpu=16.0, memory=64, level=1).instance_type == "g8"
    assert ask(make("cheapest", parameters), vcpu=2.5, memory=9, level=1).instance_type == "g4"


def test_proposals_of_a_range_that_come_to_one_offer_are_one_trial() -> None:
    parameters = [Float(name="my_vcpu", low=1.0, high=16.0, attribute="vcpu"), Integer(name="level", low=1, high=3)]
    problem = problem_of(make("nearest", parameters))
    one, two, other = (Configuration({"my_vcpu": v, "level": 1}) for v in (3.9, 4.1, 7.9))
    assert problem.trial_key(one) == problem.trial_key(two) != problem.trial_key(other)


def test_exact_takes_whole_numbers_of_a_range_and_says_that_real_ones_are_for_nearest() -> None:
    selector = make("exact", [Integer(name="my_vcpu", low=1, high=8, attribute="vcpu")])
    assert ask(selector, vcpu=4).instance_type == "c4"
    with pytest.raises(NoOfferError):
        ask(selector, vcpu=3)
    with pytest.raises(SpecError, match=r"my_vcpu: hardly any real number.*select: nearest"):
        make("exact", [Float(name="my_vcpu", low=1.0, high=8.0, attribute="vcpu")])
    fixed = make("exact", [Float(name="my_vcpu", low=4.0, high=4.0, attribute="vcpu")])
    assert ask(fixed, vcpu=4.0).instance_type == "c4"


def test_architectures_are_compared_by_any_name() -> None:
    sold = [offer("x", 2, 4, 0.1, arch="x86_64"), offer("a", 2, 4, 0.08, arch="arm64")]
    selector = make("exact", attributes(arch=["AMD64", "aarch64"]), sold)
    assert [ask(selector, arch=name).instance_type for name in ("AMD64", "aarch64")] == ["x", "a"]
