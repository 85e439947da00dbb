"""Whatever the rules and the order of events: a run that fits on some node starts in the end."""

from __future__ import annotations

import heapq
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tenancy.allocators import cluster, policy

from tradewind import plugins
from tradewind.tenancy import events as ev
from tradewind.tenancy.allocator import Allocator

FAIRNESS = ("drf", "fair_share", "fifo", "strict")
PRIORITIES = ("dynamic", "fifo", "gain", "least_attained")
NODES = {"a": {"cpu": 4.0}, "b": {"cpu": 2.0}, "c": {"cpu": 1.0}}


class _Outside:
    """Carries out instructions on a clock of its own: a started run ends after some seconds."""

    def __init__(self, allocator: Allocator, chance: random.Random) -> None:
        self.allocator, self.chance, self.now = allocator, chance, 0.0
        self.ends: list[tuple[float, str, str]] = []
        self.started: dict[str, float] = {}
        self.wake = float("inf")

    def feed(self, *events: ev.AllocatorEvent) -> None:
        for each in self.allocator.handle_all(events, self.now):
            match each:
                case ev.StartRun(request, job, _):
                    self.started[request] = self.now
                    heapq.heappush(self.ends, (self.now + self.chance.uniform(0.5, 5.0), request, job))
                case ev.WakeAt(at):
                    self.wake = min(self.wake, at)

    def step(self) -> tuple[str, str] | None:
        """Go to what comes next; the run that has ended then and its search, or None."""
        if self.wake <= (self.ends[0][0] if self.ends else float("inf")):
            self.now, self.wake = max(self.now, self.wake), float("inf")
            self.feed(ev.AllocatorTick())
            return None
        self.now, request, job = heapq.heappop(self.ends)
        self.feed(
            ev.RequestEnded(request),
            *([ev.ResultReported(job, self.chance.random(), 1.0)] if job in self.allocator.jobs else []),
        )
        return request, job


def allocator_of(fairness: str, priority: str) -> Allocator:
    """Three nodes and three tenants under some rules."""
    rules = type(plugins.create("fairness", fairness, {})), type(plugins.create("priority", priority, {}))
    made = cluster(NODES, {"A": 1.0, "B": 2.0, "C": 0.5}, policy(*rules))
    made.handle(ev.TenantSet("C", 0.5, 3), 0.0)
    return made


_ACTION = st.tuples(st.integers(0, 6), st.integers(0, 3), st.sampled_from([1.0, 2.0, 3.0, 4.0]))


@pytest.mark.parametrize("priority", PRIORITIES)
@pytest.mark.parametrize("fairness", FAIRNESS)
@settings(max_examples=15, deadline=None)
@given(actions=st.lists(_ACTION, max_size=40), seed=st.integers(0, 99))
def test_all_that_waits_starts_in_the_end(
    fairness: str, priority: str, actions: list[tuple[int, int, float]], seed: int
) -> None:
    allocator = allocator_of(fairness, priority)
    outside, asked = _Outside(allocator, random.Random(seed)), set[str]()
    for number in range(4):
        outside.feed(ev.JobSubmitted(f"j{number}", "ABCA"[number]))
    for moment, (what, number, cpu) in enumerate(actions):
        job, node = f"j{number}", "abc"[number % 3]
        match what:
            case 0 | 1 | 2:
                asked.add(f"{job}/{moment}")
                outside.feed(ev.RequestMade(job, f"{job}/{moment}", {"cpu": cpu}))
            case 3:
                outside.feed(ev.JobPaused(job))
            case 4:
                outside.feed(ev.JobReniced(job, number), ev.JobResumed(job))
            case 5:
                outside.feed(ev.NodeLost(node))
            case 6 if outside.ends:
                outside.step()
    outside.feed(*(ev.NodeJoined(node, has) for node, has in NODES.items()))
    outside.feed(*(ev.JobResumed(f"j{number}") for number in range(4)))
    for _ in range(2000):
        if not outside.ends and outside.wake == float("inf"):
            break
        outside.step()
    assert asked <= set(outside.started)
    assert not allocator.requests


@pytest.mark.slow
@pytest.mark.parametrize("priority", PRIORITIES)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), large=st.sampled_from([2.0, 3.0, 4.0]))
def test_a_large_run_starts_beside_an_endless_stream_of_small_ones(priority: str, seed: int, large: float) -> None:
    outside = _Outside(allocator_of("drf", priority), random.Random(seed))
    outside.feed(ev.JobSubmitted("small", "A"), ev.JobSubmitted("large", "B"))
    outside.feed(*(ev.RequestMade("small", f"s{i}", {"cpu": 1.0}) for i in range(12)))
    outside.feed(ev.RequestMade("large", "it", {"cpu": large}))
    count = 12
    while "it" not in outside.started and outside.now < 200.0:
        if outside.step() is not None:
            count += 1
            outside.feed(ev.RequestMade("small", f"s{count}", {"cpu": 1.0}))
    # Its patience, and then until the node that is kept for it is empty.
    patience = outside.allocator.policy.patience
    assert "it" in outside.started
    assert outside.started["it"] <= patience + 2 * 5.0
