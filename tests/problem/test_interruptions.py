"""What interruptions add to a run, held against a simulation of them."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.problem import Interruptions, Offer
from tradewind.problem.offer import hourly_interruptions, interruptions_note, with_interruptions

HOUR = 3600.0
SPOT = Offer("aws", "m5.large", 2, 8, 0.03, spot=True)


def simulated(rate: float, work: float, setup: float, checkpoint: float | None, draw: random.Random) -> float:
    """Seconds for which the machines of one run are paid, its interruptions drawn one after the other."""
    total = done = 0.0
    while True:
        alive = draw.expovariate(rate)
        left = work - done
        if alive >= setup + left:
            return total + setup + left
        total += alive
        if checkpoint is not None and alive > setup:
            done += math.floor((done % checkpoint + alive - setup) / checkpoint) * checkpoint


@pytest.mark.parametrize(
    ("per_hour", "work", "setup", "checkpoint"),
    [
        (0.5, HOUR, 0.0, None),
        (0.5, HOUR, 120.0, None),
        (2.0, HOUR, 300.0, 600.0),
        (2.0, HOUR, 60.0, 700.0),
        (1.0, 500.0, 60.0, 600.0),
    ],
)
def test_the_expected_time_is_that_of_a_simulation(
    per_hour: float, work: float, setup: float, checkpoint: float | None
) -> None:
    draw = random.Random(7)
    times = [simulated(per_hour / HOUR, work, setup, checkpoint, draw) for _ in range(20_000)]
    mean = sum(times) / len(times)
    spread = math.sqrt(sum((one - mean) ** 2 for one in times) / len(times))
    found = Interruptions(per_hour, checkpoint).expected_seconds(work, setup)
    assert found == pytest.approx(mean, abs=4.0 * spread / math.sqrt(len(times)))


@given(st.floats(1e-6, 3.0), st.floats(0.0, 1e5), st.floats(0.0, 600.0), st.one_of(st.none(), st.floats(30.0, 1e4)))
def test_the_inverse_undoes_it(per_hour: float, work: float, setup: float, checkpoint: float | None) -> None:
    rule = Interruptions(per_hour, checkpoint)
    expected = rule.expected_runtime(work, setup)
    assert expected >= work * (1 - 1e-9) - 1e-12  # of a work of 5e-324 s nothing is left
    if math.isfinite(expected):
        assert rule.work_within(expected, setup) == pytest.approx(work, rel=1e-6, abs=1e-6)


@given(st.floats(1e-3, 3.0), st.floats(1.0, 1e4), st.floats(0.0, 600.0))
def test_checkpoints_never_cost_time_and_longer_runs_more(per_hour: float, work: float, setup: float) -> None:
    anew = Interruptions(per_hour).expected_runtime(work, setup)
    assert Interruptions(per_hour, work / 4).expected_runtime(work, setup) <= anew * (1 + 1e-9)
    assert Interruptions(per_hour).expected_runtime(work * 1.01, setup) > anew


def test_what_never_ends_is_infinite_and_stays_so() -> None:
    assert Interruptions(100.0).expected_runtime(1e9) == math.inf
    assert Interruptions(1.0).work_within(math.inf) == math.inf


def test_of_many_machines_one_is_taken_sooner() -> None:
    one = Offer("aws", "m5.large", 2, 8, 0.03, spot=True, interruptions_per_hour=0.01)
    assert one.times(16).interruptions() == Interruptions(0.16)
    assert one.interruptions(600.0) == Interruptions(0.01, 600.0)


def test_nothing_is_expected_on_demand_or_of_what_nobody_knows() -> None:
    assert SPOT.interruptions() is None
    assert Offer("aws", "m5.large", 2, 8, 0.1, interruptions_per_hour=0.5).interruptions() is None


def test_a_share_of_a_month_is_a_rate() -> None:
    assert 1.0 - math.exp(-730.0 * hourly_interruptions(0.075)) == pytest.approx(0.075)
    assert hourly_interruptions(0.0) == 0.0


def test_the_word_of_the_user_is_for_what_the_catalogue_does_not_know() -> None:
    known = Offer("aws", "m5.xlarge", 4, 16, 0.06, spot=True, interruptions_per_hour=0.002)
    firm = Offer("aws", "m5.large", 2, 8, 0.1)
    found = with_interruptions([SPOT, known, firm], 0.05)
    assert [one.interruptions_per_hour for one in found] == [0.05, 0.002, None]
    assert with_interruptions([SPOT], None) == [SPOT]


def test_what_is_not_known_is_said() -> None:
    assert "not known (m5.large)" in interruptions_note([SPOT])
    assert "expected with interruptions" in interruptions_note(with_interruptions([SPOT], 0.05))
    assert interruptions_note([Offer("aws", "m5.large", 2, 8, 0.1)]) == ""
