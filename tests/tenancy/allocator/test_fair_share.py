"""Shares over time whatever the sizes of runs, places that are kept, and the longest wait, in simulated time."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from tests.tenancy.allocators import asks, cluster, policy, started

from tradewind.tenancy import events as ev
from tradewind.tenancy.allocator import AllocationPolicy
from tradewind.tenancy.fairness.base import Fairness
from tradewind.tenancy.fairness.drf import DrfFairness
from tradewind.tenancy.fairness.fair_share import FairShareFairness
from tradewind.tenancy.inspection.reasons import longest_wait, why_waiting
from tradewind.tenancy.shared_cluster import cluster_snapshot
from tradewind.tenancy.simulator import ClusterSimulation, RecordedTrials, SimulatedJob, simulate
from tradewind.tenancy.views import TenantView

MEAN = 3.0
"""Seconds of a run in the mean."""

Demand = Mapping[str, float]


def fair() -> AllocationPolicy:
    """A policy of its own: the rule knows what tenants have used."""
    return policy(FairShareFairness)


def small(cpu: float) -> Demand:
    """A run that uses CPUs, and little memory."""
    return {"cpu": cpu, "memory": cpu / 4}


def simulated(
    demands: Sequence[Demand], weights: Sequence[float], *, varied: float, fairness: type[Fairness], runs: int = 45
) -> ClusterSimulation:
    """Two CPUs and 4 GiB on which each tenant always has work that waits, for so many mean run times."""
    rng = np.random.default_rng(7)
    jobs = []
    for name, demand in enumerate(demands):
        seconds = MEAN * np.clip(rng.normal(1.0, varied, 20 * runs), 0.2, 2.0)
        jobs.append(
            SimulatedJob(f"t{name}", f"t{name}", RecordedTrials([1.0] * len(seconds), list(seconds)), demand, 9)
        )
    tenants = [ev.TenantSet(f"t{name}", weight) for name, weight in enumerate(weights)]
    nodes = {"n": {"cpu": 2.0, "memory": 4.0}}
    return simulate(nodes, tenants, jobs, policy(fairness), until=(runs + 3) * MEAN, record=True)


def shares(found: ClusterSimulation, runs: int = 45) -> tuple[list[float], float]:
    """Each tenant's part of what all used in percent, and in the worst window of ten runs the distance from it."""

    def parts(begin: float, end: float) -> np.ndarray:
        used = np.array(list(found.used_between(begin * MEAN, end * MEAN).values()))
        return np.asarray(100 * used / used.sum())

    whole = parts(5, runs)
    windows = [parts(begin, begin + 10) for begin in np.arange(5, runs - 10, 0.5)]
    return whole.tolist(), max(np.abs(each - whole).max() for each in windows)


EXPERIMENTS = [
    ((small(1), small(0.5)), (4, 1)),
    ((small(0.25), small(2)), (1, 1)),
    ((small(1), small(1)), (4, 1)),
]
"""Sizes and weights with which dominant shares at each moment gave 48:48, 84:11 and 48:48."""


