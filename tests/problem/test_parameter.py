from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.errors import ConfigurationError, SpecError
from tradewind.problem import Categorical, Float, Instance, Integer, Nodes, Offer, Ordinal, Parameter, Value
from tradewind.problem.offer import attributes_of
from tradewind.testing.generated_problems import float_ranges, integer_ranges, listed_parameters

units = st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=20).map(np.array)


listed = st.one_of(
    listed_parameters(),
    st.lists(st.integers(-100, 100), min_size=1, max_size=8, unique=True).map(
        lambda v: Ordinal(name="x", values=tuple(v))
    ),
    st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=8, unique=True).map(
        lambda v: Categorical(name="x", values=tuple(v))
    ),
    st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=8, unique=True).map(
        lambda v: Ordinal(name="x", values=tuple(v))
    ),
    st.lists(st.integers(1, 64), min_size=1, max_size=8, unique=True).map(lambda v: Nodes(name="x", values=tuple(v))),
)


@pytest.mark.slow
@given(st.one_of(integer_ranges(), float_ranges(), listed), units)
def test_what_is_drawn_is_in_the_space_and_has_features_from_0_to_1(
    parameter: Parameter, unit: np.ndarray[tuple[int], np.dtype[np.float64]]
) -> None:
    drawn = parameter.draw(unit)
    for value in drawn:
        plain: Value = value.item() if isinstance(value, np.generic) else value
        known = parameter.coerce(plain)
        assert (known, type(known)) == (plain, type(plain))
    features = parameter.features(drawn)
    assert features.shape == (len(unit), len(parameter.feature_names()))
    assert np.all((features >= -1e-9) & (features <= 1 + 1e-9))


