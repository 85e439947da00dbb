from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tradewind.errors import ConfigurationError, SpecError
from tradewind.problem import (
    Categorical,
    Configuration,
    Expression,
    Float,
    Instance,
    Integer,
    Nodes,
    Offer,
    Ordinal,
    Space,
    Value,
)

OFFERS = {"small": Offer("local", "small", 1, 2, 0.1), "large": Offer("local", "large", 4, 8, 0.4, category="compute")}
CODEC = Categorical(name="codec", values=("none", "gzip", "bz2"))
LEVEL = Integer(name="level", low=1, high=9, step=2, when=Expression("codec != 'none'"))
FAST = Categorical(name="fast", values=(True, False), when=Expression("level > 4"))
SIZE = Ordinal(name="size", values=(1, 2.5, 16))
MACHINE = Instance(name="instance", values=("small", "large"), offers=OFFERS)
NODES = Nodes(name="nodes", values=(1, 2, 4))

CONDITIONS = [
    "level <= 5",
    "size * nodes <= 16",
    "nodes <= instance.vcpu",
    "fast or size > 1",
    "codec in ('gzip', 'none') or instance.category == 'compute'",
    "min(size, nodes) < 3 and not nodes == 4",
    "level % 3 != 0",
    "level ** 2 < 30 if size > 2 else level > 2",
    "instance.price * nodes / size < 0.5",
    "instance == 'small' or codec == 'bz2'",
]
wheres = st.lists(st.sampled_from(CONDITIONS), max_size=3, unique=True).map(
    lambda texts: Space([CODEC, MACHINE, LEVEL, SIZE, FAST, NODES], [Expression(t) for t in texts])
)


@pytest.mark.slow
@given(wheres)
@settings(max_examples=15, deadline=None)
def test_codes_and_configurations_are_inverse_and_features_agree(space: Space) -> None:
    configurations = [space.configuration(code) for code in space.codes]
    assert [space.code(c) for c in configurations] == [tuple(code) for code in space.codes.tolist()]
    assert len({c.key for c in configurations}) == len(space) == len(configurations)
    assert np.array_equal(space.encode(configurations), space.encode_codes(space.codes))
    assert space.encode_codes(space.codes).shape == (len(space), len(space.feature_names))
    assert np.array_equal(space.codes, np.array(sorted(space.codes.tolist())))


@pytest.mark.slow
@given(wheres)
@settings(max_examples=15, deadline=None)
def test_columns_and_single_values_agree_on_what_is_allowed(space: Space) -> None:
    free = Space(space.parameters)
    allowed = {space.configuration(code).key for code in space.codes}
    for code in free.codes:
        configuration = free.configuration(code)
        try:
            assert space.check(configuration) == configuration
            assert configuration.key in allowed
        except ConfigurationError:
            assert configuration.key not in allowed


def test_conditional_parameters_exist_only_where_their_condition_holds() -> None:
    space = Space([CODEC, LEVEL, FAST])
    found = {str(space.configuration(code)) for code in space.codes}
    assert "codec=none" in found
    assert len(space) == 1 + 2 * (2 + 3 * 2)
    assert space.feature_names == ("codec=none", "codec=gzip", "codec=bz2", "level", "level?", "fast", "fast?")
    inactive = space.encode([Configuration({"codec": "none"})])[0]
    assert inactive[3:].tolist() == [0.5, 0.0, 0.5, 0.0]
    with pytest.raises(ConfigurationError, match="level exists only when codec"):
        space.check({"codec": "none", "level": 3})
    with pytest.raises(ConfigurationError, match="level is missing"):
        space.check({"codec": "gzip"})
    with pytest.raises(ConfigurationError, match="there is no parameter 'x'"):
        space.check({"x": 1})


def test_a_change_is_completed_with_what_it_makes_necessary() -> None:
    space = Space([CODEC, LEVEL, FAST])
    otherwise: Mapping[str, Value] = {"codec": "none", "level": 1, "fast": False}
    assert dict(space.complete({"codec": "bz2", "level": 7}, otherwise)) == {"codec": "bz2", "level": 7, "fast": False}
    assert dict(space.complete({"codec": "none", "level": 7}, otherwise)) == {"codec": "none"}