@pytest.mark.parametrize(("demands", "weights"), EXPERIMENTS)
def test_shares_are_as_the_weights_whatever_the_sizes(demands: tuple[Demand, ...], weights: tuple[int, ...]) -> None:
    wanted = [100 * weight / sum(weights) for weight in weights]
    found, worst = shares(simulated(demands, weights, varied=0.0, fairness=FairShareFairness))
    assert found == pytest.approx(wanted, abs=1.0)
    assert worst <= 3.0, "over any window of ten mean run times"
    found, _ = shares(simulated(demands, weights, varied=0.0, fairness=DrfFairness))
    if demands[1] != small(2):  # where one run has all of the cluster they take turns
        assert max(abs(a - b) for a, b in zip(found, wanted, strict=True)) > 10.0, "the rule of the paper does not"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "weights", "heavy"),
    [
        ((1, 0.5), (1, 4), "cpu"),
        ((0.25, 2), (1, 1), "cpu"),
        ((0.25, 2), (1, 4), "memory"),
        ((0.25, 2), (1, 4), "both"),
        ((0.5, 1, 2), (1, 2, 3), "cpu"),
        ((0.5, 0.25, 1), (1, 2, 3), "both"),
    ],
)
def test_shares_hold_with_runs_of_varied_lengths(
    sizes: tuple[float, ...], weights: tuple[float, ...], heavy: str
) -> None:
    """Single runs weigh in a window: where one has the whole cluster, more than a tenth of it may be its own."""
    memory = [heavy == "memory" or (heavy == "both" and place % 2 == 1) for place in range(len(sizes))]
    demands = [
        {"cpu": size / 4, "memory": 2 * size} if of_memory else small(size)
        for size, of_memory in zip(sizes, memory, strict=True)
    ]
    found, worst = shares(simulated(demands, weights, varied=0.2, fairness=FairShareFairness, runs=55), 55)
    assert found == pytest.approx([100 * weight / sum(weights) for weight in weights], abs=3.0)
    if heavy != "both":  # what is left of the one resource when the other is used up goes to who can use it
        assert worst <= 3.0 + 9.0 * max(sizes) / 2


