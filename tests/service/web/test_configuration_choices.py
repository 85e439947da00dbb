"""The inputs of an own configuration."""

from __future__ import annotations

import pytest

from tradewind.problem import Float, Integer
from tradewind.service.web.configuration_choices import _part


@pytest.mark.parametrize(
    ("parameter", "bounds"),
    [
        (Float(name="x", low=0, high=1, step=0.3), (0, 0.9, 0.3)),
        (Float(name="x", low=0, high=1), (0, 1.0, None)),
        (Integer(name="x", low=1, high=9), (1, 9, 1)),
        (Integer(name="x", low=1, high=9, step=3), (1, 7, 3)),
    ],
)
def test_an_input_takes_the_steps_of_its_range(parameter: Float | Integer, bounds: tuple[float, ...]) -> None:
    part = _part(parameter, "")
    assert (part.low, part.high, part.step) == bounds
    assert not part.options