def test_what_some_values_leave_one_value_for_is_implied() -> None:
    one = Categorical(name="one", values=("only",))
    space = Space([CODEC, LEVEL, FAST, NODES, one], [Expression("fast or nodes == 4"), Expression("nodes < level")])
    assert space.implied({}) == {"one": "only"}
    assert space.implied({"codec": "gzip", "level": 9, "fast": False}) == {"nodes": 4, "one": "only"}
    assert space.implied({"codec": "gzip", "level": 9, "nodes": 2}) == {"fast": True, "one": "only"}
    assert space.implied({"codec": "none"}) == {"one": "only"}, "what does not exist has no value"
    assert space.implied({"codec": "none", "level": 9}) == {}, "there is no such configuration"


def test_what_is_implied_in_a_space_that_cannot_be_listed() -> None:
    one = Categorical(name="one", values=("only",), when=Expression("codec == 'gzip'"))
    space = Space([Float(name="x", low=0.0, high=1.0), CODEC, one])
    assert space.implied({"codec": "gzip"}) == {"one": "only"}
    assert (
        space.implied({"codec": "none"}) == space.implied({}) == space.implied({"codec": "gzip", "one": "only"}) == {}
    )


def test_a_condition_that_is_also_a_constraint_does_not_bring_back_what_is_inactive() -> None:
    same = Expression("codec == 'gzip'")
    inner = Integer(name="inner", low=1, high=2, when=same)
    outer = Integer(name="outer", low=1, high=2, when=Expression("inner == 1"))
    space = Space([CODEC, inner, outer], [Expression("inner == 1")])
    assert dict(space.check({"codec": "none"})) == {"codec": "none"}
    assert {str(space.configuration(c)) for c in space.codes} == {
        "codec=none",
        "codec=bz2",
        "codec=gzip inner=1 outer=1",
        "codec=gzip inner=1 outer=2",
    }


@pytest.mark.slow
def test_a_million_combinations_are_listed_in_bounded_memory_and_time() -> None:
    parameters = [MACHINE, *(Integer(name=f"x{i}", low=1, high=10) for i in range(5)), SIZE]
    start = time.perf_counter()
    space = Space(parameters, [Expression("x0 <= instance.vcpu * 8"), Expression("x1 + x2 * x3 < 500")])
    tracemalloc.start()
    assert space.combinations == 600_000
    count = len(space)
    features = space.encode_codes(space.codes)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == len(features) == 540_000
    assert peak < 150e6
    assert time.perf_counter() - start < 10  # a second or less on a machine that is not busy


def test_more_combinations_than_can_be_listed_are_sampled() -> None:
    space = Space([Integer(name=f"x{i}", low=1, high=1000) for i in range(3)], [Expression("x0 < x1")])
    assert not space.enumerable
    with pytest.raises(SpecError, match="too many to list"):
        _ = space.codes
    assert_sampled(space)


def test_continuous_spaces_are_sampled() -> None:
    space = Space(
        [CODEC, Float(name="rate", low=1e-4, high=1.0, log=True), MACHINE, LEVEL],
        [Expression("rate < 0.5 or instance.vcpu > 2")],
    )
    assert not space.enumerable
    assert_sampled(space)


def assert_sampled(space: Space) -> None:
    drawn = space.sample(np.random.default_rng(1), 50)
    assert len({c.key for c in drawn}) == 50
    assert [space.check(c) for c in drawn] == drawn
    assert drawn == space.sample(np.random.default_rng(1), 50)


def test_a_sample_of_a_small_space_is_all_of_it() -> None:
    space = Space([CODEC, LEVEL], [Expression("codec != 'bz2'")])
    drawn = space.sample(np.random.default_rng(0), 100)
    assert {c.key for c in drawn} == {space.configuration(code).key for code in space.codes}


