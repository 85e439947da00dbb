from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tradewind.errors import SpecError
from tradewind.problem import Categorical, Float, Instance, Integer, Offer, Parameter, Space
from tradewind.problem.expression import Expression
from tradewind.problem.space import reject_division_by_zero

N = Integer(name="n", low=0, high=4)
M = Integer(name="m", low=1, high=3)


def refuse(parameters: Sequence[Parameter], *where: str) -> None:
    reject_division_by_zero(Space(parameters, [Expression(text) for text in where]))


def test_a_divisor_that_is_always_zero() -> None:
    with pytest.raises(SpecError, match=r"'n <= 1 / 0' divides by zero, whatever is chosen \(correct it\)"):
        refuse([N], "n <= 1 / 0")


@pytest.mark.parametrize("text", ["m / n > 2", "m // n > 2", "m % n == 0", "abs(m / n) > 2", "2 < m / n < 3"])
def test_a_divisor_that_may_be_zero(text: str) -> None:
    with pytest.raises(SpecError, match=r"divides by zero where m=1, n=0 \(leave that value out"):
        refuse([M, N], text)


@pytest.mark.parametrize(
    "text",
    ["n == 0 or m / n > 2", "n != 0 and m / n > 2", "m / n > 2 if n > 0 else true", "not (n > 0 and m / n > 2)"],
)
def test_what_stands_in_front_of_a_division_guards_it(text: str) -> None:
    refuse([M, N], text)


def test_a_guard_of_something_else_is_none() -> None:
    with pytest.raises(SpecError, match="m=2, n=0"):
        refuse([M, N], "m == 1 or m / n > 2")


def test_another_constraint_guards_it_in_any_order() -> None:
    refuse([M, N], "m / n > 2", "n > 0")


def test_a_parameter_that_is_not_there_is_no_divisor() -> None:
    used = Categorical(name="used", values=("yes", "no"))
    refuse([used, Integer(name="n", low=1, high=4, when=Expression("used == 'yes'"))], "8 / n > 2")


def test_a_condition_that_divides() -> None:
    with pytest.raises(SpecError, match="divides by zero where n=0"):
        refuse([N, Integer(name="m", low=1, high=3, when=Expression("8 / n > 2"))])


def test_a_range_that_cannot_be_listed_is_tried_at_its_ends_and_at_zero() -> None:
    with pytest.raises(SpecError, match="x=0"):
        refuse([Float(name="x", low=-2, high=2)], "1 / x > 0")
    with pytest.raises(SpecError, match=r"x=2\.0"):
        refuse([Float(name="x", low=0, high=2)], "1 / (x - 2) > 0")
    refuse([Float(name="x", low=0.5, high=2)], "1 / x > 0")


def test_a_range_that_can_be_listed_is_tried_in_full_beside_one_that_cannot() -> None:
    one = Integer(name="n", low=1, high=10)
    with pytest.raises(SpecError, match=r"n=5"):
        refuse([one, Float(name="x", low=1, high=2)], "8 / (n - 5) > x")
    refuse([one, Float(name="x", low=1, high=2)], "8 / (n - 11) > x")
    huge = Integer(name="h", low=1, high=1_500_000)
    with pytest.raises(SpecError, match=r"n=5"):  # the longest one is tried at its ends
        refuse([one, huge], "h / (n - 5) > 1")
    with pytest.raises(SpecError, match=r"h=1500000"):
        refuse([one, huge], "n / (h - 1500000) > 1")


def test_a_power_below_zero_is_a_division() -> None:
    for text in ("n ** -1 > 2", "n ** -0.5 > 2", "n ** (m - 2) > 2"):
        with pytest.raises(SpecError, match=r"divides by zero where.* n=0"):
            refuse([M, N], text)
    refuse([M, N], "n == 0 or n ** -1 > 2")
    refuse([M, N], "n ** m > 2")
    refuse([M, N], "n ** 0 > 0", "n ** 2 > 0", "m / n > 0.1")


def test_a_fact_that_is_zero() -> None:
    offers = {
        name: Offer("aws", name, 4, 16.0, 0.2, region="r", gpus=gpus) for name, gpus in (("plain", 0), ("fast", 1))
    }
    instance = Instance(name="instance", values=tuple(offers), offers=offers)
    with pytest.raises(SpecError, match="instance=plain"):
        refuse([instance], "instance.memory / instance.gpus < 20")
    refuse([instance], "instance.gpus == 0 or instance.memory / instance.gpus < 20")


def test_every_row_is_told() -> None:
    found = Expression("a / b > 1 and 1 / (a - 1) > 0").divides_by_zero(
        {"a": np.array([1, 2, 3, 0]), "b": np.array([0, 1, 0, 1])}, lambda name, fact: np.zeros(4), 4
    )
    # The first has 0 as a divisor; the last one's quotient is 0, so that what stands behind `and` does not matter.
    assert found.tolist() == [True, False, True, False]
