from __future__ import annotations

import time

import pytest

from tradewind.clock import Clock, SimulatedClock, SystemClock


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
    assert time.perf_counter() - start < 1