def test_constraints_that_leave_almost_nothing_end_the_sampling() -> None:
    space = Space([Float(name="x", low=0, high=1)], [Expression("x > 2")])
    assert space.sample(np.random.default_rng(0), 3, tries=3) == []


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Space([]), "the space is empty"),
        (lambda: Space([CODEC, CODEC]), "declared twice"),
        (lambda: Space([LEVEL, CODEC]), "names 'codec'"),
        (lambda: Space([CODEC], [Expression("levl > 1")]), "names 'levl'"),
        (lambda: Space([CODEC], [Expression("1 < 2")]), "names no parameter"),
        (lambda: Space([Integer(name="x", low=1, high=2, when=Expression("true"))]), "names no parameter"),
        (lambda: Space([CODEC], [Expression("codec == 'xz'")]).codes, "no combination"),
        (lambda: Space([CODEC, LEVEL], [Expression("codec == 'xz'")]).codes, "no combination"),
        (lambda: Space([CODEC], [Expression("codec.vcpu > 1")]).codes, "only an instance has facts"),
        (lambda: Space([MACHINE], [Expression("instance.colour > 1")]).codes, "no offer has this fact"),
        (lambda: Space([CODEC], [Expression("codec > 1")]).codes, "mixes text and numbers"),
    ],
)
def test_spaces_that_make_no_sense_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        make()


def test_a_broken_constraint_is_named() -> None:
    space = Space([CODEC, SIZE], [Expression("size < 3 or codec == 'none'")])
    assert "codec" in space
    assert space["size"] is SIZE
    with pytest.raises(ConfigurationError, match="codec=gzip size=16 breaks the constraint size < 3"):
        space.check({"codec": "gzip", "size": "16"})
    assert space.place({"codec": "gzip", "size": 3}) is None
    assert space.place({"codec": "gzip", "size": 16}) == (1, 2)
    assert space.holds(space.where[0], {"codec": "none", "size": 16})


def test_mixed_numbers_keep_the_way_they_were_written() -> None:
    space = Space([SIZE])
    values = [space.configuration(code)["size"] for code in space.codes]
    assert [(v, type(v)) for v in values] == [(1, int), (2.5, float), (16, int)]


def test_a_whole_number_in_a_list_of_others_stays_whole_where_it_is_drawn() -> None:
    rate, step = Float(name="rate", low=0.0, high=1.0), Ordinal(name="step", values=(1, 0.5, 10))
    drawn = Space([rate, step]).sample(np.random.default_rng(0), 20)
    assert {str(one["step"]) for one in drawn} == {"1", "0.5", "10"}


@pytest.mark.parametrize("values", [("a", 0), (True, 2), (2**53 + 1, 2.5)])
def test_a_condition_on_a_list_of_several_kinds_holds_for_its_value(values: tuple[Value, ...]) -> None:
    """One value is compared as it is among the others: a number that stands beside texts may be compared to one."""
    space = Space(
        [
            Ordinal(name="mode", values=values),
            Float(name="share", low=0, high=1, step=0.25, when=Expression(f"mode == {values[0]!r}")),
        ]
    )
    assert len(space) == 5 + 1
    for code in space.codes:
        configuration = space.configuration(code)
        assert space.check(configuration) == configuration
        assert ("share" in configuration) == (configuration["mode"] == values[0])
    with pytest.raises(ConfigurationError, match="exists only when"):
        space.check({"mode": values[1], "share": 0.5})


def test_places_in_a_range_of_two_million_are_computed() -> None:
    space = Space([Integer(name="x", low=5, high=2_000_004), Float(name="y", low=0, high=1, step=1)])
    assert space.place({"x": 2_000_004, "y": 1.0}) == (1_999_999, 1)
    assert space.place({"x": "7", "y": 0}) == (2, 0)
    assert space.place({"x": 4, "y": 0}) is None
    assert space.place({"x": 5, "y": 0.5}) is None


def test_a_space_says_why_it_cannot_be_listed() -> None:
    assert Space([Integer(name="x", low=0, high=10**9)]).size_text == "1e+09 combinations"
    assert Space([Float(name="x", low=0, high=1)]).size_text == "a continuous parameter"
    assert not Space([Float(name="x", low=0, high=1, step=1e-9)]).enumerable
    assert len(Space([Float(name="x", low=0, high=1, step=1e-3)])) == 1001