@pytest.mark.slow
@given(st.one_of(integer_ranges(), float_ranges(), listed))
def test_every_level_is_its_own_value(parameter: Parameter) -> None:
    levels = parameter.levels
    if levels is None:
        return
    for i in {0, len(levels) // 2, len(levels) - 1}:
        assert parameter.level(i) == levels[i]
        assert parameter.coerce(parameter.level(i)) == parameter.level(i)


@pytest.mark.parametrize(
    ("low", "high", "log"),
    [
        (5e-324, 1.7e308, True),
        (-8.9e307, 8.9e307, False),
        (0.0, 1e-300, False),
        (1.0, 1.0 + 1e-7, False),
        (1e6, 1e6 + 0.1, False),
        (3.0, 3.0, False),
        (0.0, 0.0, False),
    ],
)
def test_ranges_at_the_edges_of_what_floats_can_be(low: float, high: float, log: bool) -> None:
    parameter = Float(name="x", low=low, high=high, log=log)
    values = parameter.draw(np.linspace(0.0, 1.0, 1001, endpoint=False))
    assert np.all((low <= values) & (values <= high))
    assert len(set(values.tolist())) == (1 if low == high else 1001)
    features = parameter.features(values)
    assert np.all((features >= 0.0) & (features <= 1.0))
    assert [parameter.coerce(value) for value in values[:9].tolist()] == values[:9].tolist()


def test_values_in_steps_are_those_that_a_person_writes() -> None:
    twenty = Float(name="x", low=0, high=1, step=0.05)
    assert twenty.levels is not None
    assert [str(value) for value in twenty.levels.tolist()] == [
        *("0.0", "0.05", "0.1", "0.15", "0.2", "0.25", "0.3", "0.35", "0.4", "0.45", "0.5"),
        *("0.55", "0.6", "0.65", "0.7", "0.75", "0.8", "0.85", "0.9", "0.95", "1.0"),
    ]
    assert [twenty.level(place) for place in range(21)] == twenty.levels.tolist()
    third = Float(name="x", low=0, high=1, step=0.3)
    assert third.levels is not None
    assert third.levels.tolist() == [0.0, 0.3, 0.6, 0.9]  # high is not among them
    assert third.features(third.levels)[:, 0].tolist() == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert Float(name="x", low=3, high=4, step=7).levels == [3.0]


@pytest.mark.parametrize("log", [False, True])
def test_steps_too_many_to_list_are_drawn_on_their_grid(log: bool) -> None:
    parameter = Float(name="x", low=0.1, high=100_000, step=0.0001, log=log)
    assert parameter.levels is None
    assert parameter.count == 999_999_001
    for value in parameter.draw(np.linspace(0.0, 1.0, 101)).tolist():
        assert len(str(value).partition(".")[2]) <= 4
        assert parameter.coerce(value) == value
        assert parameter.level(parameter.place(value)) == value


def test_steps_on_a_log_scale_are_drawn_by_their_logarithm() -> None:
    unit = (np.arange(1000) + 0.5) / 1000
    drawn = Float(name="x", low=0.5, high=5000, step=0.5, log=True).draw(unit)
    assert np.mean(drawn < 50) == pytest.approx(0.5, abs=0.06)
    many = Float(name="x", low=1e-300, high=3, step=3e-7, log=True).draw(unit)
    assert len(set(many.tolist())) > 500  # nearly all of these decades are below the second value


@pytest.mark.parametrize("values", [(1, 2.5), (2**53 + 1, 2.5), (-1, 2**63), (1, 10**30), (5e-324, 1)])
def test_listed_numbers_are_drawn_as_they_are_listed(values: tuple[int | float, ...]) -> None:
    drawn = Ordinal(name="x", values=values).draw(np.array([0.1, 0.9])).tolist()
    assert [(value, type(value)) for value in drawn] == [(value, type(value)) for value in values]


def test_numbers_wider_apart_than_the_largest_have_features() -> None:
    parameter = Ordinal(name="x", values=(-1.7e308, 0.0, 1.7e308))
    assert parameter.features(np.array(parameter.values))[:, 0].tolist() == [0.0, 0.5, 1.0]


def test_an_integer_range_too_long_to_list_is_drawn_without_listing_it() -> None:
    parameter = Integer(name="x", low=0, high=10**15, step=7)
    assert parameter.levels is None
    drawn = parameter.draw(np.array([0.0, 0.5, 0.999999]))
    assert drawn[0] == 0
    assert all(value % 7 == 0 for value in drawn)


def test_a_log_scale_spends_half_of_the_draws_below_the_geometric_mean() -> None:
    unit = (np.arange(1000) + 0.5) / 1000
    assert np.mean(Float(name="x", low=1, high=10_000, log=True).draw(unit) < 100) == pytest.approx(0.5, abs=0.01)
    assert np.mean(Integer(name="x", low=1, high=10_000, log=True).draw(unit) < 100) == pytest.approx(0.53, abs=0.05)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Float(name="x", low=2, high=1), "low 2 is above high 1"),
        (lambda: Float(name="x", low=0, high=1, log=True), "above 0"),
        (lambda: Float(name="x", low=-1.7e308, high=1.7e308), "wider than the largest number"),
        (lambda: Float(name="x", low=1e6, high=1e6 + 1e-7), "too few numbers of 12 digits"),
        (lambda: Float(name="x", low=-1e6 - 1e-7, high=-1e6), "too few numbers of 12 digits"),
        (lambda: Float(name="x", low=0, high=1e-322), "too few numbers of 12 digits"),
        (lambda: Float(name="x", low=1e300, high=1e300 * (1 + 1e-15), log=True), "too few numbers of 12 digits"),
        (lambda: Float(name="x", low=0, high=math.inf), "finite"),
        (lambda: Float(name="x", low=0, high=10**400), "finite"),
        (lambda: Float(name="x", low=0, high=1, step=0), "step must be a finite number above 0"),
        (lambda: Float(name="x", low=0, high=1, step=-0.1), "step must be a finite number above 0"),
        (lambda: Float(name="x", low=0, high=1, step=math.inf), "step must be a finite number above 0"),
        (lambda: Float(name="x", low=1e6, high=2e6, step=1e-7), "a step of 1e-07 is too fine"),
        (lambda: Float(name="x", low=0, high=1e-300, step=5e-324), "too fine"),
        (lambda: Float(name="x", low=0, high=1, step=0.1, log=True), "above 0"),
        (lambda: Integer(name="x", low=-(10**400), high=1), "finite"),
        (lambda: Integer(name="x", low=0.5, high=1), "whole"),
        (lambda: Integer(name="x", low=0, high=1, step=0), "step"),
        (lambda: Integer(name="x", low=0, high=2.0**60), "go up to"),
        (lambda: Ordinal(name="x", values=()), "empty"),
        (lambda: Ordinal(name="x", values=(1, 1.0)), "listed twice"),
        (lambda: Ordinal(name="x", values=(1, math.inf)), "finite"),
        (lambda: Categorical(name="x", values=("a", "a")), "listed twice"),
        (lambda: Nodes(name="x", values=(0,)), "from 1"),
        (lambda: Nodes(name="x", values=(True,)), "from 1"),
        (lambda: Nodes(name="x", values=(1.5,)), "from 1"),
    ],
)
def test_nonsense_is_refused(make: Callable[[], Parameter], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        make()


@pytest.mark.parametrize(
    ("parameter", "value", "wanted"),
    [
        (Integer(name="x", low=1, high=9, step=2), "5", 5),
        (Integer(name="x", low=1, high=9), 5.0, 5),
        (Float(name="x", low=0, high=1), 1, 1.0),
        (Float(name="x", low=0, high=1, step=0.05), "0.15", 0.15),
        (Float(name="x", low=0, high=1, step=0.05), 3 * 0.05, 0.15),
        (Float(name="x", low=0, high=0.3, step=0.1), 0.1 + 0.2, 0.3),
        (Ordinal(name="x", values=(1, 2.5)), "2.5", 2.5),
        (Categorical(name="x", values=(True, False)), "true", True),
        (Categorical(name="x", values=("gzip", "BZ2")), "bz2", "BZ2"),
        (Nodes(name="x", values=(1, 2)), "2", 2),
        (Nodes(name="x", values=(1, 2)), "2.0", 2),
        (Categorical(name="x", values=(True, False)), "no", False),
        (Categorical(name="x", values=("yes", "no")), "no", "no"),
        (Categorical(name="x", values=("1.1", "1.10")), "1.10", "1.10"),
        (Categorical(name="x", values=(1000, "1e3")), "1e3", "1e3"),
    ],
)
def test_values_from_a_command_line_are_understood(parameter: Parameter, value: Value, wanted: Value) -> None:
    got = parameter.coerce(value)
    assert (got, type(got)) == (wanted, type(wanted))


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        (Integer(name="x", low=1, high=9, step=2), 4),
        (Integer(name="x", low=1, high=9), 1.5),
        (Integer(name="x", low=1, high=9), 10),
        (Integer(name="x", low=1, high=9), True),
        (Integer(name="x", low=-(2**53), high=2**53), 2**53 + 1),
        (Integer(name="x", low=-(2**53), high=2**53, step=2), 1),
        (Float(name="x", low=0, high=1, step=0.05), 0.16),
        (Float(name="x", low=0, high=1, step=0.05), 1.05),
        (Float(name="x", low=0, high=1, step=0.3), 1.0),
        (Float(name="x", low=0, high=1), "fast"),
        (Float(name="x", low=0, high=1), math.nan),
        (Float(name="x", low=0, high=1), 1.01),
        (Categorical(name="x", values=("a", "b")), "c"),
        (Ordinal(name="x", values=(0, 1)), True),
        (Categorical(name="x", values=("1.10", "2.0")), 1.1),
        (Categorical(name="x", values=("1.10", "2.0")), "2"),
        (Categorical(name="x", values=(1, 2)), "two"),
    ],
)
def test_values_outside_are_refused_with_what_is_wanted(parameter: Parameter, value: Value) -> None:
    with pytest.raises(ConfigurationError, match=r"x=.* is not in the space \(wanted "):
        parameter.coerce(value)


