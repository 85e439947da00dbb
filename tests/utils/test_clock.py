from __future__ import annotations

import time

import pytest

from tradewind.utils.clock import Clock, SimulatedClock, SteadyClock, SystemClock


def test_real_time_passes_by_itself() -> None:
    clock: Clock = SystemClock()
    before = clock.now()
    clock.sleep(0.01)
    clock.sleep(-1)
    assert clock.now() - before >= 0.009
    assert clock.now() == pytest.approx(time.time(), abs=1)


def test_simulated_time_jumps_and_never_goes_back() -> None:
    clock = SimulatedClock(100)
    start = time.perf_counter()
    clock.sleep(3600)
    clock.sleep(-5)
    assert clock.now() == 3700
    clock.advance_to(5000)
    clock.advance_to(4000)
    assert clock.now() == 5000
    assert time.perf_counter() - start < 60  # an hour was slept


class Clocks:
    """The clock on the wall, which is set, and the one that is not."""

    def __init__(self) -> None:
        self.awake = 100.0
        self.ahead = 1e9
        self.steady = SteadyClock(lambda: self.awake + self.ahead, lambda: self.awake)

    def after(self, seconds: float, ahead: float = 0.0) -> float:
        """What the time is so many seconds later, with the wall's clock ahead by so much; since the beginning."""
        self.awake += seconds
        self.ahead = 1e9 + ahead
        return self.steady.now() - (1e9 + 100.0)


@pytest.mark.parametrize("wrong", [86400.0, -3600.0])
def test_a_clock_that_is_wrong_for_a_moment_changes_nothing(wrong: float) -> None:
    clocks = Clocks()
    assert clocks.after(10.0) == 10.0
    assert clocks.after(0.25, wrong) == 10.25
    assert clocks.after(0.25) == 10.5
    assert clocks.after(500.0, wrong) == 510.5
    assert clocks.after(599.0, wrong) == 1109.5
    assert clocks.after(5.0, 2 * wrong) == 1114.5, "it is set once more: what it says is not sure yet"
    assert clocks.after(1e6) == 1001114.5


@pytest.mark.parametrize("right", [86400.0, -3600.0])
def test_a_clock_that_was_set_for_good_is_followed(right: float) -> None:
    clocks = Clocks()
    assert clocks.after(1.0, right) == 1.0
    assert clocks.after(600.0, right) == 601.0 + right
    assert clocks.after(1.0, right) == 602.0 + right
    assert clocks.after(1.0, right + 0.5) == 603.0 + right, "a little is no other time"
