from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tradewind import plugins
from tradewind.errors import InterpretationError, SpecError
from tradewind.problem import Offer
from tradewind.testing.interpreters import make_output

OFFER = Offer("aws", "c5.large", 2, 4.0, 0.25, nodes=4)


def compute(folder: Path, score: float = 10.0, offer: Offer = OFFER, **given: Any) -> dict[str, float]:
    interpreter = plugins.create("interpreter", "price_ratio", {"metric": "score", **given}, base=folder)
    output = make_output(folder, {}, offer=offer, cost=0.5)
    return dict(interpreter.interpret(output, {"score": score, "cost": 0.5}))


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, {"score_per_hourly": 10.0}),
        ({"by": "price_per_hour"}, {"score_per_price_per_hour": 40.0}),
        ({"by": "cost", "as": "value"}, {"value": 20.0}),
        ({"mode": "multiply"}, {"score_times_hourly": 10.0}),
        ({"mode": "multiply", "by": "price_per_hour"}, {"score_times_price_per_hour": 2.5}),
        ({"mode": "weighted", "metric_weight": 2, "price_weight": 3, "by": "cost"}, {"score_minus_cost": 18.5}),
    ],
)
def test_a_metric_against_the_price(tmp_path: Path, given: dict[str, Any], wanted: dict[str, float]) -> None:
    assert compute(tmp_path, **given) == pytest.approx(wanted)


def test_what_cannot_be_computed_is_typed(tmp_path: Path) -> None:
    free = Offer("local", "free", 1, 1.0, 0.0)
    for given, reason in (
        ({"offer": free}, "not-a-number"),
        ({"score": 1e308, "mode": "weighted", "metric_weight": 100}, "not-a-number"),
        ({"metric": "other"}, "no-match"),
    ):
        with pytest.raises(InterpretationError) as caught:
            compute(tmp_path, **given)
        assert caught.value.reason == reason


def test_settings_are_checked(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="by"):
        compute(tmp_path, by="runtime")
    with pytest.raises(SpecError, match="finite"):
        compute(tmp_path, metric_weight=float("nan"))
