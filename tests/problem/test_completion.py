"""What a configuration gets for the parameters that nobody gave."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tradewind.errors import ConfigurationError
from tradewind.problem import (
    Categorical,
    Expression,
    Float,
    Instance,
    Integer,
    Offer,
    Ordinal,
    Parameter,
    Problem,
)
from tradewind.problem.completion import completed

Make = Callable[..., Problem]

WORKERS = Ordinal(name="workers", values=(1, 2, 4, 8, 16))
CODEC = Categorical(name="codec", values=("gzip", "bz2"))
LEVEL = Integer(name="level", low=1, high=9, when=Expression('codec == "bz2"'))
RATE = Float(name="rate", low=0.01, high=1.0, log=True)


@pytest.fixture
def machine(machines: dict[str, Offer]) -> Instance:
    offers = {"large": machines["large"], "gone": machines["small"], "small": machines["small"]}
    return Instance(name="instance", values=tuple(offers), offers=offers)


@pytest.mark.parametrize("further", [(), (RATE,)], ids=["listed", "continuous"])
def test_what_is_left_open_gets_the_cheapest_machines_and_the_middle_of_each_scale(
    make_problem: Make, machine: Instance, further: tuple[Parameter, ...]
) -> None:
    problem = make_problem(machine, WORKERS, CODEC, LEVEL, *further)

    def found(**values: str | float) -> dict[str, object]:
        return {name: value for name, value in completed(problem, values).items() if name != "rate"}

    assert found() == {"instance": "small", "workers": 4, "codec": "gzip"}
    assert found(codec="bz2") == {"instance": "small", "workers": 4, "codec": "bz2", "level": 5}
    assert found(instance="large", workers="16") == {"instance": "large", "workers": 16, "codec": "gzip"}
    if further:
        assert completed(problem, {})["rate"] == pytest.approx(0.1)
        assert completed(problem, {"rate": 1})["rate"] == 1.0
    with pytest.raises(ConfigurationError, match="no configuration with instance=gone is allowed and sold"):
        completed(problem, {"instance": "gone"})
    with pytest.raises(ConfigurationError, match="no configuration with codec=gzip level=3 is allowed"):
        completed(problem, {"codec": "gzip", "level": 3})


@pytest.mark.parametrize("further", [(), (RATE,)], ids=["listed", "continuous"])
def test_constraints_are_kept_by_what_is_filled_in(
    make_problem: Make, machine: Instance, further: tuple[Parameter, ...]
) -> None:
    where = ["workers >= 8 or instance.vcpu >= 4"]
    problem = make_problem(machine, WORKERS, *further, where=where)
    assert completed(problem, {"workers": 2})["instance"] == "large"
    small = completed(problem, {"instance": "small"})
    assert small["workers"] in (8, 16)
    assert completed(problem, {}) == completed(problem, {}), "it is the same each time"


def test_what_is_given_wrongly_is_one_clear_error(make_problem: Make, machine: Instance) -> None:
    problem = make_problem(machine, WORKERS)
    with pytest.raises(ConfigurationError, match=r"there is no parameter 'worker' \(did you mean 'workers'\?\)"):
        completed(problem, {"worker": 2})
    with pytest.raises(ConfigurationError, match="workers=3 is not in the space"):
        completed(problem, {"workers": 3})
