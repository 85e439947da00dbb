"""What a Core does by itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tradewind.problem import Limits, Offer, Run, RunRequest, Trial
from tradewind.store.cluster import JobRow
from tradewind.tenancy.core import limited
from tradewind.testing.stores import trial


@pytest.mark.parametrize(
    ("demand", "cpus", "memory"),
    [
        ({}, 8.0, 16 * 2**30),
        ({"cpu": 4.0}, 2.0, 16 * 2**30),
        ({"memory": 1.0, "licence": 1.0}, 8.0, 2**29),
        ({"cpu": 0.0}, 8.0, 16 * 2**30),
    ],
)
def test_what_an_owner_says_of_a_run_is_shared_by_its_nodes(
    demand: Mapping[str, float], cpus: float, memory: int
) -> None:
    offer = Offer("local", "two", 8.0, 16.0, 0.0, nodes=2)

    def make(trial: Trial, run: Run, wall_seconds: float | None) -> RunRequest:
        limits = Limits(8.0, 16 * 2**30, wall_seconds, 1000)
        return RunRequest(run.run_id, "tw", 0.0, ("true",), Path(), Path(), offer, trial.configuration, limits=limits)

    job = JobRow(1, "A", "wide", {}, {"demand": demand})
    made = limited(make, job)(trial(0, 1.0), Run("r", 0, 1), 60.0)
    assert made.limits == Limits(cpus, memory, 60.0, 1000)
    assert made.offer == offer