def test_instances_are_described_by_what_differs(make_offer: Callable[..., Offer]) -> None:
    offers = {
        "a": make_offer("a", 1, 0.1, category="general", facts={"disk": 10.0, "net": "slow"}),
        "b": make_offer("b", 4, 0.4, category="compute", facts={"disk": 20.0}),
        "c": make_offer("c", 2, 0.2, category="memory", facts={"disk": 40.0}),
    }
    instance = Instance(name="instance", values=tuple(offers), offers=offers)
    names = instance.feature_names()
    assert names == (
        "instance.vcpu",
        "instance.price",
        "instance.category=compute",
        "instance.category=general",
        "instance.category=memory",
        "instance.disk",
    )
    table = instance.features(np.array(["a", "b", "c"], dtype=object))
    assert table[:, 0].tolist() == [0, 1, 0.5]  # 1, 4 and 2 vCPU on a log scale
    assert instance.features(np.array([], dtype=object)).shape == (0, 6)
    assert instance.fact(np.array(["c", "a"], dtype=object), "vcpu").tolist() == [2, 1]
    assert instance.facts("net").tolist()[0] == "slow"
    with pytest.raises(SpecError, match="no offer has this fact"):
        instance.facts("colour")


def test_offers_that_differ_by_name_only_are_told_apart(make_offer: Callable[..., Offer]) -> None:
    offers = {"a": make_offer("a"), "b": make_offer("b")}
    instance = Instance(name="i", values=("a", "b"), offers=offers)
    assert instance.feature_names() == ("i=a", "i=b")
    spots = {"a": make_offer("a"), "b": make_offer("b", spot=True)}
    assert Instance(name="i", values=("a", "b"), offers=spots).feature_names() == ("i.spot",)