@pytest.mark.parametrize("seed", range(8))
def test_no_tenant_is_off_by_more_than_the_cluster_does_in_twice_the_longest_run(seed: int) -> None:
    """Over any time, whatever the weights, the lengths and the sizes that divide a node."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 5))
    sizes, weights = rng.choice([0.25, 0.5, 1.0, 2.0], count), rng.integers(1, 6, count)
    means = np.exp(rng.uniform(0.0, np.log(5.0), count))
    jobs = []
    for number, (size, mean) in enumerate(zip(sizes, means, strict=True)):
        seconds = mean * np.clip(rng.normal(1.0, 0.25, 1200), 0.3, 2.0)
        trials = RecordedTrials([1.0] * len(seconds), list(seconds))
        jobs.append(SimulatedJob(f"t{number}", f"t{number}", trials, {"cpu": float(size)}, 20))
    tenants = [ev.TenantSet(f"t{number}", float(weight)) for number, weight in enumerate(weights)]
    runs = simulate({"n": {"cpu": 2.0}}, tenants, jobs, fair(), until=40.0 * max(means), record=True).runs
    began, ended, share = (np.array([getattr(run, name) for run in runs]) for name in ("began", "ended", "share"))
    whose = np.array([run.tenant for run in runs])
    moments = np.unique(ended[(ended > 5 * max(means)) & (ended < 37 * max(means))])
    each = np.clip(np.minimum(ended, moments[:, None]) - began, 0.0, None) * share
    used = np.array([each[:, whose == tenant.tenant].sum(axis=1) for tenant in tenants])
    off = used - (weights / weights.sum())[:, None] * used.sum(axis=0)
    assert np.ptp(off, axis=1).max() <= 2.0 * (ended - began).max()


def test_long_runs_that_wait_longer_than_the_patience_of_other_rules_take_no_turn_before_it_is_theirs() -> None:
    """A node was kept for whoever had no room for half a minute, due or not: 33 : 67 instead of 20 : 80."""
    jobs = [
        SimulatedJob(name, name, RecordedTrials([1.0] * 400, [seconds] * 400), {"cpu": cpu}, 9)
        for name, cpu, seconds in (("long", 0.5, 10.0), ("large", 2.0, 1.0))
    ]
    tenants = [ev.TenantSet("long", 1), ev.TenantSet("large", 4)]
    found = simulate({"n": {"cpu": 2.0}}, tenants, jobs, fair(), until=310.0, record=True)
    used = found.used_between(10.0, 310.0)
    assert used["large"] / sum(used.values()) == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize("came", [(0.1, 0.0, 0.2), (0.3, 0.2, 0.0)])
def test_who_needs_least_is_not_passed_over_by_places_kept_for_others(came: tuple[float, ...]) -> None:
    """Two that each need less of one thing had places kept at every end of a run: 25 : 50 : 25, for ever."""
    demands = ({"cpu": 0.25, "memory": 1.0}, {"cpu": 1.0, "memory": 1.0}, {"cpu": 0.5, "memory": 4.0})
    jobs = [
        SimulatedJob(f"t{n}", f"t{n}", RecordedTrials([1.0] * 900, [MEAN] * 900), demand, 8, submitted=moment)
        for n, (demand, moment) in enumerate(zip(demands, came, strict=True))
    ]
    tenants = [ev.TenantSet("t0", 3), ev.TenantSet("t1", 2), ev.TenantSet("t2", 1)]
    nodes = {"n": {"cpu": 2.0, "memory": 23.5}}
    found = simulate(nodes, tenants, jobs, fair(), until=50 * MEAN, record=True)
    used = found.used_between(8 * MEAN, 48 * MEAN)
    assert [used[f"t{n}"] / sum(used.values()) for n in range(3)] == pytest.approx([0.5, 0.333, 0.167], abs=0.015)


def test_small_long_runs_are_not_always_in_the_way_of_large_ones() -> None:
    """Beside each run of 1.22 CPUs three of 0.25 had room, and a place for 1 CPU was left beside them: 39 : 32 : 29."""
    rng = np.random.default_rng(43)
    jobs, tenants = [], []
    for name, cpu, mean, weight in (("a", 1.0, 2.6, 5), ("b", 1.22, 2.8, 4), ("c", 0.25, 9.0, 2)):
        seconds = mean * np.clip(rng.normal(1.0, 0.25, 200), 0.3, 2.0)
        jobs.append(SimulatedJob(name, name, RecordedTrials([1.0] * 200, seconds.tolist()), {"cpu": cpu}, 30))
        tenants.append(ev.TenantSet(name, weight))
    found = simulate({"m": {"cpu": 2.0}, "n": {"cpu": 2.0}}, tenants, jobs, fair(), until=130.0, record=True)
    used = found.used_between(20.0, 115.0)
    assert [100 * each / sum(used.values()) for each in used.values()] == pytest.approx([45.5, 36.4, 18.2], abs=3.0)
    assert sum(used.values()) > 0.75


@pytest.mark.slow
def test_many_tenants_get_their_shares() -> None:
    """A tenth of what the benchmark does, with Jain's index of weighted shares."""
    rng = np.random.default_rng(0)
    jobs = []
    for number in range(30):
        trials = RecordedTrials([1.0] * 200, rng.lognormal(0.0, 0.4, 200).tolist())
        demand = {"cpu": (1.0, 2.0, 4.0)[number % 3]}
        jobs.append(SimulatedJob(f"t{number}", f"t{number}", trials, demand, 20))
    tenants = [ev.TenantSet(f"t{number}", 1 + number % 2) for number in range(30)]
    found = simulate({f"n{i}": {"cpu": 16.0} for i in range(12)}, tenants, jobs, fair(), until=14.0, record=True)
    used = found.used_between(3.0, 13.0)
    weighted = np.array([used[each.tenant] / each.weight for each in tenants])
    assert weighted.sum() ** 2 / (len(weighted) * (weighted**2).sum()) >= 0.99
    assert sum(used.values()) > 0.9


def test_a_weight_means_something_with_one_run_each() -> None:
    """On one CPU, four runs of the one tenant go for one of the other, though neither has more than one."""
    found = simulated([{"cpu": 2.0}] * 2, (4, 1), varied=0.0, fairness=FairShareFairness)
    assert [each.tenant for each in found.runs[5:25]].count("t0") == 16


