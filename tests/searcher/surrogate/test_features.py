"""Features of configurations for models."""

from __future__ import annotations

import math

import pytest

from tradewind.problem import Categorical, Float, Instance, Integer, Nodes, Offer, Ordinal, Parameter
from tradewind.searcher.surrogate.features import FeatureMap
from tradewind.testing.problems import KnownOutcome, make_problem

SOLD = {f"m{n}": Offer("cloud", f"m{n}", vcpu=n, memory_gib=4.0 * n, price_per_hour=0.05 * n) for n in (1, 2, 8)}


@pytest.mark.parametrize(
    ("parameter", "ratios"),
    [
        (Ordinal(name="x", values=(1, 2, 32)), [32.0]),
        (Ordinal(name="x", values=(0, 2, 32)), [1.0]),
        (Ordinal(name="x", values=("low", "high")), [1.0]),
        (Categorical(name="x", values=(1, 2, 32)), [1.0, 1.0, 1.0]),
        (Integer(name="x", low=1, high=16, log=True), [16.0]),
        (Integer(name="x", low=1, high=16), [1.0]),
        (Float(name="x", low=0.5, high=50.0, log=True, step=0.5), [100.0]),
        (Nodes(name="x", values=(1, 2, 4)), [4.0]),
    ],
    ids=lambda one: one.describe() if isinstance(one, Parameter) else "",
)
def test_the_range_of_each_logarithm_is_known(parameter: Parameter, ratios: list[float]) -> None:
    problem = make_problem([parameter], lambda *_: KnownOutcome(1.0))
    found = FeatureMap(problem, problem.candidates).log_widths
    assert found[: len(ratios)] == pytest.approx([0.5 * math.log(ratio) for ratio in ratios])


def test_the_range_of_facts_and_totals_of_machines_is_known() -> None:
    instance = Instance(name="instance", values=tuple(SOLD), offers=SOLD)
    problem = make_problem([instance, Nodes(name="nodes", values=(1, 2, 4))], lambda *_: KnownOutcome(1.0))
    made = FeatureMap(problem, problem.candidates)
    assert made.log_widths == pytest.approx([0.5 * math.log(ratio) for ratio in (8.0, 4.0, 32.0)])
    assert made.of_candidates(problem.candidates).shape[1] == 3