def test_values_are_described_shortly() -> None:
    assert Integer(name="x", low=1, high=64, log=True).describe() == "1 to 64 (log)"
    assert Integer(name="x", low=1, high=9, step=3).describe() == "1 to 7 in steps of 3"
    assert Integer(name="x", low=1, high=1234567).describe() == "1 to 1234567"
    assert Float(name="x", low=1, high=1.0000005).describe() == "1 to 1.0000005"
    assert Float(name="x", low=0.1, high=1, step=0.2, log=True).describe() == "0.1 to 0.9 in steps of 0.2 (log)"
    assert Ordinal(name="x", values=tuple(range(20))).describe().endswith("6, 7…")
    assert Categorical(name="x", values=("a", "b", "c")).feature_names() == ("x=a", "x=b", "x=c")
    assert Float(name="x", low=1, high=1).levels is not None
    assert Float(name="x", low=1, high=1).level(0) == 1.0
    assert Float(name="x", low=1, high=2).levels is None


def test_what_models_see_of_thousands_of_offers_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    offers = {
        f"t{i}": Offer("cloud", f"t{i}", 1 + i % 7, 4.0, 0.1 + i, facts={"maker": f"m{i % 5}"}) for i in range(50)
    }
    instance = Instance(name="instance", values=tuple(offers), offers=offers)
    looked_at: list[str] = []

    def counting(offers: Iterable[Offer], name: str) -> list[float | str | None]:
        looked_at.append(name)
        return attributes_of(offers, name)

    monkeypatch.setattr("tradewind.problem.columns.named_offers.attributes_of", counting)
    first = instance.features(np.array(["t7", "t0"], dtype=object))
    once = [*looked_at]
    assert len(once) == 10  # nine facts that all have, and their own
    assert (instance.features(np.array(["t7", "t0"], dtype=object)) == first).all()
    assert first.shape == (2, len(instance.feature_names())) == (2, 7)
    assert looked_at == once
    assert replace(instance, name="other").feature_names()[0] == "other.vcpu"