def test_a_place_is_kept_for_who_is_due_and_filled_by_runs_that_end_before() -> None:
    allocator = cluster({"n": {"cpu": 4}}, ["A", "B", "C"], fair())
    allocator.handle_all([ev.JobSubmitted(name.lower(), name) for name in "ABC"], 0.0)
    known = [ev.ResultReported("a", 1.0, 10.0), ev.ResultReported("b", 1.0, 10.0), ev.ResultReported("c", 1.0, 2.0)]
    allocator.handle_all(known, 0.0)
    assert started(allocator.handle_all(asks("a", 9, {"cpu": 1}), 0.0)) == ["a0", "a1", "a2", "a3"]
    assert started(allocator.handle_all(asks("b", 1, {"cpu": 4}), 1.0)) == []
    assert why_waiting(allocator, "b") == "a place is kept for it, which is not free yet"
    shown = cluster_snapshot(allocator, {}, {}, 1.0)["tenants"]
    assert [shown[name]["share"] for name in "ABC"] == [1.0, 0.0, 0.0], "who waits for a kept place uses nothing"
    assert started(allocator.handle(ev.RequestEnded("a0"), 5.0)) == [], "it is expected to be free at 10"
    assert started(allocator.handle_all(asks("c", 3, {"cpu": 1}), 5.0)) == ["c0"], "a run of two seconds ends before"
    assert started(allocator.handle(ev.RequestEnded("c0"), 8.0)) == [], "by now it is known to take three"
    for name, now in (("a1", 10.0), ("a2", 10.0)):
        assert started(allocator.handle(ev.RequestEnded(name), now)) == []
    assert started(allocator.handle(ev.RequestEnded("a3"), 10.0)) == ["b0"]


@pytest.mark.parametrize(
    "event",
    [
        ev.JobPaused("b"),
        ev.JobEnded("b"),
        ev.RequestWithdrawn("b0"),
        ev.NodeDrained("n"),
        ev.TenantSet("B", 1, 0, {"cpu": 3}),
    ],
)
def test_a_place_is_given_up_with_its_run(event: ev.AllocatorEvent) -> None:
    allocator = cluster({"n": {"cpu": 4}}, ["A", "B"], fair())
    allocator.handle_all([ev.JobSubmitted("a", "A"), ev.JobSubmitted("b", "B")], 0.0)
    allocator.handle_all(asks("a", 9, {"cpu": 1}), 0.0)
    allocator.handle_all(asks("b", 1, {"cpu": 4}), 1.0)
    assert started(allocator.handle(ev.RequestEnded("a0"), 2.0)) == []
    assert allocator.tenants["B"].used[0] == 4.0
    out = allocator.handle(event, 3.0)
    assert started(out) == ([] if isinstance(event, ev.NodeDrained) else ["a4"])
    assert allocator.tenants["B"].used[0] == 0.0


def test_who_comes_back_begins_where_others_stand() -> None:
    """A tenant that was alone owes nothing for it, and one that was away is owed nothing."""
    allocator = cluster({"n": {"cpu": 1}}, ["A", "B"], fair())
    allocator.handle_all([ev.JobSubmitted("a", "A"), ev.JobSubmitted("b", "B"), *asks("a", 200, {"cpu": 1})], 0.0)
    order = ["a0"]
    for second in range(1, 101):
        more = asks("b", 40, {"cpu": 1}) if second == 50 else []
        order += started(allocator.handle_all([ev.RequestEnded(order[-1]), *more], float(second)))
    assert sum(name.startswith("b") for name in order[50:70]) == pytest.approx(10, abs=1)


def test_what_is_past_counts_half_after_the_half_life() -> None:
    rule = FairShareFairness(settings=FairShareFairness.Settings(half_life=10.0))
    views = [TenantView("early"), TenantView("late"), TenantView("new")]
    rule.used(views[0], 4.0, 0.0)
    rule.used(views[1], 2.0, 10.0)
    assert rule.key(views[0]) == pytest.approx(rule.key(views[1]))
    rule.used(views[0], -4.0, 0.0)
    assert rule.key(views[0]) == rule.key(views[2]), "a use that is taken back leaves nothing"
    far = FairShareFairness(settings=FairShareFairness.Settings(half_life=1e-3))
    far.used(views[0], 1.0, 0.0)
    far.used(views[1], 1.0, 1e6)
    assert far.key(views[0]) < far.key(views[1]), "numbers stay small however long it goes on"


