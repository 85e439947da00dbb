"""The allocator: shares, quotas, Cores, lost nodes, and what must hold whatever happens."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import share
from tests.tenancy.allocators import asks, cluster, policy, started

from tradewind.errors import InputError
from tradewind.tenancy import events as ev
from tradewind.tenancy.allocator import Allocator
from tradewind.tenancy.fairness.base import Fairness
from tradewind.tenancy.fairness.drf import DrfFairness
from tradewind.tenancy.fairness.fair_share import FairShareFairness
from tradewind.tenancy.fairness.fifo import FifoFairness
from tradewind.tenancy.fairness.strict import StrictFairness
from tradewind.tenancy.inspection.reasons import dominant_shares, usage, why_waiting
from tradewind.tenancy.priority.dynamic import DynamicPriority
from tradewind.tenancy.priority.expected_gain import GainPriority
from tradewind.tenancy.priority.fifo import FifoPriority


def test_the_example_of_the_drf_paper() -> None:
    allocator = cluster({"n": {"cpu": 9, "memory": 18}}, ["A", "B"])
    out = allocator.handle_all(
        [
            ev.JobSubmitted("a", "A"),
            ev.JobSubmitted("b", "B"),
            *asks("a", 9, {"cpu": 1, "memory": 4}),
            *asks("b", 9, {"cpu": 3, "memory": 1}),
        ],
        0.0,
    )
    # Ghodsi et al., section 4.1: three tasks of A, two of B; both have a dominant share of two thirds.
    assert Counter(name[0] for name in started(out)) == {"a": 3, "b": 2}
    assert dominant_shares(allocator) == pytest.approx({"A": 2 / 3, "B": 2 / 3})
    # The order is that of its table 1, from B's first task on; ties there go to B, here to who came first.
    assert started(out) == ["a0", "b0", "a1", "b1", "a2"]


def test_the_example_of_paper_4() -> None:
    allocator = cluster({"agent": {"cpu": 4, "memory": 4}}, ["one", "two"])
    events: list[ev.AllocatorEvent] = [
        ev.JobSubmitted("x", "one"),
        ev.JobSubmitted("y", "two"),
        ev.RequestMade("x", "x0", {"cpu": 2, "memory": 1}),
        ev.RequestMade("x", "x1", {"cpu": 1, "memory": 2}),
    ]
    assert started(allocator.handle_all(events, 0.0)) == ["x0", "x1"]
    assert allocator.pool.free("agent") == {"cpu": 1.0, "memory": 1.0}
    assert started(allocator.handle(ev.RequestMade("y", "y0", {"cpu": 1, "memory": 1}), 1.0)) == ["y0"]


def filled(
    weights: dict[str, float], demands: list[dict[str, float]], rounds: int = 300, **how: Any
) -> dict[str, float]:
    """Mean dominant shares while runs end one after the other, the oldest first."""
    allocator = cluster({f"n{i}": {"cpu": 32, "memory": 128} for i in range(20)}, weights, policy(**how))
    running: list[str] = []
    numbers = {name: itertools.count() for name in weights}
    demand = dict(zip(weights, itertools.cycle(demands), strict=False))

    def ask(name: str) -> ev.AllocatorEvent:
        return ev.RequestMade(name, f"{name}/{next(numbers[name])}", demand[name])

    events: list[ev.AllocatorEvent] = [ev.JobSubmitted(name, name) for name in weights]
    running += started(allocator.handle_all([*events, *(ask(name) for name in weights for _ in range(700))], 0.0))
    total: Counter[str] = Counter()
    for moment in range(rounds):
        ending = running.pop(0)
        running += started(
            allocator.handle_all([ev.RequestEnded(ending), ask(ending.partition("/")[0])], float(moment))
        )
        total.update(dominant_shares(allocator))
    return {name: total[name] / rounds for name in weights}


@pytest.mark.slow
def test_two_tenants_of_unequal_demands_have_equal_dominant_shares() -> None:
    found = filled({"cpu": 1.0, "memory": 1.0}, [{"cpu": 4, "memory": 2}, {"cpu": 1, "memory": 16}])
    assert found["cpu"] == pytest.approx(found["memory"], rel=0.02)
    assert found["cpu"] > 0.6


@pytest.mark.slow
def test_shares_follow_weights() -> None:
    found = filled({"one": 1.0, "two": 2.0, "three": 3.0}, [{"cpu": 1, "memory": 4}])
    assert [found["two"] / found["one"], found["three"] / found["one"]] == pytest.approx([2.0, 3.0], rel=0.02)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    st.tuples(st.integers(1, 4), st.integers(1, 8)),
    st.tuples(st.integers(1, 4), st.integers(1, 8)),
    st.tuples(st.integers(0, 3), st.integers(0, 6)),
)
def test_who_asks_for_more_than_it_needs_does_not_run_more(
    mine: tuple[int, int], other: tuple[int, int], lie: tuple[int, int]
) -> None:
    def runs(demand: tuple[int, int]) -> int:
        allocator = cluster({"n": {"cpu": 96, "memory": 192}}, ["me", "other"])
        events = [ev.JobSubmitted("m", "me"), ev.JobSubmitted("o", "other")]
        mine_ = asks("m", 100, {"cpu": demand[0], "memory": demand[1]})
        others = asks("o", 100, {"cpu": other[0], "memory": other[1]})
        out = allocator.handle_all([*events, *mine_, *others], 0.0)
        return sum(name.startswith("m") for name in started(out))

    honest, lying = runs(mine), runs((mine[0] + lie[0], mine[1] + lie[1]))
    # Runs cannot be divided: the end of the filling may give one more.
    assert lying <= honest + 1


def test_quota_holds_and_refuses_what_can_never_run() -> None:
    allocator = cluster({"n": {"cpu": 16, "memory": 64}}, [])
    allocator.handle(ev.TenantSet("A", quota={"cpu": 4}), 0.0)
    allocator.handle(ev.JobSubmitted("a", "A"), 0.0)
    assert started(allocator.handle_all(asks("a", 5, {"cpu": 2}), 0.0)) == ["a0", "a1"]
    assert why_waiting(allocator, "a") == "tenant A uses its quota"
    assert started(allocator.handle(ev.RequestEnded("a0"), 1.0)) == ["a2"]
    refused = allocator.handle(ev.RequestMade("a", "big", {"cpu": 5}), 1.0)
    assert refused == [ev.RequestRefused("big", "a", "it takes 5 CPUs, and tenant A has a quota of 4 CPUs")]
    assert started(allocator.handle(ev.TenantSet("A"), 2.0)) == ["a3", "a4"]


def test_what_no_node_can_ever_hold_is_refused_where_no_other_node_can_come() -> None:
    for grows in (True, False):
        allocator = cluster({"n": {"cpu": 4, "memory": 8}}, ["A"], policy(more={"grows": grows}))
        allocator.handle(ev.JobSubmitted("a", "A"), 0.0)
        out = allocator.handle(ev.RequestMade("a", "big", {"cpu": 8, "memory": 1}), 0.0)
        if grows:
            assert started(out) == []
            assert why_waiting(allocator, "a") == "no node is large enough for 8 CPUs, 1 GiB of memory"
        else:
            why = "it takes 8 CPUs, 1 GiB of memory, and this cluster has no node that is large enough"
            assert out == [ev.RequestRefused("big", "a", why)]


def test_strict_priority_and_first_come_first_served() -> None:
    allocator = cluster({"n": {"cpu": 2}}, [], policy(StrictFairness))
    allocator.handle_all([ev.TenantSet("low"), ev.TenantSet("high", priority=5)], 0.0)
    events = [ev.JobSubmitted("l", "low"), ev.JobSubmitted("h", "high")]
    out = allocator.handle_all([*events, *asks("l", 2, {"cpu": 1}), *asks("h", 2, {"cpu": 1})], 0.0)
    assert started(out) == ["h0", "h1"]
    allocator = cluster({"n": {"cpu": 2}}, ["A", "B"], policy(FifoFairness))
    events = [ev.JobSubmitted("b", "B"), ev.JobSubmitted("a", "A")]
    out = allocator.handle_all([*events, *asks("a", 3, {"cpu": 1}), *asks("b", 3, {"cpu": 1})], 0.0)
    assert started(out) == ["b0", "b1"]
    assert started(allocator.handle_all([ev.RequestEnded("b0"), ev.RequestEnded("b1")], 1.0)) == ["b2", "a0"]


def test_nice_goes_before_the_policy() -> None:
    allocator = cluster({"n": {"cpu": 1}}, ["A"])
    events: list[ev.AllocatorEvent] = [ev.JobSubmitted("a", "A"), ev.JobSubmitted("b", "A", nice=-1)]
    assert started(allocator.handle_all([*events, *asks("a", 1, {"cpu": 1}), *asks("b", 2, {"cpu": 1})], 0.0)) == ["b0"]
    allocator.handle(ev.JobReniced("b", 3), 1.0)
    assert started(allocator.handle(ev.RequestEnded("b0"), 1.0)) == ["a0"]


def test_cores_never_leave_runs_without_a_place() -> None:
    nodes = {f"agent{i}": {"cpu": 12, "memory": 20} for i in range(3)}
    allocator = cluster(nodes, ["A"], policy(more={"core_reserve": 1.0}))
    submitted = [
        ev.JobSubmitted(f"j{i}", "A", {"cpu": 1, "memory": 1}, {"cpu": 4, "memory": 5}) for i in range(40)
    ]  # paper 4's cluster and jobs: 27 Cores would leave 3 CPUs on each agent
    out = allocator.handle_all(submitted, 0.0)
    cores = [each for each in out if isinstance(each, ev.StartCore)]
    assert 27 <= len(cores) < 40
    assert started(allocator.handle(ev.RequestMade(cores[0].job, "r", {"cpu": 4, "memory": 5}), 1.0)) == ["r"]
    waits = next(job.view.job for job in allocator.jobs.values() if not job.admitted)
    assert why_waiting(allocator, waits) == "its Core waits for a place"
    out = allocator.handle(ev.JobEnded(cores[-1].job), 2.0)
    assert [type(each) for each in out] == [ev.StartCore]


def test_cores_leave_room_for_runs_of_searches_without_one() -> None:
    """What those take is known from what they ask for, also while nothing of it waits or runs."""
    allocator = cluster({"n": {"cpu": 4}}, ["A", "B"])
    allocator.handle_all([ev.JobSubmitted("a", "A"), *asks("a", 1, {"cpu": 4})], 0.0)
    assert allocator.handle(ev.JobSubmitted("b", "B", {"cpu": 1}), 0.0) == []
    assert allocator.handle(ev.RequestEnded("a0"), 1.0) == []
    assert started(allocator.handle_all(asks("a", 1, {"cpu": 4}, 1), 2.0)) == ["a1"]
    out = allocator.handle_all([ev.RequestEnded("a1"), ev.JobEnded("a")], 3.0)
    assert out == [ev.StartCore("b", "n")]


def test_runs_that_no_node_holds_beside_their_own_core_are_refused() -> None:
    allocator = cluster({"n": {"cpu": 4}}, ["A"])
    allocator.handle(ev.JobSubmitted("j", "A", {"cpu": 1}, {"cpu": 4}), 0.0)
    (refused,) = allocator.handle_all(asks("j", 1, {"cpu": 4}), 0.0)
    assert refused == ev.RequestRefused(
        "j0", "j", "it takes 4 CPUs beside the 1 CPU of its Core, and no node is large enough for both"
    )
    (refused,) = allocator.handle_all([ev.TenantSet("A", quota={"cpu": 3}), *asks("j", 1, {"cpu": 3}, 1)], 0.0)
    assert refused == ev.RequestRefused(
        "j1", "j", "it takes 3 CPUs beside the 1 CPU of its Core, and tenant A has a quota of 3 CPUs"
    )


def test_a_search_that_has_run_waits_for_its_nodes() -> None:
    allocator = cluster({"a": {"cpu": 4}, "b": {"cpu": 4}}, ["A"])
    allocator.handle(ev.JobSubmitted("j", "A", {"cpu": 1}, {"cpu": 4}), 0.0)
    node = allocator.jobs["j"].core_node
    assert len(started(allocator.handle_all(asks("j", 1, {"cpu": 4}), 0.0))) == 1
    allocator.handle_all([ev.RequestEnded("j0"), ev.ResultReported("j", 1.0, 1.0)], 1.0)
    allocator.handle(ev.NodeLost("b" if node == "a" else "a"), 1.0)
    assert allocator.handle_all(asks("j", 1, {"cpu": 4}, 1), 2.0) == [ev.WakeAt(32.0)]
    assert why_waiting(allocator, "j") == "Cores leave no node that is large enough for 4 CPUs"


def test_cores_keep_to_their_reserve() -> None:
    allocator = cluster({"n": {"cpu": 8, "memory": 8}}, ["A"])
    out = allocator.handle_all([ev.JobSubmitted(f"j{i}", "A", {"cpu": 1}, {"cpu": 1}) for i in range(9)], 0.0)
    assert len(out) == 2


def test_lost_nodes_lose_their_runs_and_cores_only() -> None:
    allocator = cluster({"a": {"cpu": 2}, "b": {"cpu": 2}}, ["A"])
    out = allocator.handle_all([ev.JobSubmitted("j", "A", {"cpu": 1}), *asks("j", 3, {"cpu": 1})], 0.0)
    core = next(each for each in out if isinstance(each, ev.StartCore))
    other = "b" if core.node == "a" else "a"
    out = allocator.handle(ev.NodeLost(core.node), 1.0)
    assert ev.CoreLost("j", core.node) in out
    lost = {each.request for each in out if isinstance(each, ev.RunLost)}
    assert len(lost) == 1
    assert lost | set(allocator.requests) == {"j0", "j1", "j2"}
    assert all(request.node in (other, None) for request in allocator.requests.values())
    assert allocator.handle(ev.NodeLost("never there"), 1.0) == []


def test_drained_nodes_take_nothing_more() -> None:
    allocator = cluster({"a": {"cpu": 2}}, ["A"])
    allocator.handle(ev.JobSubmitted("j", "A"), 0.0)
    assert started(allocator.handle_all(asks("j", 1, {"cpu": 1}), 0.0)) == ["j0"]
    allocator.handle(ev.NodeDrained("a"), 1.0)
    assert started(allocator.handle_all(asks("j", 1, {"cpu": 1}, first=1), 1.0)) == []
    assert started(allocator.handle(ev.NodeJoined("a", {"cpu": 2}), 2.0)) == ["j1"]


def test_a_large_run_is_not_starved_by_small_ones() -> None:
    allocator = cluster(
        {"a": {"cpu": 4}, "b": {"cpu": 4}}, {"small": 1.0, "large": 1.0}, policy(more={"patience": 10.0})
    )
    allocator.handle_all([ev.JobSubmitted("s", "small"), ev.JobSubmitted("l", "large")], 0.0)
    running = started(allocator.handle_all(asks("s", 200, {"cpu": 1}), 0.0))
    out = allocator.handle(ev.RequestMade("l", "whole", {"cpu": 4}), 0.0)
    assert ev.WakeAt(10.0) in out
    for second in range(1, 100):
        found = started(allocator.handle(ev.RequestEnded(running.pop(0)), float(second)))
        if "whole" in found:
            break
        running += found
    assert 10 < second < 20


def test_a_search_that_stands_still_gives_way_as_long_as_another_one_waits() -> None:
    how = policy(priority=DynamicPriority, sample=2, multiple=0, threshold=0.5, declines=2, idle_rounds=2)
    allocator = cluster({"n": {"cpu": 1}}, ["A"], how)
    allocator.handle_all([ev.JobSubmitted("still", "A"), ev.JobSubmitted("gains", "A")], 0.0)
    allocator.handle_all([ev.ResultReported("still", 1.0, 1.0), ev.ResultReported("still", 1.1, 1.0)], 0.0)
    # It falls behind the other one, and declines two offers; the other takes them.
    assert started(allocator.handle_all([*asks("still", 1, {"cpu": 1}), *asks("gains", 2, {"cpu": 1})], 0.0)) == [
        "gains0"
    ]
    assert started(allocator.handle(ev.RequestEnded("gains0"), 1.0)) == ["gains1"]
    assert why_waiting(allocator, "still") == "it has stopped improving and gives way"
    out = allocator.handle(ev.RequestEnded("gains1"), 2.0)
    assert started(out) == ["still0"], "nobody else waits: nothing is left idle"
    assert how.priority.key(allocator.jobs["still"].view)[0] == 0


def test_a_search_that_stands_still_declines_until_nobody_takes() -> None:
    """Another one waits, but for more than there is: what was declined stays idle for some rounds."""
    how = policy(priority=DynamicPriority, sample=2, multiple=0, threshold=0.5, declines=2, idle_rounds=2)
    allocator = cluster({"n": {"cpu": 2}}, ["A"], how)
    allocator.handle_all([ev.JobSubmitted("still", "A"), ev.JobSubmitted("large", "A")], 0.0)
    assert started(allocator.handle_all(asks("large", 2, {"cpu": 1}), 0.0)) == ["large0", "large1"]
    allocator.handle_all(asks("still", 1, {"cpu": 1}), 0.0)
    allocator.handle(ev.RequestMade("large", "whole", {"cpu": 2}), 0.0)
    allocator.handle_all([ev.ResultReported("still", 1.0, 1.0), ev.ResultReported("still", 1.1, 1.0)], 1.0)
    out = allocator.handle(ev.RequestEnded("large0"), 2.0)
    assert started(out) == []
    assert ev.WakeAt(3.0) in out
    found: list[str] = []
    for second in range(3, 8):
        found += started(allocator.handle(ev.AllocatorTick(), float(second)))
    assert found == ["still0"]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_flat_search_that_is_alone_runs_as_under_first_come_first_served(restarted: bool) -> None:
    ended = {}
    for rule in (DynamicPriority, FifoPriority):
        allocator = cluster({"n": {"cpu": 2}}, ["A"], policy(priority=rule))
        told = [ev.ResultReported("flat", 1.0, 1.0)] * (100 if restarted else 0)
        recalled = {"results": 100, "fallen": 5, "idle": 0} if restarted else {}
        events = [ev.JobSubmitted("flat", "A", recalled=recalled), *told, *asks("flat", 200, {"cpu": 1})]
        running = started(allocator.handle_all(events, 0.0))
        now = 0.0
        while running:
            now += 0.5
            result = ev.ResultReported("flat", 1.0, 1.0)
            running += started(allocator.handle_all([ev.RequestEnded(running.pop(0)), result], now))
        ended[rule] = allocator.decisions, now
    assert ended[DynamicPriority] == ended[FifoPriority] == (200, 100.0)


def test_expected_gain_orders_searches() -> None:
    """One run of each search comes first; then the search of short runs is preferred until it has had enough."""
    allocator = cluster({"n": {"cpu": 1}}, ["A"], policy(priority=GainPriority, usual=2.0))
    allocator.handle_all([ev.JobSubmitted(name, "A") for name in "ab"], 0.0)
    out = allocator.handle_all([*asks("a", 9, {"cpu": 1}), *asks("b", 9, {"cpu": 1})], 0.0)
    order, took, now = started(out), {"a": 3.0, "b": 1.0}, 0.0
    for _ in range(8):
        job = order[-1][0]
        now += took[job]
        order += started(
            allocator.handle_all([ev.RequestEnded(order[-1]), ev.ResultReported(job, 1.0, took[job])], now)
        )
    # After its first result `a` comes to (2 + 1) * 3 = 9, and `b` to (2 + n) * 1: `b` goes on while that is less,
    # and at n = 7 they are even, which the order of submission settles.
    assert [each[0] for each in order] == ["a", *"bbbbbbb", "a"]


def test_expected_gain_learns_how_long_runs_take_with_one_run() -> None:
    allocator = cluster({"n": {"cpu": 3}}, ["A"], policy(priority=GainPriority))
    allocator.handle_all([ev.JobSubmitted(name, "A") for name in "abc"], 0.0)
    events = [event for name in "abc" for event in asks(name, 4, {"cpu": 1})]
    assert started(allocator.handle_all(events, 0.0)) == ["a0", "b0", "c0"]
    # Whoever has a result goes before those that have none and are running.
    assert started(allocator.handle_all([ev.RequestEnded("b0"), ev.ResultReported("b", 1.0, 50.0)], 50.0)) == ["b1"]


def test_usage_is_amount_times_seconds() -> None:
    allocator = cluster({"n": {"cpu": 4, "memory": 8}}, ["A"])
    allocator.handle_all([ev.JobSubmitted("j", "A"), *asks("j", 2, {"cpu": 2, "memory": 1})], 10.0)
    allocator.handle(ev.RequestEnded("j0"), 15.0)
    assert usage(allocator, "A", 20.0) == {"cpu": 2 * 5 + 2 * 10, "memory": 5 + 10}


def test_pausing_withdrawing_and_ending() -> None:
    allocator = cluster({"n": {"cpu": 1}}, ["A"])
    allocator.handle_all([ev.JobSubmitted("j", "A"), *asks("j", 3, {"cpu": 1})], 0.0)
    allocator.handle(ev.JobPaused("j"), 1.0)
    assert started(allocator.handle(ev.RequestEnded("j0"), 1.0)) == []
    assert why_waiting(allocator, "j") == "it is paused"
    assert started(allocator.handle(ev.JobResumed("j"), 2.0)) == ["j1"]
    assert allocator.handle(ev.RequestWithdrawn("j2"), 3.0) == []
    assert allocator.handle(ev.RequestWithdrawn("j1"), 3.0) == [ev.StopRun("j1", "j", "n")]
    assert allocator.handle(ev.RequestWithdrawn("j1"), 3.0) == []
    assert allocator.pool.free("n") == {}  # what is being stopped still takes its place
    assert allocator.handle(ev.JobEnded("j"), 4.0) == []
    allocator.handle(ev.RequestEnded("j1"), 5.0)
    assert allocator.pool.free("n") == {"cpu": 1.0}
    assert not allocator.requests
    assert not allocator.tenants["A"].jobs


def test_runs_go_ahead_into_the_queue_of_an_engine() -> None:
    allocator = cluster({"a": {"cpu": 2}, "b": {"cpu": 2}}, ["A"], policy(more={"ahead": 1}))
    out = allocator.handle_all([ev.JobSubmitted("j", "A"), *asks("j", 9, {"cpu": 1})], 0.0)
    assert started(out) == [f"j{number}" for number in range(6)]  # four have room, and one waits for each node
    assert allocator.pool.free("a") == {}
    assert started(allocator.handle(ev.RequestEnded("j0"), 1.0)) == ["j6"]
    allocator.handle(ev.RequestWithdrawn("j7"), 1.0)
    # Whichever the engine began: of each node as many end as were placed there.
    ends = [ev.RequestEnded(f"j{number}") for number in (1, 2, 3, 4, 5, 6)]
    assert started(allocator.handle_all(ends, 2.0)) == ["j8"]
    allocator.handle(ev.RequestEnded("j8"), 3.0)
    assert [allocator.pool.free(node) for node in "ab"] == [{"cpu": 2.0}, {"cpu": 2.0}]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_so_many_go_ahead_of_each_node_and_none_where_it_cannot_run(count: int) -> None:
    nodes = {"a": {"cpu": 2}, "small": {"cpu": 1}, "b": {"cpu": 2}, "closed": {"cpu": 2}}
    allocator = cluster(nodes, ["A"], policy(more={"ahead": count}))
    allocator.handle(ev.NodeDrained("closed"), 0.0)
    allocator.handle_all([ev.JobSubmitted("j", "A"), *asks("j", 20, {"cpu": 2})], 1.0)
    placed = Counter(request.node for request in allocator.jobs["j"].running.values())
    assert placed == {"a": 1 + count, "b": 1 + count}


def test_what_goes_ahead_counts_against_quota_and_share() -> None:
    allocator = cluster({"n": {"cpu": 4}}, [], policy(more={"ahead": 2}))
    allocator.handle_all([ev.TenantSet("A", quota={"cpu": 5}), ev.TenantSet("B")], 0.0)
    events = [ev.JobSubmitted("a", "A"), ev.JobSubmitted("b", "B")]
    out = allocator.handle_all([*events, *asks("a", 9, {"cpu": 1})], 0.0)
    assert started(out) == ["a0", "a1", "a2", "a3", "a4"]
    assert dominant_shares(allocator)["A"] == 5 / 4
    # The last place in the queue is for who has less.
    out = allocator.handle_all([*asks("b", 2, {"cpu": 1})], 1.0)
    assert started(out) == ["b0"]
    assert started(allocator.handle(ev.RequestEnded("a0"), 2.0)) == ["b1"]


def test_a_large_run_waits_ahead_for_the_node_that_could_hold_it() -> None:
    allocator = cluster({"small": {"cpu": 2}, "large": {"cpu": 8}}, ["A"], policy(more={"ahead": 1}))
    allocator.handle_all([ev.JobSubmitted("s", "A"), *asks("s", 9, {"cpu": 1})], 0.0)
    allocator.handle_all([ev.RequestWithdrawn("s8"), ev.RequestEnded("s0")], 1.0)
    allocator.handle_all([ev.JobSubmitted("l", "A"), *asks("l", 2, {"cpu": 8})], 2.0)
    assert [request.node for request in allocator.jobs["l"].running.values()] == ["large"]


@pytest.mark.parametrize(
    ("event", "says"),
    [
        (ev.JobSubmitted("k", "nobody"), "there is no tenant 'nobody'"),
        (ev.RequestMade("none", "r", {"cpu": 1}), "there is no search 'none'"),
        (ev.RequestMade("j", "r", {"tpu": 1}), "there is no resource 'tpu'"),
        (ev.RequestMade("j", "r", {"cpu": -1}), "is no amount"),
        (ev.JobSubmitted("j", "A"), "there is a search j already"),
        (ev.TenantSet("A", weight=0.0), "a weight of 0.0 is none"),
    ],
)
def test_what_is_not_known_is_told(event: ev.AllocatorEvent, says: str) -> None:
    allocator = cluster({"n": {"cpu": 1}}, ["A"])
    allocator.handle(ev.JobSubmitted("j", "A"), 0.0)
    with pytest.raises(InputError, match=says):
        allocator.handle(event, 1.0)


def test_adopted_runs_count_and_unknown_nodes_are_passed_over() -> None:
    allocator = cluster({"n": {"cpu": 2}}, ["A"])
    allocator.handle(ev.JobSubmitted("j", "A"), 0.0)
    allocator.handle(ev.RequestAdopted("j", "old", {"cpu": 2}, "n"), 0.0)
    assert started(allocator.handle_all(asks("j", 1, {"cpu": 1}), 0.0)) == []
    assert started(allocator.handle(ev.RequestEnded("old"), 1.0)) == ["j0"]
    assert allocator.handle(ev.RequestAdopted("j", "lost", {"cpu": 2}, "gone"), 0.0) == []


class _Outside:
    """Carries out instructions, and checks after each event what must hold."""

    def __init__(self, allocator: Allocator) -> None:
        self.allocator, self.running, self.ended = allocator, dict[str, str](), set[str]()
        self.asked: set[str] = set()
        self.nodes: dict[str, dict[str, float]] = {}

    def feed_and_check(self, event: ev.AllocatorEvent, now: float) -> None:
        for each in self.allocator.handle(event, now):
            match each:
                case ev.StartRun(request, _, node):
                    assert request not in self.running
                    assert request not in self.ended
                    assert node in self.nodes
                    self.running[request] = node
                case ev.RunLost(request, _, _):
                    del self.running[request]
                    self.ended.add(request)
        self.check()

    def check(self) -> None:
        known = {each.id: each.node for each in self.allocator.requests.values() if each.node is not None}
        assert known == self.running
        for node, capacity in self.nodes.items():
            used = sum(r.demand[0] for r in self.allocator.requests.values() if r.node == node)
            cores = sum(job.core[0] for job in self.allocator.jobs.values() if job.core_node == node)
            assert used + cores <= capacity["cpu"] + 1e-9
            assert self.allocator.pool.free(node).get("cpu", 0.0) == pytest.approx(capacity["cpu"] - used - cores)
        for tenant in self.allocator.tenants.values():
            mine = [each for each in self.allocator.requests.values() if each.job.tenant is tenant]
            used = sum(each.demand[0] for each in mine if each.node or each.booked)
            used += sum(job.core[0] for job in self.allocator.jobs.values() if job.tenant is tenant and job.core_node)
            assert tenant.used[0] == pytest.approx(used)
            assert used <= tenant.quota[0] + 1e-9


_ACTIONS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5), st.integers(1, 4)), max_size=80)


@pytest.mark.slow
@pytest.mark.parametrize("fairness", [DrfFairness, FairShareFairness])
@settings(max_examples=share(90), deadline=None)
@given(actions=_ACTIONS)
def test_whatever_happens_nothing_is_overbooked_or_forgotten(
    fairness: type[Fairness], actions: list[tuple[int, int, int]]
) -> None:
    how = policy(fairness, DynamicPriority, sample=2, multiple=0, more={"patience": 3.0})
    outside = _Outside(Allocator(how))
    jobs: list[str] = []
    for name, quota in (("A", {}), ("B", {"cpu": 5.0})):
        outside.feed_and_check(ev.TenantSet(name, quota=quota), 0.0)
    for moment, (what, which, size) in enumerate(actions, 1):
        job = jobs[which % len(jobs)] if jobs else None
        run = sorted(outside.running)[which % len(outside.running)] if outside.running else None
        event: ev.AllocatorEvent | None = None
        if what == 0:
            if f"n{which}" in outside.nodes:
                continue
            outside.nodes[f"n{which}"] = {"cpu": 2.0 * size}
            event = ev.NodeJoined(f"n{which}", {"cpu": 2.0 * size})
        elif what == 1 and f"n{which}" in outside.nodes:
            del outside.nodes[f"n{which}"]
            event = ev.NodeLost(f"n{which}")
        elif what == 2:
            jobs.append(f"j{moment}")
            event = ev.JobSubmitted(jobs[-1], "AB"[which % 2], {"cpu": which % 2}, {"cpu": size})
        elif what in (3, 4, 5) and job:
            event = ev.RequestMade(job, f"r{moment}", {"cpu": size})
        elif what == 6 and run:
            outside.ended.add(run)
            del outside.running[run]
            event = ev.RequestEnded(run)
        elif what == 7 and job:
            event = ev.ResultReported(job, float(size), 1.0)
        elif what == 8 and job:
            jobs.remove(job)
            event = ev.JobEnded(job)
        elif what == 9:
            event = ev.AllocatorTick() if which % 2 or not run else ev.RequestWithdrawn(run)
        if event is not None:
            outside.feed_and_check(event, float(moment))