def test_a_run_that_takes_longer_than_it_was_expected_to_counts_as_it_goes_on() -> None:
    allocator = cluster({"n": {"cpu": 2}}, ["A", "B"], fair())
    allocator.handle_all([ev.JobSubmitted("a", "A"), ev.JobSubmitted("b", "B")], 0.0)
    allocator.handle_all([ev.ResultReported(name, 1.0, 1.0) for name in "ab"], 0.0)
    assert started(allocator.handle_all([*asks("a", 9, {"cpu": 1}), *asks("b", 30, {"cpu": 1})], 0.0)) == ["a0", "b0"]
    order, now = ["b0"], 0.0
    while now < 20.0:  # `a0` goes on and on: meanwhile all other places are b's
        now += 1.0
        order += started(allocator.handle(ev.RequestEnded(order[-1]), now)) or [order[-1]]
    assert all(name.startswith("b") for name in order)


def test_what_an_engine_needs_to_begin_a_run_is_nobodys_use() -> None:
    """Places are held for four seconds and programs run for one, or for all four: those count four times as much."""
    allocator = cluster({"n": {"cpu": 1}}, ["A", "B"], fair())
    allocator.handle_all([ev.JobSubmitted("a", "A"), ev.JobSubmitted("b", "B")], 0.0)
    order = started(allocator.handle_all([*asks("a", 99, {"cpu": 1}), *asks("b", 99, {"cpu": 1})], 0.0))
    for turn in range(1, 61):
        job = order[-1][0]
        result = ev.ResultReported(job, 1.0, {"a": 1.0, "b": 4.0}[job])
        order += started(allocator.handle_all([ev.RequestEnded(order[-1]), result], 4.0 * turn))
    assert [name[0] for name in order[10:60]].count("a") == pytest.approx(40, abs=1)


@pytest.mark.parametrize("weights", [(1, 1, 1), (1, 2, 4)])
@pytest.mark.parametrize("seed", range(3))
def test_no_run_waits_longer_than_is_said(weights: tuple[int, ...], seed: int) -> None:
    """What is said when a run begins to be its tenant's next holds, whatever the sizes and how the lengths vary."""
    rng = np.random.default_rng(seed)
    sizes = {"A": 0.25, "B": 2.0, "C": 1.0}
    allocator = cluster(
        {"n": {"cpu": 2.0}, "m": {"cpu": 2.0}}, dict(zip(sizes, map(float, weights), strict=True)), fair()
    )
    allocator.handle_all([ev.JobSubmitted(name, name) for name in sizes], 0.0)
    ends: list[tuple[float, str]] = []
    said: dict[str, float] = {}
    number, now, checked = 0, 0.0, 0

    def ask(name: str) -> ev.AllocatorEvent:
        nonlocal number
        number += 1
        return ev.RequestMade(name, f"{name}{number}", {"cpu": sizes[name]}, None, None, 5.0)

    def feed(*events: ev.AllocatorEvent) -> None:
        nonlocal checked
        for request in started(allocator.handle_all(events, now)):
            checked += request[0] in said
            assert now <= said.pop(request[0], now) + 1e-9
            heapq.heappush(ends, (now + float(rng.uniform(1.0, 5.0)), request))
        for name in sizes:
            if (most := longest_wait(allocator, name, now)) is not None and name not in said:
                said[name] = now + most

    feed(*(ask(name) for name in sizes for _ in range(9)))
    for _ in range(150):
        now, ended = heapq.heappop(ends)
        feed(ev.RequestEnded(ended), ask(ended[0]))
    assert checked > 50


def test_no_longest_wait_is_said_where_none_is_known() -> None:
    for how in (fair(), policy()):
        allocator = cluster({"n": {"cpu": 1}}, ["A", "B"], how)
        allocator.handle_all([ev.JobSubmitted("a", "A"), ev.JobSubmitted("b", "B")], 0.0)
        allocator.handle_all([*asks("a", 3, {"cpu": 1}), *asks("b", 3, {"cpu": 1})], 0.0)
        assert longest_wait(allocator, "A", 0.0) is None, "nobody knows how long runs of b take"
